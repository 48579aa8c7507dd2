//! The caches of the compile pipeline: modules for each (source, specialization, options), shared by
//! the devices of a context, and kernels for each device.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::compile::{Compiled, ModuleKey};
use super::declared::SpecKey;
use super::pipeline::{KernelOptions, KernelShared};
use crate::device::wait::lock;

/// Programs remembered by identity; beyond this the table is started anew, and filled from the
/// kernels, which are remembered by content.
const PROGRAMS: usize = 4096;

/// How a cache has served so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Times that the cache had the answer.
    pub hits: u64,
    /// Times that the answer had to be made.
    pub misses: u64,
    /// Answers that are held now.
    pub entries: usize,
}

/// The counts of all caches that a device uses, from [`Device::cache_statistics`].
///
/// [`Device::cache_statistics`]: crate::Device::cache_statistics
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheStatistics {
    /// Specialized modules, shared by the devices of a context.
    pub modules: CacheCounts,
    /// Kernels (pipelines with their layouts) of the device.
    pub kernels: CacheCounts,
    /// Bind groups of the device.
    pub bind_groups: CacheCounts,
    /// Times that the names of device globals were asked for, by all devices of the context: when kernels are made,
    /// and by the host's copies, never by launches.
    pub global_lookups: u64,
    /// Submissions made so far.
    pub submissions: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counter {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Counter {
    pub(crate) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn counts(&self, entries: usize) -> CacheCounts {
        CacheCounts {
            hits: self.hits.load(Ordering::Relaxed),
            misses: self.misses.load(Ordering::Relaxed),
            entries,
        }
    }
}

/// Specialized, validated modules.
#[derive(Default)]
pub(crate) struct ModuleCache {
    modules: Mutex<HashMap<ModuleKey, Arc<Compiled>>>,
    counter: Counter,
}

impl ModuleCache {
    /// Finds or makes the module. Two threads asking for the same module at once may both make the module; the first is
    /// kept.
    pub(crate) fn get<E>(
        &self,
        key: ModuleKey,
        make: impl FnOnce() -> Result<Compiled, E>,
    ) -> Result<Arc<Compiled>, E> {
        if let Some(found) = lock(&self.modules).get(&key) {
            self.counter.hit();
            return Ok(Arc::clone(found));
        }
        self.counter.miss();
        let made = Arc::new(make()?);
        Ok(Arc::clone(lock(&self.modules).entry(key).or_insert(made)))
    }

    pub(crate) fn clear(&self) {
        lock(&self.modules).clear();
    }

    pub(crate) fn statistics(&self) -> CacheCounts {
        self.counter.counts(lock(&self.modules).len())
    }
}

/// A kernel under the name of its entry point.
type Named = (Arc<str>, Arc<KernelShared>);

/// Kernels of a device: found by the program's identity at the cost of a single look-up, and by content when another
/// `Program` holds the same text.
#[derive(Default)]
pub(crate) struct KernelCache {
    by_program: RwLock<HashMap<ProgramKey, Vec<Named>>>,
    by_module: Mutex<HashMap<u64, Arc<KernelShared>>>,
    counter: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct ProgramKey {
    pub(crate) program: u64,
    pub(crate) values: SpecKey,
    pub(crate) options: KernelOptions,
}

impl KernelCache {
    pub(crate) fn find(&self, key: &ProgramKey, entry: &str) -> Option<Arc<KernelShared>> {
        let table = self
            .by_program
            .read()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let (_, kernel) = table.get(key)?.iter().find(|(name, _)| **name == *entry)?;
        self.counter.hit();
        Some(Arc::clone(kernel))
    }

    /// Finds the kernel of a module or builds the kernel, and remembers the kernel for the program.
    pub(crate) fn insert<E>(
        &self,
        key: ProgramKey,
        entry: &str,
        module: u64,
        build: impl FnOnce() -> Result<KernelShared, E>,
    ) -> Result<Arc<KernelShared>, E> {
        let known = lock(&self.by_module).get(&module).cloned();
        let kernel = match known {
            Some(kernel) => {
                self.counter.hit();
                kernel
            }
            None => {
                self.counter.miss();
                let built = Arc::new(build()?);
                Arc::clone(lock(&self.by_module).entry(module).or_insert(built))
            }
        };
        let mut table = self
            .by_program
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if table.len() >= PROGRAMS {
            table.clear();
        }
        table
            .entry(key)
            .or_default()
            .push((entry.into(), Arc::clone(&kernel)));
        Ok(kernel)
    }

    pub(crate) fn clear(&self) {
        self.by_program
            .write()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clear();
        lock(&self.by_module).clear();
    }

    pub(crate) fn statistics(&self) -> CacheCounts {
        self.counter.counts(lock(&self.by_module).len())
    }
}
