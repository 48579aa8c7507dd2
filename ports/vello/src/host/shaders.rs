//! The published shaders as kernels of a device.

use std::collections::HashMap;

use tombolo::{Constants, Device, Kernel, Program};
use vello::AaConfig;
use vello_shaders::{ComputeShader, SHADERS};

/// Kernels by the names of their shaders.
pub struct Shaders {
    device: Device,
    kernels: HashMap<String, Kernel>,
}

/// The shaders of every frame: of the fine ones a frame uses one, and those that scan the tags of paths in three levels are
/// for large scenes.
const STAGES: [ComputeShader<'static>; 16] = [
    SHADERS.pathtag_reduce,
    SHADERS.pathtag_scan_small,
    SHADERS.bbox_clear,
    SHADERS.flatten,
    SHADERS.draw_reduce,
    SHADERS.draw_leaf,
    SHADERS.clip_reduce,
    SHADERS.clip_leaf,
    SHADERS.binning,
    SHADERS.tile_alloc,
    SHADERS.path_count_setup,
    SHADERS.path_count,
    SHADERS.backdrop_dyn,
    SHADERS.coarse,
    SHADERS.path_tiling_setup,
    SHADERS.path_tiling,
];

impl Shaders {
    /// Compiles the stages of every frame, on as many threads as there are processors.
    pub fn new(device: &Device, antialiasing: AaConfig) -> Result<Self, tombolo::Error> {
        let fine = fine(antialiasing);
        let mut stages: Vec<&ComputeShader<'_>> = STAGES.iter().chain([&fine]).collect();
        // What takes longest first.
        stages.sort_by_key(|shader| std::cmp::Reverse(shader.wgsl.code.len()));
        let stages = std::sync::Mutex::new(stages.into_iter());
        let work = || {
            let next = || stages.lock().ok()?.next();
            std::iter::from_fn(next)
                .map(|shader| Ok((shader.name.to_string(), compile(device, shader)?)))
                .collect::<Result<Vec<_>, tombolo::Error>>()
        };
        let threads = std::thread::available_parallelism().map_or(1, |count| count.get());
        let compiled = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.collect::<Result<Vec<_>, _>>()
        });
        let compiled = compiled.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let compiled = compiled.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            device: device.clone(),
            kernels: compiled.into_iter().flatten().collect(),
        })
    }

    /// The kernel of a shader, which is compiled where it was not.
    pub fn kernel(&mut self, shader: &ComputeShader<'_>) -> Result<Kernel, tombolo::Error> {
        if let Some(kernel) = self.kernels.get(&*shader.name) {
            return Ok(kernel.clone());
        }
        let kernel = compile(&self.device, shader)?;
        let name = shader.name.to_string();
        Ok(self.kernels.entry(name).or_insert(kernel).clone())
    }
}

/// The fine stage for a method.
pub fn fine(antialiasing: AaConfig) -> ComputeShader<'static> {
    match antialiasing {
        AaConfig::Area => SHADERS.fine_area,
        AaConfig::Msaa8 => SHADERS.fine_msaa8,
        AaConfig::Msaa16 => SHADERS.fine_msaa16,
    }
}

fn compile(device: &Device, shader: &ComputeShader<'_>) -> Result<Kernel, tombolo::Error> {
    let program = Program::new(format!("{}.wgsl", shader.name), &*shader.wgsl.code)?;
    Ok(device.kernel(&program, "main", &Constants::new())?)
}
