//! Tests of the compiler without wgpu: from text or by hand to lane programs, and from lane programs to results.

mod folding;
mod passes;

use std::sync::atomic::AtomicU32;

use super::{
    Kernel, Options, abi, abi::Group, front, generate, host::FUNCTIONS, ir::Program,
    passes as all_passes,
};

/// The lane program of the only entry point of a module, as written by the front.
fn lowered(source: &str) -> Program {
    let module = naga::front::wgsl::parse_str(source).unwrap();
    let info = naga::valid::Validator::new(Default::default(), naga::valid::Capabilities::all())
        .validate(&module)
        .unwrap();
    front::lower(&module, &info, 0, Default::default()).unwrap()
}

/// The lane program, after all passes.
pub(in crate::compile) fn optimized(source: &str) -> Program {
    all_passes::run(lowered(source)).unwrap()
}

unsafe extern "C" fn never_polls(_group: *mut Group, _reason: u32) -> u32 {
    abi::STOPPED
}

/// Runs one work-group of a program with buffers in the order of its bindings. Returns the status.
fn run(program: &Program, buffers: &mut [&mut [u8]]) -> u32 {
    let kernel = generate(
        program,
        Options {
            checks_bounds: true,
            lanes: 8,
            instruments: Default::default(),
            schedule: None,
        },
    )
    .and_then(|compiled| Kernel::new(&compiled, program.sites.clone()))
    .unwrap();
    run_kernel(&kernel, buffers)
}

/// Runs a work-group of a program with a single buffer, once for each buffer.
fn run_all<'a>(program: &Program, buffers: impl Iterator<Item = &'a mut [u64]>) {
    let kernel = generate(
        program,
        Options {
            checks_bounds: true,
            lanes: 8,
            instruments: Default::default(),
            schedule: None,
        },
    )
    .and_then(|compiled| Kernel::new(&compiled, program.sites.clone()))
    .unwrap();
    for buffer in buffers {
        run_kernel(&kernel, &mut [bytemuck::cast_slice_mut(buffer)]);
    }
}

fn run_kernel(kernel: &Kernel, buffers: &mut [&mut [u8]]) -> u32 {
    let resources: Vec<_> = buffers
        .iter_mut()
        .zip(&kernel.bindings)
        .map(|(buffer, used)| {
            let length = used
                .array
                .map_or(0, |(start, stride)| (buffer.len() as u32 - start) / stride);
            abi::BoundResource {
                address: buffer.as_mut_ptr(),
                bytes: buffer.len() as u64,
                length,
                last: length.saturating_sub(1),
            }
        })
        .collect();
    let mut workgroup = vec![0u64; kernel.workgroup_bytes as usize / 8 + 1];
    let mut frames = vec![0u128; kernel.frame_bytes as usize / 16 + 1];
    let stop = AtomicU32::new(0);
    let mut group = Group {
        resources: resources.as_ptr(),
        immediates: std::ptr::null(),
        tables: kernel.tables.as_ptr(),
        workgroup: workgroup.as_mut_ptr().cast(),
        frames: frames.as_mut_ptr().cast(),
        stop: stop.as_ptr(),
        poll: never_polls,
        functions: FUNCTIONS.as_ptr(),
        runtime: std::ptr::null_mut(),
        id: [0; 3],
        count: [1; 3],
        apart: 0,
        waited: 0,
    };
    // SAFETY: the group has everything that the kernel names as needed, and nobody else uses the group.
    unsafe { (kernel.function())(&mut group) }
}
