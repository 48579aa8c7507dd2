//! Random numbers that depend on a seed alone.

/// SplitMix64: small, and any seed will do.
pub struct Random(u64);

impl Random {
    /// The numbers of one thread: other streams of the same seed have nothing in common with them.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed ^ stream.wrapping_mul(0xA076_1D64_78BD_642F));
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn word(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// A range of elements within `len`, of at least one.
    pub fn range(&mut self, len: usize) -> std::ops::Range<usize> {
        let start = self.below(len);
        let most = len - start;
        // Long ones and short ones, to the end as often as not.
        let count = match self.below(3) {
            0 => most,
            1 => 1 + self.below(most.min(8)),
            _ => 1 + self.below(most),
        };
        start..start + count
    }

    /// A length up to `most`: often small, sometimes as long as that.
    pub fn length(&mut self, most: usize) -> usize {
        match self.below(4) {
            0 => 1 + self.below(4),
            1 => 1 + self.below(64.min(most)),
            _ => 1 + self.below(most),
        }
    }

    pub fn words(&mut self, len: usize) -> Vec<u32> {
        (0..len).map(|_| self.word()).collect()
    }
}
