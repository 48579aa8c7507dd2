//! The bind groups of a submission: those of the last one, from the cache, or new.

use smallvec::SmallVec;

use super::bind::bind_groups;
use super::error::LaunchError;
use super::parts::{Identity, Parts, Places, Resource, Submission};
use crate::device::capture;
use crate::device::queue::Recorder;
use crate::device::status::RECORD_BYTES;
use crate::kernel::compile::Variant;
use crate::kernel::passes::grid::BYTES as GRID_BYTES;
use crate::kernel::plan::{GroupPlan, Source};

/// Identities that stand for the runtime's own buffers in keys of the bind-group cache; the buffers
/// of programs count up from 1 and never get here.
const RING_ID: u64 = 1 << 63;
const STATUS_ID: u64 = (1 << 63) - 1;

/// The bind groups of a submission.
#[derive(Debug, Clone)]
pub(super) struct BoundGroups {
    /// What the groups are made of, beside the launch's arguments.
    identity: Identity,
    pub(super) groups: Vec<wgpu::BindGroup>,
    /// Bytes of the buffers in the groups, and `u64::MAX` where there are other resources.
    pub(super) held: u64,
    /// Whether the groups are good for further submissions: none binds a value at a fixed place.
    pub(super) is_reusable: bool,
}

/// The bind groups for a submission; `kept` are the last one's, if no argument has changed since.
pub(super) fn bind(
    to: &Submission<'_>,
    parts: &Parts<'_>,
    queue: &mut Recorder<'_>,
    places: &Places,
    kept: Option<Box<BoundGroups>>,
) -> Result<Box<BoundGroups>, LaunchError> {
    let Variant {
        tiled,
        written,
        globals_written,
    } = to.dispatches.variant;
    let mut identity = Identity::from_slice(&[
        queue.uniform_generation(),
        to.kernel.compiled.id,
        u64::from(tiled) << 1 | u64::from(globals_written),
        written,
    ]);
    parts.identity(&mut identity);
    if let Some(kept) = kept.filter(|kept| kept.identity == identity) {
        return Ok(kept);
    }
    let own = Own {
        ring: queue.uniform_buffer(),
        status: (to.kernel.compiled.report.is_some()).then(|| queue.status_buffer()),
    };
    let mut bound = Box::new(BoundGroups {
        identity,
        groups: Vec::with_capacity(to.dispatches.built().groups.len()),
        held: 0,
        is_reusable: true,
    });
    for plan in &to.dispatches.built().groups {
        let found = entries(to, parts, plan, places, &own);
        bound.is_reusable &= found.is_reusable;
        bound.held = bound.held.saturating_add(found.held);
        // Errors are watched for only when a group is really made.
        let make = || {
            capture(&to.device.raw, || {
                to.device.raw.create_bind_group(&wgpu::BindGroupDescriptor {
                    label: Some(&to.launch.kernel.shared.name),
                    layout: &plan.layout,
                    entries: &found.entries,
                })
            })
        };
        let (group, error) = match found.is_cacheable {
            true => bind_groups(to.device).get(&found.key, &found.buffers, make),
            false => make(),
        };
        if let Some(error) = error {
            return Err(LaunchError::Refused {
                kernel: to.launch.kernel.interface().entry.clone(),
                message: error.to_string(),
            });
        }
        bound.groups.push(group);
    }
    Ok(bound)
}

/// The queue's own buffers.
struct Own {
    /// The uniform ring, and its generation.
    ring: Option<(wgpu::Buffer, u64)>,
    status: Option<wgpu::Buffer>,
}

/// The entries of a bind group.
struct Entries<'a> {
    entries: SmallVec<[wgpu::BindGroupEntry<'a>; 8]>,
    /// The key in the cache.
    key: SmallVec<[u64; 32]>,
    /// The buffers in the key that the cache must not keep alive.
    buffers: SmallVec<[u64; 8]>,
    /// Bytes of the buffers; `u64::MAX` where there are other resources.
    held: u64,
    /// Every resource has an identity of ours.
    is_cacheable: bool,
    is_reusable: bool,
}

fn entries<'a>(
    to: &Submission<'a>,
    parts: &'a Parts<'_>,
    plan: &GroupPlan,
    places: &Places,
    own: &'a Own,
) -> Entries<'a> {
    let mut all = Entries {
        entries: SmallVec::new(),
        key: SmallVec::from_slice(&[plan.id]),
        buffers: SmallVec::new(),
        held: 0,
        is_cacheable: true,
        is_reusable: true,
    };
    for entry in &plan.entries {
        let resource = match parts.bind(to, entry.source) {
            None if entry.source == Source::Grid => match &own.ring {
                Some((ring, generation)) => all.buffer(RING_ID | generation, ring, 0, GRID_BYTES),
                None => continue,
            },
            None => continue,
            Some(Resource::Texture(given)) => {
                all.held = u64::MAX;
                match &given.texture {
                    Some(texture) => {
                        all.buffers.push(texture.id);
                        all.key.extend([texture.id, 0, 0]);
                    }
                    None => all.is_cacheable = false,
                }
                wgpu::BindingResource::TextureView(&given.view)
            }
            Some(Resource::Sampler(sampler)) => {
                all.is_cacheable = false;
                wgpu::BindingResource::Sampler(sampler)
            }
            Some(Resource::Buffer {
                id,
                buffer,
                start,
                bytes,
            }) => {
                all.buffers.push(id);
                all.buffer(id, buffer, start, bytes)
            }
            Some(Resource::Status) => match &own.status {
                Some(status) => all.buffer(STATUS_ID, status, 0, RECORD_BYTES),
                None => continue,
            },
            Some(Resource::Ring(bytes)) => {
                let Some((ring, generation)) = &own.ring else {
                    continue;
                };
                all.is_reusable &= entry.dynamic;
                let start = match entry.dynamic {
                    true => 0,
                    false => u64::from(places.of(entry.source)),
                };
                all.buffer(RING_ID | generation, ring, start, bytes)
            }
        };
        all.entries.push(wgpu::BindGroupEntry {
            binding: entry.binding,
            resource,
        });
    }
    all
}

impl<'a> Entries<'a> {
    fn buffer(
        &mut self,
        id: u64,
        buffer: &'a wgpu::Buffer,
        start: u64,
        bytes: u64,
    ) -> wgpu::BindingResource<'a> {
        self.key.extend([id, start, bytes]);
        self.held = self.held.saturating_add(buffer.size());
        wgpu::BindingResource::Buffer(wgpu::BufferBinding {
            buffer,
            offset: start,
            size: wgpu::BufferSize::new(bytes),
        })
    }
}
