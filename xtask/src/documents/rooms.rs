//! The rooms of the sources name no room above them, as ARCHITECTURE.md has it.

use std::fs;
use std::path::Path;

use crate::workspace::Workspace;

/// Each room of the drawing, and the rooms that the room may name.
const ROOMS: [(&str, &[&str]); 13] = [
    ("addresses", &[]),
    ("print", &[]),
    ("device", &["addresses", "print"]),
    ("kernel", &["addresses", "device", "print"]),
    ("memory", &["addresses", "device"]),
    ("globals", &["device", "kernel", "memory"]),
    ("rpc", &["addresses", "device", "kernel", "memory"]),
    ("trace", &["device"]),
    (
        "launch",
        &[
            "device", "globals", "kernel", "memory", "print", "rpc", "trace",
        ],
    ),
    (
        "persistent",
        &["device", "kernel", "launch", "memory", "rpc"],
    ),
    (
        "ring",
        &["device", "kernel", "launch", "memory", "persistent", "rpc"],
    ),
    ("work", &["device", "kernel", "launch", "memory"]),
    ("context", &["device", "memory"]),
];

/// The files below all rooms, and the single file above all rooms that may be named everywhere.
const EVERYWHERE: [&str; 6] = [
    "clock",
    "error_text",
    "extensions",
    "guard",
    "span",
    "template",
];

/// The rooms of public modules and names called otherwise than the room.
const ALIASES: [(&str, &str); 12] = [
    ("buffers", "memory"),
    ("heap", "memory"),
    ("system", "memory"),
    ("DeviceBuffer", "memory"),
    ("Ptr", "memory"),
    ("calls", "rpc"),
    ("HostServices", "rpc"),
    ("server", "persistent"),
    ("Constants", "kernel"),
    ("Program", "kernel"),
    ("Device", "device"),
    ("Context", "context"),
];

/// The names behind `crate::` in the code of a file; names in comments, in modules of tests and in macros for other crates do
/// not count.
fn named(text: &str) -> Vec<&str> {
    let code = text.split("#[cfg(test)]\nmod tests {").next();
    let lines = code.into_iter().flat_map(str::lines);
    let lines = lines.filter(|line| !line.trim_start().starts_with("//"));
    let mut found = Vec::new();
    for line in lines {
        let parts: Vec<&str> = line.split("crate::").collect();
        for pair in parts.windows(2) {
            let end = pair[1].find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let name = &pair[1][..end.unwrap_or(pair[1].len())];
            if !pair[0].ends_with('$') && !name.is_empty() {
                found.push(name);
            }
        }
    }
    found
}

/// The files of a room, but for tests and models.
fn files(path: &Path, found: &mut Vec<std::path::PathBuf>) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.contains("test") || name == "model" {
        return;
    }
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            files(&entry.unwrap().path(), found);
        }
    } else if name.ends_with(".rs") {
        found.push(path.into());
    }
}

#[test]
fn no_room_names_one_above() {
    let source = Workspace::find().unwrap().root().join("src");
    let mut wrong = Vec::new();
    for (room, below) in ROOMS {
        let mut found = Vec::new();
        for path in [source.join(room), source.join(format!("{room}.rs"))] {
            if path.exists() {
                files(&path, &mut found);
            }
        }
        assert!(!found.is_empty(), "no room `{room}`");
        for file in found {
            let text = fs::read_to_string(&file).unwrap();
            for name in named(&text) {
                let of = ALIASES.iter().find(|(alias, _)| *alias == name);
                let of = of.map_or(name, |(_, room)| room);
                if of != room && !below.contains(&of) && !EVERYWHERE.contains(&of) {
                    wrong.push(format!("{}: crate::{name}", file.display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn names_are_found_in_code_alone() {
    let text = "use crate::device::Device;\n// crate::a\nlet x = (crate::b, crate::c::D);\n$crate::e\n\
                #[cfg(test)]\nmod tests {\nuse crate::f;\n}";
    assert_eq!(named(text), ["device", "b", "c"]);
}
