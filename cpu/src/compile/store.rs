//! Compiled kernels by their programs, and as bytes for another process to take over.
//!
//! *How it works.* A [`Key`] is a hash of a lane program as written by the front, with text, constants, entry point and
//! naga's part included, and of everything steering the compiler. Passes and Cranelift, where the time goes, are left
//! out where the store has the key. Code needs no relocation (`jit/memory.rs`), so a kernel is its bytes and some
//! numbers.
//!
//! ```text
//! data of a store
//! ┌───────┬───────┬──────────┬───────────────────────────────────────────────────────────────┐
//! │ magic │ build │ checksum │ kernels: key, name, code, tables, bindings, numbers            │
//! └───────┴───────┴──────────┴───────────────────────────────────────────────────────────────┘
//! ```
//!
//! The *build* is a text: version and sources of this crate, version of Cranelift, processor. Data of another build are
//! refused, since code calls functions and reads structures of its own build. The checksum finds damage, and is no
//! signature: anybody able to write the data can have anything executed. The caller must prevent such writes: the
//! reason why [`Store::import`] is unsafe.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use super::{
    emit::Options,
    ir::{BindingUse, Combine, Program, Reduction},
};
use crate::jit::target;

/// The first bytes of data.
const MAGIC: [u8; 16] = *b"tombolo-cpu  1\r\n";

/// The most bytes of exported kernels. Kernels not used by this process go first.
const MOST_BYTES: usize = 64 << 20;

/// Why data of compiled kernels were not taken over. Kernels are compiled instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KernelDataError {
    /// Something else.
    #[error("the bytes are no compiled kernels; export them with `Device::export_kernels`")]
    NoKernels,
    /// Kernels compiled by another build of the crate, or for another processor.
    #[error("the kernels were compiled by `{theirs}`, and this is `{ours}`; compile them anew")]
    OtherBuild {
        /// The build and processor of the data
        theirs: String,
        /// The build and processor of this process
        ours: String,
    },
    /// The bytes are not the exported ones.
    #[error("the compiled kernels are damaged or cut short; compile them anew")]
    Damaged,
}

/// How many kernels a device has made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelCounts {
    /// Pipelines whose kernels were compiled
    pub compiled: u64,
    /// Pipelines whose kernels were there already
    pub found: u64,
}

/// The hash of a kernel's program and options.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) struct Key([u64; 2]);

impl Key {
    /// The key of a program written by the front.
    pub(crate) fn of(program: &Program, options: Options) -> Self {
        Self([0u64, 1].map(|half| {
            let mut hasher = DefaultHasher::new();
            half.hash(&mut hasher);
            options.hash(&mut hasher);
            program.hash_work(&mut hasher);
            hasher.finish()
        }))
    }
}

impl Program {
    /// Hashes all but the sites: programs with kept code have none.
    fn hash_work(&self, hasher: &mut impl Hasher) {
        let Self {
            name,
            values,
            variables,
            slots,
            tables,
            bindings,
            scopes,
            workgroup_size,
            workgroup_bytes,
            sites: _,
            body,
        } = self;
        name.hash(hasher);
        values.hash(hasher);
        variables.hash(hasher);
        slots.hash(hasher);
        tables.hash(hasher);
        bindings.hash(hasher);
        scopes.hash(hasher);
        workgroup_size.hash(hasher);
        workgroup_bytes.hash(hasher);
        body.hash(hasher);
    }
}

/// A kernel, before its code lies in executable pages.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Compiled {
    pub(crate) name: String,
    pub(crate) code: Vec<u8>,
    pub(crate) tables: Vec<u8>,
    pub(crate) bindings: Vec<BindingUse>,
    pub(crate) workgroup_bytes: u64,
    pub(crate) frame_bytes: u64,
    pub(crate) polls: bool,
    pub(crate) waits: bool,
    pub(crate) lanes: u32,
    pub(crate) cost: u64,
    pub(crate) workgroup_size: [u32; 3],
}

struct Entry {
    compiled: Arc<Compiled>,
    /// Whether a pipeline of this process has the kernel
    used: bool,
}

/// The compiled kernels of a device.
#[derive(Default)]
pub(crate) struct Store {
    kernels: Mutex<HashMap<Key, Entry>>,
    compiled: AtomicU64,
    found: AtomicU64,
}

impl Store {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Entry>> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counts(&self) -> KernelCounts {
        KernelCounts {
            compiled: self.compiled.load(Ordering::Relaxed),
            found: self.found.load(Ordering::Relaxed),
        }
    }

    /// The kernel with a key, if present.
    pub(crate) fn get(&self, key: Key) -> Option<Arc<Compiled>> {
        let mut kernels = self.lock();
        let entry = kernels.get_mut(&key)?;
        entry.used = true;
        self.found.fetch_add(1, Ordering::Relaxed);
        Some(entry.compiled.clone())
    }

    /// Counts a kernel, and keeps it for other owners of its key.
    pub(crate) fn put(&self, key: Option<Key>, compiled: &Arc<Compiled>) {
        self.compiled.fetch_add(1, Ordering::Relaxed);
        if let Some(key) = key {
            let compiled = compiled.clone();
            self.lock().insert(
                key,
                Entry {
                    compiled,
                    used: true,
                },
            );
        }
    }

    /// The kernels as bytes.
    pub(crate) fn export(&self) -> Vec<u8> {
        let kernels = self.lock();
        let mut entries: Vec<_> = kernels.iter().collect();
        entries.sort_unstable_by_key(|&(key, entry)| (!entry.used, *key));
        let mut body = Vec::new();
        for (key, entry) in entries {
            let mut kernel = Vec::new();
            write(&mut kernel, *key, &entry.compiled);
            if body.len() + kernel.len() > MOST_BYTES {
                break;
            }
            body.extend_from_slice(&kernel);
        }
        drop(kernels);
        let mut data = MAGIC.to_vec();
        put_bytes(&mut data, build().as_bytes());
        for half in checksum(&body) {
            data.extend_from_slice(&half.to_le_bytes());
        }
        data.extend_from_slice(&body);
        data
    }

    /// Takes over kernels. Returns how many.
    ///
    /// # Errors
    /// [`KernelDataError`], with nothing taken over.
    ///
    /// # Safety
    /// The data must come from [`export`](Self::export), or be refused by the checks.
    pub(crate) unsafe fn import(&self, data: &[u8]) -> Result<usize, KernelDataError> {
        let rest = data.strip_prefix(&MAGIC);
        let mut reader = Reader(rest.ok_or(KernelDataError::NoKernels)?);
        let theirs = reader.bytes().ok_or(KernelDataError::Damaged)?;
        let ours = build();
        if theirs != ours.as_bytes() {
            return Err(KernelDataError::OtherBuild {
                theirs: String::from_utf8_lossy(theirs).into_owned(),
                ours,
            });
        }
        let found = read_all(reader).ok_or(KernelDataError::Damaged)?;
        let count = found.len();
        let mut kernels = self.lock();
        for (key, compiled) in found {
            let compiled = Arc::new(compiled);
            let used = false;
            kernels.entry(key).or_insert(Entry { compiled, used });
        }
        Ok(count)
    }
}

/// Version and sources of this crate, version of Cranelift, and the target of the code.
fn build() -> String {
    let processor = target::isa().map_or_else(
        |error| error.to_string(),
        |isa| {
            let flags: Vec<String> = isa.isa_flags().iter().map(ToString::to_string).collect();
            format!("{} {} {}", isa.triple(), isa.flags(), flags.join(" "))
        },
    );
    format!(
        "tombolo-cpu {} {} cranelift {} {processor}",
        env!("CARGO_PKG_VERSION"),
        env!("TOMBOLO_CPU_BUILD"),
        cranelift_codegen::VERSION,
    )
}

/// Another release of the standard library may compute another checksum: then kernels are compiled anew.
fn checksum(body: &[u8]) -> [u64; 2] {
    [2u64, 3].map(|half| {
        let mut hasher = DefaultHasher::new();
        half.hash(&mut hasher);
        hasher.write(body);
        hasher.finish()
    })
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, [bytes.len() as u64]);
    out.extend_from_slice(bytes);
}

fn put(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

fn write(out: &mut Vec<u8>, key: Key, compiled: &Compiled) {
    put(out, key.0);
    put_bytes(out, compiled.name.as_bytes());
    put_bytes(out, &compiled.code);
    put_bytes(out, &compiled.tables);
    put(out, [compiled.bindings.len() as u64]);
    for used in &compiled.bindings {
        let (start, stride) = used.array.unwrap_or_default();
        let numbers = [used.group, used.binding, used.element, start, stride];
        put(out, numbers.map(u64::from));
        put(out, [used.least]);
        put(
            out,
            [
                used.array.is_some(),
                used.uniform,
                used.constant,
                used.shared,
            ]
            .map(u64::from),
        );
        put(out, [reduction_number(used.reduction)]);
    }
    put(
        out,
        [
            compiled.workgroup_bytes,
            compiled.frame_bytes,
            compiled.cost,
        ],
    );
    put(out, [compiled.polls, compiled.waits].map(u64::from));
    put(out, [u64::from(compiled.lanes)]);
    put(out, compiled.workgroup_size.map(u64::from));
}

/// The kernels behind the build. `None` if anything is amiss.
fn read_all(mut reader: Reader<'_>) -> Option<Vec<(Key, Compiled)>> {
    let sum = [reader.number()?, reader.number()?];
    if sum != checksum(reader.0) {
        return None;
    }
    let mut kernels = Vec::new();
    while !reader.0.is_empty() {
        kernels.push(reader.kernel()?);
    }
    Some(kernels)
}

/// Bytes read from their start.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn word(&mut self) -> Option<u32> {
        self.number()?.try_into().ok()
    }

    fn flag(&mut self) -> Option<bool> {
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?.try_into().ok()?;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn kernel(&mut self) -> Option<(Key, Compiled)> {
        let key = Key([self.number()?, self.number()?]);
        let name = String::from_utf8(self.bytes()?.to_vec()).ok()?;
        let code = self.bytes()?.to_vec();
        let tables = self.bytes()?.to_vec();
        let mut bindings = Vec::new();
        for _ in 0..self.number()? {
            bindings.push(self.binding()?);
        }
        let compiled = Compiled {
            name,
            code,
            tables,
            bindings,
            workgroup_bytes: self.number()?,
            frame_bytes: self.number()?,
            cost: self.number()?,
            polls: self.flag()?,
            waits: self.flag()?,
            lanes: self.word()?,
            workgroup_size: [self.word()?, self.word()?, self.word()?],
        };
        Some((key, compiled))
    }

    fn binding(&mut self) -> Option<BindingUse> {
        let (group, binding, element) = (self.word()?, self.word()?, self.word()?);
        let array = (self.word()?, self.word()?);
        Some(BindingUse {
            group,
            binding,
            element,
            least: self.number()?,
            array: self.flag()?.then_some(array),
            uniform: self.flag()?,
            constant: self.flag()?,
            shared: self.flag()?,
            reduction: reduction_of(self.number()?)?,
        })
    }
}

/// The kinds of reductions, by their numbers in data.
const COMBINES: [Combine; 4] = [Combine::Add, Combine::Or, Combine::Xor, Combine::Max];

/// Zero for none; else the place among [`COMBINES`] beside the size of words.
fn reduction_number(reduction: Option<Reduction>) -> u64 {
    reduction.map_or(0, |reduction| {
        let is_it = |combine: &Combine| *combine == reduction.combine;
        let place = COMBINES.iter().position(is_it).unwrap_or_default() as u64;
        place << 8 | u64::from(reduction.word_bytes)
    })
}

/// The argument behind a result of [`reduction_number`]. `None` if there is none.
fn reduction_of(number: u64) -> Option<Option<Reduction>> {
    if number == 0 {
        return Some(None);
    }
    let word_bytes = number as u8;
    let combine = *COMBINES.get(usize::try_from(number >> 8).ok()?)?;
    matches!(word_bytes, 4 | 8).then_some(Some(Reduction {
        combine,
        word_bytes,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(name: &str) -> Compiled {
        Compiled {
            name: name.into(),
            code: vec![0xc3; 33],
            tables: vec![1, 2, 3],
            bindings: vec![BindingUse {
                group: 1,
                binding: 2,
                element: 3,
                array: Some((4, 5)),
                least: 1 << 40,
                uniform: false,
                constant: true,
                shared: true,
                reduction: Some(Reduction {
                    combine: Combine::Max,
                    word_bytes: 8,
                }),
            }],
            workgroup_bytes: 1 << 33,
            frame_bytes: 7,
            polls: true,
            waits: false,
            lanes: 8,
            cost: u64::MAX,
            workgroup_size: [8, 1, 2],
        }
    }

    fn filled() -> Store {
        let store = Store::default();
        for number in 0..3 {
            let kernel = Arc::new(compiled(&format!("kernel {number}")));
            store.put(Some(Key([number, 9])), &kernel);
        }
        store
    }

    fn import(data: &[u8]) -> Result<(usize, Store), KernelDataError> {
        let store = Store::default();
        // SAFETY: no kernel of the store is called.
        let count = unsafe { store.import(data) }?;
        Ok((count, store))
    }

    #[test]
    fn what_was_exported_is_imported() {
        let data = filled().export();
        let (count, store) = import(&data).unwrap();
        assert_eq!(count, 3);
        assert_eq!(*store.get(Key([2, 9])).unwrap(), compiled("kernel 2"));
        assert!(store.get(Key([2, 8])).is_none());
        assert_eq!(store.export(), filled_with_used(&store));
        let found = KernelCounts {
            compiled: 0,
            found: 1,
        };
        assert_eq!(store.counts(), found);
    }

    /// The export of a store of three kernels, with only the last used.
    fn filled_with_used(store: &Store) -> Vec<u8> {
        let again = Store::default();
        for number in [2, 0, 1] {
            let key = Key([number, 9]);
            let entry = Entry {
                compiled: Arc::new(compiled(&format!("kernel {number}"))),
                used: number == 2,
            };
            again.lock().insert(key, entry);
        }
        assert_eq!(again.lock().len(), store.lock().len());
        again.export()
    }

    #[test]
    fn whatever_else_there_is_is_refused() {
        let data = filled().export();
        let build = build().len();
        for length in 0..data.len() {
            let error = import(&data[..length]).err().unwrap();
            let expected = match length < MAGIC.len() {
                true => KernelDataError::NoKernels,
                false => KernelDataError::Damaged,
            };
            assert_eq!(error, expected, "{length}");
        }
        for bit in 0..data.len() * 8 {
            let mut damaged = data.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let error = import(&damaged).err().unwrap();
            let text = MAGIC.len() + 8..MAGIC.len() + 8 + build;
            match bit / 8 {
                byte if byte < MAGIC.len() => assert_eq!(error, KernelDataError::NoKernels),
                byte if text.contains(&byte) => {
                    assert!(matches!(error, KernelDataError::OtherBuild { .. }));
                }
                _ => assert!(!matches!(error, KernelDataError::NoKernels), "{bit}"),
            }
        }
        let longer = [data, vec![0]].concat();
        assert_eq!(import(&longer).err(), Some(KernelDataError::Damaged));
    }
}
