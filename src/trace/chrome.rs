//! Traces in the format of Chrome's viewer, read by Perfetto as well: an array of events in JSON, each on a line. Every
//! event is written at once, so a program ending early leaves all events until then; viewers take an array without the
//! end.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Subscriber, subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use super::device_times::{self, ClockOffset};
use super::error::TraceError;
use super::json::Object;
use crate::clock::Instant;
use crate::device::wait::lock;

/// The variable with the name of the file of [`Trace::from_env`].
const VARIABLE: &str = "TOMBOLO_TRACE";

/// The number of the process in the file; devices have the numbers behind it.
const HOST: u64 = 1;

/// A running trace: the work of the program and its devices, with times, in a file for
/// [Perfetto](https://ui.perfetto.dev) or `chrome://tracing`.
///
/// Each thread of the program has a track, and so has each device with timestamps, on which every launch stands with its
/// kernel's name. The clocks of devices are set by the host's learning of ends of launches, so a device's track may lie some
/// tens of microseconds late as a whole. Launches of a device whose trace is recorded run each in a compute pass of
/// its own, as [profiled](crate::Launch::profiled) ones do.
///
/// ```no_run
/// // `TOMBOLO_TRACE=run.json` in the environment: until the end of `main`.
/// let _trace = tombolo::trace::Trace::from_env()?;
/// # Ok::<(), tombolo::trace::TraceError>(())
/// ```
#[must_use = "the trace ends when this value is dropped"]
#[derive(Debug)]
pub struct Trace {
    recording: Arc<Recording>,
}

/// The layer of a trace, for subscribers with other layers: [`Trace::layer`]. Every span of the program is recorded.
#[derive(Debug)]
pub struct TraceLayer {
    recording: Arc<Recording>,
}

/// The file, and the known tracks.
#[derive(Debug)]
pub(crate) struct Recording {
    path: PathBuf,
    begun: Instant,
    file: Mutex<Output>,
    devices: Mutex<HashMap<String, (u64, ClockOffset)>>,
}

#[derive(Debug)]
struct Output {
    /// None once the trace is finished.
    writer: Option<BufWriter<File>>,
    failed: Option<String>,
    threads: Vec<u64>,
}

impl Trace {
    /// Records a trace into the file named by the variable `TOMBOLO_TRACE`; `None` where the variable is not set, or
    /// empty.
    ///
    /// # Errors
    /// As [`Trace::to_file`].
    pub fn from_env() -> Result<Option<Self>, TraceError> {
        match std::env::var_os(VARIABLE) {
            Some(path) if !path.is_empty() => Self::to_file(path).map(Some),
            _ => Ok(None),
        }
    }

    /// Records a trace into a file, by a subscriber of its own for the whole process.
    ///
    /// # Errors
    /// [`TraceError::Create`]; [`TraceError::Recording`] while there is another trace; [`TraceError::Subscribed`] where the
    /// program has a subscriber.
    pub fn to_file(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let (layer, trace) = Self::layer(path)?;
        subscriber::set_global_default(Registry::default().with(layer))
            .map_err(|_| TraceError::Subscribed)?;
        Ok(trace)
    }

    /// A trace, and the recording layer, for the program's own subscriber.
    ///
    /// # Errors
    /// [`TraceError::Create`]; [`TraceError::Recording`] while there is another trace.
    pub fn layer(path: impl AsRef<Path>) -> Result<(TraceLayer, Self), TraceError> {
        let recording = Arc::new(Recording::new(path.as_ref())?);
        if !device_times::begin(&recording) {
            return Err(TraceError::Recording);
        }
        let layer = TraceLayer {
            recording: Arc::clone(&recording),
        };
        Ok((layer, Self { recording }))
    }

    /// Ends the trace. Dropping it does the same, and logs what fails.
    ///
    /// # Errors
    /// [`TraceError::Write`].
    pub fn finish(self) -> Result<(), TraceError> {
        self.recording.finish()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        if let Err(error) = self.recording.finish() {
            log::error!("{error}");
        }
    }
}

impl Recording {
    fn new(path: &Path) -> Result<Self, TraceError> {
        let made = File::create(path).and_then(|file| {
            let mut writer = BufWriter::new(file);
            writer.write_all(b"[\n")?;
            Ok(writer)
        });
        let writer = made.map_err(|error| TraceError::Create {
            path: path.to_owned(),
            message: error.to_string(),
        })?;
        let recording = Self {
            path: path.to_owned(),
            begun: Instant::now(),
            file: Mutex::new(Output {
                writer: Some(writer),
                failed: None,
                threads: Vec::new(),
            }),
            devices: Mutex::default(),
        };
        recording.name("process_name", HOST, 0, "host");
        Ok(recording)
    }

    /// Ends the array, once.
    fn finish(&self) -> Result<(), TraceError> {
        let mut file = lock(&self.file);
        let ended = file.writer.take().map_or(Ok(()), |mut writer| {
            // The very last line has no comma at the end.
            let now = micros(self.begun.elapsed());
            let last = Object::default()
                .text("name", "end")
                .text("ph", "i")
                .text("s", "g");
            let last = last.number("pid", HOST).number("tid", 0).number("ts", now);
            writeln!(writer, "{last}\n]")?;
            writer.flush()
        });
        match (file.failed.take(), ended) {
            (None, Ok(())) => Ok(()),
            (failed, ended) => Err(TraceError::Write {
                path: self.path.clone(),
                message: failed
                    .or(ended.err().map(|error| error.to_string()))
                    .unwrap_or_default(),
            }),
        }
    }

    /// Whether the file is still written.
    pub(super) fn is_open(&self) -> bool {
        lock(&self.file).writer.is_some()
    }

    /// A launch run by a device, by the device's clock.
    pub(crate) fn device_ran(
        &self,
        device: &str,
        kernel: &str,
        started: Duration,
        ended: Duration,
    ) {
        let now = self.begun.elapsed();
        let mut devices = lock(&self.devices);
        let next = HOST + 1 + devices.len() as u64;
        let is_new = !devices.contains_key(device);
        let (number, clock) = devices
            .entry(device.to_owned())
            .or_insert((next, ClockOffset::default()));
        let begin = clock.place(now, ended, started);
        let number = *number;
        drop(devices);
        if is_new {
            self.name("process_name", number, 0, device);
            self.name("thread_name", number, 1, "launches");
        }
        let took = ended.saturating_sub(started);
        self.write(|| {
            let launch = Object::default().text("name", kernel).text("ph", "X");
            let launch = launch
                .text("cat", "device")
                .number("pid", number)
                .number("tid", 1);
            launch
                .number("ts", begin as f64 / 1e3)
                .number("dur", micros(took))
        });
    }

    /// A span left by this thread.
    fn left(&self, name: &str, entered: Instant, fields: &Object) {
        let (tid, thread) = this_thread();
        let is_new = {
            let mut file = lock(&self.file);
            let is_new = !file.threads.contains(&tid);
            if is_new {
                file.threads.push(tid);
            }
            is_new
        };
        if is_new {
            self.name("thread_name", HOST, tid, &thread);
        }
        let begin = entered.saturating_duration_since(self.begun);
        let took = entered.elapsed();
        self.write(|| {
            let span = Object::default().text("name", name).text("ph", "X");
            let span = span
                .text("cat", "host")
                .number("pid", HOST)
                .number("tid", tid);
            span.number("ts", micros(begin))
                .number("dur", micros(took))
                .object("args", fields)
        });
    }

    fn name(&self, what: &str, pid: u64, tid: u64, name: &str) {
        self.write(|| {
            let track = Object::default().text("name", what).text("ph", "M");
            let named = Object::default().text("name", name);
            track
                .number("pid", pid)
                .number("tid", tid)
                .object("args", &named)
        });
    }

    fn write(&self, event: impl FnOnce() -> Object) {
        let mut file = lock(&self.file);
        let Some(writer) = &mut file.writer else {
            return;
        };
        let written: io::Result<()> = writeln!(writer, "{},", event());
        if let Err(error) = written {
            file.failed.get_or_insert(error.to_string());
        }
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

/// A number of this thread, and the thread's name.
fn this_thread() -> (u64, String) {
    static LAST: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static NUMBER: u64 = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    }
    let number = NUMBER.with(|number| *number);
    let thread = std::thread::current();
    let name = thread
        .name()
        .map_or_else(|| format!("thread {number}"), str::to_owned);
    (number, name)
}

/// A span's fields, and the time of entry.
#[derive(Default)]
struct Seen {
    fields: Object,
    entered: Vec<Instant>,
}

impl Visit for Seen {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.fields.put_text(field.name(), &format!("{value:?}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.put(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.put_text(field.name(), value);
    }
}

impl<S> Layer<S> for TraceLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut seen = Seen::default();
            attributes.record(&mut seen);
            span.extensions_mut().insert(seen);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(seen) = span.extensions_mut().get_mut::<Seen>()
        {
            values.record(seen);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(seen) = span.extensions_mut().get_mut::<Seen>()
        {
            seen.entered.push(Instant::now());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(seen) = span.extensions_mut().get_mut::<Seen>()
            && let Some(entered) = seen.entered.pop()
        {
            self.recording.left(span.name(), entered, &seen.fields);
        }
    }
}
