//! Pointer arguments that cannot be bound where they are, because of their address or because the heap is
//! bound as a whole: their values travel through a buffer of the device, in the queue's order, before and
//! after the launch.

use std::sync::Arc;

use super::arguments::Given;
use super::error::LaunchError;
use crate::device::queue::Recorder;
use crate::device::{DeviceShared, capture, unique_id};
use crate::kernel::reflect::{ArgumentInfo, ArgumentKind, Interface};
use crate::memory::BufferView;
use crate::memory::buffer::BufferShared;

/// One argument that takes the detour.
#[derive(Debug, Clone)]
pub(super) struct Bounce {
    pub(super) argument: usize,
    /// Where the values are.
    home: BufferView,
    /// What is bound in their place.
    stand_in: wgpu::Buffer,
    /// Its identity.
    id: u64,
    writable: bool,
}

/// What to bind for the values at `home`: themselves, or a stand-in.
pub(super) fn bounce(
    device: &Arc<DeviceShared>,
    info: &ArgumentInfo,
    argument: usize,
    home: BufferView,
) -> Result<(BufferView, Option<Bounce>), LaunchError> {
    let alignment = match info.kind {
        ArgumentKind::Uniform { .. } => device.limits.min_uniform_buffer_offset_alignment,
        _ => device.limits.min_storage_buffer_offset_alignment,
    };
    // Copies move whole words; anything finer is refused where arguments are checked.
    let words = home.offset.is_multiple_of(4) && home.bytes.is_multiple_of(4);
    if home.offset.is_multiple_of(u64::from(alignment)) || !words || home.bytes == 0 {
        return Ok((home, None));
    }
    detour(device, info, argument, home)
}

/// The same for a kernel that reaches the heap: storage variables are reached there; uniform ones, which
/// could not be bound beside it, have a stand-in.
pub(super) fn bounce_beside(
    device: &Arc<DeviceShared>,
    info: &ArgumentInfo,
    argument: usize,
    home: BufferView,
) -> Result<(BufferView, Option<Bounce>), LaunchError> {
    let is_uniform = matches!(info.kind, ArgumentKind::Uniform { .. });
    if !is_uniform || !home.offset.is_multiple_of(4) || home.bytes == 0 {
        return Ok((home, None));
    }
    detour(device, info, argument, home)
}

fn detour(
    device: &Arc<DeviceShared>,
    info: &ArgumentInfo,
    argument: usize,
    home: BufferView,
) -> Result<(BufferView, Option<Bounce>), LaunchError> {
    let (stand_in, error) = capture(&device.raw, || {
        device.raw.create_buffer(&wgpu::BufferDescriptor {
            label: Some("tombolo pointer argument"),
            size: home.bytes.next_multiple_of(4),
            usage: wgpu::BufferUsages::STORAGE
                | wgpu::BufferUsages::UNIFORM
                | wgpu::BufferUsages::COPY_SRC
                | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        })
    });
    if let Some(error) = error {
        return Err(LaunchError::Refused {
            kernel: info.name.clone(),
            message: error.to_string(),
        });
    }
    let bounce = Bounce {
        argument,
        home,
        stand_in,
        id: unique_id(),
        writable: matches!(info.kind, ArgumentKind::Storage { writable: true, .. }),
    };
    Ok((bounce.stand_in(), Some(bounce)))
}

impl Bounce {
    /// Whether it is the detour of these values.
    pub(super) fn is_of(&self, argument: usize, home: &BufferView) -> bool {
        let known = &self.home;
        self.argument == argument
            && (known.shared.id, known.offset, known.bytes)
                == (home.shared.id, home.offset, home.bytes)
    }

    /// What is bound in their place.
    pub(super) fn stand_in(&self) -> BufferView {
        let shared = BufferShared::new(
            &self.home.shared.device,
            self.stand_in.clone(),
            self.id,
            false,
        );
        BufferView {
            shared,
            offset: 0,
            ..self.home.clone()
        }
    }

    /// Replaces where the values are, if they are elsewhere now.
    pub(super) fn follow(&mut self, now: impl FnOnce(&BufferView) -> Option<BufferView>) {
        if let Some(home) = now(&self.home) {
            self.home = home;
        }
    }

    pub(super) fn before(&self, queue: &mut Recorder<'_>) {
        let (home, bytes) = (&self.home, self.home.bytes.next_multiple_of(4));
        queue.encode(|encoder| {
            let from = &home.shared.raw;
            encoder.copy_buffer_to_buffer(from, home.offset, &self.stand_in, 0, bytes);
        });
    }

    pub(super) fn after(&self, queue: &mut Recorder<'_>) {
        if self.writable {
            let (home, bytes) = (&self.home, self.home.bytes.next_multiple_of(4));
            queue.encode(|encoder| {
                let to = &home.shared.raw;
                encoder.copy_buffer_to_buffer(&self.stand_in, 0, to, home.offset, bytes);
            });
        }
    }
}

/// Finds values that take the detour although another argument means the same bytes and one of both is
/// written: each would have a copy of its own.
pub(super) fn check_bounces(
    kernel: &str,
    interface: &Interface,
    given: &[Option<Given>],
    bounces: &[Bounce],
) -> Result<(), LaunchError> {
    for (index, one) in bounces.iter().enumerate() {
        let direct = given
            .iter()
            .enumerate()
            .filter_map(|(at, given)| match given {
                Some(Given::Buffer { view, .. }) if view.shared.is_heap => Some((at, view)),
                _ => None,
            });
        let others = bounces
            .iter()
            .skip(index + 1)
            .map(|b| (b.argument, &b.home));
        for (other, view) in direct.chain(others) {
            let (a, b) = (one.home.range(), view.range());
            let apart = a.end <= b.start || b.end <= a.start;
            let writable = |at: usize| {
                let kind = &interface.arguments[at].kind;
                matches!(kind, ArgumentKind::Storage { writable: true, .. })
            };
            if one.home.shared.raw == view.shared.raw
                && !apart
                && (writable(one.argument) || writable(other))
            {
                return Err(LaunchError::Aliased {
                    kernel: kernel.to_string(),
                    first: interface.arguments[one.argument].name.clone(),
                    second: interface.arguments[other].name.clone(),
                });
            }
        }
    }
    Ok(())
}
