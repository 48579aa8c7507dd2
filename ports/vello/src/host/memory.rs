//! The buffers of a frame, and how large those are in which stages reserve room while they run.

use tombolo::{Device, DeviceBuffer};
use vello_encoding::{
    BinHeader, BumpAllocators, Clip, ClipBbox, ClipBic, ClipElement, DrawBbox, DrawMonoid,
    LineSoup, Path, PathBbox, PathMonoid, PathSegment, RenderConfig, SegmentCount, Tile,
};

/// How many elements there are in the buffers in which stages reserve room.
#[derive(Debug, Clone, Copy)]
pub struct Capacities {
    lines: u32,
    binning: u32,
    tiles: u32,
    seg_counts: u32,
    segments: u32,
    blend: u32,
    /// Words of commands, beside the first ones of each tile.
    ptcl: u32,
}

impl Default for Capacities {
    /// Small ones, 1.5 MB together: scenes that need more say how much.
    fn default() -> Self {
        Self {
            lines: 1 << 13,
            binning: 1 << 12,
            tiles: 1 << 13,
            seg_counts: 1 << 14,
            segments: 1 << 14,
            blend: 1 << 14,
            ptcl: 1 << 16,
        }
    }
}

impl Capacities {
    /// A frame's configuration with these capacities.
    pub fn apply(&self, config: &RenderConfig) -> RenderConfig {
        let mut gpu = config.gpu;
        gpu.lines_size = self.lines;
        gpu.binning_size = self.binning;
        gpu.tiles_size = self.tiles;
        gpu.seg_counts_size = self.seg_counts;
        gpu.segments_size = self.segments;
        gpu.blend_size = self.blend;
        gpu.ptcl_size = first_commands(config).saturating_add(self.ptcl);
        RenderConfig {
            gpu,
            workgroup_counts: config.workgroup_counts,
            buffer_sizes: config.buffer_sizes,
        }
    }

    /// Grows what was too small for what the stages counted; whether anything was.
    pub fn grow(&mut self, bump: &BumpAllocators) -> bool {
        let needs = [
            (&mut self.lines, bump.lines),
            (&mut self.binning, bump.binning),
            (&mut self.tiles, bump.tile),
            (&mut self.seg_counts, bump.seg_counts),
            (&mut self.segments, bump.segments),
            (&mut self.blend, bump.blend),
            (&mut self.ptcl, bump.ptcl),
        ];
        let mut has_grown = false;
        for (capacity, needed) in needs {
            if needed > *capacity {
                // A quarter more, since the next scene is often a little larger.
                let more = needed.saturating_add(needed / 4);
                *capacity = more.checked_next_multiple_of(1 << 10).unwrap_or(u32::MAX);
                has_grown = true;
            }
        }
        has_grown
    }
}

/// `PTCL_INITIAL_ALLOC` of the shaders.
pub const PTCL_INITIAL_ALLOC: u32 = 64;

/// Words for the first commands of all tiles, which nothing reserves.
fn first_commands(config: &RenderConfig) -> u32 {
    config.gpu.width_in_tiles * config.gpu.height_in_tiles * PTCL_INITIAL_ALLOC
}

/// What stages write, with the types of `vello_encoding`. Each stage's head in Vello's shaders says what is in them.
pub struct Buffers {
    pub reduced: DeviceBuffer<PathMonoid>,
    pub reduced2: DeviceBuffer<PathMonoid>,
    pub reduced_scan: DeviceBuffer<PathMonoid>,
    pub tag_monoids: DeviceBuffer<PathMonoid>,
    pub path_bboxes: DeviceBuffer<PathBbox>,
    pub bump: DeviceBuffer<BumpAllocators>,
    pub lines: DeviceBuffer<LineSoup>,
    pub draw_reduced: DeviceBuffer<DrawMonoid>,
    pub draw_monoids: DeviceBuffer<DrawMonoid>,
    pub info_bin_data: DeviceBuffer<u32>,
    pub clip_inps: DeviceBuffer<Clip>,
    pub clip_bics: DeviceBuffer<ClipBic>,
    pub clip_els: DeviceBuffer<ClipElement>,
    pub clip_bboxes: DeviceBuffer<ClipBbox>,
    pub draw_bboxes: DeviceBuffer<DrawBbox>,
    pub bin_headers: DeviceBuffer<BinHeader>,
    pub paths: DeviceBuffer<Path>,
    pub tiles: DeviceBuffer<Tile>,
    /// `IndirectCount` without its padding.
    pub indirect: DeviceBuffer<[u32; 3]>,
    pub seg_counts: DeviceBuffer<SegmentCount>,
    pub segments: DeviceBuffer<PathSegment>,
    pub ptcl: DeviceBuffer<u32>,
    pub blend_spill: DeviceBuffer<u32>,
}

impl Buffers {
    /// Makes all buffers.
    pub fn new(device: &Device, config: &RenderConfig) -> Result<Self, tombolo::Error> {
        let (gpu, sizes) = (&config.gpu, &config.buffer_sizes);
        let info_bin_data = gpu.layout.bin_data_start as usize + gpu.binning_size as usize;
        Ok(Self {
            reduced: device.zeroed(sizes.path_reduced.len() as usize)?,
            reduced2: device.zeroed(sizes.path_reduced2.len() as usize)?,
            reduced_scan: device.zeroed(sizes.path_reduced_scan.len() as usize)?,
            tag_monoids: device.zeroed(sizes.path_monoids.len() as usize)?,
            path_bboxes: device.zeroed(sizes.path_bboxes.len() as usize)?,
            bump: device.zeroed(1)?,
            lines: device.zeroed(gpu.lines_size as usize)?,
            draw_reduced: device.zeroed(sizes.draw_reduced.len() as usize)?,
            draw_monoids: device.zeroed(sizes.draw_monoids.len() as usize)?,
            info_bin_data: device.zeroed(info_bin_data)?,
            clip_inps: device.zeroed(sizes.clip_inps.len() as usize)?,
            clip_bics: device.zeroed(sizes.clip_bics.len() as usize)?,
            clip_els: device.zeroed(sizes.clip_els.len() as usize)?,
            clip_bboxes: device.zeroed(sizes.clip_bboxes.len() as usize)?,
            draw_bboxes: device.zeroed(sizes.draw_bboxes.len() as usize)?,
            bin_headers: device.zeroed(sizes.bin_headers.len() as usize)?,
            paths: device.zeroed(sizes.paths.len() as usize)?,
            tiles: device.zeroed(gpu.tiles_size as usize)?,
            indirect: device.zeroed(1)?,
            seg_counts: device.zeroed(gpu.seg_counts_size as usize)?,
            segments: device.zeroed(gpu.segments_size as usize)?,
            ptcl: device.zeroed(gpu.ptcl_size as usize)?,
            blend_spill: device.zeroed(gpu.blend_size as usize)?,
        })
    }
}
