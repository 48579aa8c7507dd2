//! Sorting keys of 32 bits: the radix sort of `tombolo-kernels` beside rayon's `par_sort_unstable`, and one bitonic sort
//! (K. E. Batcher, "Sorting networks and their applications", 1968) that every side has as a kernel, since CubeCL comes
//! without a sort.
//!
//! Every run sorts the same keys anew into the buffer of results. A bitonic sort is [`stages`] launches in a row, of which the
//! last is waited for.

use cubecl::prelude::*;
use cubecl::server::Handle;
use opencl3::kernel::Kernel;
use opencl3::memory::Buffer;
use rayon::prelude::*;
use tombolo::{Constants, Device, DeviceBuffer, Launch, Program};
use tombolo_kernels::Sort;

use crate::Error;
use crate::cube::{Cube, argument};
use crate::opencl::Pocl;
use crate::ours;
use crate::raw::{self, Raw};
use crate::results::{Expected, Results};
use crate::side::Side;

/// Keys of a radix sort and of a bitonic sort, which has more to do for each.
pub const RADIX: usize = 1 << 20;
pub const BITONIC: usize = 1 << 18;
/// Keys that a work-group sorts in its own memory, and its invocations.
const BLOCK: u32 = 512;
const GROUP: u32 = BLOCK / 2;

/// Keys to be sorted, and sorted.
pub struct Keys {
    keys: Vec<u32>,
    pub results: Results,
}

impl Keys {
    pub fn new(count: usize) -> Self {
        let keys: Vec<u32> = (0..count as u32).map(scrambled).collect();
        let mut sorted = keys.clone();
        sorted.sort();
        Self {
            keys,
            results: Results::written(Expected::Words(sorted)),
        }
    }

    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(&self.keys)
    }
}

/// Numbers without an order in any of their bits, some of them twice (M. O'Neill's PCG RXS M XS, from 31 bits).
fn scrambled(i: u32) -> u32 {
    let state = (i >> 1)
        .wrapping_mul(747_796_405)
        .wrapping_add(2_891_336_453);
    let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(277_803_737);
    (word >> 22) ^ word
}

/// What a launch of a bitonic sort does: runs of `run` keys come of runs of half as many.
#[derive(Clone, Copy)]
enum Stage {
    /// Sorts blocks.
    Blocks,
    /// Exchanges keys so far apart that no block has both.
    Exchange { run: u32, distance: u32 },
    /// Exchanges all that are nearer.
    Merge { run: u32 },
}

fn stages(count: u32) -> Vec<Stage> {
    let mut stages = vec![Stage::Blocks];
    let mut run = 2 * BLOCK;
    while run <= count {
        let mut distance = run / 2;
        while distance >= BLOCK {
            stages.push(Stage::Exchange { run, distance });
            distance /= 2;
        }
        stages.push(Stage::Merge { run });
        run *= 2;
    }
    stages
}

/// The radix sort of `tombolo-kernels`.
pub struct Radix {
    sort: Sort<u32>,
    keys: DeviceBuffer<u32>,
    sorted: DeviceBuffer<u32>,
}

impl Radix {
    pub fn new(device: &Device, keys: &Keys) -> Result<Self, Error> {
        Ok(Self {
            sort: Sort::ascending(device)?,
            sorted: device.zeroed(keys.keys.len())?,
            keys: device.buffer(&keys.keys)?,
        })
    }
}

impl Side for Radix {
    fn run(&mut self) -> Result<(), Error> {
        Ok(self.sort.run(&self.keys, &self.sorted)?.wait()?)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        ours::put(&self.sorted, bytes)
    }

    fn results(&mut self) -> Result<Vec<u8>, Error> {
        ours::results(&self.sorted)
    }
}

/// What rayon sorts.
pub struct Rayon<'a> {
    keys: &'a [u32],
    sorted: Vec<u32>,
}

impl<'a> Rayon<'a> {
    pub fn new(keys: &'a Keys) -> Self {
        Self {
            keys: &keys.keys,
            sorted: keys.keys.clone(),
        }
    }
}

impl Side for Rayon<'_> {
    fn run(&mut self) -> Result<(), Error> {
        self.sorted.copy_from_slice(self.keys);
        self.sorted.par_sort_unstable();
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        bytemuck::cast_slice_mut(&mut self.sorted).copy_from_slice(bytes);
        Ok(())
    }

    fn results(&mut self) -> Result<Vec<u8>, Error> {
        Ok(bytemuck::cast_slice(&self.sorted).to_vec())
    }
}

/// The bitonic sort as launches of ours.
pub struct Ours {
    launches: Vec<Launch>,
    sorted: DeviceBuffer<u32>,
}

impl Ours {
    pub fn new(device: &Device, keys: &Keys) -> Result<Self, Error> {
        let program = Program::new("bitonic.wgsl", include_str!("kernels/bitonic.wgsl"))?;
        let kernel = |entry| device.kernel(&program, entry, &Constants::new());
        let blocks = kernel("sort_blocks")?;
        let exchange = kernel("exchange")?;
        let merge = kernel("merge_blocks")?;
        let source: DeviceBuffer<u32> = device.buffer(&keys.keys)?;
        let sorted: DeviceBuffer<u32> = device.zeroed(keys.keys.len())?;
        let count = keys.keys.len() as u32;
        let launch = |stage| match stage {
            Stage::Blocks => blocks.launch().buffer("source", &source),
            Stage::Exchange { run, distance } => exchange.launch().value("stage", &[run, distance]),
            Stage::Merge { run } => merge.launch().value("stage", &[run, 0]),
        };
        let all = |stage| {
            let launch = launch(stage).buffer("keys", &sorted);
            launch.workgroups(count / BLOCK)
        };
        Ok(Self {
            launches: stages(count).into_iter().map(all).collect(),
            sorted,
        })
    }
}

impl Side for Ours {
    fn run(&mut self) -> Result<(), Error> {
        let [before @ .., last] = &mut self.launches[..] else {
            return Ok(());
        };
        for launch in before {
            launch.submit()?;
        }
        Ok(last.submit()?.wait()?)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        ours::put(&self.sorted, bytes)
    }

    fn results(&mut self) -> Result<Vec<u8>, Error> {
        ours::results(&self.sorted)
    }
}

/// Bytes between the stages in a uniform buffer: no adapter wants offsets of a larger multiple.
const STRIDE: usize = 256;

/// The bitonic sort as dispatches in one pass of raw wgpu.
pub fn on_raw<'a>(raw: &'a Raw, keys: &Keys) -> Result<raw::Ready<'a>, Error> {
    let module = raw.module(include_str!("kernels/bitonic.wgsl"));
    let blocks = raw.pipeline(&module, "sort_blocks");
    let exchange = raw.pipeline(&module, "exchange");
    let merge = raw.pipeline(&module, "merge_blocks");
    let source = raw.buffer(keys.bytes(), wgpu::BufferUsages::STORAGE);
    let sorted = raw.buffer(&keys.results.before, wgpu::BufferUsages::STORAGE);
    let count = keys.keys.len() as u32;
    let stages = stages(count);
    let mut values = vec![0; STRIDE * stages.len()];
    for (stage, bytes) in stages.iter().zip(values.chunks_exact_mut(STRIDE)) {
        let values = match *stage {
            Stage::Blocks => [0, 0],
            Stage::Exchange { run, distance } => [run, distance],
            Stage::Merge { run } => [run, 0],
        };
        bytes[..8].copy_from_slice(bytemuck::bytes_of(&values));
    }
    let values = raw.buffer(&values, wgpu::BufferUsages::UNIFORM);
    let dispatch = |(i, stage): (usize, &Stage)| {
        let stage_values = wgpu::BufferBinding {
            buffer: &values,
            offset: (i * STRIDE) as u64,
            size: wgpu::BufferSize::new(8),
        };
        let keys = (1, sorted.as_entire_binding());
        let values = (2, wgpu::BindingResource::Buffer(stage_values));
        let (pipeline, bindings) = match stage {
            Stage::Blocks => (&blocks, vec![(0, source.as_entire_binding()), keys]),
            Stage::Exchange { .. } => (&exchange, vec![keys, values]),
            Stage::Merge { .. } => (&merge, vec![keys, values]),
        };
        raw.dispatch(pipeline, bindings, [count / BLOCK, 1, 1])
    };
    let dispatches = stages.iter().enumerate().map(dispatch).collect();
    raw::Ready::of(raw, dispatches, sorted)
}

#[cube]
fn exchange_in_block(block: &mut Shared<[u32]>, i: u32, first: u32, run: u32, distance: u32) {
    let low = 2u32 * i - (i & (distance - 1u32));
    let high = low + distance;
    let a = block[low as usize];
    let b = block[high as usize];
    if (a > b) == (((first + low) & run) == 0u32) {
        block[low as usize] = b;
        block[high as usize] = a;
    }
}

#[cube(launch)]
fn sort_blocks(source: &[u32], keys: &mut [u32]) {
    let mut block = Shared::<[u32]>::new_slice(512usize);
    let i = UNIT_POS as usize;
    let first = CUBE_POS_X as usize * 512;
    block[i] = source[first + i];
    block[i + 256] = source[first + i + 256];
    let mut run = 2u32;
    while run <= 512 {
        let mut distance = run / 2;
        while distance > 0 {
            sync_cube();
            exchange_in_block(&mut block, i as u32, first as u32, run, distance);
            distance /= 2;
        }
        run *= 2;
    }
    sync_cube();
    keys[first + i] = block[i];
    keys[first + i + 256] = block[i + 256];
}

#[cube(launch)]
fn merge_blocks(keys: &mut [u32], run: u32) {
    let mut block = Shared::<[u32]>::new_slice(512usize);
    let i = UNIT_POS as usize;
    let first = CUBE_POS_X as usize * 512;
    block[i] = keys[first + i];
    block[i + 256] = keys[first + i + 256];
    let mut distance = 256u32;
    while distance > 0 {
        sync_cube();
        exchange_in_block(&mut block, i as u32, first as u32, run, distance);
        distance /= 2;
    }
    sync_cube();
    keys[first + i] = block[i];
    keys[first + i + 256] = block[i + 256];
}

#[cube(launch)]
fn exchange(keys: &mut [u32], run: u32, distance: u32) {
    let id = ABSOLUTE_POS as u32;
    let low = 2u32 * id - (id & (distance - 1u32));
    let high = low + distance;
    let a = keys[low as usize];
    let b = keys[high as usize];
    if (a > b) == ((low & run) == 0u32) {
        keys[low as usize] = b;
        keys[high as usize] = a;
    }
}

/// The bitonic sort as launches of CubeCL's.
pub struct OnCube<'a> {
    cube: &'a Cube,
    source: Handle,
    sorted: Handle,
    count: usize,
}

impl<'a> OnCube<'a> {
    pub fn new(cube: &'a Cube, keys: &Keys) -> Self {
        Self {
            cube,
            source: cube.buffer(keys.bytes()),
            sorted: cube.buffer(&keys.results.before),
            count: keys.keys.len(),
        }
    }
}

impl Side for OnCube<'_> {
    fn run(&mut self) -> Result<(), Error> {
        let client = &self.cube.client;
        let groups = CubeCount::Static(self.count as u32 / BLOCK, 1, 1);
        let dim = CubeDim::new_1d(GROUP);
        let keys = || argument(&self.sorted, self.count);
        for stage in stages(self.count as u32) {
            let groups = groups.clone();
            match stage {
                Stage::Blocks => {
                    let source = argument(&self.source, self.count);
                    sort_blocks::launch(client, groups, dim, source, keys());
                }
                Stage::Exchange { run, distance } => {
                    exchange::launch(client, groups, dim, keys(), run, distance);
                }
                Stage::Merge { run } => merge_blocks::launch(client, groups, dim, keys(), run),
            }
        }
        self.cube.sync()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.cube.write(&self.sorted, bytes)
    }

    fn results(&mut self) -> Result<Vec<u8>, Error> {
        Ok(self.cube.read(&self.sorted)?.to_vec())
    }
}

/// The bitonic sort as launches of PoCL's.
pub struct OnPocl<'a> {
    pocl: &'a Pocl,
    blocks: Kernel,
    exchange: Kernel,
    merge: Kernel,
    /// Kept for the kernel that reads it.
    _source: Buffer<u8>,
    sorted: Buffer<u8>,
    count: u32,
}

impl<'a> OnPocl<'a> {
    pub fn new(pocl: &'a Pocl, keys: &Keys) -> Result<Self, Error> {
        let source = pocl.buffer(keys.bytes())?;
        let sorted = pocl.buffer(&keys.results.before)?;
        let blocks = pocl.kernel("sort_blocks", [&source, &sorted])?;
        Ok(Self {
            pocl,
            blocks,
            exchange: pocl.kernel("exchange", [&sorted])?,
            merge: pocl.kernel("merge_blocks", [&sorted])?,
            _source: source,
            sorted,
            count: keys.keys.len() as u32,
        })
    }
}

impl Side for OnPocl<'_> {
    fn run(&mut self) -> Result<(), Error> {
        for stage in stages(self.count) {
            let (kernel, values) = match stage {
                Stage::Blocks => (&self.blocks, vec![]),
                Stage::Exchange { run, distance } => (&self.exchange, vec![run, distance]),
                Stage::Merge { run } => (&self.merge, vec![run]),
            };
            for (i, value) in (1..).zip(&values) {
                // SAFETY: behind the buffer of keys the kernels have numbers of 32 bits, so many.
                unsafe { kernel.set_arg(i, value)? };
            }
            (self.pocl).launch(kernel, [GROUP, 1, 1], [self.count / BLOCK, 1, 1])?;
        }
        self.pocl.finish()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.pocl.write(&mut self.sorted, bytes)
    }

    fn results(&mut self) -> Result<Vec<u8>, Error> {
        self.pocl.read_all(&self.sorted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stages_sort_whatever_is_exchanged_in_their_order() {
        let count = 4 * BLOCK;
        let mut keys: Vec<u32> = (0..count).map(scrambled).collect();
        let mut sorted = keys.clone();
        sorted.sort();
        let mut exchange = |run: u32, distance: u32| {
            for low in (0..count).filter(|i| i & distance == 0) {
                let (low, high) = (low as usize, (low + distance) as usize);
                if (keys[low] > keys[high]) == (low as u32 & run == 0) {
                    keys.swap(low, high);
                }
            }
        };
        let halves =
            |from: u32| std::iter::successors(Some(from), |d| Some(d / 2).filter(|d| *d > 0));
        for stage in stages(count) {
            match stage {
                Stage::Blocks => {
                    for run in (1..=BLOCK.ilog2()).map(|log| 1 << log) {
                        halves(run / 2).for_each(|distance| exchange(run, distance));
                    }
                }
                Stage::Exchange { run, distance } => exchange(run, distance),
                Stage::Merge { run } => halves(BLOCK / 2).for_each(|d| exchange(run, d)),
            }
        }
        assert_eq!(keys, sorted);
    }
}
