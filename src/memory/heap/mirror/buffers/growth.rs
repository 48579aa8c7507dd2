//! Mirrors that follow the heap's size: the last part is replaced, and launches that name the old one are given the new.

use super::super::PAGE;
use super::super::search::{LISTED_WORDS, SUMS};
use super::{MirrorBuffers, Part, refused};
use crate::device::{DeviceShared, capture, unique_id};
use crate::memory::heap::HeapError;

impl MirrorBuffers {
    /// Makes the mirror cover `covered` bytes. Commands recorded before go on using the old buffers,
    /// whose contents are copied behind them.
    pub(in super::super) fn grow(
        &mut self,
        device: &DeviceShared,
        covered: u64,
    ) -> Result<(), HeapError> {
        let kept = (self.covered / self.step) as usize;
        let mut new = Vec::new();
        let mut at = kept as u64 * self.step;
        while at < covered {
            let bytes = self.step.min(covered - at);
            let (part, error) = capture(&self.raw, || self.part(bytes));
            refused(&self.name, error)?;
            new.push(part);
            at += bytes;
        }
        if let (Some(old), Some(new)) = (self.parts.get(kept), new.first()) {
            self.carry_over(device, old, new)?;
        }
        self.replace(device, kept, new);
        self.covered = covered;
        Ok(())
    }

    /// Makes the mirror cover no more than `covered` bytes, in the same way.
    pub(in super::super) fn shrink(
        &mut self,
        device: &DeviceShared,
        covered: u64,
    ) -> Result<(), HeapError> {
        let (kept, rest) = ((covered / self.step) as usize, covered % self.step);
        let mut shorter = Vec::new();
        if let (Some(old), true) = (self.parts.get(kept), rest > 0) {
            let (part, error) = capture(&self.raw, || self.part(rest));
            refused(&self.name, error)?;
            self.carry_over(device, old, &part)?;
            shorter.push(part);
        }
        self.replace(device, kept, shorter);
        self.covered = covered;
        // Buffers go once no recorded command uses them.
        Self::flush(device)
    }

    /// Copies the common part of both.
    fn carry_over(&self, device: &DeviceShared, old: &Part, new: &Part) -> Result<(), HeapError> {
        let pairs = [
            (&old.heap, &new.heap),
            (&old.known, &new.known),
            (&old.changed, &new.changed),
        ];
        let ((), error) = capture(&self.raw, || {
            device.queue.lock(device).encode(|encoder| {
                for (old, new) in pairs {
                    let bytes = old.size().min(new.size());
                    encoder.copy_buffer_to_buffer(old, 0, new, 0, bytes);
                }
            });
        });
        refused(&self.name, error)
    }

    /// Puts `new` in the place of the parts from `kept` on. Launches still naming these are given the replacements.
    fn replace(&mut self, device: &DeviceShared, kept: usize, new: Vec<Part>) {
        for old in self.parts.drain(kept.min(self.parts.len())..) {
            if let Some(tell) = device.buffer_gone.get() {
                tell(device, old.id);
            }
        }
        self.parts.extend(new);
    }

    fn part(&self, bytes: u64) -> Part {
        use wgpu::BufferUsages as U;
        let buffer = |label, size| {
            self.raw.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size,
                usage: U::STORAGE | U::COPY_SRC | U::COPY_DST,
                mapped_at_creation: false,
            })
        };
        // Uniform variables may be given a place in the heap, too.
        let heap = self.raw.create_buffer(&wgpu::BufferDescriptor {
            label: Some("shared heap mirror"),
            size: bytes,
            usage: U::STORAGE | U::UNIFORM | U::INDIRECT | U::COPY_SRC | U::COPY_DST,
            mapped_at_creation: false,
        });
        let pages = bytes.div_ceil(PAGE);
        let known = buffer("shared heap as it was", pages * SUMS);
        let changed = buffer("shared heap pages", pages.div_ceil(32) * 4);
        let listed = buffer("shared heap search", LISTED_WORDS * 4);
        let group = self
            .search
            .group(&self.raw, [&heap, &known, &changed, &listed]);
        Part {
            id: unique_id(),
            heap,
            known,
            changed,
            listed,
            group,
        }
    }
}
