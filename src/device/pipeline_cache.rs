//! The pipeline cache on disk, where wgpu has one (Vulkan): compiled pipelines survive the process.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::wait::lock;

/// Why the pipeline cache could not be used or saved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PipelineCacheError {
    /// The device was opened without a cache, or its adapter has none.
    #[error(
        "{device} has no pipeline cache on disk: open it with DeviceOptions::pipeline_cache on an \
         adapter that has Aspect::PipelineCache"
    )]
    NotEnabled {
        /// The device's name.
        device: String,
    },
    /// The file could not be written.
    #[error("the pipeline cache {path} could not be written: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// wgpu's cache object and the file it came from.
#[derive(Debug)]
pub(crate) struct DiskCache {
    pub(crate) cache: wgpu::PipelineCache,
    path: PathBuf,
    /// Length of what was last read or written: saving the same again is pointless.
    saved: Mutex<Option<usize>>,
}

impl DiskCache {
    /// Opens `folder/<key of the adapter>`; a file that is missing or damaged starts an empty cache.
    pub(crate) fn open(
        device: &wgpu::Device,
        info: &wgpu::AdapterInfo,
        folder: &Path,
    ) -> Option<Self> {
        let path = folder.join(wgpu::util::pipeline_cache_key(info)?);
        let data = std::fs::read(&path).ok();
        // SAFETY: the data is what wgpu's own `get_data` returned for an adapter with the same key, as
        // far as the file system is to be trusted; wgpu checks its header, and with `fallback` starts
        // empty when it does not fit.
        #[allow(unsafe_code)]
        let cache = unsafe {
            device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
                label: Some("tombolo pipelines"),
                data: data.as_deref(),
                fallback: true,
            })
        };
        Some(Self {
            cache,
            path,
            saved: Mutex::new(data.map(|d| d.len())),
        })
    }

    /// Writes the cache beside its file and moves it there, so that no reader sees half of it.
    pub(crate) fn save(&self) -> Result<PathBuf, PipelineCacheError> {
        let Some(data) = self.cache.get_data() else {
            return Ok(self.path.clone());
        };
        let mut saved = lock(&self.saved);
        if *saved == Some(data.len()) && self.path.exists() {
            return Ok(self.path.clone());
        }
        let fail = |source| PipelineCacheError::Io {
            path: self.path.clone(),
            source,
        };
        if let Some(folder) = self.path.parent() {
            std::fs::create_dir_all(folder).map_err(fail)?;
        }
        let scratch = self
            .path
            .with_extension(format!("{}.part", std::process::id()));
        std::fs::write(&scratch, &data).map_err(fail)?;
        std::fs::rename(&scratch, &self.path).map_err(fail)?;
        *saved = Some(data.len());
        Ok(self.path.clone())
    }
}
