//! The operating system's part of windows.

pub(super) use implementation::{commit, decommit, page_size, release, reserve};

/// Address space by `mmap`.
#[cfg(all(unix, target_pointer_width = "64"))]
mod implementation {
    use std::io::Error;
    use std::ops::Range;
    use std::ptr::{NonNull, null_mut};

    use super::super::{Window, WindowError};

    /// Linux would otherwise set memory aside for all that is committed, used or not.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const NO_RESERVE: libc::c_int = libc::MAP_NORESERVE;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const NO_RESERVE: libc::c_int = 0;

    /// The advice that gives memory back. Linux promises zeros after this advice; elsewhere the
    /// advice that really gives memory back leaves the time open.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    const GIVE_BACK: (libc::c_int, bool) = (libc::MADV_DONTNEED, true);
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const GIVE_BACK: (libc::c_int, bool) = (libc::MADV_FREE, false);

    pub(in super::super) fn page_size() -> u64 {
        // SAFETY: a question to the system, which changes nothing.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        // The answer cannot fail; 64 KiB is a multiple of every page size in use.
        u64::try_from(page)
            .ok()
            .filter(|page| page.is_power_of_two())
            .unwrap_or(1 << 16)
    }

    /// Reserves `size` bytes, at most 4 GiB, on an aligned address below 2^48.
    pub(in super::super) fn reserve(size: u64) -> Result<NonNull<u8>, WindowError> {
        let base = match cut_out(size) {
            Ok(base) => base,
            // Under a limit of the address space the wanted size may be had where twice as much is not.
            Err(reason) => at_hint(size).ok_or(WindowError::Reserve { size, reason })?,
        };
        // Pointers of devices are told from host addresses by their upper 16 bits.
        if (base.addr().get() as u64 + (size - 1)) >> 48 == 0 {
            return Ok(base);
        }
        // SAFETY: the mapping was just made, and nobody knows of it.
        unsafe { release(base, size) };
        let reason = "the system gave an address above 2^48".to_owned();
        Err(WindowError::Reserve { size, reason })
    }

    /// Maps `size` inaccessible bytes, at `hint` if nothing is there; elsewhere if the system pleases.
    fn map(hint: *mut libc::c_void, size: usize) -> Result<NonNull<u8>, Error> {
        // SAFETY: a new mapping that replaces none, since it is not fixed, touches nothing that exists.
        let start = unsafe {
            libc::mmap(
                hint,
                size,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANON | NO_RESERVE,
                -1,
                0,
            )
        };
        match NonNull::new(start.cast::<u8>()) {
            Some(found) if start != libc::MAP_FAILED => Ok(found),
            _ => Err(Error::last_os_error()),
        }
    }

    /// Asks for an aligned address below the system's own choice. Takes no more address space than the window has.
    fn at_hint(size: u64) -> Option<NonNull<u8>> {
        /// Places to ask for; most of the address space below the system's choice is empty.
        const TRIES: usize = 256;
        let alignment = Window::ALIGNMENT as usize;
        let own = map(null_mut(), size as usize).ok()?;
        let top = own.addr().get();
        // SAFETY: the mapping was just made, and nobody knows of it.
        unsafe { release(own, size) };
        let first = top / alignment;
        for at in (1..=first).rev().take(TRIES) {
            // An address to ask for, and no pointer to anything.
            let hint = std::ptr::without_provenance_mut::<libc::c_void>(at * alignment);
            let found = map(hint, size as usize).ok()?;
            if found.addr().get().is_multiple_of(alignment) {
                return Some(found);
            }
            // SAFETY: as above.
            unsafe { release(found, size) };
        }
        None
    }

    /// Cuts the window out of a surrounding mapping, wherever the system has put that.
    fn cut_out(size: u64) -> Result<NonNull<u8>, String> {
        let span = (size + Window::ALIGNMENT) as usize;
        let start = map(null_mut(), span).map_err(|error| error.to_string())?;
        let start = start.as_ptr().cast::<libc::c_void>();
        let skip = start.addr().next_multiple_of(Window::ALIGNMENT as usize) - start.addr();
        // SAFETY: `skip < ALIGNMENT`, so this is within the mapping.
        let base = unsafe { start.cast::<u8>().add(skip) };
        // SAFETY: the pieces in front of and behind the window belong to the mapping just made, and
        // nobody knows of them. Should this fail, the remaining piece costs address space only.
        unsafe {
            if skip > 0 {
                libc::munmap(start, skip);
            }
            let behind = span - skip - size as usize;
            if behind > 0 {
                libc::munmap(base.add(size as usize).cast(), behind);
            }
        }
        NonNull::new(base).ok_or_else(|| "the system gave the address 0".to_owned())
    }

    /// Makes the pages readable and writable, and zero unless they hold old contents.
    ///
    /// # Safety
    /// `start` is where `range` begins in a window, the range is made of whole pages of it, and is
    /// not committed.
    pub(in super::super) unsafe fn commit(
        start: NonNull<u8>,
        range: &Range<u64>,
    ) -> Result<(), String> {
        let len = (range.end - range.start) as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: the pages are the window's (the caller's promise), and only gain rights.
        if unsafe { libc::mprotect(start.as_ptr().cast(), len, access) } != 0 {
            return Err(Error::last_os_error().to_string());
        }
        Ok(())
    }

    /// Gives the pages' memory back to the system and forbids access; returns whether their contents
    /// are certain to be gone.
    ///
    /// Neither call can make the addresses available to others, so nothing else can ever get mapped
    /// there. Should a step fail, memory or protection is lost, but no wrong data is seen: the
    /// window counts the pages as not committed, and zeroes them at the next commit.
    ///
    /// # Safety
    /// As for [`commit`], but the range may be committed, and must be unused from now on.
    pub(in super::super) unsafe fn decommit(start: NonNull<u8>, range: &Range<u64>) -> bool {
        let len = (range.end - range.start) as usize;
        let start = start.as_ptr().cast();
        // SAFETY: the pages are the window's, and nobody uses their contents.
        let given_back = unsafe { libc::madvise(start, len, GIVE_BACK.0) } == 0;
        if !given_back {
            // Memory that is locked by the process stays, for example.
            let error = Error::last_os_error();
            log::warn!("{len} bytes of shared memory were not given back: {error}");
        }
        // SAFETY: as above.
        if unsafe { libc::mprotect(start, len, libc::PROT_NONE) } != 0 {
            let error = Error::last_os_error();
            log::debug!("{len} bytes of shared memory stay accessible: {error}");
        }
        given_back && GIVE_BACK.1
    }

    /// Ends the reservation.
    ///
    /// # Safety
    /// `base` and `size` are those of a whole, unused window.
    pub(in super::super) unsafe fn release(base: NonNull<u8>, size: u64) {
        // SAFETY: the caller's promise.
        unsafe { libc::munmap(base.as_ptr().cast(), size as usize) };
    }
}

/// Address space by `VirtualAlloc`.
#[cfg(all(windows, target_pointer_width = "64"))]
mod implementation {
    use std::io::Error;
    use std::ops::Range;
    use std::ptr::{NonNull, null};

    use windows_sys::Win32::System::Memory::{
        MEM_COMMIT, MEM_DECOMMIT, MEM_RELEASE, MEM_RESERVE, PAGE_NOACCESS, PAGE_READWRITE,
        VirtualAlloc, VirtualFree,
    };
    use windows_sys::Win32::System::SystemInformation::{GetSystemInfo, SYSTEM_INFO};

    use super::super::{Window, WindowError};

    pub(in super::super) fn page_size() -> u64 {
        let mut info = SYSTEM_INFO::default();
        // SAFETY: a question to the system, which writes the answer to a structure of this function's own.
        unsafe { GetSystemInfo(&mut info) };
        match u64::from(info.dwPageSize) {
            page if page.is_power_of_two() => page,
            // The answer cannot fail; 64 KiB is a multiple of every page size in use.
            _ => 1 << 16,
        }
    }

    /// Reserves `size` bytes, at most 4 GiB, on an aligned address. Windows has no addresses of processes above 2^47.
    ///
    /// A reservation cannot be cut here. So the system is asked where twice as much fits, and the aligned part is
    /// reserved once that is given up, or the next, should another thread have been quicker.
    pub(in super::super) fn reserve(size: u64) -> Result<NonNull<u8>, WindowError> {
        /// More than threads that reserve address space at the same time.
        const TRIES: usize = 64;
        let refused = |error: Error| WindowError::Reserve {
            size,
            reason: error.to_string(),
        };
        let alignment = Window::ALIGNMENT as usize;
        let mut last = None;
        for _ in 0..TRIES {
            let around = map(0, size as usize + alignment).map_err(refused)?;
            // SAFETY: the reservation was just made, and nobody knows of it.
            unsafe { release(around, size) };
            let wanted = around.addr().get().next_multiple_of(alignment);
            match map(wanted, size as usize) {
                Ok(base) => return Ok(base),
                Err(error) => last = Some(error),
            }
        }
        Err(refused(last.unwrap_or_else(Error::last_os_error)))
    }

    /// Reserves `size` inaccessible bytes: at `address`, a multiple of 64 KiB, or where the system pleases for 0.
    fn map(address: usize, size: usize) -> Result<NonNull<u8>, Error> {
        let wanted = match address {
            0 => null(),
            // An address to ask for, and no pointer to anything.
            _ => std::ptr::without_provenance(address),
        };
        // SAFETY: a reservation replaces none that is there already, and touches no memory.
        let start = unsafe { VirtualAlloc(wanted, size, MEM_RESERVE, PAGE_NOACCESS) };
        NonNull::new(start.cast()).ok_or_else(Error::last_os_error)
    }

    /// Makes the pages readable and writable, and zero unless they hold old contents.
    ///
    /// # Safety
    /// `start` is where `range` begins in a window, the range is made of whole pages of it, and is
    /// not committed.
    pub(in super::super) unsafe fn commit(
        start: NonNull<u8>,
        range: &Range<u64>,
    ) -> Result<(), String> {
        let len = (range.end - range.start) as usize;
        // SAFETY: the pages are the window's (the caller's promise), and only gain memory and rights.
        let found = unsafe { VirtualAlloc(start.as_ptr().cast(), len, MEM_COMMIT, PAGE_READWRITE) };
        if found.is_null() {
            return Err(Error::last_os_error().to_string());
        }
        Ok(())
    }

    /// Gives the pages' memory back to the system, which ends access to them; returns whether their contents are
    /// certain to be gone. The addresses stay reserved.
    ///
    /// # Safety
    /// As for [`commit`], but the range may be committed, and must be unused from now on.
    pub(in super::super) unsafe fn decommit(start: NonNull<u8>, range: &Range<u64>) -> bool {
        let len = (range.end - range.start) as usize;
        // SAFETY: the pages are the window's, and nobody uses their contents.
        let given_back = unsafe { VirtualFree(start.as_ptr().cast(), len, MEM_DECOMMIT) } != 0;
        if !given_back {
            let error = Error::last_os_error();
            log::warn!("{len} bytes of shared memory were not given back: {error}");
        }
        given_back
    }

    /// Ends the reservation.
    ///
    /// # Safety
    /// `base` is that of a whole, unused reservation.
    pub(in super::super) unsafe fn release(base: NonNull<u8>, _size: u64) {
        // SAFETY: the caller's promise; a release takes the whole reservation, and no size.
        if unsafe { VirtualFree(base.as_ptr().cast(), 0, MEM_RELEASE) } == 0 {
            let error = Error::last_os_error();
            log::warn!("an address window of shared memory stays reserved: {error}");
        }
    }
}

/// No address windows here.
#[cfg(not(all(any(unix, windows), target_pointer_width = "64")))]
mod implementation {
    use std::ops::Range;
    use std::ptr::NonNull;

    use super::super::WindowError;

    pub(in super::super) fn page_size() -> u64 {
        1 << 16
    }

    pub(in super::super) fn reserve(_size: u64) -> Result<NonNull<u8>, WindowError> {
        Err(WindowError::Unsupported {
            system: std::env::consts::OS,
        })
    }

    // No window exists, so none of these is ever called.

    pub(in super::super) unsafe fn commit(
        _start: NonNull<u8>,
        _range: &Range<u64>,
    ) -> Result<(), String> {
        Err("there are no address windows".to_owned())
    }

    pub(in super::super) unsafe fn decommit(_start: NonNull<u8>, _range: &Range<u64>) -> bool {
        false
    }

    pub(in super::super) unsafe fn release(_base: NonNull<u8>, _size: u64) {}
}
