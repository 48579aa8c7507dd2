//! Vello's renderer with Tombolo as its host: what `vello::Renderer` is with wgpu.
//!
//! # How it works
//! 1. `vello_encoding` packs the scene into words, and says how large buffers and grids are.
//! 2. A [`Frame`] has the buffers, and one launch graph of all stages. It stays as long as sizes do, so that an animation
//!    whose shapes only move is submitted again with other words and textures.
//! 3. Stages reserve room in some buffers while they run ([`Capacities`]). Each stage counts how much was needed, also where
//!    there was too little, and stages behind one that failed do nothing; the host then renders again with larger buffers.

mod frame;
mod memory;
mod shaders;
pub mod textures;

pub use frame::Frame;
pub use memory::{Buffers, PTCL_INITIAL_ALLOC};

use tombolo::{Device, wgpu};
use vello::{AaConfig, RenderParams, Scene};
use vello_encoding::{BumpAllocators, RenderConfig, Resolver};

use memory::Capacities;
use shaders::Shaders;
use textures::Atlas;

/// Why a scene is not rendered.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// Of the runtime.
    #[error(transparent)]
    Tombolo(tombolo::Error),
    /// A stage failed, and no buffer was too small.
    #[error(
        "stages failed (bits {failed:#x}), although every buffer is as large as they counted: {bump:?}; \
         is the scene's encoding valid?"
    )]
    Failed {
        /// A bit for each stage that failed.
        failed: u32,
        /// What the stages counted.
        bump: BumpAllocators,
    },
}

impl<E: Into<tombolo::Error>> From<E> for RenderError {
    fn from(error: E) -> Self {
        Self::Tombolo(error.into())
    }
}

/// Renders scenes on one device.
pub struct Renderer {
    device: Device,
    shaders: Shaders,
    resolver: Resolver,
    atlas: Atlas,
    capacities: Capacities,
    frame: Option<Frame>,
}

impl Renderer {
    /// Compiles the stages, with the fine stage of `antialiasing`; what is left is compiled when a scene first uses it.
    ///
    /// # Errors
    /// [`RenderError::Tombolo`].
    pub fn new(device: &Device, antialiasing: AaConfig) -> Result<Self, RenderError> {
        Ok(Self {
            device: device.clone(),
            shaders: Shaders::new(device, antialiasing)?,
            resolver: Resolver::new(),
            atlas: Atlas::default(),
            capacities: Capacities::default(),
            frame: None,
        })
    }

    /// Renders `scene` into `target`, a view of an `Rgba8Unorm` texture with `STORAGE_BINDING` and of the size in `params`.
    /// Returns how often the stages ran until every buffer was large enough.
    ///
    /// # Errors
    /// [`RenderError::Tombolo`], [`RenderError::Failed`].
    pub fn render(
        &mut self,
        scene: &Scene,
        target: &wgpu::TextureView,
        params: &RenderParams,
    ) -> Result<u32, RenderError> {
        let mut packed = Vec::new();
        let (layout, ramps, images) = self.resolver.resolve(scene.encoding(), &mut packed);
        let ramps = textures::of_ramps(&self.device, &ramps);
        let atlas = self
            .atlas
            .with(&self.device, (images.width, images.height), images.images)?;
        // A binding has at least one word.
        packed.resize(packed.len().max(4), 0);
        let packed = self.device.buffer(&packed)?;
        let config = RenderConfig::new(&layout, params.width, params.height, &params.base_color);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let config = self.capacities.apply(&config);
            let antialiasing = params.antialiasing_method;
            let frame = match self.frame.take() {
                Some(frame) if frame.serves(&config, antialiasing) => frame,
                _ => Frame::new(&self.device, &mut self.shaders, config, antialiasing)?,
            };
            let frame = self.frame.insert(frame);
            let bump = frame.run(&packed, [target, &ramps, atlas])?;
            if self.capacities.grow(&bump) {
                continue;
            }
            return match bump.failed {
                0 => Ok(attempts),
                failed => Err(RenderError::Failed { failed, bump }),
            };
        }
    }

    /// The frame of the scene that was rendered last.
    pub fn frame(&self) -> Option<&Frame> {
        self.frame.as_ref()
    }
}
