//! Does imported memory really join host and device? Tried once, with a bounded kernel.

use std::sync::Arc;
use std::time::Duration;

use super::{ImportError, import_host, import_limits};
use crate::clock::Instant;
use crate::device::probe::{Finding, NotProbed};
use crate::device::submissions::{ClosedBatch, Progress, Submissions};
use crate::device::wait_policy::WaitPolicy;
use crate::device::window::{Pinned, Window, WindowError};
use crate::device::words::Words;
use crate::device::{capture, fence};

/// Observations in host memory imported by a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ImportFinding {
    /// A kernel computed with the host's data, and the host saw the result after the end of the kernel.
    pub shared: bool,
    /// Both saw each other's writes while the kernel ran. `false`: not *observed* in several attempts.
    pub live: bool,
    /// Both ends of imported ranges must be multiples of this many bytes.
    pub alignment: u64,
    /// The longest range that can be imported at once, in bytes.
    pub longest: u64,
}

pub(super) const SHADER: &str = concat!(
    include_str!("../../../shaders/probe_churn.wgsl"),
    include_str!("../../../shaders/probe_import.wgsl")
);

/// Where the words of `shaders/probe_import.wgsl` lie, in bytes.
pub(super) mod words {
    pub(in super::super) const TOKEN: u64 = 0;
    pub(in super::super) const TURNS: u64 = 4;
    pub(in super::super) const ANSWER: u64 = 256;
    pub(in super::super) const CALL: u64 = 512;
    pub(in super::super) const HEARD: u64 = 768;
    pub(in super::super) const RESULT: u64 = 772;

    #[cfg(all(test, target_os = "linux", vulkan))]
    pub(in super::super) const ALL: [(&str, u64); 6] = [
        ("token", TOKEN),
        ("turns", TURNS),
        ("answer", ANSWER),
        ("call", CALL),
        ("heard", HEARD),
        ("result", RESULT),
    ];
}

/// How often the kernel looks for the answer, attempt by attempt: short where the host is quick,
/// longer where the machine is busy, and always below the number of turns after which drivers are
/// known to end loops on their own. A turn takes some hundred instructions.
const TURNS: [u32; 10] = [
    1_000, 4_000, 16_000, 60_000, 60_000, 60_000, 60_000, 60_000, 60_000, 60_000,
];

/// Why there is no finding.
enum Stop {
    TimedOut,
    Import(ImportError),
    Failed(String),
}

impl<E: Into<ImportError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Import(error.into())
    }
}

/// Imports a few pages into `device`, which must be idle, and lets host and kernel talk through them.
///
/// No wgpu error leaves this function, and every wait inside is bounded. `within` is the time given to the probe, which
/// ends at `deadline`.
pub(crate) fn probe_import(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    within: Duration,
    deadline: Instant,
) -> Finding<ImportFinding> {
    let (result, error) = capture(device, || attempt(device, queue, deadline));
    match (error, result) {
        (Some(error), _) => Finding::Failed(error.to_string()),
        (None, Ok(finding)) => Finding::Measured(finding),
        (None, Err(Stop::TimedOut)) => Finding::TimedOut { within },
        (None, Err(Stop::Failed(error))) => Finding::Failed(error),
        (None, Err(Stop::Import(error))) => match &error {
            ImportError::Backend { .. }
            | ImportError::Extension { .. }
            | ImportError::NotCoherent
            | ImportError::Refused { .. }
            | ImportError::Window(WindowError::Unsupported { .. }) => {
                Finding::NotProbed(NotProbed::Unsupported(error.to_string()))
            }
            _ => Finding::Failed(error.to_string()),
        },
    }
}

fn attempt(
    device: &wgpu::Device,
    queue: &wgpu::Queue,
    deadline: Instant,
) -> Result<ImportFinding, Stop> {
    let submissions = &*Submissions::new(device, queue, &Arc::default(), WaitPolicy::Auto);
    let limits = import_limits(device)?;
    let window = Window::reserve(limits.alignment)?;
    let range = 0..window.size();
    window.commit(range.clone())?;
    let words = window.pin(range.clone())?;
    let buffer = import_host(device, &window, range, "tombolo probe")?;
    let mut module = naga::front::wgsl::parse_str(SHADER)
        .map_err(|error| Stop::Failed(error.message().to_owned()))?;
    fence::fill(&mut module, "fence");
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some("tombolo probe"),
        source: wgpu::ShaderSource::Naga(std::borrow::Cow::Owned(module)),
    });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some("tombolo probe"),
        layout: None,
        module: &module,
        entry_point: Some("probe_import"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("tombolo probe"),
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry {
            binding: 0,
            resource: buffer.as_entire_binding(),
        }],
    });
    let mut finding = ImportFinding {
        shared: true,
        live: false,
        alignment: limits.alignment,
        longest: limits.longest,
    };
    for (attempt, turns) in (1_u32..).zip(TURNS) {
        let token = attempt.wrapping_mul(0x9E37_79B9) | 1;
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor {
            label: Some("tombolo probe"),
        });
        {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: Some("tombolo probe"),
                timestamp_writes: None,
            });
            pass.set_pipeline(&pipeline);
            pass.set_bind_group(0, &group, &[]);
            pass.dispatch_workgroups(1, 1, 1);
        }
        let talk = Talk {
            queue,
            submissions,
            words: &words,
            deadline,
        };
        talk.hold(encoder.finish(), token, turns)?;
        let load = |offset| words.load_u32(offset).unwrap_or(0);
        let expected = token.wrapping_mul(2_654_435_761).wrapping_add(1);
        finding.shared &= load(words::RESULT) == expected;
        finding.live |= load(words::HEARD) == 1 && load(words::CALL) == token;
        if finding.live || !finding.shared {
            break;
        }
    }
    Ok(finding)
}

struct Talk<'a> {
    queue: &'a wgpu::Queue,
    submissions: &'a Submissions,
    words: &'a Pinned,
    deadline: Instant,
}

impl Talk<'_> {
    /// Runs the kernel once, answers a call of the kernel, and waits for the end.
    fn hold(&self, commands: wgpu::CommandBuffer, token: u32, turns: u32) -> Result<(), Stop> {
        // The offsets all lie in the first page, so neither of these can fail.
        let load = |offset| self.words.load_u32(offset).unwrap_or(0);
        let store = |offset, value| self.words.store_u32(offset, value).unwrap_or(());
        for offset in (0..=words::RESULT).step_by(4) {
            store(offset, 0);
        }
        store(words::TOKEN, token);
        store(words::TURNS, turns);
        let batch = (self.submissions).send_now(self.queue, ClosedBatch::of(commands));
        if let Some(Err(error)) = batch.submission() {
            return Err(Stop::Failed(error.to_string()));
        }
        // The kernel only ever hears an answer to a call seen by the host: a single answer proves both directions. To
        // ask for the end takes longer than looking, so the host looks often.
        let now = Some(Duration::ZERO);
        'waiting: while self.submissions.wait(&batch, now) == Progress::Pending
            && !self.left().is_zero()
        {
            for _ in 0..256 {
                if load(words::CALL) == token {
                    store(words::ANSWER, token);
                    break 'waiting;
                }
                std::hint::spin_loop();
            }
            // A software driver may want this very core.
            std::thread::yield_now();
        }
        match self.submissions.wait(&batch, Some(self.left())) {
            Progress::Done => Ok(()),
            Progress::Pending | Progress::Refused => Err(Stop::TimedOut),
            Progress::Lost(reason) => Err(Stop::Failed(reason)),
        }
    }

    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }
}
