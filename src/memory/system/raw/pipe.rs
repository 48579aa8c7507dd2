//! Bytes through a pipe: `write` takes them from an address and `read` puts them there, and both say `EFAULT` where a
//! processor would fault. A pipe lives for one range, and never has more in it than it takes without waiting (`PIPE_BUF`).

use std::ffi::c_void;
use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::os::fd::AsRawFd;

use super::Unreachable;

/// Bytes of the smallest page: a piece lies in one, so that it is there as a whole or not at all.
const PAGE: u64 = 4096;

/// How many of `left` bytes from an address on go at once.
fn piece(address: u64, left: usize) -> usize {
    left.min(libc::PIPE_BUF)
        .min((PAGE - address % PAGE) as usize)
}

/// See [`read`](super::read).
pub(super) fn read(address: u64, to: &mut [u8]) -> Result<(), Unreachable> {
    let (mut reader, writer) = open(address)?;
    let mut done = 0;
    while done < to.len() {
        let at = address.saturating_add(done as u64);
        let count = piece(at, to.len() - done);
        let taken = take(&writer, at, count)?;
        let here = to.get_mut(done..done + taken);
        let filled = here.is_some_and(|here| reader.read_exact(here).is_ok());
        if !filled {
            return Err(Unreachable { address: at });
        }
        done += taken;
    }
    Ok(())
}

/// See [`write`](super::write).
pub(super) fn write(address: u64, from: &[u8]) -> Result<(), Unreachable> {
    let (reader, mut writer) = open(address)?;
    let (mut at, mut rest) = (address, from);
    while let Some((here, behind)) = rest.split_at_checked(piece(at, rest.len()))
        && !here.is_empty()
    {
        rest = behind;
        let unreachable = |_| Unreachable { address: at };
        writer.write_all(here).map_err(unreachable)?;
        let mut left = here.len();
        while left > 0 {
            let given = give(&reader, at, left)?;
            at = at.saturating_add(given as u64);
            left -= given;
        }
    }
    Ok(())
}

/// A process that may have no more files reaches nothing.
fn open(address: u64) -> Result<(PipeReader, PipeWriter), Unreachable> {
    pipe().map_err(|_| Unreachable { address })
}

/// Puts `count` bytes from an address into an empty pipe; how many it were.
fn take(writer: &PipeWriter, address: u64, count: usize) -> Result<usize, Unreachable> {
    let from: *const c_void = std::ptr::with_exposed_provenance(address as usize);
    // SAFETY: the address is only a number, checked by the system.
    some(address, || unsafe {
        libc::write(writer.as_raw_fd(), from, count)
    })
}

/// Puts bytes from a pipe, which has `count` of them, to an address; how many it were.
fn give(reader: &PipeReader, address: u64, count: usize) -> Result<usize, Unreachable> {
    let to: *mut c_void = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the system checks the address; its lender answers for the memory there (`SystemMemory::lend_range`).
    some(address, || unsafe {
        libc::read(reader.as_raw_fd(), to, count)
    })
}

/// What a call of the system has moved, which is called again where a signal has interrupted it.
fn some(address: u64, mut call: impl FnMut() -> isize) -> Result<usize, Unreachable> {
    loop {
        match usize::try_from(call()) {
            Ok(count @ 1..) => return Ok(count),
            Ok(0) => return Err(Unreachable { address }),
            Err(_) => match std::io::Error::last_os_error().kind() {
                std::io::ErrorKind::Interrupted => {}
                _ => return Err(Unreachable { address }),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some pages, of which the last may not be touched and the one in front may not be written.
    struct Pages {
        start: *mut u8,
        len: usize,
    }

    const PAGES: usize = 6;

    impl Pages {
        fn new() -> Self {
            // SAFETY: asks for a page's size, and for new memory anywhere.
            let (page, start) = unsafe {
                let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                let flags = libc::MAP_PRIVATE | libc::MAP_ANON;
                let len = PAGES * page;
                (
                    page,
                    libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0),
                )
            };
            assert_ne!(start, libc::MAP_FAILED);
            let pages = Self {
                start: start.cast(),
                len: page,
            };
            pages.protect(PAGES - 2, libc::PROT_READ);
            pages.protect(PAGES - 1, libc::PROT_NONE);
            pages
        }

        fn protect(&self, page: usize, protection: i32) {
            // SAFETY: the page is one of those made above, to which there are no references.
            let done = unsafe {
                libc::mprotect(self.start.add(page * self.len).cast(), self.len, protection)
            };
            assert_eq!(done, 0);
        }

        fn address(&self, byte: usize) -> u64 {
            self.start.expose_provenance() as u64 + byte as u64
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            // SAFETY: made by mmap, and nobody else's.
            unsafe { libc::munmap(self.start.cast(), PAGES * self.len) };
        }
    }

    #[test]
    fn bytes_go_in_and_come_out_up_to_where_there_are_none() {
        let pages = Pages::new();
        let page = pages.len;
        // Over a border of pages, more than a pipe takes at once, and no whole number of it.
        let bytes: Vec<u8> = (0..3 * page - 9).map(|i| (i * 7 % 251) as u8).collect();
        write(pages.address(5), &bytes).unwrap();
        let mut back = vec![0xee; bytes.len()];
        read(pages.address(5), &mut back).unwrap();
        assert!(back == bytes);
        // The same as by the calls for it.
        let mut other = vec![0xdd; bytes.len()];
        super::super::read(pages.address(5), &mut other).unwrap();
        assert!(other == bytes);
        // In front of them and behind nothing has changed.
        let mut around = [0xee; 5];
        read(pages.address(0), &mut around).unwrap();
        assert_eq!(around, [0; 5]);
        read(pages.address(5 + bytes.len()), &mut around).unwrap();
        assert_eq!(around, [0; 5]);
        assert!(read(pages.address(9), &mut []).is_ok() && write(pages.address(9), &[]).is_ok());
    }

    #[test]
    fn what_is_not_there_is_told_with_its_address() {
        let pages = Pages::new();
        let (read_only, closed) = ((PAGES - 2) * pages.len, (PAGES - 1) * pages.len);
        let mut some = vec![0xee; 3 * pages.len];
        let told = read(pages.address(closed - 100), &mut some).unwrap_err();
        assert_eq!(told.address, pages.address(closed));
        let told = read(pages.address(closed + 3), &mut some[..4]).unwrap_err();
        assert_eq!(told.address, pages.address(closed + 3));
        let told = write(pages.address(read_only - 100), &[7; 200]).unwrap_err();
        assert_eq!(told.address, pages.address(read_only));
        // Up to there it was written, as by the calls for it.
        read(pages.address(read_only - 100), &mut some[..200]).unwrap();
        assert!(some[..100] == [7; 100] && some[100..200] == [0; 100]);
        for address in [0, 1, 4096, 0xffff_8000_0000_0000, u64::MAX - 2] {
            assert_eq!(read(address, &mut some[..8]).unwrap_err().address, address);
            assert_eq!(write(address, &[1; 8]).unwrap_err().address, address);
        }
    }
}
