//! The start-up probe: the device's real behaviour, measured with tiny kernels.
//!
//! An adapter's limits and features do not say whether host and kernel see each other's writes while the kernel runs,
//! nor whether the driver ends long loops on its own. Both decide the runtime's choices on the device, so both are
//! tried once, when the device is opened.
//!
//! Every kernel here is bounded (at most 2^20 short turns by eight invocations), and every wait has a deadline, so a
//! probe can neither hang nor run into a driver's watchdog. An open question is reported as such ([`Finding`]); nothing
//! is assumed from the lack of an answer. A question without an answer for want of time is asked again when the adapter
//! is opened next ([`AdapterProbe`]): a device kept busy by others can do no less.
//!
//! Four questions are asked on a scratch device, on a thread left behind at the deadline: does the host see a running
//! kernel's writes, and the kernel the host's; can the device use the host's memory in place; after how many turns do
//! loops end; how long does a launch take. A finding is *measured*, *not asked*, *timed out* or *failed*; only the
//! first counts. On a page, which has no threads, the questions are asked while the page goes on, and those about memory that
//! host and kernels share are not asked: a browser has none.
//!
//! A kernel must poll a word at one place: Mesa reuses the value of an earlier load of the same word. Between two looks
//! stands a fence ([`fence`](super::fence)), as in calls. Whether two work-groups, or two queues, run beside each other
//! is not asked: nothing depends on the answer but calls between devices (`docs/servers.md`, *Forward progress*).

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::fence;
use super::import::probe_import;
use super::live::{LiveBuffer, LiveError, Reader};
use super::mapping::{Mapped, Mapping};
use super::submissions::{Batch, ClosedBatch, Progress, Submissions};
use super::wait_policy::WaitPolicy;
use super::words::Words;
use crate::clock::Instant;

mod adapter;
mod report;
#[cfg(test)]
mod tests;

pub(crate) use adapter::AdapterProbe;
pub use report::{Finding, LiveFinding, NotProbed, ProbeOptions, ProbeReport};

/// Probes `device`, which must be idle, until all is measured or the deadline has passed. Questions answered in `known`
/// are not asked again.
///
/// No wgpu error leaves this function and no wait is without bound, except in the driver's shader compiler.
/// [`AdapterProbe`] bounds the compiler as well.
pub(crate) async fn probe(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    backend: wgpu::Backend,
    options: &ProbeOptions,
    known: Option<ProbeReport>,
) -> ProbeReport {
    let begun = Instant::now();
    let within = options.deadline;
    let submissions = Submissions::new(device, queue, &Arc::default(), WaitPolicy::Auto);
    let bench = Bench {
        device,
        queue,
        submissions: &submissions,
        within,
        deadline: begun.checked_add(within).unwrap_or(begun),
    };
    let known = known.unwrap_or_else(|| ProbeReport::timed_out(within, Duration::ZERO));
    let launch_latency = bench
        .ask(known.launch_latency, bench.launch_latency())
        .await;
    let loop_budget = bench.ask(known.loop_budget, bench.loop_budget()).await;
    let host_import = match known.host_import {
        Finding::TimedOut { .. } if bench.left().is_zero() => Finding::TimedOut { within },
        Finding::TimedOut { .. } => probe_import(device, queue, within, bench.deadline),
        answer => answer,
    };
    // Last, because this measurement may use up the time.
    let live = bench.ask(known.live, async { bench.live(backend) }).await;
    ProbeReport {
        live,
        host_import,
        loop_budget,
        launch_latency,
        elapsed: known.elapsed + begun.elapsed(),
    }
}

/// Why a measurement did not come about.
enum Stop {
    TimedOut,
    Unsupported(String),
    Failed(String),
}

impl From<LiveError> for Stop {
    fn from(error: LiveError) -> Self {
        match error {
            LiveError::Unsupported { .. } | LiveError::NotCoherent => {
                Self::Unsupported(error.to_string())
            }
            other => Self::Failed(other.to_string()),
        }
    }
}

/// The device under test, and when to stop.
struct Bench<'a> {
    device: &'a wgpu::Device,
    queue: &'a wgpu::Queue,
    submissions: &'a Submissions,
    within: Duration,
    deadline: Instant,
}

impl Bench<'_> {
    /// The known finding, or a new one if the known one ran out of time.
    async fn ask<T>(
        &self,
        known: Finding<T>,
        measure: impl Future<Output = Result<T, Stop>>,
    ) -> Finding<T> {
        match known.ran_out() {
            true => self.finding(measure).await,
            false => known,
        }
    }

    /// Runs one measurement with every error of wgpu's caught: the default handler would panic.
    async fn finding<T>(&self, measure: impl Future<Output = Result<T, Stop>>) -> Finding<T> {
        let within = self.within;
        if self.left().is_zero() {
            return Finding::TimedOut { within };
        }
        let scopes = [
            wgpu::ErrorFilter::Validation,
            wgpu::ErrorFilter::OutOfMemory,
            wgpu::ErrorFilter::Internal,
        ]
        .map(|filter| self.device.push_error_scope(filter));
        let result = measure.await;
        let mut caught = None;
        for scope in scopes.into_iter().rev() {
            // On native systems this is ready at once.
            if let Some(error) = scope.pop().await {
                caught = Some(error.to_string());
            }
        }
        match (caught, result) {
            (Some(error), _) => Finding::Failed(error),
            (None, Ok(value)) => Finding::Measured(value),
            (None, Err(Stop::TimedOut)) => Finding::TimedOut { within },
            (None, Err(Stop::Unsupported(why))) => Finding::NotProbed(NotProbed::Unsupported(why)),
            (None, Err(Stop::Failed(error))) => Finding::Failed(error),
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn pipeline(&self, source: &'static str, entry: &str) -> Result<wgpu::ComputePipeline, Stop> {
        // Always: a kernel here is one group of lanes, so no lane waits at a driver's version of a fence.
        let mut module = naga::front::wgsl::parse_str(source)
            .map_err(|error| Stop::Failed(error.message().to_owned()))?;
        fence::fill(&mut module, "fence");
        let module = self
            .device
            .create_shader_module(wgpu::ShaderModuleDescriptor {
                label: Some(entry),
                source: wgpu::ShaderSource::Naga(std::borrow::Cow::Owned(module)),
            });
        let descriptor = wgpu::ComputePipelineDescriptor {
            label: Some(entry),
            layout: None,
            module: &module,
            entry_point: Some(entry),
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        };
        Ok(self.device.create_compute_pipeline(&descriptor))
    }

    fn bind(&self, pipeline: &wgpu::ComputePipeline, buffer: &wgpu::Buffer) -> wgpu::BindGroup {
        self.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("tombolo probe"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: buffer.as_entire_binding(),
            }],
        })
    }

    /// Launches one work-group, and then copies, if asked to.
    fn launch(
        &self,
        pipeline: &wgpu::ComputePipeline,
        group: Option<&wgpu::BindGroup>,
        copy: Option<(&wgpu::Buffer, &wgpu::Buffer)>,
    ) -> Arc<Batch> {
        let mut encoder = self
            .device
            .create_command_encoder(&wgpu::CommandEncoderDescriptor {
                label: Some("tombolo probe"),
            });
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: Some("tombolo probe"),
                timestamp_writes: None,
            });
            pass.set_pipeline(pipeline);
            if let Some(group) = group {
                pass.set_bind_group(0, group, &[]);
            }
            pass.dispatch_workgroups(1, 1, 1);
        }
        if let Some((from, to)) = copy {
            encoder.copy_buffer_to_buffer(from, 0, to, 0, to.size());
        }
        let closed = ClosedBatch::of(encoder.finish());
        self.submissions.send_now(self.queue, closed)
    }

    fn wait(&self, batch: &Batch) -> Result<(), Stop> {
        if let Some(Err(error)) = batch.submission() {
            return Err(Stop::Failed(error.to_string()));
        }
        match self.submissions.wait(batch, Some(self.left())) {
            Progress::Done => Ok(()),
            Progress::Pending | Progress::Refused => Err(Stop::TimedOut),
            Progress::Lost(reason) => Err(Stop::Failed(reason)),
        }
    }

    /// As [`Self::wait`]; a page goes on meanwhile, and for as long as its browser lets a kernel run: no thread is there that
    /// could keep a deadline.
    async fn end(&self, batch: &Batch) -> Result<(), Stop> {
        #[cfg(web)]
        self.submissions.ended(batch).await;
        self.wait(batch)
    }

    async fn launch_latency(&self) -> Result<Duration, Stop> {
        const LAUNCHES: usize = 9;
        let pipeline =
            self.pipeline(include_str!("../../shaders/probe_loop.wgsl"), "probe_empty")?;
        let mut times = [Duration::ZERO; LAUNCHES];
        for time in &mut times {
            let begun = Instant::now();
            let batch = self.launch(&pipeline, None, None);
            self.end(&batch).await?;
            *time = begun.elapsed();
        }
        times.sort_unstable();
        Ok(times[LAUNCHES / 2])
    }

    async fn loop_budget(&self) -> Result<Option<u32>, Stop> {
        const LIMIT: u32 = 1 << 20;
        const SEED: u32 = 0x9E37_79B9;
        const WORDS: usize = 4;
        let bytes = size_of::<[u32; WORDS]>() as u64;
        let pipeline =
            self.pipeline(include_str!("../../shaders/probe_loop.wgsl"), "probe_loop")?;
        let buffer = |usage| {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("tombolo probe"),
                size: bytes,
                usage,
                mapped_at_creation: false,
            })
        };
        use wgpu::BufferUsages as Usage;
        let io = buffer(Usage::STORAGE | Usage::COPY_SRC | Usage::COPY_DST);
        let seen = buffer(Usage::MAP_READ | Usage::COPY_DST);
        let group = self.bind(&pipeline, &io);
        self.queue
            .write_buffer(&io, 0, bytemuck::bytes_of(&[LIMIT, SEED, 0, 0]));
        let batch = self.launch(&pipeline, Some(&group), Some((&io, &seen)));
        let mapping = Mapping::begin(self.device, &seen, 0..bytes);
        self.end(&batch).await?;
        #[cfg(web)]
        mapping.settled().await;
        if mapping.wait(self.submissions, Some(self.deadline)) == Mapped::Pending {
            return Err(Stop::TimedOut);
        }
        let words: [u32; WORDS] = mapping
            .take(bytemuck::pod_read_unaligned)
            .map_err(|error| Stop::Failed(error.to_string()))?;
        let [_, _, counted, state] = words;
        judge_loop(LIMIT, SEED, counted, state)
    }

    fn live(&self, backend: wgpu::Backend) -> Result<LiveFinding, Stop> {
        let memory = LiveBuffer::new(
            self.device,
            backend,
            Reader::Kernel,
            words::SIZE,
            "tombolo probe",
        )?;
        let pipeline = self.pipeline(SHADER, "probe_live")?;
        let group = self.bind(&pipeline, memory.buffer());
        let mut found = LiveFinding {
            host_to_kernel: false,
            kernel_to_host: false,
        };
        let mut wait_budget = WaitBudget::new();
        for token in 1..=WaitBudget::MOST_ATTEMPTS {
            let begun = Instant::now();
            let seen = self.talk(&memory, &pipeline, &group, token, wait_budget.turns)?;
            found.host_to_kernel |= seen.host_to_kernel;
            found.kernel_to_host |= seen.kernel_to_host;
            if found.both_ways() || wait_budget.in_vain(token, begun.elapsed()) {
                break;
            }
            if self.left().is_zero() {
                // Nothing seen *so far* is no measurement.
                return Err(Stop::TimedOut);
            }
        }
        Ok(found)
    }

    /// One attempt: launches the kernel and exchanges words until the kernel ends.
    fn talk(
        &self,
        memory: &LiveBuffer,
        pipeline: &wgpu::ComputePipeline,
        group: &wgpu::BindGroup,
        token: u32,
        turns: u32,
    ) -> Result<LiveFinding, Stop> {
        // The offsets below all lie in the memory, so neither of these can fail.
        let load = |offset| memory.load_u32(offset).unwrap_or(0);
        let store = |offset, value| memory.store_u32(offset, value).unwrap_or(());
        for offset in (0..words::SIZE).step_by(4) {
            store(offset, 0);
        }
        store(words::TOKEN, token);
        store(words::TURNS, turns);

        let batch = self.launch(pipeline, Some(group), None);
        let mut beat = 0_u32;
        let mut first_progress = 0;
        loop {
            beat = beat.wrapping_add(1);
            store(words::BEAT, beat);
            if first_progress == 0 {
                first_progress = load(words::PROGRESS);
                if first_progress != 0 {
                    store(words::ACK, token);
                }
            }
            if load(words::DONE) == token {
                break;
            }
            std::hint::spin_loop();
            if beat.is_multiple_of(64) {
                // The driver's kernel may need this core.
                thread::yield_now();
            }
            if beat.is_multiple_of(4096) {
                // Where the kernel's words reach the host only by the end of the submission.
                let progress = self.submissions.wait(&batch, Some(Duration::ZERO));
                if progress != Progress::Pending || self.left().is_zero() {
                    break;
                }
            }
        }
        self.wait(&batch)?;
        if load(words::DONE) != token {
            return Err(Stop::Failed(
                "the kernel ended without leaving its last word".to_owned(),
            ));
        }
        Ok(judge_talk(&Talk {
            first_progress,
            taken: load(words::TAKEN),
            first_beat: load(words::FIRST_BEAT),
            last_beat: load(words::LAST_BEAT),
            answered: load(words::ANSWERED) != 0,
        }))
    }
}

const SHADER: &str = concat!(
    include_str!("../../shaders/probe_churn.wgsl"),
    include_str!("../../shaders/probe_live.wgsl")
);

/// Byte offsets of the members of `Words` in `probe_live.wgsl`.
mod words {
    pub(super) const TOKEN: u64 = 0;
    pub(super) const TURNS: u64 = 4;
    pub(super) const BEAT: u64 = 256;
    pub(super) const ACK: u64 = 260;
    pub(super) const PROGRESS: u64 = 512;
    pub(super) const FIRST_BEAT: u64 = 768;
    pub(super) const LAST_BEAT: u64 = 772;
    pub(super) const ANSWERED: u64 = 776;
    pub(super) const TAKEN: u64 = 780;
    pub(super) const DONE: u64 = 788;
    pub(super) const SIZE: u64 = 1024;
}

/// How many turns the kernel waits for the host: more with each attempt, since a busy machine may
/// not run host and kernel at the same time at first.
struct WaitBudget {
    turns: u32,
    /// Time spent in attempts, each counted up to a kernel's longest time: the rest belongs to other work on the
    /// device.
    spent: Duration,
}

impl WaitBudget {
    /// So many silent attempts count as a no, if [`Self::ENOUGH`] was spent.
    const FEWEST_ATTEMPTS: u32 = 6;
    const ENOUGH: Duration = Duration::from_secs(1);
    /// So many silent attempts count as a no in any case.
    const MOST_ATTEMPTS: u32 = 24;
    const FIRST: u32 = 1_000;
    /// Below the smallest loop budget known (65,535, Mesa's lavapipe).
    const MOST: u32 = 60_000;
    /// A kernel of this length troubles no watchdog and no display.
    const LONGEST: Duration = Duration::from_millis(100);

    fn new() -> Self {
        Self {
            turns: Self::FIRST,
            spent: Duration::ZERO,
        }
    }

    /// Counts a silent attempt, number `attempt`, of length `elapsed`; true if the silence counts as a no. How busy the
    /// device is has no influence.
    fn in_vain(&mut self, attempt: u32, elapsed: Duration) -> bool {
        self.spent += elapsed.min(Self::LONGEST);
        self.grow(elapsed);
        attempt >= Self::MOST_ATTEMPTS
            || (attempt >= Self::FEWEST_ATTEMPTS && self.spent >= Self::ENOUGH)
    }

    /// Adapts the turns to an attempt of length `elapsed`.
    fn grow(&mut self, elapsed: Duration) {
        let grown = self.turns.saturating_mul(4).min(Self::MOST);
        let scale = Self::LONGEST.as_secs_f64() / elapsed.as_secs_f64().max(1e-6);
        // A float to integer cast saturates, so the result is at most `u32::MAX`.
        let fitting = (f64::from(self.turns) * scale) as u32;
        self.turns = grown.min(fitting).max(Self::FIRST);
    }
}

/// The words after an attempt.
struct Talk {
    /// The first progress seen by the host.
    first_progress: u32,
    /// The progress when the kernel ended.
    taken: u32,
    first_beat: u32,
    last_beat: u32,
    answered: bool,
}

/// The directions proved by an attempt.
fn judge_talk(talk: &Talk) -> LiveFinding {
    // The host acknowledges only a progress seen before, so a kernel that saw the acknowledgement has proved both
    // directions. Without an acknowledgement: a beat changed under the kernel, and a progress other than the last one,
    // cannot have been written before or after the run.
    LiveFinding {
        host_to_kernel: talk.answered || talk.first_beat != talk.last_beat,
        kernel_to_host: talk.answered
            || (talk.first_progress != 0 && talk.first_progress < talk.taken),
    }
}

/// Takes a count only if the generator's state proves the same number of turns.
fn judge_loop(limit: u32, seed: u32, counted: u32, state: u32) -> Result<Option<u32>, Stop> {
    if counted == 0 || counted > limit || xorshift(seed, counted) != state {
        return Err(Stop::Failed(format!(
            "the loop's count {counted} does not agree with its result {state:#010x}"
        )));
    }
    Ok((counted < limit).then_some(counted))
}

/// `turns` steps of the generator of `probe_loop.wgsl`.
fn xorshift(seed: u32, turns: u32) -> u32 {
    (0..turns).fold(seed, |mut x, _| {
        x ^= x << 13;
        x ^= x >> 17;
        x ^ (x << 5)
    })
}
