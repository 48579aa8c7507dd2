//! Grids: the number of invocations or work-groups of a launch, and the resulting dispatches.

use super::error::LaunchError;

/// The extent of a grid in up to three dimensions. Omitted dimensions count 1.
///
/// ```
/// use tombolo::launch::Extent;
/// assert_eq!(Extent::from(1000u32), Extent::from([1000u32, 1, 1]));
/// assert_eq!(Extent::from((640u32, 480u32)), Extent::from([640u32, 480]));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    counts: [u64; 3],
    /// A number unfit as an extent, for the launch to refuse.
    negative: Option<i32>,
}

impl Extent {
    const fn new(counts: [u64; 3]) -> Self {
        Self {
            counts,
            negative: None,
        }
    }
}

impl From<u32> for Extent {
    fn from(x: u32) -> Self {
        Self::new([x.into(), 1, 1])
    }
}

impl From<u64> for Extent {
    fn from(x: u64) -> Self {
        Self::new([x, 1, 1])
    }
}

impl From<usize> for Extent {
    fn from(x: usize) -> Self {
        Self::new([x as u64, 1, 1])
    }
}

impl From<i32> for Extent {
    /// For literals. A launch with a negative extent is refused ([`LaunchError::NegativeGrid`]).
    fn from(x: i32) -> Self {
        Self {
            counts: [u64::from(x.unsigned_abs()), 1, 1],
            negative: (x < 0).then_some(x),
        }
    }
}

impl From<[u32; 1]> for Extent {
    fn from([x]: [u32; 1]) -> Self {
        Self::new([x.into(), 1, 1])
    }
}

impl From<[u32; 2]> for Extent {
    fn from([x, y]: [u32; 2]) -> Self {
        Self::new([x.into(), y.into(), 1])
    }
}

impl From<[u32; 3]> for Extent {
    fn from([x, y, z]: [u32; 3]) -> Self {
        Self::new([x.into(), y.into(), z.into()])
    }
}

impl From<(u32, u32)> for Extent {
    fn from((x, y): (u32, u32)) -> Self {
        Self::new([x.into(), y.into(), 1])
    }
}

impl From<(u32, u32, u32)> for Extent {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self::new([x.into(), y.into(), z.into()])
    }
}

/// Work-groups of a grid, and the cuts into dispatches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) counts: [u32; 3],
    /// The work-groups to dispatch: all, or a part of the grid.
    part: GridPart,
    /// The most work-groups of a dispatch in each dimension.
    limits: [u32; 3],
}

/// Neighbouring work-groups of a grid: the first, and how many in each dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct GridPart {
    pub(crate) base: [u32; 3],
    pub(crate) size: [u32; 3],
}

impl GridPart {
    /// Two parts adding up to the whole part, in the order of their work-groups; `None` for a single work-group.
    pub(crate) fn halves(self) -> Option<[Self; 2]> {
        let axis = (0..3).rev().find(|axis| self.size[*axis] > 1)?;
        let (mut first, mut second) = (self, self);
        first.size[axis] = self.size[axis] / 2;
        second.base[axis] += first.size[axis];
        second.size[axis] -= first.size[axis];
        Some([first, second])
    }
}

impl Groups {
    /// Work-groups covering `invocations` (rounded up), or as given.
    pub(crate) fn new(
        kernel: &str,
        extent: Extent,
        in_invocations: bool,
        workgroup: [u32; 3],
        limit: u32,
    ) -> Result<Self, LaunchError> {
        if let Some(extent) = extent.negative {
            return Err(LaunchError::NegativeGrid {
                kernel: kernel.to_string(),
                extent,
            });
        }
        let extent = extent.counts;
        let mut counts = [0u32; 3];
        for axis in 0..3 {
            let size = u64::from(workgroup[axis].max(1));
            let groups = if in_invocations {
                extent[axis].div_ceil(size)
            } else {
                extent[axis]
            };
            // global_invocation_id is 32 bits wide.
            let invocations = groups.saturating_mul(size);
            if invocations > 1 << 32 || groups > u64::from(u32::MAX) {
                return Err(LaunchError::GridTooLarge {
                    kernel: kernel.to_string(),
                    axis: ["x", "y", "z"][axis],
                    invocations,
                });
            }
            counts[axis] = groups as u32;
        }
        Ok(Self::whole(counts, [limit.max(1); 3]))
    }

    fn whole(counts: [u32; 3], limits: [u32; 3]) -> Self {
        let part = GridPart {
            base: [0; 3],
            size: counts,
        };
        Self {
            counts,
            part,
            limits,
        }
    }

    /// The same grid, with only the work-groups of `part` dispatched.
    pub(crate) fn only(self, part: GridPart) -> Self {
        Self { part, ..self }
    }

    /// The work-groups to dispatch.
    pub(crate) fn part(&self) -> GridPart {
        self.part
    }

    /// The same grid in dispatches of at most `groups` work-groups, and of one at least.
    pub(crate) fn within(self, groups: u64) -> Self {
        let mut left = groups.max(1);
        let mut limits = self.limits;
        for (limit, count) in limits.iter_mut().zip(self.part.size) {
            let most = u64::from(*limit).min(left).max(1);
            *limit = most as u32;
            // After a cut dimension, the further dimensions go one by one.
            left = match u64::from(count) > most {
                true => 1,
                false => left / u64::from(count.max(1)),
            };
        }
        Self { limits, ..self }
    }

    /// Work-groups of the largest dispatch.
    pub(crate) fn largest(&self) -> u64 {
        let extents = self.part.size.iter().zip(self.limits);
        extents.fold(1, |all, (count, limit)| {
            all.saturating_mul(u64::from((*count).min(limit)))
        })
    }

    /// All work-groups, or the largest number.
    pub(crate) fn total(&self) -> u64 {
        let counts = self.counts.map(u64::from);
        counts.into_iter().fold(1, u64::saturating_mul)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counts.contains(&0)
    }

    pub(crate) fn fits_one_dispatch(&self) -> bool {
        let mut extents = self.part.size.iter().zip(self.limits);
        self.part.size == self.counts && extents.all(|(&count, limit)| count <= limit)
    }

    /// The dispatches covering the grid: base and size of each, in groups.
    pub(crate) fn tiles(&self) -> impl Iterator<Item = ([u32; 3], [u32; 3])> + use<> {
        let Self { part, limits, .. } = *self;
        let steps = move |axis: usize| {
            let (first, count, limit) = (part.base[axis], part.size[axis], limits[axis]);
            (0..count.div_ceil(limit)).map(move |i| {
                let base = i * limit;
                (first + base, limit.min(count - base))
            })
        };
        steps(2).flat_map(move |(bz, nz)| {
            steps(1).flat_map(move |(by, ny)| {
                steps(0).map(move |(bx, nx)| ([bx, by, bz], [nx, ny, nz]))
            })
        })
    }

    /// How many dispatches there are. Three numbers below 2^32 by a limit of 1 are too many for any number: a larger
    /// result is cut to the largest number.
    pub(crate) fn tile_count(&self) -> u64 {
        let tiles =
            [0, 1, 2].map(|axis| u64::from(self.part.size[axis].div_ceil(self.limits[axis])));
        if tiles.contains(&0) {
            return 0;
        }
        tiles.into_iter().fold(1, u64::saturating_mul)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn invocations_are_rounded_up_to_whole_groups() {
        let groups = Groups::new("k", Extent::from([65u32, 1, 7]), true, [64, 1, 4], 65_535);
        assert_eq!(groups.unwrap().counts, [2, 1, 2]);
    }

    #[test]
    fn more_than_32_bits_of_invocations_are_refused() {
        let error = Groups::new("k", Extent::from(1u64 << 33), true, [64, 1, 1], 65_535);
        assert!(matches!(
            error,
            Err(LaunchError::GridTooLarge { axis: "x", .. })
        ));
        let error = Groups::new("k", Extent::from(u64::MAX), false, [64, 1, 1], 65_535);
        assert!(error.is_err());
        assert!(Groups::new("k", Extent::from(1u64 << 32), true, [64, 1, 1], 65_535).is_ok());
        // Of groups there is one less than 32 bits could number.
        let most = u64::from(u32::MAX);
        assert!(Groups::new("k", Extent::from(most), true, [1, 1, 1], 65_535).is_ok());
        assert!(Groups::new("k", Extent::from(most + 1), true, [1, 1, 1], 65_535).is_err());
    }

    #[test]
    fn negative_extents_are_no_extents() {
        for extent in [-1, i32::MIN] {
            let error = Groups::new("k", Extent::from(extent), true, [64, 1, 1], 65_535);
            assert!(
                matches!(error, Err(LaunchError::NegativeGrid { extent: e, .. }) if e == extent)
            );
        }
        let none = Groups::new("k", Extent::from(0), true, [64, 1, 1], 65_535).unwrap();
        assert!(none.is_empty() && none.tile_count() == 0);
    }

    #[test]
    fn dispatches_are_counted_whatever_the_extent() {
        let most = u32::MAX;
        let counted = |counts, limit| {
            let limits = [limit; 3];
            Groups::whole(counts, limits).tile_count()
        };
        assert_eq!(counted([most; 3], 1), u64::MAX);
        assert_eq!(counted([most; 3], 65_535), 65_537 * 65_537 * 65_537);
        assert_eq!(counted([most, 0, most], 1), 0);
        assert_eq!(counted([65_536, 1, 65_535], 65_535), 2);
    }

    proptest! {
        /// Every group is covered exactly once, by tiles within the limit.
        #[test]
        fn tiles_partition_the_grid(
            x in 0u32..40, y in 0u32..12, z in 0u32..9, limit in 1u32..9, most in 0u64..200
        ) {
            let groups = Groups::whole([x, y, z], [limit; 3]).within(most);
            let mut seen = vec![0u8; (x * y * z) as usize];
            let mut tiles = 0;
            for (base, size) in groups.tiles() {
                tiles += 1;
                prop_assert!(size.iter().all(|&n| n >= 1 && n <= limit));
                let all = size.iter().map(|&n| u64::from(n)).product::<u64>();
                prop_assert!(all <= most.max(1) && all <= groups.largest());
                for k in base[2]..base[2] + size[2] {
                    for j in base[1]..base[1] + size[1] {
                        for i in base[0]..base[0] + size[0] {
                            seen[((k * y + j) * x + i) as usize] += 1;
                        }
                    }
                }
            }
            prop_assert!(seen.iter().all(|&n| n == 1));
            prop_assert_eq!(tiles, groups.tile_count());
        }

        /// Parts of parts cover the grid once, in order, and no dispatch passes for the whole.
        #[test]
        fn parts_partition_the_grid(
            x in 1u32..20, y in 1u32..6, z in 1u32..5, limit in 1u32..9, largest in 1u64..30,
        ) {
            let whole = Groups::whole([x, y, z], [limit; 3]);
            let mut left = vec![whole.part()];
            let (mut seen, mut begun) = (Vec::new(), Vec::new());
            while let Some(part) = left.pop() {
                let all = part.size.iter().map(|&n| u64::from(n)).product::<u64>();
                match part.halves().filter(|_| all > largest) {
                    Some([first, second]) => left.extend([second, first]),
                    None => {
                        begun.push([part.base[2], part.base[1], part.base[0]]);
                        prop_assert!(part == whole.part() || !whole.only(part).fits_one_dispatch());
                        for (base, size) in whole.only(part).tiles() {
                            for k in base[2]..base[2] + size[2] {
                                for j in base[1]..base[1] + size[1] {
                                    seen.extend((base[0]..base[0] + size[0]).map(|i| (k, j, i)));
                                }
                            }
                        }
                    }
                }
            }
            prop_assert!(begun.is_sorted(), "{:?}", begun);
            prop_assert_eq!(seen.len() as u64, whole.total());
            seen.sort_unstable();
            seen.dedup();
            prop_assert_eq!(seen.len() as u64, whole.total());
        }
    }
}
