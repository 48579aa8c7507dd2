//! Writing back: words that a kernel has changed in frames, to the memory that was lent.

// On the host's own processor frames outside of lent memory are read in place.
#![allow(unsafe_code)]

use super::{Run, SystemError};
use crate::launch::parts::system::Lent;
use crate::memory::DeviceBuffer;
use crate::memory::system::PAGE_WORDS;
use crate::memory::system::lends::Unreachable;
use crate::memory::system::live::FLAGS_START;
use crate::memory::system::table::WRITTEN;

/// Unwritten frames that are read between written frames all the same: a single read takes as long as many pages.
const GAP: u32 = 8;

impl Run<'_, '_> {
    /// The flags of the frames, for writing back; none where nothing is lent for writing.
    pub(super) fn flags_of_writes(&self, lent: &Lent) -> Result<Vec<u32>, SystemError> {
        match self.memory.lends.is_written() {
            true => self.flags(lent),
            false => Ok(Vec::new()),
        }
    }

    /// The flags of the frames.
    pub(super) fn flags(&self, lent: &Lent) -> Result<Vec<u32>, SystemError> {
        let flags = u64::from(FLAGS_START)..u64::from(FLAGS_START + self.frames.count());
        Ok(lent.faults().read_range(flags)?)
    }

    /// Writes the words changed by the kernel to the host's memory, by the flags of the frames.
    pub(super) fn write_back(&mut self, lent: &Lent, flags: &[u32]) -> Result<(), SystemError> {
        self.each_written(lent, flags, Self::return_page)
    }

    /// Keeps the words changed by the kernel, for the next work-groups.
    pub(super) fn keep(&mut self, lent: &Lent, flags: &[u32]) -> Result<(), SystemError> {
        self.each_written(lent, flags, |run, frame, page, after| {
            Ok(run.frames.keep(frame, page, after)?)
        })
    }

    /// Writes the kept words to the host's memory.
    pub(super) fn write_back_kept(&mut self) -> Result<(), SystemError> {
        for (page, before, after) in self.frames.changed() {
            let changed = self.memory.lends.write_back(page, before, after);
            self.report.words_written += changed.map_err(unreachable)?;
        }
        Ok(())
    }

    /// Hands `use_page` each frame that the kernel has written, with the frame's page and present words.
    fn each_written(
        &mut self,
        lent: &Lent,
        flags: &[u32],
        use_page: impl Fn(&mut Self, u32, u64, &[u32]) -> Result<(), SystemError>,
    ) -> Result<(), SystemError> {
        if !self.memory.lends.is_written() {
            return Ok(());
        }
        let written: Vec<(u32, u64)> = (self.frames.by_frame().into_iter())
            .filter(|(frame, _)| {
                flags
                    .get(*frame as usize)
                    .is_some_and(|flags| flags & WRITTEN != 0)
            })
            .collect();
        for run in written.chunk_by(|(one, _), (next, _)| next - one <= GAP) {
            if let (Some((first, _)), Some((last, _))) = (run.first(), run.last()) {
                let words = self.words_of(lent.pool(), *first..*last + 1)?;
                for &(frame, page) in run {
                    let start = (frame - *first) as usize * PAGE_WORDS;
                    use_page(self, frame, page, &words[start..start + PAGE_WORDS])?;
                }
            }
        }
        Ok(())
    }

    /// The words of neighbouring frames.
    fn words_of(
        &mut self,
        pool: &DeviceBuffer<u32>,
        frames: std::ops::Range<u32>,
    ) -> Result<Vec<u32>, SystemError> {
        let word = |frame: u32| u64::from(frame) * PAGE_WORDS as u64;
        let range = word(frames.start)..word(frames.end);
        Ok(match self.frames.in_place() {
            Some(window) => {
                // SAFETY: the launch has ended.
                let own = unsafe { window.own_words() };
                own[range.start as usize..range.end as usize].to_vec()
            }
            None => pool.read_range(range)?,
        })
    }

    /// Writes the words of a page that differ from the frame's old words.
    fn return_page(&mut self, frame: u32, page: u64, after: &[u32]) -> Result<(), SystemError> {
        let before = self.frames.before(frame);
        let changed = (self.memory.lends).write_back(page, before, after);
        self.report.words_written += changed.map_err(unreachable)?;
        Ok(())
    }
}

fn unreachable(Unreachable { address }: Unreachable) -> SystemError {
    SystemError::WriteBack { address }
}
