//! What the host expects in a buffer of results.

/// What a buffer of results holds before any run, and after runs.
pub struct Results {
    pub before: Vec<u8>,
    /// After the first run.
    after: Expected,
    /// Whether every run adds the same once more, and not only the first.
    adds: bool,
}

/// What a run leaves in the buffer.
pub enum Expected {
    Words(Vec<u32>),
    /// Within a thousandth, since sums may be taken in another order.
    Floats(Vec<f32>),
    /// Counts of steps until a bound is reached. One in a hundred may differ: products and sums that a compiler contracts reach
    /// the bound at other steps.
    Steps(Vec<u32>),
    /// Vectors of three numbers, and a count, within a hundredth of the vector's length and the count. One in a thousand may
    /// differ: a cell at the very distance at which it is opened may be opened by one side alone.
    Pulls(Vec<[f32; 4]>),
}

/// Stands in buffers that a run overwrites: as a number of either kind no result of any work.
const POISON: u8 = 0xa5;

impl Results {
    /// Of a run that overwrites all of the buffer.
    pub fn written(after: Expected) -> Self {
        let before = vec![POISON; 4 * after.words()];
        Self {
            before,
            after,
            adds: false,
        }
    }

    /// Of a run that adds to what the buffer holds.
    pub fn added(before: Vec<u8>, after: Expected) -> Self {
        Self {
            before,
            after,
            adds: true,
        }
    }

    /// Whether the buffer holds what so many runs make of it.
    pub fn are(&self, runs: u32, found: &[u8]) -> bool {
        let found = self::words(found);
        let before = self::words(&self.before);
        // How often what the first run has added is there.
        let times = match self.adds {
            true => runs,
            false => runs.min(1),
        };
        if found.len() != self.after.words() || times == 0 {
            return false;
        }
        match &self.after {
            Expected::Words(words) => {
                let expected = |(before, after): (&u32, &u32)| {
                    before.wrapping_add(after.wrapping_sub(*before).wrapping_mul(times))
                };
                before.iter().zip(words).map(expected).eq(found)
            }
            Expected::Floats(floats) => {
                (found.iter().zip(&before).zip(floats)).all(|((found, before), after)| {
                    let [found, before] = [found, before].map(|word| float(*word));
                    let after = f64::from(*after);
                    let expected = match times {
                        1 => after,
                        _ => before + f64::from(times) * (after - before),
                    };
                    (found - expected).abs() <= expected.abs() * 1e-3
                })
            }
            Expected::Steps(steps) => {
                let differ = found.iter().zip(steps).filter(|(a, b)| a != b).count();
                differ <= steps.len() / 100
            }
            Expected::Pulls(pulls) => {
                let differ = (found.chunks_exact(4).zip(pulls))
                    .filter(|(found, pull)| !near(found, pull))
                    .count();
                differ <= pulls.len() / 1000
            }
        }
    }
}

impl Expected {
    fn words(&self) -> usize {
        match self {
            Self::Words(words) | Self::Steps(words) => words.len(),
            Self::Floats(floats) => floats.len(),
            Self::Pulls(pulls) => 4 * pulls.len(),
        }
    }
}

fn near(found: &[u32], pull: &[f32; 4]) -> bool {
    let off = |i: usize| float(found[i]) - f64::from(pull[i]);
    let length = |[x, y, z]: [f64; 3]| (x * x + y * y + z * z).sqrt();
    let [x, y, z, count] = pull.map(f64::from);
    length([off(0), off(1), off(2)]) <= 0.01 * length([x, y, z]) && off(3).abs() <= 0.01 * count
}

fn float(word: u32) -> f64 {
    f64::from(f32::from_bits(word))
}

/// Copied, since bytes from a peer need not be aligned.
fn words(bytes: &[u8]) -> Vec<u32> {
    let word = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.chunks_exact(4).map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }

    #[test]
    fn what_is_overwritten_is_there_once_and_not_before() {
        let results = Results::written(Expected::Words(vec![3, 4]));
        assert!(!results.are(0, &bytes(&[3, 4])));
        assert!(results.are(1, &bytes(&[3, 4])));
        assert!(results.are(7, &bytes(&[3, 4])));
        assert!(!results.are(7, &bytes(&[3, 5])));
        assert!(!results.are(7, &bytes(&[3])));
        assert!(!results.are(1, &results.before));
    }

    #[test]
    fn what_is_added_is_there_as_often_as_it_ran() {
        let results = Results::added(bytes(&[10, 20]), Expected::Words(vec![11, 18]));
        assert!(results.are(3, &bytes(&[13, 14])));
        assert!(!results.are(2, &bytes(&[13, 14])));
        let float = |x: f32| x.to_bits();
        let results = Results::added(bytes(&[float(2.0)]), Expected::Floats(vec![5.0]));
        assert!(results.are(100, &bytes(&[float(302.1)])));
        assert!(!results.are(101, &bytes(&[float(302.1)])));
        assert!(!results.are(100, &bytes(&[float(f32::NAN)])));
    }

    #[test]
    fn few_pulls_and_steps_may_differ() {
        let pulls = vec![[1.0f32, 2.0, 2.0, 100.0]; 2000];
        let mut words: Vec<u32> = pulls.iter().flatten().map(|x| x.to_bits()).collect();
        let results = Results::written(Expected::Pulls(pulls));
        for (i, is_right) in [(0, true), (4, true), (8, false)] {
            words[i] = 1.1f32.to_bits();
            assert_eq!(results.are(1, &bytes(&words)), is_right);
        }
        assert!(!results.are(1, &results.before));
        let results = Results::written(Expected::Steps(vec![5; 100]));
        let mut words = [5; 100];
        for (i, is_right) in [(0, true), (1, false)] {
            words[i] = 6;
            assert_eq!(results.are(1, &bytes(&words)), is_right);
        }
    }
}
