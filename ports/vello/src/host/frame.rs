//! A frame: its buffers, and all stages as one launch graph.

use tombolo::launch::{GraphNode, LaunchGraph};
use tombolo::{Device, DeviceBuffer, Launch, wgpu};
use vello::AaConfig;
use vello_encoding::{
    BumpAllocators, RenderConfig, WorkgroupSize, make_mask_lut, make_mask_lut_16,
};
use vello_shaders::{ComputeShader, SHADERS};

use super::memory::Buffers;
use super::shaders::{self, Shaders};

/// What renders scenes of the same sizes.
pub struct Frame {
    config: RenderConfig,
    antialiasing: AaConfig,
    buffers: Buffers,
    graph: LaunchGraph,
    /// The stages that read the scene.
    readers: Vec<GraphNode>,
    fine: GraphNode,
}

/// The names of the fine stage's textures.
const TEXTURES: [&str; 3] = ["output", "gradients", "image_atlas"];

impl Frame {
    /// Makes the buffers, and puts the stages together.
    pub fn new(
        device: &Device,
        shaders: &mut Shaders,
        config: RenderConfig,
        antialiasing: AaConfig,
    ) -> Result<Self, tombolo::Error> {
        let buffers = Buffers::new(device, &config)?;
        let mut stages = Stages {
            shaders,
            config: &config,
            graph: LaunchGraph::new(),
            readers: Vec::new(),
        };
        stages.paths(&buffers)?;
        stages.draw_objects(&buffers)?;
        stages.tiles(&buffers)?;
        let fine = stages.fine(&buffers, device, antialiasing)?;
        let Stages { graph, readers, .. } = stages;
        Ok(Self {
            antialiasing,
            buffers,
            graph,
            readers,
            fine,
            config,
        })
    }

    /// Whether a scene of this configuration can be rendered with what is here: sizes and grids follow from it.
    pub fn serves(&self, config: &RenderConfig, antialiasing: AaConfig) -> bool {
        bytemuck::bytes_of(&self.config.gpu) == bytemuck::bytes_of(&config.gpu)
            && self.antialiasing == antialiasing
    }

    /// Runs all stages on a packed scene, with the textures of the fine stage, and returns what they counted.
    pub fn run(
        &mut self,
        scene: &DeviceBuffer<u8>,
        textures: [&wgpu::TextureView; 3],
    ) -> Result<BumpAllocators, tombolo::Error> {
        for reader in &self.readers {
            self.graph.launch_mut(*reader)?.set_buffer("scene", scene)?;
        }
        let fine = self.graph.launch_mut(self.fine)?;
        for (name, view) in TEXTURES.into_iter().zip(textures) {
            fine.set_texture(name, view)?;
        }
        self.buffers.bump.fill(BumpAllocators::default(), ..)?;
        self.graph.submit()?;
        Ok(self.buffers.bump.read()?[0])
    }

    /// Sizes and grids.
    pub fn config(&self) -> &RenderConfig {
        &self.config
    }

    /// What the stages have written.
    pub fn buffers(&self) -> &Buffers {
        &self.buffers
    }
}

/// A graph in the making.
struct Stages<'a> {
    shaders: &'a mut Shaders,
    config: &'a RenderConfig,
    graph: LaunchGraph,
    readers: Vec<GraphNode>,
}

impl Stages<'_> {
    /// Adds a stage that runs so many work-groups, which may be none. Configuration and scene are given to it here, and later.
    fn add(
        &mut self,
        shader: &ComputeShader<'_>,
        grid: WorkgroupSize,
        arguments: impl FnOnce(Launch) -> Launch,
    ) -> Result<GraphNode, tombolo::Error> {
        self.add_with(shader, |launch| arguments(launch).workgroups(grid))
    }

    fn add_with(
        &mut self,
        shader: &ComputeShader<'_>,
        arguments: impl FnOnce(Launch) -> Launch,
    ) -> Result<GraphNode, tombolo::Error> {
        let kernel = self.shaders.kernel(shader)?;
        let takes = |name| kernel.interface().argument(name).is_some();
        let mut launch = arguments(kernel.launch());
        if takes("config") {
            launch = launch.value("config", &self.config.gpu);
        }
        let node = self.graph.add(launch);
        if takes("scene") {
            self.readers.push(node);
        }
        Ok(node)
    }

    /// From tags to lines: where each path's data lie, by a scan of two levels or three, and curves and strokes as lines.
    fn paths(&mut self, b: &Buffers) -> Result<(), tombolo::Error> {
        let grids = self.config.workgroup_counts;
        self.add(&SHADERS.pathtag_reduce, grids.path_reduce, |launch| {
            launch.buffer("reduced", &b.reduced)
        })?;
        let (scan, reduced) = match grids.use_large_path_scan {
            true => (&SHADERS.pathtag_scan_large, &b.reduced_scan),
            false => (&SHADERS.pathtag_scan_small, &b.reduced),
        };
        if grids.use_large_path_scan {
            self.add(&SHADERS.pathtag_reduce2, grids.path_reduce2, |launch| {
                launch
                    .buffer("reduced_in", &b.reduced)
                    .buffer("reduced", &b.reduced2)
            })?;
            self.add(&SHADERS.pathtag_scan1, grids.path_scan1, |launch| {
                launch
                    .buffer("reduced", &b.reduced)
                    .buffer("reduced2", &b.reduced2)
                    .buffer("tag_monoids", &b.reduced_scan)
            })?;
        }
        self.add(scan, grids.path_scan, |launch| {
            launch
                .buffer("reduced", reduced)
                .buffer("tag_monoids", &b.tag_monoids)
        })?;
        self.add(&SHADERS.bbox_clear, grids.bbox_clear, |launch| {
            launch.buffer("path_bboxes", &b.path_bboxes)
        })?;
        self.add(&SHADERS.flatten, grids.flatten, |launch| {
            launch
                .buffer("tag_monoids", &b.tag_monoids)
                .buffer("path_bboxes", &b.path_bboxes)
                .buffer("bump", &b.bump)
                .buffer("lines", &b.lines)
        })?;
        Ok(())
    }

    /// What is drawn in which order, where clips end, and which bins of the target each object meets.
    fn draw_objects(&mut self, b: &Buffers) -> Result<(), tombolo::Error> {
        let grids = self.config.workgroup_counts;
        self.add(&SHADERS.draw_reduce, grids.draw_reduce, |launch| {
            launch.buffer("reduced", &b.draw_reduced)
        })?;
        self.add(&SHADERS.draw_leaf, grids.draw_leaf, |launch| {
            launch
                .buffer("reduced", &b.draw_reduced)
                .buffer("path_bbox", &b.path_bboxes)
                .buffer("draw_monoid", &b.draw_monoids)
                .buffer("info", &b.info_bin_data)
                .buffer("clip_inp", &b.clip_inps)
        })?;
        self.add(&SHADERS.clip_reduce, grids.clip_reduce, |launch| {
            launch
                .buffer("clip_inp", &b.clip_inps)
                .buffer("path_bboxes", &b.path_bboxes)
                .buffer("reduced", &b.clip_bics)
                .buffer("clip_out", &b.clip_els)
        })?;
        self.add(&SHADERS.clip_leaf, grids.clip_leaf, |launch| {
            launch
                .buffer("clip_inp", &b.clip_inps)
                .buffer("path_bboxes", &b.path_bboxes)
                .buffer("reduced", &b.clip_bics)
                .buffer("clip_els", &b.clip_els)
                .buffer("draw_monoids", &b.draw_monoids)
                .buffer("clip_bboxes", &b.clip_bboxes)
        })?;
        self.add(&SHADERS.binning, grids.binning, |launch| {
            launch
                .buffer("draw_monoids", &b.draw_monoids)
                .buffer("path_bbox_buf", &b.path_bboxes)
                .buffer("clip_bbox_buf", &b.clip_bboxes)
                .buffer("intersected_bbox", &b.draw_bboxes)
                .buffer("bump", &b.bump)
                .buffer("bin_data", &b.info_bin_data)
                .buffer("bin_header", &b.bin_headers)
        })?;
        Ok(())
    }

    /// From objects and lines to a list of commands for each tile, and the segments of lines in it.
    fn tiles(&mut self, b: &Buffers) -> Result<(), tombolo::Error> {
        let grids = self.config.workgroup_counts;
        self.add(&SHADERS.tile_alloc, grids.tile_alloc, |launch| {
            launch
                .buffer("draw_bboxes", &b.draw_bboxes)
                .buffer("bump", &b.bump)
                .buffer("paths", &b.paths)
                .buffer("tiles", &b.tiles)
        })?;
        let grid = grids.path_count_setup;
        self.add(&SHADERS.path_count_setup, grid, |launch| {
            launch
                .buffer("bump", &b.bump)
                .buffer("indirect", &b.indirect)
        })?;
        self.add_with(&SHADERS.path_count, |launch| {
            launch
                .buffer("bump", &b.bump)
                .buffer("lines", &b.lines)
                .buffer("paths", &b.paths)
                .buffer("tile", &b.tiles)
                .buffer("seg_counts", &b.seg_counts)
                .indirect(&b.indirect, 0)
        })?;
        self.add(&SHADERS.backdrop_dyn, grids.backdrop, |launch| {
            launch
                .buffer("bump", &b.bump)
                .buffer("paths", &b.paths)
                .buffer("tiles", &b.tiles)
        })?;
        self.add(&SHADERS.coarse, grids.coarse, |launch| {
            launch
                .buffer("draw_monoids", &b.draw_monoids)
                .buffer("bin_headers", &b.bin_headers)
                .buffer("info_bin_data", &b.info_bin_data)
                .buffer("paths", &b.paths)
                .buffer("tiles", &b.tiles)
                .buffer("bump", &b.bump)
                .buffer("ptcl", &b.ptcl)
        })?;
        let grid = grids.path_tiling_setup;
        self.add(&SHADERS.path_tiling_setup, grid, |launch| {
            launch
                .buffer("bump", &b.bump)
                .buffer("indirect", &b.indirect)
                .buffer("ptcl", &b.ptcl)
        })?;
        self.add_with(&SHADERS.path_tiling, |launch| {
            launch
                .buffer("bump", &b.bump)
                .buffer("seg_counts", &b.seg_counts)
                .buffer("lines", &b.lines)
                .buffer("paths", &b.paths)
                .buffer("tiles", &b.tiles)
                .buffer("segments", &b.segments)
                .indirect(&b.indirect, 0)
        })?;
        Ok(())
    }

    /// The pixels; textures are given later.
    fn fine(
        &mut self,
        b: &Buffers,
        device: &Device,
        antialiasing: AaConfig,
    ) -> Result<GraphNode, tombolo::Error> {
        let masks = match antialiasing {
            AaConfig::Area => None,
            AaConfig::Msaa8 => Some(device.buffer(&make_mask_lut())?),
            AaConfig::Msaa16 => Some(device.buffer(&make_mask_lut_16())?),
        };
        let grid = self.config.workgroup_counts.fine;
        self.add(&shaders::fine(antialiasing), grid, |launch| {
            let launch = launch
                .buffer("segments", &b.segments)
                .buffer("ptcl", &b.ptcl)
                .buffer("info", &b.info_bin_data)
                .buffer("blend_spill", &b.blend_spill);
            match &masks {
                Some(masks) => launch.buffer("mask_lut", masks),
                None => launch,
            }
        })
    }
}
