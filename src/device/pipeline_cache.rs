//! The pipeline cache on disk, where wgpu has one (Vulkan), and on the embedded adapter: compiled pipelines survive the
//! process. wgpu knows data of Vulkan alone, so that the embedded adapter is asked for its kernels directly.
//!
//! Drivers take the given data for their own: wgpu checks the header of the data, and not the rest. A file therefore
//! carries a checksum of its contents and of the adapter's key, compared by the runtime before wgpu sees a byte: a file
//! cut short, damaged, of another adapter, or without a cache at all starts an empty cache. The checksum is no
//! signature. Write access to the folder is the program's concern, as the option's doc says; a file writable by
//! everybody is not read.

use std::fs::{self, File, OpenOptions};
use std::hash::{DefaultHasher, Hasher};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use super::unique_id;
use super::wait::lock;
use crate::error_text::debug_by_text;

/// The first bytes of every file; another layout has another number.
const MAGIC: [u8; 16] = *b"tombolo cache 1\n";
/// Bytes in front of the data: the magic, the length of the data, and the checksum.
const HEADER: usize = MAGIC.len() + 16;
/// No cache is larger; a file that is would only take memory.
const MOST_BYTES: u64 = 1 << 30;

/// Why the pipeline cache could not be used or saved.
#[derive(thiserror::Error)]
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

debug_by_text!(PipelineCacheError { NotEnabled, Io });

/// wgpu's cache object and its file.
#[derive(Debug)]
pub(crate) struct DiskCache {
    pub(crate) cache: wgpu::PipelineCache,
    owner: Owner,
    path: PathBuf,
    /// The adapter and driver that the data are of.
    key: String,
    /// Length at the last reading or writing: saving the same again is pointless.
    saved: Mutex<Option<usize>>,
}

/// Who has the data.
#[derive(Debug)]
enum Owner {
    /// wgpu's cache object
    Wgpu,
    /// The embedded adapter's device
    #[cfg(embedded)]
    Embedded(wgpu::Device),
}

impl Owner {
    fn of(device: &wgpu::Device) -> Self {
        #[cfg(embedded)]
        if super::embedded::is(device) {
            return Self::Embedded(device.clone());
        }
        let _ = device;
        Self::Wgpu
    }

    /// The adapter and driver that the data are of, as a name of a file.
    fn key(&self, info: &wgpu::AdapterInfo) -> Option<String> {
        match self {
            Self::Wgpu => wgpu::util::pipeline_cache_key(info),
            // The adapter's own header says which build and processor.
            #[cfg(embedded)]
            Self::Embedded(_) => Some(format!("tombolo_embedded_{}", std::env::consts::ARCH)),
        }
    }

    /// Hands over data that wgpu does not.
    fn take_over(&self, path: &Path, data: Option<&[u8]>) {
        match self {
            Self::Wgpu => _ = (path, data),
            #[cfg(embedded)]
            Self::Embedded(device) => {
                if let Some(Err(error)) =
                    data.map(|data| super::embedded::import_kernels(device, data))
                {
                    log::info!("{}: it starts empty: {error}", path.display());
                }
            }
        }
    }

    fn data(&self, cache: &wgpu::PipelineCache) -> Option<Vec<u8>> {
        match self {
            Self::Wgpu => cache.get_data(),
            #[cfg(embedded)]
            Self::Embedded(device) => super::embedded::export_kernels(device),
        }
    }
}

/// The checksum of data of an adapter. Another release of the standard library may compute another one: then the cache
/// starts empty.
fn checksum(key: &str, data: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(key.as_bytes());
    hasher.write(data);
    // So that the two cannot be told apart in another way.
    hasher.write_usize(key.len());
    hasher.finish()
}

/// A file's contents.
fn seal(key: &str, data: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEADER + data.len());
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&(data.len() as u64).to_le_bytes());
    file.extend_from_slice(&checksum(key, data).to_le_bytes());
    file.extend_from_slice(data);
    file
}

/// The data in a file, if whole and written for this adapter.
fn unseal<'f>(key: &str, file: &'f [u8]) -> Option<&'f [u8]> {
    let (header, data) = file.split_at_checked(HEADER)?;
    let (magic, numbers) = header.split_at(MAGIC.len());
    let number = |at: usize| {
        let bytes = numbers.get(at..at + 8)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let is_whole = magic == MAGIC
        && number(0) == Some(data.len() as u64)
        && number(8) == Some(checksum(key, data));
    is_whole.then_some(data)
}

/// A file's contents, unless everybody may have written them.
fn read(path: &Path) -> Option<Vec<u8>> {
    let mut file = File::open(path).ok()?;
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() > MOST_BYTES + HEADER as u64 {
        log::warn!("{}: no pipeline cache, and not read", path.display());
        return None;
    }
    #[cfg(unix)]
    if std::os::unix::fs::PermissionsExt::mode(&about.permissions()) & 0o002 != 0 {
        log::warn!(
            "{}: everybody may write this pipeline cache, so that it is not read",
            path.display()
        );
        return None;
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(about.len() as usize).ok()?;
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

impl DiskCache {
    /// Opens `folder/<key of the adapter>`; a file that is missing, damaged or of another adapter starts an empty cache.
    pub(crate) fn open(
        device: &wgpu::Device,
        info: &wgpu::AdapterInfo,
        folder: &Path,
    ) -> Option<Self> {
        let owner = Owner::of(device);
        let key = owner.key(info)?;
        let path = folder.join(&key);
        let file = read(&path);
        let data = file.as_deref().and_then(|file| unseal(&key, file));
        if file.is_some() && data.is_none() {
            log::warn!(
                "{}: not a pipeline cache of this adapter, or damaged; it starts empty",
                path.display()
            );
        }
        // SAFETY: the data are what wgpu's own `get_data` returned for an adapter with the same key, as the file's checksum
        // says and as far as those who may write the file are to be trusted; wgpu checks their header, and with `fallback`
        // starts empty when it does not fit.
        #[allow(unsafe_code)]
        let cache = unsafe {
            device.create_pipeline_cache(&wgpu::PipelineCacheDescriptor {
                label: Some("tombolo pipelines"),
                data: data.filter(|_| matches!(owner, Owner::Wgpu)),
                fallback: true,
            })
        };
        owner.take_over(&path, data);
        Some(Self {
            cache,
            owner,
            path,
            saved: Mutex::new(data.map(<[u8]>::len)),
            key,
        })
    }

    /// Writes the cache beside its file and moves the new file there: no reader sees half a file.
    pub(crate) fn save(&self) -> Result<PathBuf, PipelineCacheError> {
        let Some(data) = self.owner.data(&self.cache) else {
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
            fs::create_dir_all(folder).map_err(fail)?;
        }
        // Owned by this user, and new: an existing file of the name may lead somewhere else.
        let name = format!("{}.{}.part", std::process::id(), unique_id());
        let scratch = self.path.with_extension(name);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        // Closed at the end of the line: some systems do not rename an open file.
        let written = (options.open(&scratch).map_err(fail)?).write_all(&seal(&self.key, &data));
        let moved = written.and_then(|()| fs::rename(&scratch, &self.path));
        if let Err(error) = moved {
            let _ = fs::remove_file(&scratch);
            return Err(fail(error));
        }
        *saved = Some(data.len());
        Ok(self.path.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "an_adapter_7";

    #[test]
    fn what_was_written_is_read() {
        for data in [&[][..], &[1], &[7; 1000]] {
            assert_eq!(unseal(KEY, &seal(KEY, data)), Some(data));
        }
    }

    #[test]
    fn whatever_else_lies_there_is_not() {
        let data: Vec<u8> = (0..200).collect();
        let file = seal(KEY, &data);
        // The driver's bare data, left by an earlier release or another program.
        assert_eq!(unseal(KEY, &data), None);
        assert_eq!(unseal("an_adapter_8", &file), None);
        assert_eq!(unseal(KEY, &seal("", &data)), None);
        for len in 0..file.len() {
            assert_eq!(unseal(KEY, &file[..len]), None, "{len}");
        }
        for bit in 0..file.len() * 8 {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(unseal(KEY, &damaged), None, "{bit}");
        }
        assert_eq!(unseal(KEY, &[file, vec![0]].concat()), None);
    }

    #[cfg(unix)]
    #[test]
    fn what_everybody_may_write_is_not_read() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cache");
        assert_eq!(read(&path), None);
        fs::write(&path, b"bytes").unwrap();
        for (mode, is_read) in [(0o600, true), (0o664, true), (0o602, false), (0o666, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(read(&path).is_some(), is_read, "{mode:o}");
        }
        assert_eq!(read(folder.path()), None);
    }
}
