//! Windows: grants, refusals, and the recorded sets of ranges.

use proptest::prelude::*;

use super::*;

#[cfg(all(any(unix, windows), target_pointer_width = "64"))]
mod mapped {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_base_is_aligned_so_that_the_low_word_is_the_offset() {
        let windows: Vec<_> = (0..3)
            .map(|_| Window::reserve(Window::ALIGNMENT).unwrap())
            .collect();
        for window in &windows {
            let base = window.base().as_ptr().addr() as u64;
            assert_eq!(base % Window::ALIGNMENT, 0);
            assert_eq!((base + window.size() - 1) >> 48, 0);
            assert_ne!(base, 0);
            assert_eq!(window.size(), 4 * GIB);
            assert_eq!(window.committed_bytes(), 0);
            assert_eq!(window.offset_of(base), Some(0));
            assert_eq!(window.offset_of(base + 4 * GIB - 1), Some(4 * GIB - 1));
            assert_eq!(window.offset_of(base + 4 * GIB), None);
            assert_eq!(window.offset_of(base - 1), None);
        }
    }

    #[test]
    fn sizes_are_rounded_up_to_pages_and_bounded() {
        let window = Window::reserve(1).unwrap();
        assert_eq!(window.size(), window.page_size());
        for size in [0, Window::ALIGNMENT + 1, u64::MAX] {
            assert!(matches!(
                Window::reserve(size).unwrap_err(),
                WindowError::Size { .. }
            ));
        }
    }

    #[test]
    fn pages_are_zero_when_committed_and_committed_again() {
        let window = Window::reserve(GIB).unwrap();
        let page = window.page_size();
        let range = 4 * page..8 * page;
        for _ in 0..3 {
            window.commit(range.clone()).unwrap();
            assert_eq!(window.committed_bytes(), 4 * page);
            let pinned = window.pin(range.clone()).unwrap();
            assert_eq!(pinned.len(), 4 * page);
            for offset in (0..pinned.len()).step_by(4) {
                assert_eq!(pinned.load_u32(offset), Some(0));
                pinned.store_u32(offset, !0).unwrap();
            }
            drop(pinned);
            window.decommit(range.clone()).unwrap();
            assert_eq!(window.committed_bytes(), 0);
        }
    }

    #[test]
    fn committing_more_keeps_what_is_there() {
        let window = Window::reserve(GIB).unwrap();
        let page = window.page_size();
        window.commit(2 * page..3 * page).unwrap();
        let before = window.pin(2 * page..3 * page).unwrap();
        before.store_u32(8, 77).unwrap();
        window.commit(0..5 * page).unwrap();
        let all = window.pin(0..5 * page).unwrap();
        assert_eq!(all.load_u32(2 * page + 8), Some(77));
        assert_eq!(all.load_u32(8), Some(0));
        assert_eq!(all.as_ptr(), window.base());
        for (offset, there) in [(2, false), (5 * page, false), (5 * page - 4, true)] {
            assert_eq!(all.load_u32(offset).is_some(), there, "{offset}");
            assert_eq!(all.store_u32(offset, 1).is_some(), there, "{offset}");
        }
        assert_eq!(all.load_u32(u64::MAX - 3), None);
    }

    #[test]
    fn pinned_pages_are_not_given_back() {
        let window = Window::reserve(GIB).unwrap();
        let page = window.page_size();
        window.commit(0..8 * page).unwrap();
        let twice = [0, 1].map(|_| window.pin(2 * page..4 * page).unwrap());
        let refused = |range: Range<u64>| {
            let error = window.decommit(range).unwrap_err();
            assert!(matches!(error, WindowError::InUse { .. }));
        };
        refused(0..8 * page);
        refused(3 * page..8 * page);
        window.decommit(0..2 * page).unwrap();
        window.decommit(4 * page..8 * page).unwrap();
        let [first, second] = twice;
        drop(first);
        refused(2 * page..3 * page);
        drop(second);
        window.decommit(0..8 * page).unwrap();
        assert!(matches!(
            window.pin(0..page).unwrap_err(),
            WindowError::NotCommitted { .. }
        ));
    }

    #[test]
    fn a_pinned_range_keeps_its_window() {
        let window = Window::reserve(GIB).unwrap();
        let page = window.page_size();
        window.commit(0..page).unwrap();
        let pinned = window.pin(0..page).unwrap();
        drop(window);
        pinned.store_u32(4, 5).unwrap();
        assert_eq!(pinned.load_u32(4), Some(5));
    }

    #[test]
    fn ranges_outside_or_off_the_pages_are_refused() {
        let window = Window::reserve(16 * system::page_size()).unwrap();
        let page = window.page_size();
        #[allow(clippy::reversed_empty_ranges)] // that is what is tested
        for range in [
            0..0,
            page..0,
            0..1,
            1..page,
            page / 2..page,
            0..17 * page,
            16 * page..17 * page,
            0..u64::MAX,
            u64::MAX - page..u64::MAX,
        ] {
            for result in [
                window.commit(range.clone()),
                window.decommit(range.clone()),
                window.pin(range.clone()).map(drop),
            ] {
                assert!(
                    matches!(result.unwrap_err(), WindowError::Range { .. }),
                    "{range:?}"
                );
            }
        }
    }

    #[test]
    fn threads_commit_and_give_back_side_by_side() {
        let window = Window::reserve(GIB).unwrap();
        let page = window.page_size();
        std::thread::scope(|scope| {
            for thread in 0..8_u32 {
                let window = &window;
                scope.spawn(move || {
                    let start = u64::from(thread) * 3 * page;
                    let range = start..start + 3 * page;
                    for _ in 0..100 {
                        window.commit(range.clone()).unwrap();
                        let pinned = window.pin(range.clone()).unwrap();
                        for word in (0..pinned.len()).step_by(512) {
                            assert_eq!(pinned.load_u32(word), Some(0));
                            pinned.store_u32(word, thread + 1).unwrap();
                        }
                        drop(pinned);
                        window.decommit(range.clone()).unwrap();
                    }
                });
            }
        });
        assert_eq!(window.committed_bytes(), 0);
    }
}

#[cfg(not(all(any(unix, windows), target_pointer_width = "64")))]
#[test]
fn there_is_no_window() {
    assert!(matches!(
        Window::reserve(4096).unwrap_err(),
        WindowError::Unsupported { .. }
    ));
}

proptest! {
    /// Against a set of single numbers.
    #[test]
    fn ranges_are_a_set(steps in prop::collection::vec((any::<bool>(), 0..64_u64, 1..20_u64), 1..60)) {
        let mut ranges = RangeSet::new();
        let mut model = std::collections::BTreeSet::new();
        for (insert, start, len) in steps {
            let range = start..start + len;
            let missing: Vec<u64> = range.clone().filter(|n| !model.contains(n)).collect();
            let gaps: Vec<u64> = ranges.gaps(&range).flatten().collect();
            prop_assert_eq!(&gaps, &missing);
            prop_assert_eq!(ranges.overlaps(&range), missing.len() < len as usize);
            if insert {
                ranges.insert(range.clone());
                model.extend(range);
            } else {
                ranges.remove(range.clone());
                model.retain(|n| !range.contains(n));
            }
            let all: Vec<u64> = ranges.iter().cloned().flatten().collect();
            prop_assert_eq!(all, model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(total(&ranges), model.len() as u64);
            let all: Vec<_> = ranges.iter().collect();
            for pair in all.windows(2) {
                prop_assert!(pair[0].end < pair[1].start);
            }
        }
    }
}
