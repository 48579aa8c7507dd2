//! This project's adapter, for kernels on the host's processors: no driver, and the same memory for both sides.

// Memory of the host is handed to the adapter; the blocks give the soundness arguments.
#![allow(unsafe_code)]

use std::fs::OpenOptions;
use std::ops::Range;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use tombolo_cpu::Loan;

use tombolo_cpu::Api;
use tombolo_cpu::sanitizer::{Checks, Finding};

use super::import::{IMPORTED_USAGE, ImportError, ImportLimits};
use super::window::Window;
use super::{DeviceError, EmbeddedOptions, SanitizerChecks};

/// The backend of the adapter in wgpu's eyes: none of the known backends.
pub(crate) const BACKEND: wgpu::Backend = wgpu::Backend::Noop;

/// The alignment of ranges of host memory: whole pages of any system, more than the adapter asks for.
const IMPORT_ALIGNMENT: u64 = 4096;

/// The variable to have kernels checked.
const SANITIZE: &str = "TOMBOLO_SANITIZE";

/// The variable with the seed of the order of running work-groups and invocations.
const SCHEDULE: &str = "TOMBOLO_SCHEDULE";

/// The variable with the file for the report on executed lines.
const COVERAGE: &str = "TOMBOLO_COVERAGE";

/// The variable to have kernels listed for `perf`.
const PERF_MAP: &str = "TOMBOLO_PERF_MAP";

/// An instance of wgpu with this adapter and no other, by the options of the environment.
///
/// # Errors
/// [`DeviceError::EmbeddedOption`].
pub(crate) fn instance() -> Result<wgpu::Instance, DeviceError> {
    Ok(instance_with(of_environment()?))
}

fn instance_with(options: tombolo_cpu::Options) -> wgpu::Instance {
    let instance = tombolo_cpu::Instance::new(options);
    // SAFETY: the instance is fresh and belongs to wgpu from here on.
    unsafe { wgpu::Instance::from_hal::<Api>(instance) }
}

/// The adapter, by options of a device, and by the environment's options where the device has none.
///
/// # Errors
/// [`DeviceError::EmbeddedOption`] of the environment; [`DeviceError::NoAdapter`] where kernels cannot be compiled.
pub(super) async fn adapter_with(wanted: &EmbeddedOptions) -> Result<wgpu::Adapter, DeviceError> {
    let mut options = of_environment()?;
    if let Some(checks) = wanted.sanitizer {
        options.sanitizer = own_checks(checks);
    }
    options.schedule = wanted.schedule.or(options.schedule);
    options.perf_map = wanted.perf_map.unwrap_or(options.perf_map);
    options.coverage |= wanted.coverage;
    let backends = wgpu::Backends::from(BACKEND);
    let adapters = instance_with(options).enumerate_adapters(backends).await;
    let adapter = adapters.into_iter().next();
    adapter.ok_or(DeviceError::NoAdapter { backends })
}

/// The checks in the adapter's form; `None` for no check.
fn own_checks(wanted: SanitizerChecks) -> Option<Checks> {
    let mut checks = Checks::default();
    checks.bounds = wanted.bounds;
    checks.races = wanted.races;
    checks.barriers = wanted.barriers;
    checks.unwritten = wanted.unwritten;
    checks.index_overflow = wanted.index_overflow;
    (wanted != SanitizerChecks::NONE).then_some(checks)
}

/// The options asked for by the environment.
fn of_environment() -> Result<tombolo_cpu::Options, DeviceError> {
    let value = |variable| std::env::var(variable).ok();
    let mut options = options(value(SANITIZE), value(SCHEDULE))?;
    if let Some(path) = coverage_file() {
        // A file that cannot be written is an error here, not a warning at the end.
        let opened = OpenOptions::new().append(true).create(true).open(&path);
        opened.map_err(|error| {
            log::error!("{}: {error}", path.display());
            DeviceError::EmbeddedOption {
                variable: COVERAGE,
                value: path.display().to_string(),
                expected: "a file that can be written",
            }
        })?;
        options.coverage = true;
    }
    let perf_map = value(PERF_MAP).filter(|value| !value.trim().is_empty());
    if let Some(value) = perf_map {
        options.perf_map = match value.trim() {
            "0" => false,
            "1" => true,
            _ => {
                return Err(DeviceError::EmbeddedOption {
                    variable: PERF_MAP,
                    value,
                    expected: "0 or 1",
                });
            }
        };
    }
    Ok(options)
}

/// The file for the report on executed lines, if there is to be one.
pub(super) fn coverage_file() -> Option<PathBuf> {
    let path = std::env::var_os(COVERAGE).filter(|path| !path.is_empty());
    path.map(PathBuf::from)
}

/// The options by the values of [`SANITIZE`] and [`SCHEDULE`].
fn options(
    sanitize: Option<String>,
    schedule: Option<String>,
) -> Result<tombolo_cpu::Options, DeviceError> {
    let refused = |variable, value, expected| DeviceError::EmbeddedOption {
        variable,
        value,
        expected,
    };
    let mut options = tombolo_cpu::Options::default();
    let set = |value: Option<String>| value.filter(|value| !value.trim().is_empty());
    if let Some(value) = set(sanitize) {
        options.sanitizer = checks(&value).ok_or_else(|| {
            let expected =
                "0, 1, all, or a list of bounds, races, barriers, unwritten and index_overflow, with commas";
            refused(SANITIZE, value, expected)
        })?;
    }
    if let Some(value) = set(schedule) {
        let seed = value.trim().parse();
        let seed = seed.map_err(|_| refused(SCHEDULE, value, "a number below 2^64"))?;
        options.schedule = Some(seed);
    }
    Ok(options)
}

/// The checks named by a value; `None` if the value makes no sense.
fn checks(value: &str) -> Option<Option<Checks>> {
    let mut checks = Checks::default();
    match value.trim() {
        "0" => return Some(None),
        "1" => return Some(Some(checks)),
        "all" => {
            checks.unwritten = true;
            return Some(Some(checks));
        }
        _ => {}
    }
    (checks.bounds, checks.races, checks.barriers) = (false, false, false);
    for name in value.split(',') {
        match name.trim() {
            "bounds" => checks.bounds = true,
            "races" => checks.races = true,
            "barriers" => checks.barriers = true,
            "unwritten" => checks.unwritten = true,
            "index_overflow" => checks.index_overflow = true,
            _ => return None,
        }
    }
    Some(Some(checks))
}

/// Whether the device belongs to this adapter.
pub(super) fn is(device: &wgpu::Device) -> bool {
    // SAFETY: the hal device is not used.
    unsafe { device.as_hal::<Api>() }.is_some()
}

/// The compiled kernels of a device of this adapter, as bytes for [`import_kernels`].
pub(super) fn export_kernels(device: &wgpu::Device) -> Option<Vec<u8>> {
    // SAFETY: the hal device is only asked.
    unsafe { device.as_hal::<Api>() }.map(|hal| hal.export_kernels())
}

/// Takes over compiled kernels from a file of the pipeline cache.
///
/// # Errors
/// If the bytes are kernels of another build or processor, or damaged.
pub(super) fn import_kernels(
    device: &wgpu::Device,
    data: &[u8],
) -> Result<(), tombolo_cpu::KernelDataError> {
    // SAFETY: the hal device is given nothing but the data. These are what `export_kernels` returned, as the seal of the file
    // and the adapter's own checks say, and as far as those who may write the file are to be trusted: a file that everybody
    // may write is not read.
    unsafe {
        match device.as_hal::<Api>() {
            Some(hal) => hal.import_kernels(data).map(drop),
            None => Ok(()),
        }
    }
}

/// Whether the device belongs to this adapter, and has its kernels checked.
pub(super) fn sanitizes(device: &wgpu::Device) -> bool {
    // SAFETY: the hal device is only asked.
    unsafe { device.as_hal::<Api>() }.is_some_and(|hal| hal.options().sanitizer.is_some())
}

/// Whether the device belongs to this adapter, and has its statements counted.
pub(super) fn counts(device: &wgpu::Device) -> bool {
    // SAFETY: the hal device is only asked.
    unsafe { device.as_hal::<Api>() }.is_some_and(|hal| hal.options().coverage)
}

/// Takes the counts of kernels of the device.
pub(super) fn take_coverage(device: &wgpu::Device) -> Vec<tombolo_cpu::sanitizer::Coverage> {
    // SAFETY: the hal device is only asked.
    unsafe { device.as_hal::<Api>() }.map_or_else(Vec::new, |hal| hal.take_coverage())
}

/// Takes the findings in kernels of the device.
pub(super) fn take_findings(device: &wgpu::Device) -> Vec<Finding> {
    // SAFETY: the hal device is only asked.
    unsafe { device.as_hal::<Api>() }.map_or_else(Vec::new, |hal| hal.take_findings())
}

/// A stop for the launch to be recorded behind the marker, with the time that its kernel has; `None` for other devices.
///
/// # Errors
/// If the system has no thread to watch the time.
pub(crate) fn stop(
    device: &wgpu::Device,
    limit: Option<Duration>,
) -> std::io::Result<Option<(Arc<str>, tombolo_cpu::Stop)>> {
    // SAFETY: the hal device is only asked.
    let Some(hal) = (unsafe { device.as_hal::<Api>() }) else {
        return Ok(None);
    };
    let marker = super::sanitizer::Findings::marker();
    let stop = hal.stop_behind(&marker, limit)?;
    Ok(Some((marker, stop)))
}

/// Has threads of a device of this adapter do `help` while their work-groups wait. Returns `false` for other devices, and
/// where they do something else already.
pub(super) fn help_while_waiting(
    device: &wgpu::Device,
    help: impl Fn() -> bool + Send + Sync + 'static,
) -> bool {
    // SAFETY: the hal device is only told.
    unsafe { device.as_hal::<Api>() }.is_some_and(|hal| hal.help_while_waiting(help))
}

/// The adapter's requirements for imported ranges. Every device imports: buffers are the host's memory anyway.
pub(super) fn import_limits(device: &wgpu::Device) -> Result<ImportLimits, ImportError> {
    // SAFETY: the hal device is not used: the question is whether it is one of this adapter.
    if unsafe { device.as_hal::<Api>() }.is_none() {
        return Err(ImportError::Backend { backend: BACKEND });
    }
    let longest = device.limits().max_buffer_size;
    Ok(ImportLimits {
        alignment: IMPORT_ALIGNMENT,
        longest: longest - longest % IMPORT_ALIGNMENT,
    })
}

/// A buffer over committed memory of a window.
pub(super) fn import(
    device: &wgpu::Device,
    window: &Arc<Window>,
    range: Range<u64>,
    label: &str,
) -> Result<wgpu::Buffer, ImportError> {
    let limits = import_limits(device)?;
    let pages = window.pin(range)?;
    let len = pages.len();
    if len > limits.longest {
        return Err(ImportError::TooLong {
            len,
            limit: limits.longest,
        });
    }
    let address = pages.as_ptr();
    // SAFETY: the pages are readable and writable memory of `len` bytes as long as they are pinned, which the buffer
    // keeps them; the host accesses them by atomic operations, or while no kernel runs that writes them.
    let buffer = unsafe { tombolo_cpu::Buffer::from_host(address, len, Box::new(pages)) };
    let descriptor = wgpu::BufferDescriptor {
        label: Some(label),
        size: len,
        usage: IMPORTED_USAGE,
        mapped_at_creation: false,
    };
    // SAFETY: buffers of this adapter belong to no device and know all usages; the memory is initialised, as committed
    // pages are, and the size is not zero.
    let adopt = || unsafe { device.create_buffer_from_hal::<Api>(buffer, &descriptor) };
    match super::capture(device, adopt) {
        (buffer, None) => Ok(buffer),
        (_, Some(error)) => Err(ImportError::Driver(error.to_string())),
    }
}

/// A buffer over `bytes` bytes of the host's address space from `address` on, which keeps `keeper`. Some of the bytes may
/// belong to others, or not be there: kernels bound to the buffer must reach those alone that are the caller's.
///
/// # Errors
/// wgpu's own words.
pub(crate) fn over_window(
    device: &wgpu::Device,
    address: u64,
    bytes: u64,
    keeper: Box<dyn Send + Sync>,
) -> Result<wgpu::Buffer, String> {
    let start = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    let start = NonNull::new(start).ok_or("a window begins at null")?;
    // SAFETY: bytes that invocations reach are valid while the buffer is used: the table of the only kernels that are bound to
    // it names no others (`memory::system::in_place`), and the adapter refuses the buffer to kernels with several lanes. A
    // page that is not there ends its kernel.
    let buffer = unsafe { tombolo_cpu::Buffer::from_address_space(start, bytes, keeper) };
    let descriptor = wgpu::BufferDescriptor {
        label: Some("tombolo window"),
        size: bytes,
        usage: wgpu::BufferUsages::STORAGE,
        mapped_at_creation: false,
    };
    // SAFETY: buffers of this adapter belong to no device and know all usages; the size is not zero, and the memory that
    // kernels reach is initialised.
    let adopt = || unsafe { device.create_buffer_from_hal::<Api>(buffer, &descriptor) };
    match super::capture(device, adopt) {
        (buffer, None) => Ok(buffer),
        (_, Some(error)) => Err(error.to_string()),
    }
}

/// A buffer of whole words around `bytes` bytes of memory, from byte `first` of the buffer on, for copies of the device until
/// the loan is dropped; `usage` is `COPY_SRC` or `COPY_DST`. Copies leave the other bytes of the words out. `None` on other
/// adapters, and where wgpu refuses.
///
/// # Safety
/// Until the loan is dropped, the bytes must be valid for reads of any thread where copied from, and for writes where copied
/// to; nobody else may write them meanwhile, nor access what is written.
pub(crate) unsafe fn lend(
    device: &wgpu::Device,
    start: NonNull<u8>,
    (bytes, first): (u64, u64),
    usage: wgpu::BufferUsages,
) -> Option<(wgpu::Buffer, Loan)> {
    if device.adapter_info().backend != BACKEND || bytes == 0 {
        return None;
    }
    // SAFETY: by contract.
    let (buffer, loan) = unsafe { tombolo_cpu::Buffer::lend(start, bytes, first) };
    let descriptor = wgpu::BufferDescriptor {
        label: Some("tombolo borrowed memory"),
        size: (first + bytes).next_multiple_of(4),
        usage,
        mapped_at_creation: false,
    };
    // SAFETY: buffers of this adapter belong to no device and know all usages; the size is not zero, and the memory is
    // initialised where it is copied from.
    let adopt = || unsafe { device.create_buffer_from_hal::<Api>(buffer, &descriptor) };
    match super::capture(device, adopt) {
        (buffer, None) => Some((buffer, loan)),
        (_, Some(error)) => {
            log::info!("memory of the program is not copied in place: {error}");
            None
        }
    }
}

/// Copies bytes from byte `start` of a buffer on to `to`, as many as `to` has, if the device is of this adapter and has nothing
/// to do: `tombolo_cpu::Device::read_at_once`. Returns whether they were copied.
///
/// # Safety
/// The device must have made the buffer, whose memory must not be mapped. `to` must be valid for writes, and accessed by nobody
/// else.
pub(crate) unsafe fn read_at_once(
    device: &wgpu::Device,
    buffer: &wgpu::Buffer,
    start: u64,
    (to, count): (*mut u8, usize),
) -> bool {
    // SAFETY: the handles of wgpu-hal are used as below, and not destroyed.
    let (device, buffer) = unsafe { (device.as_hal::<Api>(), buffer.as_hal::<Api>()) };
    let (Some(device), Some(buffer)) = (device, buffer) else {
        return false;
    };
    // SAFETY: by contract.
    unsafe { device.read_at_once(&buffer, start, to, count) }
}

/// Copies `bytes` to a buffer from byte `start` on, as [`read_at_once`]: `tombolo_cpu::Device::write_at_once`.
///
/// # Safety
/// The device must have made the buffer, whose memory must not be mapped.
pub(crate) unsafe fn write_at_once(
    device: &wgpu::Device,
    buffer: &wgpu::Buffer,
    start: u64,
    bytes: &[u8],
) -> bool {
    // SAFETY: the handles of wgpu-hal are used as below, and not destroyed.
    let (device, buffer) = unsafe { (device.as_hal::<Api>(), buffer.as_hal::<Api>()) };
    let (Some(device), Some(buffer)) = (device, buffer) else {
        return false;
    };
    // SAFETY: by contract.
    unsafe { device.write_at_once(&buffer, start, bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_environment_become_options() {
        let of =
            |sanitize: &str, schedule: &str| options(Some(sanitize.into()), Some(schedule.into()));
        assert_eq!(of("", " ").unwrap(), tombolo_cpu::Options::default());
        assert_eq!(of("0", "").unwrap(), tombolo_cpu::Options::default());
        let checks = |value| of(value, "7").unwrap().sanitizer.unwrap();
        assert_eq!(checks("1"), Checks::default());
        assert!(checks("all").unwritten && checks("all").races);
        let some = checks("bounds, unwritten");
        assert!(some.bounds && some.unwritten && !some.races && !some.barriers);
        assert_eq!(of("1", "7").unwrap().schedule, Some(7));
        for (sanitize, schedule, wrong) in [
            ("yes", "", SANITIZE),
            ("races,", "", SANITIZE),
            ("", "-1", SCHEDULE),
        ] {
            let error = of(sanitize, schedule).unwrap_err();
            assert!(
                matches!(error, DeviceError::EmbeddedOption { variable, .. } if variable == wrong),
                "{error}"
            );
        }
    }
}
