//! Whether two declarations of a name mean the same variable.

use super::conflict::{GlobalConflict, GlobalPlace, properties};
use super::{Declaration, GlobalUse, ModuleIdentity};
use crate::kernel::host_layout;
use crate::kernel::layout::TypeLayout;

/// The most bytes of a variable: the offset is a word.
pub(super) const LARGEST: u64 = (4 << 30) - (64 << 10);

pub(super) fn check_size(name: &str, bytes: u64) -> Result<(), GlobalConflict> {
    match bytes > LARGEST {
        true => Err(GlobalConflict::TooLarge {
            name: name.to_owned(),
            bytes,
            limit: LARGEST,
        }),
        false => Ok(()),
    }
}

/// Compares two declarations in Rust.
pub(super) fn check_hosts(known: &Declaration, new: &Declaration) -> Result<(), GlobalConflict> {
    if known.bytes != new.bytes || known.type_name != new.type_name {
        return Err(GlobalConflict::Type {
            name: new.name.to_owned(),
            first: Box::new(place_in_rust(known)),
            second: Box::new(place_in_rust(new)),
            why: String::new(),
        });
    }
    let words =
        |one: &Declaration| properties(one.scope, one.access, one.init, one.initial.is_some());
    let (first, mut second) = (words(known), words(new));
    if first == second {
        if known.initial == new.initial {
            return Ok(());
        }
        second.push_str(" that differs");
    }
    Err(GlobalConflict::Properties {
        name: new.name.to_owned(),
        first,
        second,
    })
}

/// Compares a declaration in Rust with one in WGSL; `wgsl_first` says which was known.
pub(super) fn check_layouts(
    name: &str,
    host: &Declaration,
    place: &GlobalPlace,
    layout: &TypeLayout,
    wgsl_first: bool,
) -> Result<(), GlobalConflict> {
    let differ = |why: String| {
        let (rust, wgsl) = (Box::new(place_in_rust(host)), Box::new(place.clone()));
        let (first, second) = match wgsl_first {
            true => (wgsl, rust),
            false => (rust, wgsl),
        };
        Err(GlobalConflict::Type {
            name: name.to_owned(),
            first,
            second,
            why,
        })
    };
    if let Some(rust) = host.layout {
        let faults = host_layout::faults(rust, layout);
        if !faults.is_empty() {
            return differ(format!(": {}", faults.join("; ")));
        }
    }
    // A Rust value ends at a multiple of its alignment, a WGSL variable at the end of its type.
    if host.bytes == u64::from(layout.size) {
        return Ok(());
    }
    differ(String::new())
}

pub(super) fn place_in_rust(declaration: &Declaration) -> GlobalPlace {
    GlobalPlace {
        place: format!("DeviceGlobal `{}` in Rust", declaration.name),
        type_name: host_layout::plain_name(declaration.type_name),
        bytes: declaration.bytes,
        layout: declaration
            .layout
            .map(host_layout::rust_text)
            .unwrap_or_default(),
    }
}

pub(super) fn place_in_wgsl(module: &ModuleIdentity, one: &GlobalUse) -> GlobalPlace {
    let place = match &one.place {
        None => module.name.to_string(),
        Some((file, line)) => format!("{file}:{line}"),
    };
    GlobalPlace {
        place,
        type_name: one.layout.wgsl.clone(),
        bytes: one.layout.size.into(),
        layout: host_layout::wgsl_text(&one.layout),
    }
}
