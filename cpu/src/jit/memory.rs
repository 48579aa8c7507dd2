//! Pages for code to run from. Pages are written before becoming executable, and are never writable and executable at once.

use std::{io, ptr::NonNull};

use crate::compile::error::{CompileError, Result};

/// Code in pages of its own.
pub(crate) struct CodeMemory {
    pages: NonNull<u8>,
    bytes: usize,
}

// SAFETY: once `new` has returned, the pages are only read and executed; any thread may do so.
unsafe impl Send for CodeMemory {}
// SAFETY: as above.
unsafe impl Sync for CodeMemory {}

impl CodeMemory {
    /// Copies code into fresh pages and makes the pages executable.
    ///
    /// # Errors
    /// If the system has no memory, or forbids the execution of code there.
    pub(crate) fn new(code: &[u8]) -> Result<Self> {
        let bytes = code.len().max(1).next_multiple_of(os::page_bytes());
        let pages = os::allocate(bytes).map_err(|error| no_memory(&error, "be had"))?;
        // `Drop` frees the pages on a failure to make them executable.
        let memory = Self { pages, bytes };
        // SAFETY: `pages` are `bytes` fresh, writable bytes, at least as many as `code` has, and `code` is elsewhere.
        unsafe { pages.copy_from_nonoverlapping(NonNull::from(code).cast(), code.len()) };
        // SAFETY: the pages were allocated above, and nobody else knows them yet.
        unsafe { os::make_executable(pages, bytes) }
            .map_err(|error| no_memory(&error, "be made executable"))?;
        Ok(memory)
    }

    /// Where the code begins.
    pub(crate) fn address(&self) -> *const u8 {
        self.pages.as_ptr()
    }

    /// The addresses of the pages.
    pub(crate) fn range(&self) -> std::ops::Range<usize> {
        let start = self.pages.addr().get();
        start..start + self.bytes
    }
}

impl Drop for CodeMemory {
    fn drop(&mut self) {
        // SAFETY: the pages come from `os::allocate` with this size and are freed once. Callers running the code hold the memory
        // alive.
        unsafe { os::free(self.pages, self.bytes) };
    }
}

fn no_memory(error: &io::Error, what: &str) -> CompileError {
    CompileError::Internal(format!("memory for code cannot {what}: {error}"))
}

#[cfg(unix)]
mod os {
    use std::{io, ptr::NonNull};

    pub(super) fn page_bytes() -> usize {
        // SAFETY: `sysconf` has no preconditions.
        let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(bytes).unwrap_or(4096)
    }

    pub(super) fn allocate(bytes: usize) -> io::Result<NonNull<u8>> {
        // SAFETY: an anonymous mapping at an address of the system's choice touches no memory that exists.
        let pages = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANON,
                -1,
                0,
            )
        };
        match NonNull::new(pages.cast()) {
            Some(pages) if pages.as_ptr() != libc::MAP_FAILED.cast() => Ok(pages),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// # Safety
    /// The pages must come from [`allocate`] with this size, and nobody may be writing to them.
    pub(super) unsafe fn make_executable(pages: NonNull<u8>, bytes: usize) -> io::Result<()> {
        // SAFETY: by contract these are whole pages of ours.
        let result = unsafe {
            libc::mprotect(
                pages.as_ptr().cast(),
                bytes,
                libc::PROT_READ | libc::PROT_EXEC,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the range is mapped, by contract.
        unsafe {
            forget_instructions(pages, bytes);
        }
        Ok(())
    }

    /// Makes the processor read instructions anew: the cache of instructions does not notice stores.
    #[cfg(target_arch = "aarch64")]
    unsafe fn forget_instructions(pages: NonNull<u8>, bytes: usize) {
        let start = pages.as_ptr();
        #[cfg(target_vendor = "apple")]
        {
            unsafe extern "C" {
                fn sys_icache_invalidate(start: *mut std::ffi::c_void, bytes: usize);
            }
            // SAFETY: the range is mapped, by contract.
            unsafe { sys_icache_invalidate(start.cast(), bytes) };
        }
        #[cfg(not(target_vendor = "apple"))]
        {
            unsafe extern "C" {
                fn __clear_cache(start: *mut u8, end: *mut u8);
            }
            // SAFETY: the range is mapped, by contract.
            unsafe { __clear_cache(start, start.add(bytes)) };
        }
    }

    /// # Safety
    /// The pages must come from [`allocate`] with this size, and nobody may use them any more.
    pub(super) unsafe fn free(pages: NonNull<u8>, bytes: usize) {
        // SAFETY: by contract.
        unsafe { libc::munmap(pages.as_ptr().cast(), bytes) };
    }
}

#[cfg(windows)]
mod os {
    use std::{io, ptr::NonNull};

    use windows_sys::Win32::System::{
        Diagnostics::Debug::FlushInstructionCache,
        Memory::{
            MEM_COMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_EXECUTE_READ, PAGE_READWRITE, VirtualAlloc,
            VirtualFree, VirtualProtect,
        },
        Threading::GetCurrentProcess,
    };

    pub(super) fn page_bytes() -> usize {
        // Allocations begin at multiples of 64 KiB; protection goes by pages of 4 KiB on every machine with Windows.
        4096
    }

    pub(super) fn allocate(bytes: usize) -> io::Result<NonNull<u8>> {
        // SAFETY: an allocation at an address of the system's choice touches no memory that exists.
        let pages = unsafe {
            VirtualAlloc(
                std::ptr::null(),
                bytes,
                MEM_COMMIT | MEM_RESERVE,
                PAGE_READWRITE,
            )
        };
        NonNull::new(pages.cast()).ok_or_else(io::Error::last_os_error)
    }

    /// # Safety
    /// The pages must come from [`allocate`] with this size, and nobody may be writing to them.
    pub(super) unsafe fn make_executable(pages: NonNull<u8>, bytes: usize) -> io::Result<()> {
        let mut before = 0;
        // SAFETY: by contract these are whole pages of ours.
        let result =
            unsafe { VirtualProtect(pages.as_ptr().cast(), bytes, PAGE_EXECUTE_READ, &mut before) };
        if result == 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range is mapped, by contract.
        unsafe { FlushInstructionCache(GetCurrentProcess(), pages.as_ptr().cast(), bytes) };
        Ok(())
    }

    /// # Safety
    /// The pages must come from [`allocate`] with this size, and nobody may use them any more.
    pub(super) unsafe fn free(pages: NonNull<u8>, _bytes: usize) {
        // SAFETY: by contract; a release frees the pages of one allocation.
        unsafe { VirtualFree(pages.as_ptr().cast(), 0, MEM_RELEASE) };
    }
}
