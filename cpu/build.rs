//! Tells builds of the crate apart: machine code that one build has compiled is no other's (`src/compile/store.rs`).

use std::{env, fs, io, path::Path};

fn main() -> io::Result<()> {
    let root = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let mut files = Vec::new();
    collect(&Path::new(&root).join("src"), &mut files)?;
    files.sort();
    // FNV-1a of 64 bits: whoever changes the sources does not want the same number.
    let mut number = 0xcbf2_9ce4_8422_2325_u64;
    for contents in files {
        for byte in contents {
            number = (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=TOMBOLO_CPU_BUILD={number:016x}");
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=build.rs");
    Ok(())
}

/// The contents of the files in a folder and in those inside.
fn collect(folder: &Path, files: &mut Vec<Vec<u8>>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => collect(&path, files)?,
            false => files.push(fs::read(&path)?),
        }
    }
    Ok(())
}
