//! Recording: commands go into the encoder of the open batch, and launches into a compute pass that they share.

use smallvec::SmallVec;

use super::Recorder;
use crate::device::profile::{Profiler, TimingSlot};

/// The dispatch part of a launch.
pub(crate) enum Dispatch<'a> {
    Direct([u32; 3]),
    Indirect(&'a wgpu::Buffer, u64),
}

/// A bind group for binding by a launch.
pub(crate) struct Bound<'a> {
    pub(crate) index: u32,
    pub(crate) group: &'a wgpu::BindGroup,
    pub(crate) offsets: &'a [u32],
}

/// The dynamic offsets of a bind group.
type Offsets = SmallVec<[u32; 4]>;

pub(super) struct OpenPass {
    pass: wgpu::ComputePass<'static>,
    pipeline: Option<wgpu::ComputePipeline>,
    groups: SmallVec<[Option<(wgpu::BindGroup, Offsets)>; 4]>,
}

impl Recorder<'_> {
    /// Records one launch, of buffers of `held` bytes together.
    pub(crate) fn launch(
        &mut self,
        pipeline: &wgpu::ComputePipeline,
        groups: &[Bound<'_>],
        immediates: &[u8],
        dispatch: &Dispatch<'_>,
        held: u64,
    ) {
        self.open_pass(None);
        if let Some(open) = self.state.pass.as_mut() {
            open.record(pipeline, groups, immediates, dispatch);
        }
        self.state.commands += 1;
        self.state.held = self.state.held.saturating_add(held);
    }

    /// Opens a separate pass for the launches until [`Self::end_timed`], with timestamps around the pass.
    pub(crate) fn begin_timed(&mut self) -> TimingSlot {
        self.end_pass();
        let device = self.device;
        let slot = self
            .state
            .profiler
            .get_or_insert_with(|| Profiler::new(&device.raw, &device.queue_raw))
            .take(&device.raw, device.capabilities.is_lavapipe());
        self.open_encoder();
        if let Some(encoder) = self.state.encoder.as_mut() {
            slot.begin(encoder);
        }
        self.open_pass(Some(&slot));
        slot
    }

    pub(crate) fn end_timed(&mut self, slot: &TimingSlot) {
        self.end_pass();
        if let Some(encoder) = self.state.encoder.as_mut() {
            slot.end(encoder);
        }
    }

    pub(super) fn open_encoder(&mut self) {
        if self.state.encoder.is_none() {
            let spare = self.state.spare_encoder.take();
            let encoder = spare.unwrap_or_else(|| self.new_encoder());
            self.state.encoder = Some(encoder);
        }
    }

    fn new_encoder(&self) -> wgpu::CommandEncoder {
        let descriptor = wgpu::CommandEncoderDescriptor {
            label: Some("tombolo batch"),
        };
        self.device.raw.create_command_encoder(&descriptor)
    }

    /// Makes the encoder of the next batch, while the device works on the last one.
    pub(super) fn prepare_encoder(&mut self) {
        if self.state.spare_encoder.is_none() && self.state.encoder.is_none() {
            self.state.spare_encoder = Some(self.new_encoder());
        }
    }

    fn open_pass(&mut self, timing: Option<&TimingSlot>) {
        if self.state.pass.is_some() {
            return;
        }
        self.open_encoder();
        if let Some(encoder) = self.state.encoder.as_mut() {
            let pass = encoder
                .begin_compute_pass(&wgpu::ComputePassDescriptor {
                    label: Some("tombolo launches"),
                    timestamp_writes: timing.and_then(TimingSlot::of_launch),
                })
                .forget_lifetime();
            self.state.pass = Some(OpenPass {
                pass,
                pipeline: None,
                groups: SmallVec::new(),
            });
        }
    }

    pub(super) fn end_pass(&mut self) {
        self.state.pass = None;
    }

    /// Puts a debug marker before what is recorded next. A marker is no command: batches are as long as without.
    #[cfg(embedded)]
    pub(crate) fn mark(&mut self, marker: &str) {
        self.end_pass();
        self.open_encoder();
        if let Some(encoder) = self.state.encoder.as_mut() {
            encoder.insert_debug_marker(marker);
        }
    }

    /// Records a command that belongs outside compute passes (a copy, a fill).
    pub(crate) fn encode(&mut self, command: impl FnOnce(&mut wgpu::CommandEncoder)) {
        self.end_pass();
        self.open_encoder();
        if let Some(encoder) = self.state.encoder.as_mut() {
            command(encoder);
        }
        self.state.commands += 1;
        self.state.held = u64::MAX;
    }
}

impl OpenPass {
    fn record(
        &mut self,
        pipeline: &wgpu::ComputePipeline,
        groups: &[Bound<'_>],
        immediates: &[u8],
        dispatch: &Dispatch<'_>,
    ) {
        if self.pipeline.as_ref() != Some(pipeline) {
            self.pass.set_pipeline(pipeline);
            self.pipeline = Some(pipeline.clone());
            // A pipeline with another layout invalidates the bindings.
            self.groups.clear();
        }
        for bound in groups {
            let at = bound.index as usize;
            if self.groups.len() <= at {
                self.groups.resize(at + 1, None);
            }
            let (index, group, offsets) = (bound.index, bound.group, bound.offsets);
            match &mut self.groups[at] {
                Some((known, at_offsets)) if known == group => {
                    if at_offsets.as_slice() != offsets {
                        self.pass.set_bind_group(index, group, offsets);
                        at_offsets.clear();
                        at_offsets.extend_from_slice(offsets);
                    }
                }
                other => {
                    self.pass.set_bind_group(index, group, offsets);
                    *other = Some((group.clone(), Offsets::from_slice(offsets)));
                }
            }
        }
        if !immediates.is_empty() {
            self.pass.set_immediates(0, immediates);
        }
        match dispatch {
            Dispatch::Direct([x, y, z]) => self.pass.dispatch_workgroups(*x, *y, *z),
            Dispatch::Indirect(buffer, offset) => {
                self.pass.dispatch_workgroups_indirect(buffer, *offset);
            }
        }
    }
}
