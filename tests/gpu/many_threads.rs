//! Cases on SwiftShader with many threads.

use std::process::Command;

use crate::harness::{Fixture, short};

/// Runs a case in processes of its own, where SwiftShader has sixteen threads: otherwise it has as many as the
/// machine has processors, and what takes many is seen by nobody who has few. A file in the working directory says so.
pub fn on_many_threads(f: &Fixture, case: &str) {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[Processor]\nThreadCount=16\n";
    std::fs::write(folder.path().join("SwiftShader.ini"), settings).unwrap();
    // Other adapters have nothing to find here.
    let rounds = if short(f.device.name()) == "SwiftShader" {
        3
    } else {
        1
    };
    for _ in 0..rounds {
        let output = Command::new(std::env::current_exe().unwrap())
            .current_dir(folder.path())
            .env_remove("TOMBOLO_TEST_ADAPTERS")
            .env_remove("TOMBOLO_TEST_SHARE")
            .env_remove("TOMBOLO_TEST_PROCESSES")
            .arg("--exact")
            .arg(format!("{}::{case}", short(f.device.name())))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {said}", output.status);
        assert!(!said.contains("running 0 tests"), "{said}");
    }
}
