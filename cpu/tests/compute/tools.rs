//! What tools are told of kernels, on the system that has such tools.
#![cfg(target_os = "linux")]

use tombolo_cpu::Options;

use crate::harness::Cpu;

#[test]
fn perf_finds_the_names_of_kernels() {
    let mut options = Options::default();
    options.perf_map = true;
    let cpu = Cpu::with(options);
    let source = |name: &str| {
        format!(
            "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
             @compute @workgroup_size(8) fn {name}(@builtin(local_invocation_index) i: u32) {{ out[i] = i * 3u; }}"
        )
    };
    let expected: Vec<u32> = (0..8).map(|i| i * 3).collect();
    for name in ["listed_first", "listed_behind"] {
        assert_eq!(
            cpu.run::<u32>(&source(name), [1, 1, 1], &[&[7; 32]]),
            expected
        );
    }
    // A device without the option lists nothing.
    Cpu::new().run::<u32>(&source("not_listed"), [1, 1, 1], &[&[7; 32]]);
    let path = format!("/tmp/perf-{}.map", std::process::id());
    let text = std::fs::read_to_string(&path).unwrap();
    for name in ["listed_first", "listed_behind"] {
        let line = text
            .lines()
            .find(|line| line.ends_with(&format!("kernel {name}")));
        let mut words = line
            .unwrap_or_else(|| panic!("{name} in {text}"))
            .split(' ');
        let numbers = [(); 2].map(|()| u64::from_str_radix(words.next().unwrap(), 16).unwrap());
        assert!(
            numbers[0] > 4096 && (1..1 << 20).contains(&numbers[1]),
            "{numbers:?}"
        );
    }
    assert!(!text.contains("not_listed"));
    std::fs::remove_file(path).unwrap();
}

/// The permissions of all memory of this process, with the lines that say so.
fn mappings() -> Vec<(String, String)> {
    let text = std::fs::read_to_string("/proc/self/maps").unwrap();
    let permissions = |line: &str| (line.split(' ').nth(1).unwrap().to_owned(), line.to_owned());
    text.lines().map(permissions).collect()
}

#[test]
fn no_memory_is_writable_and_executable_at_once_while_kernels_live() {
    let cpu = Cpu::new();
    let code = || {
        let anonymous = |line: &str| line.split_whitespace().nth(5).is_none();
        let of_kernels =
            |(permissions, line): &(String, String)| permissions.contains('x') && anonymous(line);
        mappings()
            .iter()
            .filter(|mapping| of_kernels(mapping))
            .count()
    };
    let source = |factor: u32| {
        format!(
            "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
             @compute @workgroup_size(8) fn main(@builtin(local_invocation_index) i: u32) {{ out[i] = i * {factor}u; }}"
        )
    };
    let pipelines: Vec<_> = (1..20)
        .map(|factor| cpu.pipeline(&source(factor)))
        .collect();
    let check = || {
        for (permissions, line) in mappings() {
            let both = permissions.contains('w') && permissions.contains('x');
            assert!(!both, "{line}");
        }
    };
    check();
    // The kernels are among the mappings looked at: otherwise the test would look at nothing.
    assert!(code() > 0, "no code of kernels is found");
    for (factor, pipeline) in (1..).zip(&pipelines) {
        let buffer = cpu.buffer(&[7; 32]);
        let group = cpu.group(pipeline, &[&buffer]);
        cpu.dispatch(pipeline, &group, [1, 1, 1]);
        let expected: Vec<u32> = (0..8).map(|i| i * factor).collect();
        assert_eq!(cpu.read::<u32>(&buffer), expected);
        check();
    }
}
