//! The search for changed pages of a mirror: the numbers common to kernel and host, and the text of the kernel.

use crate::template::Template;

/// Bytes of a page, the unit of the search.
pub(crate) const PAGE: u64 = 4096;
/// Work-groups in a row of the grid; 65,535 is the least that WebGPU allows.
pub(crate) const ROW: u64 = 32_768;
/// Pages of a work-group, sharing the keys loaded by a lane.
pub(crate) const TOGETHER: u64 = 4;
/// Bytes of an element of the heap's binding.
const ELEMENT: u64 = 16;

/// Which pages are searched: the first word of a search. All of them, by a word of zero.
#[derive(Clone, Copy)]
pub(crate) enum Mode {
    /// Finds the changed pages among the listed ones.
    Find = 1,
    /// Takes note of the listed pages as they are.
    Learn = 2,
}

/// The mode of a search without a list.
const ALL: u32 = 0;

/// The kernel, in WGSL.
pub(crate) fn source() -> String {
    // The kernel writes out four pages, one after another.
    const { assert!(TOGETHER == 4) };
    Template::new(include_str!("../../shaders/heap_diff.wgsl"))
        .set("page_rows", PAGE / ELEMENT)
        .set("row", ROW)
        .set("together", TOGETHER)
        .set("all", ALL)
        .set("learn", Mode::Learn as u32)
        .fill()
}

#[cfg(test)]
mod tests {
    use super::source;

    #[test]
    fn the_kernel_is_wgsl() {
        let source = source();
        assert!(source.contains("const TOGETHER = 4u;"), "{source}");
        naga::front::wgsl::parse_str(&source).unwrap();
    }
}
