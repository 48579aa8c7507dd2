//! Queries: timestamps, in nanoseconds.

use std::{
    ops::Range,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use wgpu_hal as hal;

use super::DeviceResult;

/// A set of queries.
#[derive(Clone, Debug)]
pub struct QuerySet {
    values: Arc<[AtomicU64]>,
}

impl QuerySet {
    /// A set of `count` queries, all zero.
    ///
    /// # Errors
    /// [`hal::DeviceError::OutOfMemory`] if there is no memory for the queries.
    pub(super) fn new(count: u32) -> DeviceResult<Self> {
        let mut values = Vec::new();
        values
            .try_reserve_exact(count as usize)
            .map_err(|_| hal::DeviceError::OutOfMemory)?;
        values.resize_with(count as usize, AtomicU64::default);
        Ok(Self {
            values: values.into(),
        })
    }

    /// Writes the time since the process first asked.
    pub(super) fn write_timestamp(&self, index: u32) {
        static START: OnceLock<Instant> = OnceLock::new();
        let passed = START.get_or_init(Instant::now).elapsed();
        if let Some(value) = self.values.get(index as usize) {
            value.store(passed.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    pub(super) fn reset(&self, range: Range<u32>) {
        for value in self.slice(range) {
            value.store(0, Ordering::Relaxed);
        }
    }

    pub(super) fn results(&self, range: Range<u32>) -> impl Iterator<Item = u64> {
        self.slice(range)
            .iter()
            .map(|value| value.load(Ordering::Relaxed))
    }

    fn slice(&self, range: Range<u32>) -> &[AtomicU64] {
        self.values
            .get(range.start as usize..range.end as usize)
            .unwrap_or_default()
    }
}
