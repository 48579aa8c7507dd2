//! Memory on its way to the host: mapping of copies left by a batch.
//!
//! wgpu tells by a callback that memory is mapped. The callback may be late, on a thread kept busy by another callback,
//! perhaps this very thread further up; and wgpu drops the callback after a panic in an earlier one. A question for the
//! memory also shows that the memory *is* mapped: wgpu maps under its lock, in the first poll behind the end of the
//! batch. So a callback wakes, and nothing else depends on the callback.
//!
//! Read-backs, status records, printed lines, timestamps and pages of mirrors all come to the host this way.

use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;

use super::capture;
use super::pace::Pace;
use super::pinned::{Unreachable, pinned};
use super::submissions::Submissions;
use super::wait::lock;
use crate::clock::Instant;

/// Memory to be mapped by wgpu for reading, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    device: wgpu::Device,
    buffer: wgpu::Buffer,
    range: Range<u64>,
    report: Arc<Report>,
    /// The callback has the other end.
    callback: Weak<()>,
}

#[derive(Debug, Default)]
struct Report(Mutex<ReportState>);

#[derive(Debug, Default)]
struct ReportState {
    result: Option<Result<(), String>>,
    waker: Option<Waker>,
    /// The bytes were taken, and the memory unmapped.
    is_taken: bool,
}

/// Bytes copied at a time: little enough for the stack, and for the processor's first cache.
const PIECE: usize = 16 << 10;

/// Where a mapping stands.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    Ready,
    Pending,
    /// The memory cannot be mapped; in wgpu's words, where there are any.
    Failed(String),
}

impl Mapping {
    /// Asks for `range` of `buffer`, after every submission using the buffer.
    pub(crate) fn begin(device: &wgpu::Device, buffer: &wgpu::Buffer, range: Range<u64>) -> Self {
        let (reported, callback) = (Arc::<Report>::default(), Arc::new(()));
        let (report, alive) = (Arc::clone(&reported), Arc::downgrade(&callback));
        let ((), error) = capture(device, || {
            buffer.map_async(wgpu::MapMode::Read, range.clone(), move |result| {
                report.set(result.map_err(|error| error.to_string()));
                drop(callback);
            });
        });
        if let Some(error) = error {
            reported.set(Err(error.to_string()));
        }
        Self {
            device: device.clone(),
            buffer: buffer.clone(),
            range,
            report: reported,
            callback: alive,
        }
    }

    pub(crate) fn device(&self) -> &wgpu::Device {
        &self.device
    }

    /// The state of the mapping. The batch that fills the memory has ended.
    pub(crate) fn state(&self) -> Mapped {
        // Held during questions to wgpu, since memory must not be unmapped during a look.
        let state = lock(&self.report.0);
        match &state.result {
            _ if state.is_taken => Mapped::Failed("its bytes were taken before".to_owned()),
            Some(Ok(())) => Mapped::Ready,
            Some(Err(message)) => Mapped::Failed(message.clone()),
            None => {
                // In this order: a callback that is gone by now has not reported, and never will.
                let is_gone = self.callback.strong_count() == 0;
                match self.buffer.get_mapped_range(self.range.clone()) {
                    Ok(_) => Mapped::Ready,
                    Err(error) if is_gone => Mapped::Failed(error.to_string()),
                    Err(_) => Mapped::Pending,
                }
            }
        }
    }

    /// Waits until the memory is mapped, and until `deadline`. The batch with the copy has ended.
    pub(crate) fn wait(&self, submissions: &Submissions, deadline: Option<Instant>) -> Mapped {
        let mut pace = Pace::default();
        loop {
            match self.state() {
                Mapped::Pending => submissions.collect(),
                known => return known,
            }
            match self.state() {
                Mapped::Pending => {}
                known => return known,
            }
            if let Some(reason) = submissions.lost().get() {
                return Mapped::Failed(reason);
            }
            if cfg!(web) {
                // The page has to go on before the memory can be mapped.
                return Mapped::Pending;
            }
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Mapped::Pending;
            }
            pace.rest(left);
        }
    }

    /// Waits for the callback, while the page goes on. Elsewhere callbacks run inside polls: see [`Self::wait`].
    #[cfg(web)]
    pub(crate) async fn settled(&self) {
        std::future::poll_fn(|context| {
            self.wake(context.waker());
            match self.state() {
                Mapped::Pending => std::task::Poll::Pending,
                _ => std::task::Poll::Ready(()),
            }
        })
        .await;
    }

    /// Has `waker` woken by the callback, if that comes.
    pub(crate) fn wake(&self, waker: &Waker) {
        lock(&self.report.0).waker = Some(waker.clone());
    }

    /// Hands the bytes to `read` and unmaps the memory; once. `read` does what [`pinned`] allows.
    ///
    /// # Errors
    /// [`Unreachable`].
    pub(crate) fn take<T>(&self, read: impl FnOnce(&[u8]) -> T) -> Result<T, Unreachable> {
        self.viewed(|view| pinned(&self.device, &self.buffer, || read(view)))
    }

    /// As [`Self::take`], with bytes that have been copied, and come with their place, in order: `read` may call wgpu.
    ///
    /// # Errors
    /// [`Unreachable`], also behind some of the bytes.
    pub(crate) fn take_copied(
        &self,
        mut read: impl FnMut(usize, &[u8]),
    ) -> Result<(), Unreachable> {
        let mut copied = [0; PIECE];
        self.viewed(|view| {
            for (number, bytes) in view.chunks(PIECE).enumerate() {
                let copied = &mut copied[..bytes.len()];
                pinned(&self.device, &self.buffer, || copied.copy_from_slice(bytes))?;
                read(number * PIECE, copied);
            }
            Ok(())
        })
    }

    fn unreachable(&self, error: &wgpu::MapRangeError) -> Unreachable {
        Unreachable::of(&self.device, &self.buffer, error)
    }

    /// Whether the memory is gone with its device.
    pub(crate) fn is_gone(&self) -> bool {
        pinned(&self.device, &self.buffer, || ()).is_err()
    }

    /// Hands a view of the bytes to `read`, once, and unmaps the memory.
    fn viewed<T>(
        &self,
        read: impl FnOnce(&[u8]) -> Result<T, Unreachable>,
    ) -> Result<T, Unreachable> {
        let mut state = lock(&self.report.0);
        let view = self.buffer.get_mapped_range(self.range.clone());
        let read = read(&view.map_err(|error| self.unreachable(&error))?)?;
        state.is_taken = true;
        // wgpu reports memory that has gone with its device meanwhile.
        let _ = capture(&self.device, || self.buffer.unmap());
        Ok(read)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let is_taken = lock(&self.report.0).is_taken;
        if !is_taken {
            // Mapped or not: wgpu tells a remaining callback that the mapping was given up.
            let _ = capture(&self.device, || self.buffer.unmap());
        }
    }
}

impl Report {
    fn set(&self, result: Result<(), String>) {
        let waker = {
            let mut state = lock(&self.0);
            state.result.get_or_insert(result);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use crate::device::hooks;

    #[test]
    fn memory_whose_callback_is_gone_is_had_all_the_same() {
        let _alone = hooks::alone();
        let context = Context::new().unwrap();
        for adapter in context.adapters() {
            let device = context.device_at(adapter.index).unwrap();
            let raw = device.raw();
            let buffer = |mapped| {
                raw.create_buffer(&wgpu::BufferDescriptor {
                    label: None,
                    size: 16,
                    usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: mapped,
                })
            };
            let without_callback = |buffer: wgpu::Buffer| Mapping {
                device: raw.clone(),
                buffer,
                range: 0..16,
                report: Arc::default(),
                callback: Weak::new(),
            };
            // Mapped, without a report.
            let mapped = buffer(true);
            let words: [u32; 4] = [7, 8, 9, u32::MAX];
            let mut view = mapped.get_mapped_range_mut(..).unwrap();
            view.copy_from_slice(bytemuck::cast_slice(&words));
            drop(view);
            let left = without_callback(mapped);
            assert_eq!(left.state(), Mapped::Ready);
            let read = left.take(bytemuck::pod_collect_to_vec::<u8, u32>);
            assert_eq!(read.unwrap(), words);
            // Once.
            assert!(matches!(left.state(), Mapped::Failed(_)));
            left.take(|_| ()).unwrap_err();
            // Not mapped, and without any report to come.
            let left = without_callback(buffer(false));
            assert!(matches!(left.state(), Mapped::Failed(_)));
            // Not mapped yet.
            let memory = buffer(false);
            let begun = Mapping::begin(raw, &memory, 0..16);
            assert_eq!(begun.state(), Mapped::Pending);
            let submissions = &device.shared.submissions;
            assert_eq!(begun.wait(submissions, None), Mapped::Ready);
            begun.take(|bytes| assert_eq!(bytes, [0; 16])).unwrap();
            // Requests refused by wgpu at once.
            let mapped = buffer(true);
            let again = Mapping::begin(raw, &mapped, 0..16);
            assert!(matches!(again.state(), Mapped::Failed(_)));
            drop((begun, again));
            // Unwanted memory can be mapped again.
            drop(Mapping::begin(raw, &memory, 0..16));
            let last = Mapping::begin(raw, &memory, 0..16);
            assert_eq!(last.wait(submissions, None), Mapped::Ready);
        }
    }

    #[test]
    fn memory_that_is_gone_is_told_from_memory_that_is_not_mapped() {
        let _alone = hooks::alone();
        let context = Context::new().unwrap();
        for adapter in context.adapters() {
            let device = context.device_at(adapter.index).unwrap();
            let raw = device.raw();
            let buffer = || {
                raw.create_buffer(&wgpu::BufferDescriptor {
                    label: None,
                    size: 1 << 16,
                    usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                    mapped_at_creation: false,
                })
            };
            let [memory, other] = [buffer(), buffer()];
            let submissions = &device.shared.submissions;
            let [early, late] = [&memory, &other].map(|memory| {
                let begun = Mapping::begin(raw, memory, 0..1 << 16);
                assert_eq!(begun.wait(submissions, None), Mapped::Ready);
                begun
            });
            early.take(|_| ()).unwrap();
            assert!(matches!(early.take(|_| ()), Err(Unreachable::Refused(_))));
            assert!(!late.is_gone());
            raw.destroy();
            let _ = raw.poll(wgpu::PollType::Poll);
            // Mapped, as far as anybody has said.
            assert_eq!(late.state(), Mapped::Ready);
            assert!(late.is_gone());
            assert_eq!(late.take(|_| ()), Err(Unreachable::Gone));
            let copied = late.take_copied(|_, _| panic!("bytes of memory that is gone"));
            assert_eq!(copied, Err(Unreachable::Gone));
        }
    }

    /// A kernel's bytes are read while another thread ends the device and has wgpu give the device's memory back.
    #[test]
    fn memory_stays_while_its_bytes_are_read() {
        const BYTES: u64 = 8 << 20;
        let _alone = hooks::alone();
        let context = Context::new().unwrap();
        for adapter in context.adapters() {
            let device = context.device_at(adapter.index).unwrap();
            let raw = device.raw().clone();
            let [from, to] =
                [wgpu::BufferUsages::COPY_SRC, wgpu::BufferUsages::MAP_READ].map(|usage| {
                    raw.create_buffer(&wgpu::BufferDescriptor {
                        label: None,
                        size: BYTES,
                        usage: usage | wgpu::BufferUsages::COPY_DST,
                        mapped_at_creation: false,
                    })
                });
            let words: Vec<u32> = (0..BYTES as u32 / 4).map(|i| i.wrapping_mul(977)).collect();
            device
                .raw_queue()
                .write_buffer(&from, 0, bytemuck::cast_slice(&words));
            let mut encoder = raw.create_command_encoder(&Default::default());
            encoder.copy_buffer_to_buffer(&from, 0, &to, 0, BYTES);
            device.raw_queue().submit([encoder.finish()]);
            let coming = Mapping::begin(&raw, &to, 0..BYTES);
            let submissions = &device.shared.submissions;
            assert_eq!(coming.wait(submissions, None), Mapped::Ready);
            let (begin, begun) = std::sync::mpsc::channel();
            let ending = std::thread::spawn(move || {
                begun.recv().unwrap();
                raw.destroy();
                // wgpu may say that a destroyed device has ended its work, or that the device is gone.
                let _ = raw.poll(wgpu::PollType::Poll);
            });
            // So often that the other thread has come to its end, or waits.
            let all_right = coming.take(|bytes| {
                begin.send(()).unwrap();
                (0..200).all(|_| bytemuck::cast_slice::<u8, u32>(bytes) == words)
            });
            assert!(all_right.unwrap(), "{}", adapter.name);
            ending.join().unwrap();
        }
    }
}
