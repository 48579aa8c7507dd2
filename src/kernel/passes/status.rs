//! The status record: sixteen words of device memory for a kernel's report of failures after
//! submission.
//!
//! The host zeroes the record before a launch and reads the record at its end. A zero word means no
//! finding. A word by itself is only ever raised (`atomicMax`), so the order of the writing
//! invocations does not matter; words belonging together are written by the single invocation that
//! claimed them.

use std::num::NonZeroU32;

use naga::{
    AddressSpace, ArraySize, GlobalVariable, Handle, MemoryDecorations, Module, ResourceBinding,
    Scalar, Span, StorageAccess, Type, TypeInner,
};

use super::{type_of, unique_name};

/// Words in the record.
pub const WORDS: u32 = crate::device::status::RECORD_WORDS;

/// Word 0: the code of the loop that was cut short
/// ([`LoopGuard::site_for_code`](super::loop_guard::LoopGuard::site_for_code)), 0 for none.
pub const LOOP_GUARD: u32 = 0;

/// Words 1 to 4: reserved for assertions that failed in the kernel.
pub const ASSERTION: std::ops::Range<u32> = 1..5;

/// Words 5 to 8: the first pointer that could not be dereferenced: code, address (low word, high word),
/// invocation.
pub const POINTER: std::ops::Range<u32> = 5..9;

/// Word 9: not 0 once an invocation has claimed the words [`POINTER`], to write them alone.
pub const POINTER_CLAIM: u32 = 9;

/// Words 10 to 12: the first index that was beyond a span: the code of its place, index, length of the span.
pub const SPAN: std::ops::Range<u32> = 10..13;

/// Word 13: not 0 once an invocation has claimed the words [`SPAN`], to write them alone.
pub const SPAN_CLAIM: u32 = 13;

/// Word 14: a failed call of the host: the status in the upper half, and in the lower half the number of the function
/// among the program's calls, plus 1.
pub const CALL: u32 = 14;

/// Word 15: zero before, during and after a launch. Kernels read the word as a zero unknown to any
/// compiler; nothing may write the word.
pub const ALWAYS_ZERO: u32 = 15;

const _: () = assert!(
    LOOP_GUARD + 1 == ASSERTION.start
        && ASSERTION.end == POINTER.start
        && POINTER.end == POINTER_CLAIM
        && POINTER_CLAIM + 1 == SPAN.start
        && SPAN.end == SPAN_CLAIM
        && SPAN_CLAIM + 1 == CALL
        && CALL + 1 == ALWAYS_ZERO
        && ALWAYS_ZERO + 1 == WORDS
);

/// The variable `var<storage, read_write> tombolo_status: array<atomic<u32>, 16>` at `binding`,
/// which is added where the module has no such variable yet.
///
/// `binding`, chosen by the caller, must not be used by the user's program.
pub fn status_global(module: &mut Module, binding: ResourceBinding) -> Handle<GlobalVariable> {
    let space = AddressSpace::Storage {
        access: StorageAccess::LOAD | StorageAccess::STORE,
    };
    let ty = status_type(module);
    let present = (module.global_variables.iter())
        .find(|(_, v)| v.binding == Some(binding) && v.space == space && v.ty == ty);
    if let Some((handle, _)) = present {
        return handle;
    }
    let name = unique_name(module, "tombolo_status");
    module.global_variables.append(
        GlobalVariable {
            name: Some(name),
            space,
            binding: Some(binding),
            ty,
            init: None,
            memory_decorations: MemoryDecorations::empty(),
        },
        Span::UNDEFINED,
    )
}

/// The type of the record.
pub fn status_type(module: &mut Module) -> Handle<Type> {
    let word = type_of(module, TypeInner::Atomic(Scalar::U32));
    type_of(
        module,
        TypeInner::Array {
            base: word,
            size: NonZeroU32::new(WORDS).map_or(ArraySize::Dynamic, ArraySize::Constant),
            stride: 4,
        },
    )
}
