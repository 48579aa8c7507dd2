//! The compiled-in adapter's services for kernels beside running: checks, an order by a seed, names for tools.

use super::DeviceError;

/// Options of devices on the embedded adapter ([`DeviceOptions::embedded`](super::DeviceOptions::embedded)).
///
/// ```
/// use tombolo::device::{EmbeddedOptions, SanitizerChecks};
/// use tombolo::DeviceOptions;
///
/// let checks = SanitizerChecks::default().unwritten(true);
/// let options = DeviceOptions::default().embedded(EmbeddedOptions::sanitized(checks).schedule(7));
/// ```
///
/// Options not set here are as the environment says (`TOMBOLO_SANITIZE`, `TOMBOLO_SCHEDULE`, `TOMBOLO_COVERAGE`,
/// `TOMBOLO_PERF_MAP`). On
/// any other adapter a device with such an option is not opened ([`DeviceError::NotEmbedded`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EmbeddedOptions {
    /// The checks of the sanitizer (default: as `TOMBOLO_SANITIZE` says). [`SanitizerChecks::NONE`] turns the sanitizer
    /// off.
    pub sanitizer: Option<SanitizerChecks>,
    /// A seed for the order of work-groups and invocations (default: as `TOMBOLO_SCHEDULE` says)
    pub schedule: Option<u64>,
    /// Whether executions of statements are counted and timed (default: only where `TOMBOLO_COVERAGE` names a file for the
    /// report):
    /// [`Device::executed_lines`](super::Device::executed_lines) has the results. Launches run on one thread, many
    /// times slower.
    pub coverage: bool,
    /// Whether kernels are listed for `perf` in `/tmp/perf-<pid>.map`, on Linux (default: as `TOMBOLO_PERF_MAP` says)
    pub perf_map: Option<bool>,
}

impl EmbeddedOptions {
    /// A device with checked kernels.
    pub fn sanitized(checks: SanitizerChecks) -> Self {
        Self {
            sanitizer: Some(checks),
            ..Self::default()
        }
    }

    /// A device running work-groups and invocations in the order of a seed.
    pub fn scheduled(seed: u64) -> Self {
        Self {
            schedule: Some(seed),
            ..Self::default()
        }
    }

    /// A device counting the executed statements of its launches.
    pub fn covered() -> Self {
        Self {
            coverage: true,
            ..Self::default()
        }
    }

    /// Sets the checks of the sanitizer; `None`: as `TOMBOLO_SANITIZE` says.
    #[must_use]
    pub fn sanitizer(mut self, checks: impl Into<Option<SanitizerChecks>>) -> Self {
        self.sanitizer = checks.into();
        self
    }

    /// Sets the seed for the order of work-groups and invocations; `None`: as `TOMBOLO_SCHEDULE` says.
    #[must_use]
    pub fn schedule(mut self, seed: impl Into<Option<u64>>) -> Self {
        self.schedule = seed.into();
        self
    }

    /// Sets whether executions of statements are counted and timed.
    #[must_use]
    pub fn coverage(mut self, counts: bool) -> Self {
        self.coverage = counts;
        self
    }

    /// Sets whether kernels are listed for `perf`; `None`: as `TOMBOLO_PERF_MAP` says.
    #[must_use]
    pub fn perf_map(mut self, lists: impl Into<Option<bool>>) -> Self {
        self.perf_map = lists.into();
        self
    }

    /// The name of a set option, if any.
    fn set(&self) -> Option<&'static str> {
        let set = [
            ("sanitizer", self.sanitizer.is_some()),
            ("schedule", self.schedule.is_some()),
            ("coverage", self.coverage),
            ("perf_map", self.perf_map.is_some()),
        ];
        set.into_iter().find(|(_, set)| *set).map(|(name, _)| name)
    }

    /// An adapter running kernels by the options, for a device opened on `adapter`; `None` without options.
    ///
    /// # Errors
    /// [`DeviceError::NotEmbedded`]; [`DeviceError::EmbeddedOption`] of the environment.
    pub(super) async fn adapter(
        &self,
        info: &wgpu::AdapterInfo,
    ) -> Result<Option<wgpu::Adapter>, DeviceError> {
        let Some(option) = self.set() else {
            return Ok(None);
        };
        #[cfg(embedded)]
        if info.backend == super::embedded::BACKEND {
            return super::embedded::adapter_with(self).await.map(Some);
        }
        Err(DeviceError::NotEmbedded {
            adapter: info.name.clone(),
            option,
        })
    }

    /// Warns of options that a device cannot have, since somebody else has opened it.
    pub(super) fn ignored(&self) {
        if let Some(option) = self.set() {
            log::warn!(
                "EmbeddedOptions::{option} has no effect on an adopted device: its kernels run by the options of its instance"
            );
        }
    }
}

/// The sanitizer's checks: a finding fails its launch
/// ([`ExecutionError::Sanitizer`](super::ExecutionError::Sanitizer)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SanitizerChecks {
    /// Indices that are too large (default: yes)
    pub bounds: bool,
    /// Accesses of different invocations that nothing orders (default: yes)
    pub races: bool,
    /// Invocations of a work-group that do not come to the same barriers (default: yes)
    pub barriers: bool,
    /// Reads of variables that nobody has written (default: no, since WGSL defines them as zero)
    pub unwritten: bool,
    /// Indices whose computation overflowed (default: no, since WGSL defines it as wrapping, which hash tables count on)
    pub index_overflow: bool,
}

impl SanitizerChecks {
    /// No checks.
    pub const NONE: Self = Self {
        bounds: false,
        races: false,
        barriers: false,
        unwritten: false,
        index_overflow: false,
    };

    /// Sets whether indices that are too large are found.
    #[must_use]
    pub fn bounds(mut self, checks: bool) -> Self {
        self.bounds = checks;
        self
    }

    /// Sets whether unordered accesses of different invocations are found.
    #[must_use]
    pub fn races(mut self, checks: bool) -> Self {
        self.races = checks;
        self
    }

    /// Sets whether barriers that some invocations of a work-group miss are found.
    #[must_use]
    pub fn barriers(mut self, checks: bool) -> Self {
        self.barriers = checks;
        self
    }

    /// Sets whether reads of variables that nobody has written are found.
    #[must_use]
    pub fn unwritten(mut self, checks: bool) -> Self {
        self.unwritten = checks;
        self
    }

    /// Sets whether indices whose computation overflowed are found.
    #[must_use]
    pub fn index_overflow(mut self, checks: bool) -> Self {
        self.index_overflow = checks;
        self
    }
}

impl Default for SanitizerChecks {
    fn default() -> Self {
        Self {
            bounds: true,
            races: true,
            barriers: true,
            ..Self::NONE
        }
    }
}
