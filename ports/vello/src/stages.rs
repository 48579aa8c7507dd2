//! What the stages leave in their buffers: read from a device, or made by Vello's own implementation on the processor.

use std::cell::RefCell;

use bytemuck::Pod;
use tombolo::DeviceBuffer;
use vello_encoding::{
    BinHeader, BumpAllocators, Clip, ClipBbox, ClipBic, ClipElement, ConfigUniform, DrawBbox,
    DrawMonoid, IndirectCount, LineSoup, Path, PathBbox, PathMonoid, PathSegment, RenderConfig,
    SegmentCount, Tile, WorkgroupSize,
};
use vello_shaders::cpu::{self, CpuBinding};

use crate::host::Buffers;

/// The contents of buffers, when all stages but the fine one have ended.
pub struct Stages {
    pub config: ConfigUniform,
    pub bump: BumpAllocators,
    pub tag_monoids: Vec<PathMonoid>,
    pub path_bboxes: Vec<PathBbox>,
    pub lines: Vec<LineSoup>,
    pub draw_monoids: Vec<DrawMonoid>,
    pub info_bin_data: Vec<u32>,
    pub clip_inps: Vec<Clip>,
    pub clip_bboxes: Vec<ClipBbox>,
    pub draw_bboxes: Vec<DrawBbox>,
    pub bin_headers: Vec<BinHeader>,
    pub paths: Vec<Path>,
    pub segments: Vec<PathSegment>,
    pub ptcl: Vec<u32>,
}

impl Stages {
    /// Reads what the launches on a device have left.
    pub fn read(config: &RenderConfig, b: &Buffers) -> Result<Self, tombolo::Error> {
        Ok(Self {
            config: config.gpu,
            bump: b.bump.read()?[0],
            tag_monoids: b.tag_monoids.read()?,
            path_bboxes: b.path_bboxes.read()?,
            lines: b.lines.read()?,
            draw_monoids: b.draw_monoids.read()?,
            info_bin_data: b.info_bin_data.read()?,
            clip_inps: b.clip_inps.read()?,
            clip_bboxes: b.clip_bboxes.read()?,
            draw_bboxes: b.draw_bboxes.read()?,
            bin_headers: b.bin_headers.read()?,
            paths: b.paths.read()?,
            segments: b.segments.read()?,
            ptcl: b.ptcl.read()?,
        })
    }

    /// Runs all stages but the fine one on the processor, by `vello_shaders::cpu`.
    pub fn compute(config: &RenderConfig, scene: &[u8]) -> Self {
        let memory = Memory::new(config);
        memory.run(config, &bytemuck::pod_collect_to_vec(scene));
        Self {
            config: config.gpu,
            bump: values(&memory.bump)[0],
            tag_monoids: values(&memory.tag_monoids),
            path_bboxes: values(&memory.path_bboxes),
            lines: values(&memory.lines),
            draw_monoids: values(&memory.draw_monoids),
            info_bin_data: values(&memory.info_bin_data),
            clip_inps: values(&memory.clip_inps),
            clip_bboxes: values(&memory.clip_bboxes),
            draw_bboxes: values(&memory.draw_bboxes),
            bin_headers: values(&memory.bin_headers),
            paths: values(&memory.paths),
            segments: values(&memory.segments),
            ptcl: values(&memory.ptcl),
        }
    }
}

/// Fills all buffers with what is no sensible value of any type, so that nothing is right by chance.
pub fn poison(b: &Buffers) -> Result<(), tombolo::Error> {
    fn fill<T: Pod>(buffer: &DeviceBuffer<T>) -> Result<(), tombolo::Error> {
        let poison = vec![0xa5; size_of::<T>()];
        buffer.fill(bytemuck::pod_read_unaligned(&poison), ..)?;
        Ok(())
    }
    fill(&b.reduced)?;
    fill(&b.reduced2)?;
    fill(&b.reduced_scan)?;
    fill(&b.tag_monoids)?;
    fill(&b.path_bboxes)?;
    fill(&b.bump)?;
    fill(&b.lines)?;
    fill(&b.draw_reduced)?;
    fill(&b.draw_monoids)?;
    fill(&b.info_bin_data)?;
    fill(&b.clip_inps)?;
    fill(&b.clip_bics)?;
    fill(&b.clip_els)?;
    fill(&b.clip_bboxes)?;
    fill(&b.draw_bboxes)?;
    fill(&b.bin_headers)?;
    fill(&b.paths)?;
    fill(&b.tiles)?;
    fill(&b.indirect)?;
    fill(&b.seg_counts)?;
    fill(&b.segments)?;
    fill(&b.ptcl)?;
    fill(&b.blend_spill)
}

type Bytes = RefCell<Vec<u8>>;

/// What the stages on the processor work on.
struct Memory {
    reduced: Bytes,
    tag_monoids: Bytes,
    path_bboxes: Bytes,
    bump: Bytes,
    lines: Bytes,
    draw_reduced: Bytes,
    draw_monoids: Bytes,
    info_bin_data: Bytes,
    clip_inps: Bytes,
    clip_bics: Bytes,
    clip_els: Bytes,
    clip_bboxes: Bytes,
    draw_bboxes: Bytes,
    bin_headers: Bytes,
    paths: Bytes,
    tiles: Bytes,
    indirect: Bytes,
    seg_counts: Bytes,
    segments: Bytes,
    ptcl: Bytes,
}

/// Zeros, for so many values.
fn zeros<T>(count: u32) -> Bytes {
    RefCell::new(vec![0; size_of::<T>() * count as usize])
}

fn values<T: Pod>(bytes: &Bytes) -> Vec<T> {
    bytemuck::pod_collect_to_vec(&bytes.borrow())
}

/// So many elements more there are than a device needed, which may have stopped before it counted all: stages on the
/// processor end the program where there are too few.
const SPARE: u32 = 1 << 18;

impl Memory {
    fn new(config: &RenderConfig) -> Self {
        let (gpu, sizes) = (&config.gpu, &config.buffer_sizes);
        Self {
            reduced: zeros::<PathMonoid>(sizes.path_reduced.len()),
            tag_monoids: zeros::<PathMonoid>(sizes.path_monoids.len()),
            path_bboxes: zeros::<PathBbox>(sizes.path_bboxes.len()),
            bump: zeros::<BumpAllocators>(1),
            lines: zeros::<LineSoup>(gpu.lines_size + SPARE),
            draw_reduced: zeros::<DrawMonoid>(sizes.draw_reduced.len()),
            draw_monoids: zeros::<DrawMonoid>(sizes.draw_monoids.len()),
            info_bin_data: zeros::<u32>(gpu.layout.bin_data_start + gpu.binning_size + SPARE),
            clip_inps: zeros::<Clip>(sizes.clip_inps.len()),
            clip_bics: zeros::<ClipBic>(sizes.clip_bics.len()),
            clip_els: zeros::<ClipElement>(sizes.clip_els.len()),
            clip_bboxes: zeros::<ClipBbox>(sizes.clip_bboxes.len()),
            draw_bboxes: zeros::<DrawBbox>(sizes.draw_bboxes.len()),
            bin_headers: zeros::<BinHeader>(sizes.bin_headers.len()),
            paths: zeros::<Path>(sizes.paths.len()),
            tiles: zeros::<Tile>(gpu.tiles_size + SPARE),
            indirect: zeros::<IndirectCount>(1),
            seg_counts: zeros::<SegmentCount>(gpu.seg_counts_size + SPARE),
            segments: zeros::<PathSegment>(gpu.segments_size + SPARE),
            ptcl: zeros::<u32>(gpu.ptcl_size + SPARE),
        }
    }

    /// In the order of the launches in `crate::host::Frame`; paths are scanned in two levels, whatever their number.
    fn run(&self, config: &RenderConfig, scene: &[u32]) {
        let uniform = CpuBinding::Buffer(bytemuck::bytes_of(&config.gpu));
        let both = [uniform, CpuBinding::Buffer(bytemuck::cast_slice(scene))];
        self.run_objects(config, &both);
        self.run_tiles(config, &both);
    }

    /// Up to the bins of draw objects.
    fn run_objects(&self, config: &RenderConfig, both: &[CpuBinding<'_>; 2]) {
        let m = self;
        let (grids, alone) = (&config.workgroup_counts, &both[..1]);
        stage(cpu::pathtag_reduce, grids.path_reduce, both, &[&m.reduced]);
        let tags = [&m.reduced, &m.tag_monoids];
        stage(cpu::pathtag_scan, grids.path_scan, both, &tags);
        stage(cpu::bbox_clear, grids.bbox_clear, alone, &[&m.path_bboxes]);
        let lines = [&m.tag_monoids, &m.path_bboxes, &m.bump, &m.lines];
        stage(cpu::flatten, grids.flatten, both, &lines);
        stage(
            cpu::draw_reduce,
            grids.draw_reduce,
            both,
            &[&m.draw_reduced],
        );
        let objects = [
            &m.draw_reduced,
            &m.path_bboxes,
            &m.draw_monoids,
            &m.info_bin_data,
            &m.clip_inps,
        ];
        stage(cpu::draw_leaf, grids.draw_leaf, both, &objects);
        let stack = [&m.clip_inps, &m.path_bboxes, &m.clip_bics, &m.clip_els];
        stage(cpu::clip_reduce, grids.clip_reduce, &[], &stack);
        let clips = [
            &m.clip_inps,
            &m.path_bboxes,
            &m.clip_bics,
            &m.clip_els,
            &m.draw_monoids,
            &m.clip_bboxes,
        ];
        stage(cpu::clip_leaf, grids.clip_leaf, alone, &clips);
        let bins = [
            &m.draw_monoids,
            &m.path_bboxes,
            &m.clip_bboxes,
            &m.draw_bboxes,
            &m.bump,
            &m.info_bin_data,
            &m.bin_headers,
        ];
        stage(cpu::binning, grids.binning, alone, &bins);
    }

    /// Tiles, their commands, and segments.
    fn run_tiles(&self, config: &RenderConfig, both: &[CpuBinding<'_>; 2]) {
        let m = self;
        let (grids, alone) = (&config.workgroup_counts, &both[..1]);
        let once = (1, 1, 1);
        let tiles = [&m.draw_bboxes, &m.bump, &m.paths, &m.tiles];
        stage(cpu::tile_alloc, grids.tile_alloc, both, &tiles);
        stage(cpu::path_count_setup, once, &[], &[&m.bump, &m.indirect]);
        let counts = [&m.bump, &m.lines, &m.paths, &m.tiles, &m.seg_counts];
        stage(cpu::path_count, once, alone, &counts);
        let backdrops = [&m.bump, &m.paths, &m.tiles];
        stage(cpu::backdrop, grids.backdrop, alone, &backdrops);
        let commands = [
            &m.draw_monoids,
            &m.bin_headers,
            &m.info_bin_data,
            &m.paths,
            &m.tiles,
            &m.bump,
            &m.ptcl,
        ];
        stage(cpu::coarse, grids.coarse, both, &commands);
        let setup = [&m.bump, &m.indirect, &m.ptcl];
        stage(cpu::path_tiling_setup, once, &[], &setup);
        let segments = [
            &m.bump,
            &m.seg_counts,
            &m.lines,
            &m.paths,
            &m.tiles,
            &m.segments,
        ];
        stage(cpu::path_tiling, once, &[], &segments);
    }
}

/// Runs a stage on what it only reads, and on memory.
fn stage(
    run: fn(u32, &[CpuBinding<'_>]),
    grid: WorkgroupSize,
    read: &[CpuBinding<'_>],
    memory: &[&Bytes],
) {
    let memory = memory.iter().map(|bytes| CpuBinding::BufferRW(bytes));
    let bindings: Vec<CpuBinding<'_>> = read.iter().copied().chain(memory).collect();
    run(grid.0, &bindings);
}
