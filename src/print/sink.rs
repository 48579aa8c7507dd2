//! Where printed lines go.

use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::record::PrintRecord;
use crate::guard::guarded;

/// Takes the lines printed by kernels: in the order of the launches, and within an invocation in the order of its
/// calls. Lines of different invocations come in no particular order.
///
/// Closures `FnMut(&PrintRecord)` are sinks. A sink is called by the thread finding new lines (waiting for an event or
/// a read-back, or the runtime's own), and by a single thread at a time; a sink may use this device and others, except
/// that waiting inside delivers no further lines.
///
/// A panic of a sink reaches nobody, since the waiting thread may have nothing to do with the launch: the log tells of
/// the panic, and the sink goes on with the next line.
pub trait PrintSink: Send {
    /// Takes a line.
    fn record(&mut self, record: &PrintRecord<'_>);

    /// Receives the loss of a launch's prints. By default the loss is a warning in the log.
    fn lost(&mut self, loss: &PrintLoss) {
        log::warn!("{loss}");
    }
}

impl<F: FnMut(&PrintRecord<'_>) + Send> PrintSink for F {
    fn record(&mut self, record: &PrintRecord<'_>) {
        self(record);
    }
}

/// The loss of a launch's prints.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrintLoss {
    /// The entry point of the kernel.
    pub kernel: String,
    /// The exact number of lines without room in the buffer.
    pub dropped: u64,
    /// Bytes of the buffer for lines: [`PrintOptions::capacity`].
    pub capacity: u64,
    /// The lines behind some place in the buffer could not be read: the kernel was ended from outside, or the
    /// device was lost.
    pub cut: bool,
}

impl fmt::Display for PrintLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kernel, capacity) = (&self.kernel, self.capacity);
        if self.dropped > 0 {
            write!(
                f,
                "kernel `{kernel}`: {} printed lines did not fit into {capacity} bytes and are lost: \
                 raise PrintOptions::capacity",
                self.dropped
            )?;
        }
        if self.cut {
            let separator = if self.dropped > 0 { "; " } else { "" };
            write!(
                f,
                "{separator}kernel `{kernel}`: printed lines are lost, because the launch did not end \
                 by itself"
            )?;
        }
        Ok(())
    }
}

/// A sink shareable by several launches and devices.
#[derive(Clone)]
pub struct PrintTarget {
    kind: TargetKind,
}

#[derive(Clone)]
enum TargetKind {
    Stdout,
    Stderr,
    Log(log::Level),
    Own(Arc<Mutex<dyn PrintSink>>),
}

impl PrintTarget {
    /// Lines go to the standard output.
    pub fn stdout() -> Self {
        Self {
            kind: TargetKind::Stdout,
        }
    }

    /// Lines go to the standard error output.
    pub fn stderr() -> Self {
        Self {
            kind: TargetKind::Stderr,
        }
    }

    /// Lines go to the log, with target `tombolo::print`.
    pub fn log(level: log::Level) -> Self {
        Self {
            kind: TargetKind::Log(level),
        }
    }

    /// Lines go to the program's own sink.
    pub fn new(sink: impl PrintSink + 'static) -> Self {
        Self {
            kind: TargetKind::Own(Arc::new(Mutex::new(sink))),
        }
    }

    /// The target for some consecutive lines: a sink is locked once for all.
    pub(crate) fn open(&self) -> OpenTarget<'_> {
        match &self.kind {
            TargetKind::Own(sink) => OpenTarget::Own(hold(sink)),
            TargetKind::Log(level) => OpenTarget::Log(*level),
            // `print!` rather than the stream itself, so test harnesses can capture the output.
            TargetKind::Stdout => OpenTarget::Stream(Piece::of(|lines| print!("{lines}"))),
            TargetKind::Stderr => OpenTarget::Stream(Piece::of(|lines| eprint!("{lines}"))),
        }
    }

    pub(crate) fn lost(&self, loss: &PrintLoss) {
        match &self.kind {
            TargetKind::Stdout => told(|| println!("{loss}")),
            TargetKind::Stderr => told(|| eprintln!("{loss}")),
            TargetKind::Log(_) => told(|| log::warn!(target: "tombolo::print", "{loss}")),
            TargetKind::Own(sink) => told(|| hold(sink).lost(loss)),
        }
    }

    /// Lets the written lines become visible.
    pub(crate) fn flush(&self) {
        if let TargetKind::Stdout = self.kind {
            // A closed pipe is nobody's mistake here.
            let _ = std::io::stdout().flush();
        }
    }
}

/// See [`PrintTarget::open`].
pub(crate) enum OpenTarget<'t> {
    Own(MutexGuard<'t, dyn PrintSink + 'static>),
    Log(log::Level),
    Stream(Piece),
}

/// Bytes of a piece from which on the piece is written. A call of the system for each line would cost more than all
/// else about the line.
const PIECE: usize = 1 << 16;

/// Unwritten lines for a stream of the process.
pub(crate) struct Piece {
    write: fn(&str),
    lines: String,
}

impl Piece {
    fn of(write: fn(&str)) -> Self {
        let lines = String::new();
        Self { write, lines }
    }

    fn line(&mut self, place: &str, text: impl FnOnce(&mut String)) {
        self.lines.push_str(place);
        text(&mut self.lines);
        self.lines.push('\n');
        if self.lines.len() >= PIECE {
            self.write();
        }
    }

    fn write(&mut self) {
        told(|| (self.write)(&self.lines));
        self.lines.clear();
    }
}

impl OpenTarget<'_> {
    pub(crate) fn record(&mut self, record: &PrintRecord<'_>, locate: bool) {
        let place = || match locate {
            true => record.location(),
            false => String::new(),
        };
        match self {
            Self::Own(sink) => told(|| sink.record(record)),
            Self::Log(level) => {
                told(|| log::log!(target: "tombolo::print", *level, "{}{record}", place()));
            }
            Self::Stream(piece) => piece.line(&place(), |lines| record.write_text(lines)),
        }
    }

    /// Writes the unwritten lines.
    pub(crate) fn close(self) {
        if let Self::Stream(mut piece) = self {
            piece.write();
        }
    }
}

/// Calls a sink, or the program's logger, or writes to a stream, perhaps a closed one.
fn told(call: impl FnOnce()) {
    static PANICS: AtomicU64 = AtomicU64::new(0);
    if guarded(call).is_none() {
        // A sink may panic at each of a million lines.
        let times = PANICS.fetch_add(1, Ordering::Relaxed) + 1;
        if times.is_power_of_two() {
            log::error!("print sinks panicked {times} times; they go on with the next line");
        }
    }
}

/// A once panicked sink is asked again.
fn hold<'a>(sink: &'a Mutex<dyn PrintSink + 'static>) -> MutexGuard<'a, dyn PrintSink + 'static> {
    sink.lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

impl fmt::Debug for PrintTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.kind {
            TargetKind::Stdout => "PrintTarget::stdout",
            TargetKind::Stderr => "PrintTarget::stderr",
            TargetKind::Log(_) => "PrintTarget::log",
            TargetKind::Own(_) => "PrintTarget::new",
        })
    }
}

/// Where and how launches print. Given for a device
/// ([`DeviceOptions::print`](crate::DeviceOptions::print)) or a launch
/// ([`Launch::print_to`](crate::Launch::print_to)).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PrintOptions {
    /// Where lines go (default: the standard output).
    pub target: PrintTarget,
    /// Bytes for the lines of one launch (default: 1 MiB). A line takes 12 bytes and 4 for each 32-bit word of its
    /// arguments. Up to this size no line is lost; further lines are counted, and reported as [`PrintSink::lost`] and
    /// by [`Event::dropped_prints`](crate::Event::dropped_prints).
    pub capacity: u64,
    /// Put file, line, column and invocation in front of each line (default: no). The program's own sinks find
    /// them in the [`PrintRecord`].
    pub locate: bool,
}

impl Default for PrintOptions {
    fn default() -> Self {
        Self {
            target: PrintTarget::stdout(),
            capacity: 1 << 20,
            locate: false,
        }
    }
}

impl PrintOptions {
    /// The default options with another target.
    pub fn to(target: PrintTarget) -> Self {
        Self {
            target,
            ..Self::default()
        }
    }

    /// The default options with the program's own sink.
    pub fn sink(sink: impl PrintSink + 'static) -> Self {
        Self::to(PrintTarget::new(sink))
    }

    /// With room for so many bytes of lines.
    pub fn capacity(mut self, bytes: u64) -> Self {
        self.capacity = bytes;
        self
    }

    /// With file, line, column and invocation in front of each line.
    pub fn locate(mut self) -> Self {
        self.locate = true;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_go_out_in_pieces_and_none_stays_behind() {
        thread_local! {
            static WRITTEN: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
        }
        let write = |lines: &str| WRITTEN.with_borrow_mut(|written| written.push(lines.to_owned()));
        let mut target = OpenTarget::Stream(Piece::of(write));
        let (mut expected, long) = (String::new(), "x".repeat(PIECE / 3));
        for number in 0..10 {
            let OpenTarget::Stream(piece) = &mut target else {
                panic!("a stream");
            };
            piece.line("at.wgsl: ", |lines| {
                lines.push_str(&format!("{number}{long}"))
            });
            expected += &format!("at.wgsl: {number}{long}\n");
        }
        target.close();
        let written = WRITTEN.take();
        assert_eq!(written.concat(), expected);
        // Three lines fill a piece, and the tenth is left.
        assert_eq!(written.len(), 4);
        assert!(written[..3].iter().all(|piece| piece.len() >= PIECE));
    }
}
