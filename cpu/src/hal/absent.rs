//! Resources missing from the adapter.

use std::{borrow::Borrow, time::Duration};

use wgpu_hal as hal;

use super::{Api, Device, Fence, Texture};

/// A resource impossible on the adapter: the type has no values.
#[derive(Clone, Debug)]
pub enum Absent {}

impl hal::DynAccelerationStructure for Absent {}
impl hal::DynPipelineCache for Absent {}
impl hal::DynRayTracingPipeline for Absent {}
impl hal::DynRenderPipeline for Absent {}
impl hal::DynSurfaceTexture for Absent {}

impl Borrow<dyn hal::DynTexture> for Absent {
    fn borrow(&self) -> &dyn hal::DynTexture {
        match *self {}
    }
}

impl Borrow<Texture> for Absent {
    fn borrow(&self) -> &Texture {
        match *self {}
    }
}

impl hal::Surface for Absent {
    type A = Api;

    unsafe fn configure(
        &self,
        _device: &Device,
        _config: &hal::SurfaceConfiguration,
    ) -> Result<(), hal::SurfaceError> {
        match *self {}
    }

    unsafe fn unconfigure(&self, _device: &Device) {
        match *self {}
    }

    unsafe fn acquire_texture(
        &self,
        _timeout: Option<Duration>,
        _fence: &Fence,
    ) -> Result<hal::AcquiredSurfaceTexture<Api>, hal::SurfaceError> {
        match *self {}
    }

    unsafe fn discard_texture(&self, texture: Absent) {
        match texture {}
    }
}
