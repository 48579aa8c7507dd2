//! PoCL's side: OpenCL on the processor.

use std::ptr;

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_CPU, Device};
use opencl3::kernel::{CL_KERNEL_EXEC_INFO_SVM_PTRS, Kernel};
use opencl3::memory::{Buffer, CL_MAP_WRITE, CL_MEM_READ_WRITE, ClMem};
use opencl3::program::Program;
use opencl3::svm::SvmVec;
use opencl3::types::CL_BLOCKING;

use crate::Error;
use crate::side::Side;
use crate::work::{LISTS, NODES, Work, next, scattered, start};

/// What the platform of PoCL is called.
const PLATFORM: &str = "Portable Computing Language";

/// PoCL's device, with a queue in order.
pub struct Pocl {
    context: Context,
    queue: CommandQueue,
    program: Program,
}

impl Pocl {
    /// `None` where OpenCL knows no PoCL.
    pub fn find() -> Result<Option<Self>, Error> {
        // Without a platform the loader answers with an error.
        let platforms = opencl3::platform::get_platforms().unwrap_or_default();
        let is_pocl = |name: Result<String, _>| name.is_ok_and(|name| name == PLATFORM);
        let Some(platform) = platforms.into_iter().find(|one| is_pocl(one.name())) else {
            return Ok(None);
        };
        let devices = platform.get_devices(CL_DEVICE_TYPE_CPU)?;
        let device = Device::new(*devices.first().ok_or("PoCL has no device of processors")?);
        let context = Context::from_device(&device)?;
        let queue = CommandQueue::create_default_with_properties(&context, 0, 0)?;
        let source = include_str!("kernels/all.cl");
        let program = Program::create_and_build_from_source(&context, source, "-cl-std=CL2.0")?;
        eprintln!("{} by {}", device.name()?, platform.version()?);
        Ok(Some(Self {
            context,
            queue,
            program,
        }))
    }

    /// The device of the processor.
    pub fn device(&self) -> Device {
        Device::new(self.context.default_device())
    }

    /// Cores, which can be divided among devices.
    pub fn units(&self) -> Result<u32, Error> {
        Ok(self.device().max_compute_units()?)
    }

    /// Waits for all that was enqueued.
    pub fn finish(&self) -> Result<(), Error> {
        Ok(self.queue.finish()?)
    }

    /// A buffer with these bytes.
    pub fn buffer(&self, bytes: &[u8]) -> Result<Buffer<u8>, Error> {
        // SAFETY: no memory of the host is passed.
        let mut buffer = unsafe {
            Buffer::create(
                &self.context,
                CL_MEM_READ_WRITE,
                bytes.len(),
                ptr::null_mut(),
            )?
        };
        self.write(&mut buffer, bytes)?;
        Ok(buffer)
    }

    pub fn write(&self, buffer: &mut Buffer<u8>, bytes: &[u8]) -> Result<(), Error> {
        // SAFETY: the buffer is as large as the bytes, which are not changed until the call returns.
        unsafe {
            self.queue
                .enqueue_write_buffer(buffer, CL_BLOCKING, 0, bytes, &[])?
        };
        Ok(())
    }

    pub fn read_into(&self, buffer: &Buffer<u8>, bytes: &mut [u8]) -> Result<(), Error> {
        // SAFETY: the buffer is as large as the bytes, which nobody else uses until the call returns.
        unsafe {
            self.queue
                .enqueue_read_buffer(buffer, CL_BLOCKING, 0, bytes, &[])?
        };
        Ok(())
    }

    pub fn read_all(&self, buffer: &Buffer<u8>) -> Result<Vec<u8>, Error> {
        let mut bytes = vec![0; buffer.size()?];
        self.read_into(buffer, &mut bytes)?;
        Ok(bytes)
    }

    /// A kernel over buffers.
    pub fn kernel<'b>(
        &self,
        name: &str,
        buffers: impl IntoIterator<Item = &'b Buffer<u8>>,
    ) -> Result<Kernel, Error> {
        let kernel = Kernel::create(&self.program, name)?;
        for (i, buffer) in (0..).zip(buffers) {
            // SAFETY: the first arguments of the kernels are buffers, in this order.
            unsafe { kernel.set_arg(i, &buffer.get())? };
        }
        Ok(kernel)
    }

    /// Enqueues a launch.
    pub fn launch(&self, kernel: &Kernel, group: [u32; 3], groups: [u32; 3]) -> Result<(), Error> {
        let local = group.map(|n| n as usize);
        let global = [0, 1, 2].map(|i| local[i] * groups[i] as usize);
        // SAFETY: all arguments are set, and buffers are as large as the kernel needs for this grid, and outlive it.
        unsafe {
            self.queue.enqueue_nd_range_kernel(
                kernel.get(),
                3,
                ptr::null(),
                global.as_ptr(),
                local.as_ptr(),
                &[],
            )?
        };
        Ok(())
    }
}

/// Work on PoCL.
pub struct Ready<'a> {
    pocl: &'a Pocl,
    work: &'a Work,
    kernel: Kernel,
    buffers: Vec<Buffer<u8>>,
    /// The nodes of the lists, which only pointers lead to.
    _nodes: Option<SvmVec<'a, Node>>,
}

/// A node of a list.
#[derive(Clone, Copy)]
#[repr(C)]
struct Node {
    value: u32,
    tag: u32,
    next: *const Node,
}

impl<'a> Ready<'a> {
    pub fn new(pocl: &'a Pocl, work: &'a Work) -> Result<Self, Error> {
        let mut nodes = None;
        let mut buffers = Vec::new();
        if work.name == "chase" {
            let linked = link(pocl)?;
            let start = |list| &raw const linked[start(list)] as usize;
            let starts: Vec<u8> = (0..LISTS)
                .flat_map(|list| start(list).to_ne_bytes())
                .collect();
            buffers = vec![pocl.buffer(&starts)?, pocl.buffer(&work.results.before)?];
            nodes = Some(linked);
        } else {
            for bytes in work.buffers() {
                buffers.push(pocl.buffer(bytes)?);
            }
        }
        let name = match work.name {
            "private_4k" => "private_array",
            name => name,
        };
        let kernel = pocl.kernel(name, &buffers)?;
        if let Some(nodes) = &nodes {
            let pointers = [nodes.as_ptr()];
            // SAFETY: the pointer is that of an allocation of shared virtual memory, which lives as long as the kernel.
            unsafe { kernel.set_exec_info(CL_KERNEL_EXEC_INFO_SVM_PTRS, pointers.as_ptr())? };
        }
        Ok(Self {
            pocl,
            work,
            kernel,
            buffers,
            _nodes: nodes,
        })
    }

    fn last(&mut self) -> Result<&mut Buffer<u8>, Error> {
        Ok(self.buffers.last_mut().ok_or("a kernel has no buffers")?)
    }
}

impl Side for Ready<'_> {
    fn run(&mut self) -> Result<(), Error> {
        self.pocl
            .launch(&self.kernel, self.work.group, self.work.groups)?;
        self.pocl.finish()
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let pocl = self.pocl;
        pocl.write(self.last()?, bytes)
    }

    fn results(&mut self) -> Result<Vec<u8>, Error> {
        let pocl = self.pocl;
        pocl.read_all(self.last()?)
    }
}

/// Puts the nodes into shared virtual memory.
fn link(pocl: &Pocl) -> Result<SvmVec<'_, Node>, Error> {
    let mut nodes = SvmVec::<Node>::allocate(&pocl.context, NODES)?;
    let fine = nodes.is_fine_grained();
    if !fine {
        // SAFETY: nobody uses the memory until the call returns.
        unsafe {
            pocl.queue
                .enqueue_svm_map(CL_BLOCKING, CL_MAP_WRITE, &mut nodes, &[])?
        };
    }
    for i in 0..NODES {
        nodes[i] = Node {
            value: scattered(i as u32),
            tag: i as u32,
            next: &raw const nodes[next(i)],
        };
    }
    if !fine {
        // SAFETY: the memory was mapped above, and is not written from here on.
        unsafe { pocl.queue.enqueue_svm_unmap(&nodes, &[])? };
        pocl.finish()?;
    }
    Ok(nodes)
}
