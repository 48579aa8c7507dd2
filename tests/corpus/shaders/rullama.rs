//! What the tables of `rullama` share: all its shaders lie in one folder and call their entry point
//! `main`.

use crate::entry::{Entry, Fill, entry};

pub const fn kernel(
    file: &'static str,
    groups: [u32; 3],
    given: &'static [(&'static str, Fill)],
) -> Entry {
    entry("rullama", file, "main", groups, given)
}
