//! Options and results of the pass, and its errors for kernels with pointers.

use std::fmt;

use naga::valid::Capabilities;
use naga::{ResourceBinding, Span};
use thiserror::Error;

use crate::addresses::granules::DEVICE_GRANULE;

/// Which side of memory a kernel's pointers are expected to point to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TranslationMode {
    /// The kernel may not dereference pointers.
    Disabled,
    /// Device memory is tested for, and reached, first.
    DeviceFavored,
    /// Shared memory is tested for, and reached, first.
    SharedFavored,
    /// System allocations: pointers lead into any memory of the host that is lent to the launch
    /// ([`SystemMemory`](crate::system::SystemMemory)). Every access is translated.
    System,
}

/// For people: the variant in words.
impl fmt::Display for TranslationMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disabled => "no pointers",
            Self::DeviceFavored => "device memory first",
            Self::SharedFavored => "shared memory first",
            Self::System => "lent memory",
        })
    }
}

/// What is kept of the translation of a pointee of fixed size, for its other accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hoists {
    /// Nothing: every access is translated.
    Nothing,
    /// What the first access has found. Accesses that find something kept pass over their own translation, which saves
    /// nothing where both sides of a branch are executed.
    First,
    /// The pages of the pointee, looked up where the pointer is made, for accesses without a branch. Frames have to be
    /// filled before the launch, and none may be the host's own page.
    Pages,
}

/// Where the heap is bound. All bindings are in the storage space and read-write, which may be lessened behind the pass for a
/// kernel that only reads (`kernel::compile`); the pass declares them, and the user's program must not use any.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HeapMemory {
    /// Shared and device memory are the same memory: every pointer is one into the shared heap.
    Unified {
        /// The segments of the heap, in the order of their addresses.
        segments: Vec<ResourceBinding>,
    },
    /// Pointers whose upper 16 bits are zero are shared; the others are device pointers.
    Split {
        /// The segments of the shared heap, in the order of their addresses.
        shared: Vec<ResourceBinding>,
        /// The segments of device memory. The upper 16 bits of a pointer into segment `n` are
        /// `first_tag + n`, the lower 32 its byte offset in the segment.
        device: Vec<ResourceBinding>,
        /// The upper 16 bits of pointers into the first segment of device memory.
        first_tag: u16,
    },
    /// Pointers are addresses of the host's memory, of which the frames of a pool hold pages
    /// (`shaders/system.wgsl`).
    System {
        /// The frames.
        pool: ResourceBinding,
        /// Which page lies in which frame, and which of its words may be read and written.
        table: ResourceBinding,
        /// The faults, and which frames have been written.
        faults: ResourceBinding,
        /// The status record, for a fault that fails the launch.
        status: ResourceBinding,
        /// Frames are filled while the kernel runs.
        live: Option<LivePlaces>,
    },
}

/// How a kernel waits for pages that the host brings while the kernel runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LivePlaces {
    /// The frame of each page, which the host writes (`shaders/system_live.wgsl`).
    pub places: ResourceBinding,
    /// An invocation orders its memory by a barrier.
    pub barriers: bool,
    /// Frames may be given to other pages while the kernel runs.
    pub evicts: bool,
    /// Memory that is read for delays, where the adapter rations turns of loops.
    pub backoff: Option<ResourceBinding>,
}

/// The pass's inputs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PointerOptions {
    /// Which side is reached first.
    pub mode: TranslationMode,
    /// Where the heap is bound.
    pub memory: HeapMemory,
    /// Bytes of each segment of the shared heap but the last: a power of two. An allocation lies
    /// within a single segment. Without meaning for a single segment.
    pub segment_bytes: u32,
    /// The shared heap begins at a multiple of 4 GiB, so the low word of a pointer is its offset.
    pub window_aligned: bool,
    /// The uniform that tells where the heap lies ([`HeapInfo`]). Needed where the heap is not
    /// window-aligned, and in checked mode.
    pub info: Option<ResourceBinding>,
    /// Checked mode: every dereference is tested, and the first failure is written to the status
    /// record at this binding (words [`super::super::status::POINTER`]).
    pub checked: Option<ResourceBinding>,
    /// In checked mode: the table of what is allocated in the shared heap, in parts of as many bytes as the heap's segments
    /// have. A word for each [`HEAP_GRANULE`](crate::addresses::granules::HEAP_GRANULE) bytes: where the allocation there ends, as an offset from the heap's base; 0
    /// where there is none. Empty where pointers are compared with the span of the heap alone.
    pub allocations: Vec<ResourceBinding>,
    /// The same for device memory, with a word for each [`DEVICE_GRANULE`] bytes of all its segments.
    pub device_allocations: Option<ResourceBinding>,
    /// Storage variables reached through the heap, because the adapter has no bindings left for them.
    pub arguments: Option<ArgumentTable>,
    /// Where a pointer chooses its binding, the pointers in a node have a separate choice, apart from the rest of the
    /// node. Faster where every branch is executed on both sides, and loads are what a step waits for (lavapipe);
    /// slower elsewhere.
    pub pointers_apart: bool,
    /// What kernels that follow pointers into lent memory keep of the translation of a pointee of fixed size.
    pub hoists: Hoists,
    /// Second bindings of the heap's memory, for atomics of 64 bits, in the order of [`HeapMemory`]: shared segments, then
    /// device segments. Declared by kernels with such atomics alone. Empty where pointers lead into lent memory.
    pub wide: Vec<ResourceBinding>,
    /// The device's features, as bits of [`Capabilities`]: 64-bit and 16-bit members depend on them.
    pub capabilities: u64,
}

/// Storage variables of the program whose memory lies in the heap, and the variable that tells where.
///
/// An index behind such a variable is limited to the last element, as wgpu limits an index behind a bound variable,
/// also in functions given a pointer to the variable; nothing else is tested, because the runtime itself fills the
/// table. In checked mode an index is tested and reported instead, as behind any other pointer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgumentTable {
    /// That variable, `var<storage, read> array<vec4<u32>, N>`: a row for each of the others, pointer (low word, high word), size in bytes,
    /// zero.
    pub binding: ResourceBinding,
    /// The variables. Where none of them is used, the table is not declared.
    pub rows: Vec<TableRow>,
}

/// A variable in the argument table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TableRow {
    /// The binding given by the program.
    pub variable: ResourceBinding,
    /// A power of two that divides its address: 4 or more. Where the type asks for a larger alignment, values are read
    /// and written in smaller pieces.
    pub align: u32,
}

impl ArgumentTable {
    /// A common divisor of all addresses in the table.
    pub(super) fn align(&self) -> u32 {
        self.rows.iter().map(|row| row.align).min().unwrap_or(16)
    }
}

impl PointerOptions {
    /// What is kept of translations: of accesses of lent memory, and of pages alone that are there before the launch.
    pub(super) fn hoists(&self) -> Hoists {
        match self.memory {
            HeapMemory::System { live: Some(_), .. } if self.hoists == Hoists::Pages => {
                Hoists::Nothing
            }
            HeapMemory::System { .. } => self.hoists,
            _ => Hoists::Nothing,
        }
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        Capabilities::from_bits_truncate(self.capabilities)
    }
}

/// The word of [`HeapInfo`] that is always zero, which no compiler knows.
pub(super) const ZERO_WORD: u32 = 3;

/// The contents of the uniform at [`PointerOptions::info`]: `array<vec4<u32>>` as words.
///
/// Word 0 and 1: the address of the shared heap, low word first; not 0, so null lies outside. Word 2: its size in
/// bytes. Word 3: zero. From word 4: the size in bytes of each segment of device memory, padded to a multiple of four
/// words; then, padded the same way, the word of the allocation table with which each segment begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapInfo {
    /// Address of the shared heap.
    pub base: u64,
    /// Bytes of the shared heap.
    pub shared_bytes: u32,
    /// Bytes of each segment of device memory.
    pub device_bytes: Vec<u32>,
}

impl HeapInfo {
    /// The words of the uniform.
    pub fn words(&self) -> Vec<u32> {
        let mut words = vec![
            self.base as u32,
            (self.base >> 32) as u32,
            self.shared_bytes,
            0,
        ];
        let pad = |words: &mut Vec<u32>| words.resize(words.len().next_multiple_of(4), 0);
        words.extend(&self.device_bytes);
        pad(&mut words);
        let mut start = 0;
        for bytes in &self.device_bytes {
            words.push(start);
            start += bytes / DEVICE_GRANULE as u32;
        }
        pad(&mut words);
        words
    }

    /// Words of the uniform for so many segments of device memory.
    pub fn len(device_segments: u32) -> u32 {
        4 + 2 * device_segments.next_multiple_of(4)
    }
}

/// The element type of the heap bindings in one kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HeapElement {
    /// `array<u32>`.
    Word,
    /// `array<vec2<u32>>`.
    Pair,
    /// `array<vec4<u32>>`.
    Quad,
    /// `array<atomic<u32>>`.
    AtomicWord,
    /// `array<atomic<i32>>`: the kernel takes signed minima or maxima.
    AtomicSigned,
}

impl HeapElement {
    /// Bytes of one element.
    pub(super) fn bytes(self) -> u32 {
        match self {
            Self::Word | Self::AtomicWord | Self::AtomicSigned => 4,
            Self::Pair => 8,
            Self::Quad => 16,
        }
    }

    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Self::AtomicWord | Self::AtomicSigned)
    }
}

/// The pass's changes to a module.
#[derive(Clone, Debug, PartialEq)]
pub struct PointerFacts {
    /// The index of the entry point now: the others were removed.
    pub entry: usize,
    /// The element type of the heap bindings.
    pub element: HeapElement,
    /// The kernel reads the uniform at [`PointerOptions::info`].
    pub reads_info: bool,
    /// The kernel may write to the heap.
    pub writes: bool,
    /// The kernel follows pointers, or takes addresses; otherwise it reaches the heap for the argument table alone.
    pub follows: bool,
    /// The places that are checked, in checked mode.
    pub sites: Vec<PointerSite>,
    /// Parts of the allocation table read by the kernel, and whether device memory's table is read, too.
    pub tables: (u32, bool),
    /// The kernel's pointers lead into memory that is lent to the launch.
    pub system: bool,
    /// The kernel declares the bindings of [`PointerOptions::wide`].
    pub wide: bool,
}

/// A place where a pointer is dereferenced or an index applied behind one.
#[derive(Clone, Debug, PartialEq)]
pub struct PointerSite {
    /// The expression, in the source that the module was parsed from.
    pub span: Span,
    /// The function around it, by its name in the module.
    pub function: Option<String>,
    /// The type that the pointer was taken to point to.
    pub pointee: String,
    /// The required alignment of the address, in bytes; `None` where the place is an index.
    pub align: Option<u32>,
}

/// The fault of a pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultReason {
    /// The pointer was null.
    Null,
    /// Its address is no multiple of the type's alignment.
    Misaligned,
    /// The pointed-to value does not lie in the heap; or, where the kernel asks for allocations, not in a live
    /// allocation.
    Outside,
    /// An index behind the pointer was beyond the array, or beyond the heap for an array without a length.
    Index,
    /// A write to memory that was lent for reading.
    ReadOnly,
}

/// A failed dereference, read from a status record.
#[derive(Clone, Debug, PartialEq)]
pub struct PointerFault<'a> {
    /// The place of the fault; `None` for a code impossible for this kernel.
    pub site: Option<&'a PointerSite>,
    /// The fault.
    pub reason: FaultReason,
    /// The address.
    pub address: u64,
    /// The invocation: its position in the grid, x fastest.
    pub invocation: u32,
}

/// The bit of a site's code that tells of a write, in faults of [`HeapMemory::System`].
pub const WRITE_BIT: u32 = 1 << 31;

/// The bit that tells of an address that is no multiple of the access's alignment, in the same faults.
pub const MISALIGNED_BIT: u32 = 1 << 30;

/// The code of a site. Never 0.
pub(super) fn site_code(index: usize) -> u32 {
    u32::try_from(index)
        .unwrap_or(u32::MAX - 1)
        .saturating_add(1)
}

impl PointerFacts {
    /// The fault that `words`, the words [`super::super::status::POINTER`] of a status record, tell of.
    pub fn fault(&self, words: [u32; 4]) -> Option<PointerFault<'_>> {
        let [code, low, high, invocation] = words;
        let told = match self.system {
            true => code & (WRITE_BIT | MISALIGNED_BIT),
            false => 0,
        };
        let code = code & !told;
        let index = code.checked_sub(1)?;
        let site = self.sites.get(index as usize);
        let address = u64::from(low) | u64::from(high) << 32;
        let reason = match site.and_then(|site| site.align) {
            None if site.is_some() => FaultReason::Index,
            _ if address == 0 => FaultReason::Null,
            // The address is that of the access, which may be of a member.
            _ if told & MISALIGNED_BIT != 0 => FaultReason::Misaligned,
            Some(align) if !self.system && !address.is_multiple_of(u64::from(align.max(1))) => {
                FaultReason::Misaligned
            }
            _ if told & WRITE_BIT != 0 => FaultReason::ReadOnly,
            _ => FaultReason::Outside,
        };
        Some(PointerFault {
            site,
            reason,
            address,
            invocation,
        })
    }
}

/// Why a kernel's pointers cannot be lowered.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{kind}")]
pub struct PointerError {
    /// The fault.
    pub kind: PointerErrorKind,
    /// Where, in the source that the module was parsed from.
    pub span: Span,
    /// The function around it, by its name in the module.
    pub function: Option<String>,
}

/// Errors of a kernel with pointers.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PointerErrorKind {
    /// The translation mode is `Disabled`.
    #[error(
        "the kernel dereferences pointers, and its translation mode is Disabled; choose DeviceFavored or SharedFavored"
    )]
    Disabled,
    /// A member has a type impossible in shared memory, or on this device.
    #[error("`{place}` of type {ty} cannot be reached through a pointer: {why}")]
    UnsupportedType {
        /// The type or member.
        place: String,
        /// The type in WGSL's spelling.
        ty: String,
        /// The reason, and the remedy.
        why: String,
    },
    /// `arrayLength` of an array behind a pointer.
    #[error(
        "arrayLength() of an array behind a pointer that is followed: an address tells no length; pass the number of \
         elements to the kernel, store it beside the array, or pass the pointer as an argument (Launch::pointer), whose \
         arrayLength() is known"
    )]
    ArrayLength,
    /// A pointer is needed as an address and leads to a bound variable.
    #[error(
        "this pointer into the storage space does not come from a `usm_` function, and has no address; pass an index, \
         or reach the memory through a `usm_ptr`"
    )]
    ForeignPointer,
    /// A pointer argument or result has another pointee than declared.
    #[error(
        "a pointer to {given} is given where a pointer to {expected} is declared; pass a pointer to {expected}"
    )]
    PointeeMismatch {
        /// The declared pointee.
        expected: String,
        /// The pointee that was given.
        given: String,
    },
    /// A write through a read-only pointer, or such a pointer where a writable one is declared.
    #[error(
        "this pointer to {pointee} only reads; declare the variable, and every pointer to it on the way here, read_write"
    )]
    ReadOnly {
        /// The pointee.
        pointee: String,
    },
    /// A constant index beyond the end.
    #[error("the index {index} is beyond the {count} elements of {ty}")]
    IndexOutOfBounds {
        /// The index.
        index: u32,
        /// Elements there are.
        count: u32,
        /// The type that is indexed.
        ty: String,
    },
    /// A value is too large to be loaded or stored at once.
    #[error(
        "a value of {words} words is loaded or stored at once, and {limit} is the most; copy its elements in a loop"
    )]
    ValueTooLarge {
        /// Words of the value.
        words: u32,
        /// Words that may be moved at once.
        limit: u32,
    },
    /// Signed and unsigned minima or maxima in one kernel.
    #[error(
        "the kernel takes atomic minima or maxima of both i{bits} and u{bits} behind pointers, and the heap can be bound as \
         only one of them; use one kind, or a loop of atomicCompareExchangeWeak for the other"
    )]
    MixedAtomics {
        /// The width of both.
        bits: u32,
    },
    /// An atomic of 64 bits in an argument that need not begin at a multiple of 8.
    #[error(
        "an atomic of 64 bits needs an address that is a multiple of 8, and this argument lies in the heap at a multiple of \
         4 alone; pass memory that begins at a multiple of 8"
    )]
    MisalignedAtomic,
    /// An expression using a pointer in a way without meaning for the heap.
    #[error("{what} cannot be used with a pointer from a `usm_` function; {instead}")]
    Unsupported {
        /// The unsupported use.
        what: &'static str,
        /// The remedy.
        instead: &'static str,
    },
    /// The options contradict themselves or the kernel.
    #[error("the heap cannot be bound: {0}")]
    Options(&'static str),
    /// naga cannot tell the type of an expression, or the layout of a type.
    #[error("{0}")]
    Type(String),
}
