//! CubeCL's side: its runtime on wgpu, on the adapter that the runtime's side has, with a device as CubeCL asks for one.
//!
//! Kernels are launched in CubeCL's checked mode. It bounds loops, turns wgpu's checks of indices off and has its own for some
//! of them, and leaves memory of work-groups as it is; the other side has all of wgpu's checks, and zeros.

use cubecl::prelude::*;
use cubecl::server::Handle;
use cubecl::wgpu::{RuntimeOptions, WgpuSetup, try_init_device};
use cubecl::{client::Client, future::block_on, server::ServerError};

use crate::Error;
use crate::side::Side;
use crate::work::Work;

#[cube(launch)]
fn increment(data: &mut [u32]) {
    if ABSOLUTE_POS < data.len() {
        data[ABSOLUTE_POS] += 1;
    }
}

#[cube(launch)]
fn saxpy(x: &[f32], y: &mut [f32]) {
    if ABSOLUTE_POS < y.len() {
        y[ABSOLUTE_POS] += 1.5 * x[ABSOLUTE_POS];
    }
}

#[cube(launch)]
fn reduce(x: &[f32], sums: &mut [f32]) {
    let mut part = Shared::<[f32]>::new_slice(256usize);
    let i = UNIT_POS as usize;
    part[i] = x[CUBE_POS_X as usize * 256 + i];
    sync_cube();
    let mut half = 128usize;
    while half > 0 {
        if i < half {
            part[i] += part[i + half];
        }
        sync_cube();
        half /= 2;
    }
    if i == 0 {
        sums[CUBE_POS_X as usize] = part[0];
    }
}

#[cube(launch)]
fn histogram(x: &[u32], bins: &[Atomic<u32>]) {
    bins[(x[ABSOLUTE_POS] & 255) as usize].fetch_add(1u32);
}

#[cube(launch)]
fn matmul(a: &[f32], b: &[f32], c: &mut [f32]) {
    let mut ta = Shared::<[f32]>::new_slice(256usize);
    let mut tb = Shared::<[f32]>::new_slice(256usize);
    let (lx, ly) = (UNIT_POS_X as usize, UNIT_POS_Y as usize);
    let row = CUBE_POS_Y as usize * 16 + ly;
    let column = CUBE_POS_X as usize * 16 + lx;
    let mut sum = 0.0f32;
    for t in 0..16usize {
        ta[ly * 16 + lx] = a[row * 256 + t * 16 + lx];
        tb[ly * 16 + lx] = b[(t * 16 + ly) * 256 + column];
        sync_cube();
        for k in 0..16usize {
            sum += ta[ly * 16 + k] * tb[k * 16 + lx];
        }
        sync_cube();
    }
    c[row * 256 + column] = sum;
}

/// Follows indices, since the language has no pointers: a value and the index of the next node in turn.
#[cube(launch)]
fn chase(nodes: &[u32], starts: &[u32], out: &mut [u32]) {
    let mut at = starts[ABSOLUTE_POS] as usize;
    let mut sum = 0u32;
    for _ in 0..2000u32 {
        sum += nodes[at * 2];
        at = nodes[at * 2 + 1] as usize;
    }
    out[ABSOLUTE_POS] = sum;
}

#[cube(launch)]
fn private_array(out: &mut [u32]) {
    let id = ABSOLUTE_POS as u32;
    let mut table = Array::<u32>::new(1024usize);
    let mut x = id * 747_796_405u32 + 1u32;
    for i in 0..1024usize {
        x = x * 1_664_525u32 + 1_013_904_223u32;
        table[i] = x;
    }
    let mut at = (id & 1023) as usize;
    let mut sum = 0u32;
    for _ in 0..1024usize {
        let value = table[at];
        sum += value;
        at = ((value >> 10) & 1023) as usize;
    }
    out[ABSOLUTE_POS] = sum;
}

#[cube(launch)]
fn mandelbrot(out: &mut [u32]) {
    let cx = ABSOLUTE_POS_X as f32 / 512.0 * 3.0 - 2.0;
    let cy = ABSOLUTE_POS_Y as f32 / 512.0 * 2.0 - 1.0;
    let mut x = 0.0f32;
    let mut y = 0.0f32;
    let mut k = 0u32;
    while k < 256 && x * x + y * y <= 4.0 {
        let next = x * x - y * y + cx;
        y = 2.0 * x * y + cy;
        x = next;
        k += 1;
    }
    out[ABSOLUTE_POS_Y as usize * 512 + ABSOLUTE_POS_X as usize] = k;
}

#[cube(launch)]
fn median(picture: &[f32], out: &mut [f32]) {
    let column = ABSOLUTE_POS_X as i32;
    let row = ABSOLUTE_POS_Y as i32;
    let mut window = Array::<f32>::new(49usize);
    let mut count = 0usize;
    for dy in 0..7i32 {
        for dx in 0..7i32 {
            let x = clamp(column + dx - 3, 0i32, 255i32);
            let y = clamp(row + dy - 3, 0i32, 255i32);
            window[count] = picture[(y * 256 + x) as usize];
            count += 1;
        }
    }
    for i in 0..25usize {
        for j in (i + 1)..49usize {
            let a = window[i];
            let b = window[j];
            window[i] = min(a, b);
            window[j] = max(a, b);
        }
    }
    out[(row * 256 + column) as usize] = window[24];
}

/// Over indices, as `chase`: five numbers and two links of each cell.
#[cube(launch)]
fn barnes_hut(numbers: &[f32], links: &[u32], bodies: &[f32], out: &mut [f32]) {
    let me = ABSOLUTE_POS * 4;
    let (x, y, z) = (bodies[me], bodies[me + 1], bodies[me + 2]);
    let mut pull_x = 0.0f32;
    let mut pull_y = 0.0f32;
    let mut pull_z = 0.0f32;
    let mut taken = 0.0f32;
    let mut at = 0u32;
    while at != 0xffff_ffffu32 {
        let cell = at as usize * 5;
        let away_x = numbers[cell] - x;
        let away_y = numbers[cell + 1] - y;
        let away_z = numbers[cell + 2] - z;
        let distance = away_x * away_x + away_y * away_y + away_z * away_z;
        if distance < numbers[cell + 4] {
            at = links[at as usize * 2];
        } else {
            let inverse = f32::inverse_sqrt(distance + 1e-4);
            let share = numbers[cell + 3] * inverse * inverse * inverse;
            pull_x += share * away_x;
            pull_y += share * away_y;
            pull_z += share * away_z;
            taken += 1.0;
            at = links[at as usize * 2 + 1];
        }
    }
    out[me] = pull_x;
    out[me + 1] = pull_y;
    out[me + 2] = pull_z;
    out[me + 3] = taken;
}

/// A device of CubeCL.
pub struct Cube {
    pub client: Client,
}

impl Cube {
    pub fn new(instance: wgpu::Instance, adapter: wgpu::Adapter) -> Result<Self, Error> {
        // As CubeCL's own `try_request_device` asks, which is not public.
        let features = adapter.features() - wgpu::Features::MAPPABLE_PRIMARY_BUFFERS;
        let (device, queue) =
            pollster::block_on(adapter.request_device(&wgpu::DeviceDescriptor {
                required_features: features,
                required_limits: adapter.limits(),
                memory_hints: wgpu::MemoryHints::MemoryUsage,
                // SAFETY: only kernels of CubeCL's compiler run on the device, none of which uses an experimental feature.
                experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
                ..Default::default()
            }))?;
        let backend = adapter.get_info().backend;
        let setup = WgpuSetup {
            instance,
            adapter,
            device,
            queue,
            backend,
        };
        let device = try_init_device(setup, RuntimeOptions::default())?;
        let client = cubecl::Device::Wgpu(device).client();
        Ok(Self { client })
    }

    /// Waits for all that was launched.
    pub fn sync(&self) -> Result<(), Error> {
        Ok(block_on(self.client.sync()).map_err(said)?)
    }

    pub fn read(&self, handle: &Handle) -> Result<cubecl::bytes::Bytes, Error> {
        Ok(self.client.read_one(handle.clone()).map_err(said)?)
    }

    /// Overwrites a buffer, and waits.
    pub fn write(&self, handle: &Handle, bytes: &[u8]) -> Result<(), Error> {
        let bytes = cubecl::bytes::Bytes::from_bytes_vec(bytes.to_vec());
        self.client.write(handle, bytes);
        self.sync()
    }

    pub fn buffer(&self, bytes: &[u8]) -> Handle {
        self.client.create_from_slice(bytes)
    }

    /// Launches the smallest kernel over so many words.
    pub fn increment(&self, data: &Handle, words: usize) {
        let count = CubeCount::Static(words as u32 / 64, 1, 1);
        increment::launch(
            &self.client,
            count,
            CubeDim::new_1d(64),
            argument(data, words),
        );
    }
}

fn said(error: ServerError) -> String {
    format!("CubeCL: {error:?}")
}

pub fn argument(handle: &Handle, words: usize) -> BufferArg {
    // SAFETY: the handle is of a buffer of so many words, each of which is a number of any bits.
    unsafe { BufferArg::from_raw_parts(handle.clone(), words) }
}

/// Work on a device of CubeCL.
pub struct Ready<'a> {
    cube: &'a Cube,
    work: &'a Work,
    handles: Vec<(Handle, usize)>,
}

impl<'a> Ready<'a> {
    pub fn new(cube: &'a Cube, work: &'a Work) -> Result<Self, Error> {
        let handle = |bytes: &Vec<u8>| (cube.buffer(bytes), bytes.len() / 4);
        let handles = work.buffers().map(handle).collect();
        cube.sync()?;
        Ok(Self {
            cube,
            work,
            handles,
        })
    }

    fn last(&self) -> Result<&Handle, Error> {
        let (result, _) = self.handles.last().ok_or("a kernel has no buffers")?;
        Ok(result)
    }
}

impl Side for Ready<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let client = &self.cube.client;
        let [x, y, z] = self.work.groups;
        let count = CubeCount::Static(x, y, z);
        let [x, y, z] = self.work.group;
        let dim = CubeDim::new_3d(x, y, z);
        let at = |i: usize| argument(&self.handles[i].0, self.handles[i].1);
        match self.work.name {
            "saxpy" => saxpy::launch(client, count, dim, at(0), at(1)),
            "reduce" => reduce::launch(client, count, dim, at(0), at(1)),
            "histogram" => histogram::launch(client, count, dim, at(0), at(1)),
            "matmul" => matmul::launch(client, count, dim, at(0), at(1), at(2)),
            "chase" => chase::launch(client, count, dim, at(0), at(1), at(2)),
            "private_4k" => private_array::launch(client, count, dim, at(0)),
            "mandelbrot" => mandelbrot::launch(client, count, dim, at(0)),
            "median" => median::launch(client, count, dim, at(0), at(1)),
            "barnes_hut" => barnes_hut::launch(client, count, dim, at(0), at(1), at(2), at(3)),
            other => return Err(format!("no kernel of CubeCL is called {other}").into()),
        }
        self.cube.sync()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.cube.write(self.last()?, bytes)
    }

    fn results(&mut self) -> Result<Vec<u8>, Error> {
        Ok(self.cube.read(self.last()?)?.to_vec())
    }
}
