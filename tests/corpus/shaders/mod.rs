//! The entry points of the corpus, by crate.
//!
//! Left out are shaders whose invocations race, since they have no result to compare; whose loops wait
//! for other work-groups; that a software driver compiles for a minute; and texts that are no module
//! until their crate has put them together.

mod lampshade;
mod lattice_inference;
mod rullama;
mod rullama_attention;
mod rullama_elementwise;
mod rullama_matmul;
mod vuke;
mod vyre;

use crate::entry::Entry;

pub fn all() -> impl Iterator<Item = &'static Entry> {
    [
        lampshade::ENTRIES,
        lattice_inference::ENTRIES,
        rullama_attention::ENTRIES,
        rullama_elementwise::ENTRIES,
        rullama_matmul::ENTRIES,
        vuke::ENTRIES,
        vyre::ENTRIES,
    ]
    .into_iter()
    .flatten()
}
