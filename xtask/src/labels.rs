//! Every object of wgpu in the runtime has a label, for debug layers, debuggers of graphics and wgpu's own messages.
//!
//! The sources are read: each descriptor of wgpu outside of tests is written out, and names a label. A label is known when the
//! object is made, or is a constant: no launch puts a text together.

use std::fs;
use std::path::Path;

use crate::workspace::Workspace;

/// Folders of the sources with calls of wgpu.
const FOLDERS: [&str; 3] = ["src", "kernels/src", "mpi/src"];

/// Descriptors without a label.
const UNLABELLED: [&str; 1] = ["InstanceDescriptor"];

/// Options with a label of the program's own. The uses of the options have a constant for a label where the program gives none.
const OPTIONS: [&str; 2] = ["src/device/options.rs", "src/memory/texture/options.rs"];

/// The code of a file without its module of tests.
fn own(text: &str) -> &str {
    let code = text.split("#[cfg(test)]\nmod tests {").next();
    code.unwrap_or_default()
}

/// The faults of a file's code.
fn faults(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (at, _) in code.match_indices("Descriptor") {
        let begin = code[..at].rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = &code[begin.map_or(0, |at| at + 1)..at + "Descriptor".len()];
        let behind = code[at + "Descriptor".len()..].trim_start();
        if UNLABELLED.contains(&name) || !code[..at].trim_end_matches(name_part).ends_with("wgpu::")
        {
            continue;
        }
        if behind.starts_with("::default()") {
            found.push(format!("{name}::default()"));
        }
        if let Some(fields) = behind.strip_prefix('{')
            && !names_a_label(up_to_the_end(fields))
        {
            found.push(format!("{name} without a label"));
        }
    }
    let inferred = ["_encoder(", "_pass(", "_bind_group(", "_buffer("];
    for call in inferred {
        let call = format!("{call}&Default::default())");
        found.extend(code.contains(&call).then_some(call));
    }
    found
}

fn name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The text in front of the bracket that closes a bracket opened before the text.
fn up_to_the_end(text: &str) -> &str {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth == 0 {
            return &text[..at];
        }
    }
    text
}

/// Whether the fields of a descriptor have a label, written out or as a variable `label`.
fn names_a_label(fields: &str) -> bool {
    fields
        .split([',', '\n'])
        .map(str::trim)
        .any(|field| field == "label" || (field.starts_with("label: ") && field != "label: None"))
}

/// Calls `look` with the path and the text of each file of Rust below a folder, except for tests.
fn each_file(root: &Path, folder: &str, look: &mut impl FnMut(&str, &str)) {
    for entry in fs::read_dir(root.join(folder)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = format!("{folder}/{name}");
        if name.contains("test") {
            continue;
        }
        if root.join(&path).is_dir() {
            each_file(root, &path, look);
        } else if name.ends_with(".rs") {
            look(&path, &fs::read_to_string(root.join(&path)).unwrap());
        }
    }
}

#[test]
fn every_object_of_wgpu_has_a_label() {
    let root = Workspace::find().unwrap().root().to_owned();
    let (mut found, mut descriptors) = (Vec::new(), 0);
    for folder in FOLDERS {
        each_file(&root, folder, &mut |path, text| {
            let code = own(text);
            descriptors += code.matches("Descriptor {").count();
            let plain = code.contains("label: None") && !OPTIONS.contains(&path);
            found.extend(plain.then(|| format!("{path}: label: None")));
            let faults = faults(code).into_iter();
            found.extend(faults.map(|fault| format!("{path}: {fault}")));
        });
    }
    assert!(descriptors > 30, "{descriptors} descriptors");
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn descriptors_without_a_label_are_found() {
    let code = "let a = wgpu::BufferDescriptor { size: 4, usage: wgpu::BufferUsages { bits: 1 } };
        let b = wgpu::CommandEncoderDescriptor { label: Some(\"x\") };
        let c = wgpu::ComputePassDescriptor::default();
        let d = wgpu::InstanceDescriptor { flags, ..Default::default() };
        let e = wgpu::TextureDescriptor {\n    label,\n    size,\n};
        let f = wgpu::QuerySetDescriptor { label: None, ty, count };
        let g = raw.create_command_encoder(&Default::default());
        let h = naga::TextureDescriptor { size: 1 };
        fn i(j: &wgpu::BufferDescriptor<'_>) {}";
    assert_eq!(
        faults(code),
        [
            "BufferDescriptor without a label",
            "ComputePassDescriptor::default()",
            "QuerySetDescriptor without a label",
            "_encoder(&Default::default())",
        ]
    );
}
