//! Memory of the program that the device copies from and to where it lies, for the time of one transfer: on the embedded
//! adapter, whose buffers are memory of the host.
//!
//! # How it works
//! 1. The bytes of a transfer become a buffer of the device, and are on loan until the [`Span`] is dropped. The first lies in
//!    its word as on the device, so whole words are copied, of which the adapter leaves out what is not lent.
//! 2. The transfer is the one copy of [`direct`](super::direct), a batch with its place in line as any other: so the order of
//!    commands, losses and wgpu's knowledge of what is initialised are those of every copy.
//! 3. The end of the loan waits for a copy that is under way, and has later ones leave the bytes alone, whatever wgpu has told
//!    of the batch. So the bytes are the caller's again behind the drop.
//!
//! Staging memory costs a second copy there, which counts where there are many bytes ([`LEAST`]).
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;

use super::imports::Span;
use crate::device::DeviceShared;
use crate::device::embedded;
use crate::memory::host_memory::Destination;

/// The fewest bytes for which a buffer is made.
const LEAST: usize = 256 << 10;

/// The bytes as a source of copies to byte `at` of a buffer, on a device that copies from where they lie.
pub(crate) fn source<'a>(device: &Arc<DeviceShared>, bytes: &'a [u8], at: u64) -> Option<Span<'a>> {
    let (start, len) = (bytes.as_ptr().cast_mut(), bytes.len());
    // SAFETY: the bytes stay borrowed for as long as the span, and are copied from.
    unsafe { span(device, (start, len), at, wgpu::BufferUsages::COPY_SRC) }
}

/// The bytes as a target of copies from byte `at` of a buffer, on a device that copies to where they lie.
pub(super) fn target<'a>(
    device: &Arc<DeviceShared>,
    to: &'a mut Destination<'_>,
    at: u64,
) -> Option<Span<'a>> {
    let place = to.place();
    // SAFETY: the bytes stay borrowed for as long as the span, exclusively, and are copied to.
    unsafe { span(device, place, at, wgpu::BufferUsages::COPY_DST) }
}

/// As [`target`], of bytes that hold a value: what is lent, or the bytes back.
pub(crate) fn target_of<'a>(
    device: &Arc<DeviceShared>,
    bytes: &'a mut [u8],
    at: u64,
) -> Result<Span<'a>, &'a mut [u8]> {
    let place = (bytes.as_mut_ptr(), bytes.len());
    // SAFETY: the bytes stay borrowed for as long as the span, exclusively, and are copied to.
    let span = unsafe { span(device, place, at, wgpu::BufferUsages::COPY_DST) };
    span.ok_or(bytes)
}

/// # Safety
/// As [`embedded::lend`], for as long as the span.
unsafe fn span<'a>(
    device: &Arc<DeviceShared>,
    (start, len): (*mut u8, usize),
    at: u64,
    usage: wgpu::BufferUsages,
) -> Option<Span<'a>> {
    let start = NonNull::new(start).filter(|_| len >= LEAST)?;
    let bytes = (len as u64, at % 4);
    // SAFETY: by contract: the span keeps the loan.
    let (buffer, loan) = unsafe { embedded::lend(&device.raw, start, bytes, usage) }?;
    Some(Span::borrowed(buffer, loan))
}
