//! Names of kernels for debuggers: gdb's interface for compilers running with the program, known to lldb, too.
//!
//! *How it works.* A debugger has a breakpoint on an empty function of a certain name. A maker of code puts an object file in
//! memory, with a symbol for the code, into a list and calls the function. The specification is chapter 30 of gdb's manual, *JIT
//! Compilation Interface*.
//!
//! A program can have the two names only once, so that a feature of the crate decides whether the names are here.

use std::{
    ops::Range,
    ptr,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// An object file, in a list of all.
#[repr(C)]
struct Entry {
    next: *mut Entry,
    previous: *mut Entry,
    file: *const u8,
    bytes: u64,
}

/// Read by debuggers.
#[repr(C)]
struct Descriptor {
    version: u32,
    action: u32,
    /// The entry of the action
    relevant: *mut Entry,
    first: *mut Entry,
}

const NOTHING: u32 = 0;
const REGISTERED: u32 = 1;
const UNREGISTERED: u32 = 2;

/// Held while the list is changed.
static LIST: Mutex<()> = Mutex::new(());

#[allow(non_upper_case_globals)]
#[unsafe(no_mangle)]
static mut __jit_debug_descriptor: Descriptor = Descriptor {
    version: 1,
    action: NOTHING,
    relevant: ptr::null_mut(),
    first: ptr::null_mut(),
};

/// Where debuggers stop. The call must not be left out.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn __jit_debug_register_code() {
    std::hint::black_box(&raw const __jit_debug_descriptor);
}

/// A kernel known to debuggers, until the drop.
pub(crate) struct Listed {
    entry: *mut Entry,
    /// The object file, pointed to by the entry
    _file: Vec<u8>,
}

// SAFETY: the entry is read and written with the lock of the list held, or by a debugger, while no thread runs.
unsafe impl Send for Listed {}
// SAFETY: as above.
unsafe impl Sync for Listed {}

impl Listed {
    /// Tells debuggers of code.
    pub(crate) fn new(name: &str, code: Range<usize>) -> Self {
        let file = object(&format!("kernel {name}"), code);
        let entry = Box::into_raw(Box::new(Entry {
            next: ptr::null_mut(),
            previous: ptr::null_mut(),
            file: file.as_ptr(),
            bytes: file.len() as u64,
        }));
        let _list = lock();
        // SAFETY: the lock is held, and entries in the list are alive: `drop` takes entries out before freeing.
        unsafe {
            let descriptor = &raw mut __jit_debug_descriptor;
            (*entry).next = (*descriptor).first;
            if let Some(next) = (*entry).next.as_mut() {
                next.previous = entry;
            }
            (*descriptor).first = entry;
            announce(entry, REGISTERED);
        }
        Self { entry, _file: file }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let _list = lock();
        // SAFETY: the lock is held; the entry is in the list and comes from a box, and the neighbours are alive.
        unsafe {
            let descriptor = &raw mut __jit_debug_descriptor;
            let Entry { next, previous, .. } = *self.entry;
            match previous.as_mut() {
                Some(previous) => previous.next = next,
                None => (*descriptor).first = next,
            }
            if let Some(next) = next.as_mut() {
                next.previous = previous;
            }
            announce(self.entry, UNREGISTERED);
            drop(Box::from_raw(self.entry));
        }
    }
}

fn lock() -> MutexGuard<'static, ()> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// The lock of the list must be held.
unsafe fn announce(entry: *mut Entry, action: u32) {
    // SAFETY: by contract, nobody else uses the descriptor.
    unsafe {
        let descriptor = &raw mut __jit_debug_descriptor;
        (*descriptor).relevant = entry;
        (*descriptor).action = action;
        __jit_debug_register_code();
        (*descriptor).action = NOTHING;
        (*descriptor).relevant = ptr::null_mut();
    }
}

/// An ELF file with a symbol for code elsewhere.
///
/// ```text
/// ┌────────┬─────────────────┬─────────┬───────────────┬───────────────────────────────────────────────┐
/// │ header │ symbols: none,  │ names   │ names of      │ sections: none, .text (no bytes), .symtab,    │
/// │        │ the kernel      │         │ sections      │ .strtab, .shstrtab                            │
/// └────────┴─────────────────┴─────────┴───────────────┴───────────────────────────────────────────────┘
/// ```
fn object(name: &str, code: Range<usize>) -> Vec<u8> {
    const HEADER: u64 = 64;
    const SYMBOL: u64 = 24;
    const SECTIONS: &[u8] = b"\0.text\0.symtab\0.strtab\0.shstrtab\0";
    let machine: u16 = if cfg!(target_arch = "x86_64") {
        62
    } else {
        183
    };
    let (start, length) = (code.start as u64, code.len() as u64);
    let names = [b"\0", name.as_bytes(), b"\0"].concat();
    let names_at = HEADER + 2 * SYMBOL;
    let section_names_at = names_at + names.len() as u64;
    let table = (section_names_at + SECTIONS.len() as u64).next_multiple_of(8);

    // Identification: 64 bits, little-endian, version 1.
    let mut out = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let half = |out: &mut Vec<u8>, value: u16| out.extend_from_slice(&value.to_le_bytes());
    let word = |out: &mut Vec<u8>, value: u32| out.extend_from_slice(&value.to_le_bytes());
    let long = |out: &mut Vec<u8>, value: u64| out.extend_from_slice(&value.to_le_bytes());
    // A relocatable file of the machine: symbols count from the address of their section.
    half(&mut out, 1);
    half(&mut out, machine);
    word(&mut out, 1);
    for value in [0, 0, table] {
        long(&mut out, value);
    }
    word(&mut out, 0);
    // Bytes of the header, no program headers, five sections of 64 bytes, with the names in the last section.
    for value in [64, 0, 0, 64, 5, 4] {
        half(&mut out, value);
    }
    // No symbol, and a global function in section 1.
    out.extend_from_slice(&[0; SYMBOL as usize]);
    word(&mut out, 1);
    out.extend_from_slice(&[1 << 4 | 2, 0]);
    half(&mut out, 1);
    long(&mut out, 0);
    long(&mut out, length);
    out.extend_from_slice(&names);
    out.extend_from_slice(SECTIONS);
    out.resize(table as usize, 0);
    // Name, kind; flags, address, place, bytes; link, info; alignment, bytes of an entry.
    let sections = [
        (0, 0, [0; 4], [0, 0], [0, 0]),
        (1, 8, [2 | 4, start, 0, length], [0, 0], [16, 0]),
        (7, 2, [0, 0, HEADER, 2 * SYMBOL], [3, 1], [8, SYMBOL]),
        (15, 3, [0, 0, names_at, names.len() as u64], [0, 0], [1, 0]),
        (
            23,
            3,
            [0, 0, section_names_at, SECTIONS.len() as u64],
            [0, 0],
            [1, 0],
        ),
    ];
    for (name, kind, place, links, layout) in sections {
        word(&mut out, name);
        word(&mut out, kind);
        let _ = place.map(|value| long(&mut out, value));
        let _ = links.map(|value| word(&mut out, value));
        let _ = layout.map(|value| long(&mut out, value));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The object files in the list.
    fn listed() -> Vec<*const u8> {
        let _list = lock();
        let mut files = Vec::new();
        // SAFETY: the lock is held, and entries in the list are alive.
        unsafe {
            let descriptor = &raw const __jit_debug_descriptor;
            let mut entry = (*descriptor).first;
            while let Some(found) = entry.as_ref() {
                files.push(found.file);
                entry = found.next;
            }
        }
        files
    }

    #[test]
    fn kernels_come_into_the_list_and_go() {
        let listed_now = |kernel: &Listed| listed().contains(&kernel._file.as_ptr());
        let [a, b, c] = ["a", "b", "c"].map(|name| Listed::new(name, 0x1000..0x2000));
        assert!([&a, &b, &c].into_iter().all(listed_now));
        drop(b);
        assert!([&a, &c].into_iter().all(listed_now));
        drop(c);
        assert!(listed_now(&a));
    }

    #[test]
    fn names_and_sections_are_where_the_file_says() {
        let file = object("kernel x", 0x1000..0x1800);
        let long = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
        let table = long(40) as usize;
        assert_eq!(file.len(), table + 5 * 64);
        let name = |section: usize| {
            let at = table + 64 * section;
            let name = u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
            let names = long(table + 64 * 4 + 24) as usize;
            file[names + name..]
                .split(|&byte| byte == 0)
                .next()
                .unwrap()
                .to_vec()
        };
        let names: Vec<_> = (0..5).map(name).collect();
        let expected: [&[u8]; 5] = [b"", b".text", b".symtab", b".strtab", b".shstrtab"];
        assert_eq!(names, expected);
        assert_eq!(
            (long(table + 64 + 16), long(table + 64 + 32)),
            (0x1000, 0x800)
        );
        let strings = long(table + 64 * 3 + 24) as usize;
        assert_eq!(&file[strings..strings + 10], b"\0kernel x\0");
    }
}
