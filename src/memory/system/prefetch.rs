//! Pages fetched before any miss, by the pattern of earlier misses.
//!
//! *How it works.* Misses belong to streams. A stream goes from page to page by a step: 1 at first, so that neighbours
//! come, and the distance between the stream's misses once two distances are equal. Each time a stream misses the page
//! behind its fetched pages, twice as many are fetched. A miss that fits no stream begins a new stream.
//!
//! Pages touched by earlier launches of a kernel are fetched before the first miss ([`History`]).

use std::collections::HashMap;

/// Pages fetched ahead of a stream at first, and at most.
pub(super) const FIRST: u64 = 8;
const MOST: u64 = 4096;
/// The farthest step of a stream, in pages.
const FARTHEST: u64 = 1 << 16;
/// Most streams kept.
const STREAMS: usize = 16;
/// Most kernels with kept pages.
const KERNELS: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Stream {
    /// The page missed last.
    last: u64,
    /// From the miss before to the last miss.
    distance: i64,
    step: i64,
    ahead: u64,
    /// The next missed page if the stream goes on.
    next: Option<u64>,
}

/// The streams of a launch, the last missed stream at the end.
#[derive(Debug, Default)]
pub(crate) struct Pattern {
    streams: Vec<Stream>,
}

impl Pattern {
    /// The likely next misses after `page`, nearest first.
    pub(crate) fn missed(&mut self, page: u64) -> impl Iterator<Item = u64> + use<> {
        let stream = self.stream_of(page);
        self.streams.push(stream);
        let Stream { step, ahead, .. } = stream;
        (1..=ahead as i64).map_while(move |count| page.checked_add_signed(step.checked_mul(count)?))
    }

    /// Takes out the stream of `page`, with `page` as the stream's last page.
    fn stream_of(&mut self, page: u64) -> Stream {
        let expecting = |stream: &Stream| stream.next == Some(page);
        if let Some(at) = self.streams.iter().rposition(expecting) {
            let mut stream = self.streams.remove(at);
            stream.ahead = (2 * stream.ahead).min(MOST);
            return stream.at(page);
        }
        let repeated = |stream: &Stream| {
            let distance = page.wrapping_sub(stream.last) as i64;
            distance != 0 && distance == stream.distance
        };
        if let Some(at) = self.streams.iter().rposition(repeated) {
            let mut stream = self.streams.remove(at);
            // The same step again, if the fetched pages have come too late.
            stream.ahead = match stream.step == stream.distance {
                true => (2 * stream.ahead).min(MOST),
                false => FIRST,
            };
            stream.step = stream.distance;
            return stream.at(page);
        }
        let is_near = |stream: &Stream| page.abs_diff(stream.last) <= FARTHEST;
        let near = self.streams.iter().rposition(is_near);
        let distance = near.map_or(0, |at| {
            page.wrapping_sub(self.streams.remove(at).last) as i64
        });
        if self.streams.len() == STREAMS {
            self.streams.remove(0);
        }
        let stream = Stream {
            last: page,
            distance,
            step: 1,
            ahead: FIRST,
            next: None,
        };
        stream.at(page)
    }
}

impl Stream {
    fn at(mut self, page: u64) -> Self {
        let beyond = self.step.checked_mul(self.ahead as i64 + 1);
        self.last = page;
        self.next = beyond.and_then(|beyond| page.checked_add_signed(beyond));
        self
    }
}

/// The pages touched by the last launch of each kernel.
#[derive(Debug, Default)]
pub(crate) struct History(HashMap<u64, Vec<u64>>);

impl History {
    /// The pages touched last by the kernel.
    pub(crate) fn of(&self, kernel: u64) -> &[u64] {
        self.0.get(&kernel).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn note(&mut self, kernel: u64, pages: Vec<u64>) {
        if self.0.len() >= KERNELS && !self.0.contains_key(&kernel) {
            self.0.clear();
        }
        self.0.insert(kernel, pages);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The misses of a launch that touches the pages one after the other, and the pages fetched for the launch.
    fn misses(touched: impl Iterator<Item = u64>) -> (usize, usize) {
        let (mut pattern, mut there) = (Pattern::default(), BTreeSet::new());
        let mut misses = 0;
        for page in touched {
            if there.insert(page) {
                misses += 1;
                there.extend(pattern.missed(page));
            }
        }
        (misses, there.len())
    }

    #[test]
    fn neighbours_come_in_growing_runs() {
        let (count, fetched) = misses(1000..2000);
        assert!(count <= 8, "{count}");
        assert!(fetched <= 2100, "{fetched}");
    }

    #[test]
    fn strides_are_found_in_both_directions() {
        for step in [17u64, 100, 4097] {
            let (up, _) = misses((0..300).map(|i| 50_000 + i * step));
            let (down, _) = misses((0..300).map(|i| 50_000_000 - i * step));
            assert!(up <= 10 && down <= 10, "{step}: {up} {down}");
        }
    }

    #[test]
    fn streams_beside_each_other_are_told_apart() {
        let two = (0..500u64).flat_map(|i| [1_000 + i, 9_000_000 + i * 31]);
        let (count, _) = misses(two);
        assert!(count <= 20, "{count}");
    }

    #[test]
    fn pages_without_a_pattern_fetch_few_and_the_ends_are_the_ends() {
        let mut state = 1u64;
        let random = (0..100).map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 14
        });
        let (_, fetched) = misses(random);
        assert!(fetched <= 100 * (1 + FIRST as usize), "{fetched}");
        assert_eq!(Pattern::default().missed(u64::MAX).count(), 0);
        let mut down = Pattern::default();
        let all = [64u64, 32, 0].map(|page| down.missed(page).count());
        assert_eq!(all[2], 0);
    }

    #[test]
    fn kernels_are_remembered_apart() {
        let mut history = History::default();
        history.note(1, vec![5]);
        history.note(2, vec![6, 7]);
        assert_eq!((history.of(1), history.of(2)), (&[5][..], &[6, 7][..]));
        (3..100).for_each(|kernel| history.note(kernel, vec![kernel]));
        assert!(history.0.len() <= KERNELS);
    }
}
