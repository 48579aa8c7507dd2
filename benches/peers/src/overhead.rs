//! The rows of what stands around kernels: launches, and copies between host and device.
//!
//! Each function measures one peer against the runtime, and fails where either side has not left in the buffer what its launches or copies
//! make of it.

use std::hint::black_box;

use opencl3::kernel::Kernel;
use opencl3::memory::Buffer;
use tombolo::{Context, Device, DeviceBuffer, Launch};

use cubecl::bytes::Bytes;
use cubecl::server::Handle;

use crate::cube::Cube;
use crate::meter::Meter;
use crate::opencl::Pocl;
use crate::{Error, PAIRS, support};

/// Launches, each waited for, in a measurement.
const WAITS: u32 = 200;
/// Launches in a batch, of which the last is waited for.
const BATCH: u32 = 1000;
/// Words of the buffer that is launched over: one work-group's, and 4 KiB.
const FEW: usize = 64;
const PAGE: usize = 1024;
/// Bytes of large transfers.
const LARGE: usize = 64 << 20;

/// A kernel of ours that adds one to each word.
fn increment(device: &Device, words: usize) -> Result<(Launch, DeviceBuffer<u32>), Error> {
    let data: DeviceBuffer<u32> = device.zeroed(words)?;
    let kernel = support::ours(device, include_str!("kernels/increment.wgsl"))?;
    let launch = kernel.launch().buffer("data", &data);
    device.finish()?;
    Ok((launch.invocations(words as u32), data))
}

/// Fails unless every word is what so many launches have made of it.
fn all_are(side: &str, launches: u32, bytes: &[u8]) -> Result<(), Error> {
    let expected = launches.to_ne_bytes();
    match !bytes.is_empty() && bytes.chunks(4).all(|word| word == expected) {
        true => Ok(()),
        false => Err(format!("{side} has not launched {launches} times").into()),
    }
}

/// A buffer of a peer, over which a kernel adds one to each word.
trait Peer {
    fn launch(&mut self) -> Result<(), Error>;
    fn wait(&mut self) -> Result<(), Error>;
    /// Copies the buffer to the host, where `look` sees it.
    fn read(&mut self, look: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error>;
}

struct OnCube<'a> {
    cube: &'a Cube,
    data: Handle,
    words: usize,
}

impl Peer for OnCube<'_> {
    fn launch(&mut self) -> Result<(), Error> {
        self.cube.increment(&self.data, self.words);
        Ok(())
    }

    fn wait(&mut self) -> Result<(), Error> {
        self.cube.sync()
    }

    fn read(&mut self, look: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        look(&self.cube.read(&self.data)?)
    }
}

struct OnPocl<'a> {
    pocl: &'a Pocl,
    kernel: Kernel,
    data: [Buffer<u8>; 1],
    bytes: Vec<u8>,
}

impl Peer for OnPocl<'_> {
    fn launch(&mut self) -> Result<(), Error> {
        let groups = (self.bytes.len() / 4 / 64) as u32;
        self.pocl.launch(&self.kernel, [64, 1, 1], [groups, 1, 1])
    }

    fn wait(&mut self) -> Result<(), Error> {
        self.pocl.finish()
    }

    fn read(&mut self, look: &mut dyn FnMut(&[u8]) -> Result<(), Error>) -> Result<(), Error> {
        self.pocl.read_into(&self.data[0], &mut self.bytes)?;
        look(&self.bytes)
    }
}

/// A peer that launches and copies.
#[derive(Clone, Copy)]
pub enum With<'a> {
    Cube(&'a Cube),
    Pocl(&'a Pocl),
}

impl<'a> With<'a> {
    /// A buffer of zeros.
    fn zeroed(self, words: usize) -> Result<Box<dyn Peer + 'a>, Error> {
        let bytes = vec![0; 4 * words];
        Ok(match self {
            Self::Cube(cube) => {
                let data = cube.buffer(&bytes);
                Box::new(OnCube { cube, data, words })
            }
            Self::Pocl(pocl) => {
                let data = [pocl.buffer(&bytes)?];
                let kernel = pocl.kernel("increment", &data)?;
                Box::new(OnPocl {
                    pocl,
                    kernel,
                    data,
                    bytes,
                })
            }
        })
    }
}

/// `times` rounds of so many launches, of which the last is waited for.
fn launches(
    meter: Meter,
    device: &Device,
    peer: With,
    times: u32,
    batch: u32,
) -> Result<Vec<f64>, Error> {
    let (mut launch, data) = increment(device, FEW)?;
    let mut theirs = peer.zeroed(FEW)?;
    let ratios = meter.pairs(
        || {
            for _ in 0..times {
                for _ in 1..batch {
                    launch.submit()?;
                }
                launch.submit()?.wait()?;
            }
            Ok(())
        },
        || {
            for _ in 0..times {
                for _ in 0..batch {
                    theirs.launch()?;
                }
                theirs.wait()?;
            }
            Ok(())
        },
    )?;
    let all = times * batch * (PAIRS as u32 + 1);
    all_are("Tombolo", all, bytemuck::cast_slice(&data.read()?))?;
    theirs.read(&mut |bytes| all_are("the peer", all, bytes))?;
    Ok(ratios)
}

pub fn launch_wait(meter: Meter, device: &Device, peer: With) -> Result<Vec<f64>, Error> {
    launches(meter, device, peer, WAITS, 1)
}

pub fn batch_1000(meter: Meter, device: &Device, peer: With) -> Result<Vec<f64>, Error> {
    launches(meter, device, peer, 3, BATCH)
}

/// A launch over 4 KiB whose results are copied to the host and looked at.
pub fn launch_read_4k(meter: Meter, device: &Device, peer: With) -> Result<Vec<f64>, Error> {
    let (mut launch, data) = increment(device, PAGE)?;
    let mut theirs = peer.zeroed(PAGE)?;
    let (mut ours_done, mut theirs_done) = (0, 0);
    let mut words = vec![0u32; PAGE];
    meter.pairs(
        || {
            for _ in 0..WAITS {
                launch.submit()?;
                data.read_into(0, &mut words)?;
                ours_done += 1;
                all_are("Tombolo", ours_done, bytemuck::cast_slice(&words))?;
            }
            Ok(())
        },
        || {
            for _ in 0..WAITS {
                theirs.launch()?;
                theirs_done += 1;
                theirs.read(&mut |bytes| all_are("the peer", theirs_done, bytes))?;
            }
            Ok(())
        },
    )
}

/// The least work that sees all of a read-back: the sum of one byte of each page.
fn pages(bytes: &[u8]) -> Result<(), Error> {
    let sum: u64 = bytes
        .iter()
        .step_by(4096)
        .map(|byte| u64::from(*byte))
        .sum();
    match sum == 7 * (LARGE as u64 / 4096) && bytes.len() == LARGE {
        true => Ok(()),
        false => Err("a large read-back has other bytes than were written".into()),
    }
}

/// 64 MiB to the host, into memory of the program's own: that is there with PoCL, and else that the call returns.
pub fn read_64m(meter: Meter, device: &Device, peer: With) -> Result<Vec<f64>, Error> {
    let values = vec![7u8; LARGE];
    let data = device.buffer(&values)?;
    device.finish()?;
    match peer {
        With::Cube(cube) => {
            let theirs = cube.buffer(&values);
            cube.sync()?;
            meter.pairs(
                || pages(&data.read()?),
                // What the call returns is memory of the runtime's.
                || pages(&black_box(cube.read(&theirs)?.to_vec())),
            )
        }
        With::Pocl(pocl) => {
            let theirs = pocl.buffer(&values)?;
            let (mut here, mut there) = (vec![1; LARGE], vec![1; LARGE]);
            meter.pairs(
                || {
                    data.read_into(0, &mut here)?;
                    pages(&here)
                },
                || {
                    pocl.read_into(&theirs, &mut there)?;
                    pages(&there)
                },
            )
        }
    }
}

/// The same into memory that the runtimes keep for it: pinned memory of ours, and what CubeCL has mapped.
pub fn read_64m_pinned(
    meter: Meter,
    context: &Context,
    device: &Device,
    cube: &Cube,
) -> Result<Vec<f64>, Error> {
    let values = vec![7u8; LARGE];
    let data = device.buffer(&values)?;
    let mut here = context.pinned_vec::<u8>(LARGE)?;
    device.finish()?;
    let theirs = cube.buffer(&values);
    cube.sync()?;
    meter.pairs(
        || {
            data.read_into(0, &mut here)?;
            pages(&here)
        },
        || pages(&cube.read(&theirs)?),
    )
}

/// 64 MiB to the device, waited for. CubeCL takes bytes by value, which are made before.
pub fn write_64m(meter: Meter, device: &Device, peer: With) -> Result<Vec<f64>, Error> {
    let values = vec![7u8; LARGE];
    let data: DeviceBuffer<u8> = device.zeroed(LARGE)?;
    device.finish()?;
    let ours = || Ok(data.write(0, &values)?.wait()?);
    let ratios = match peer {
        With::Cube(cube) => {
            let theirs = cube.buffer(&vec![1; LARGE]);
            cube.sync()?;
            let stock = || Bytes::from_bytes_vec(values.clone());
            let mut stock: Vec<Bytes> = (0..=PAIRS).map(|_| stock()).collect();
            let ratios = meter.pairs(ours, || {
                let bytes = stock.pop().ok_or("fewer bytes than measurements")?;
                cube.client.write(&theirs, bytes);
                cube.sync()
            })?;
            pages(&cube.read(&theirs)?)?;
            ratios
        }
        With::Pocl(pocl) => {
            let mut theirs = pocl.buffer(&vec![1; LARGE])?;
            let ratios = meter.pairs(ours, || pocl.write(&mut theirs, &values))?;
            let mut bytes = vec![0; LARGE];
            pocl.read_into(&theirs, &mut bytes)?;
            pages(&bytes)?;
            ratios
        }
    };
    pages(&data.read()?)?;
    Ok(ratios)
}
