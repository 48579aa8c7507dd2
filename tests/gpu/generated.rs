//! Generated programs through the runtime: what the interpreter of naga IR computes, every adapter does, with all that the passes
//! add to a kernel and take from it. And values that a driver's compiler knows.

use crate::cases;
use crate::harness::Fixture;
use crate::launches::kernel;
use tombolo::{Constants, DeviceBuffer, Program};
use tombolo_cpu_reference::differential::Case;
use tombolo_cpu_reference::generate::{Options, program};

cases![
    programs_compute_what_the_interpreter_does,
    known_zeros_are_zeros,
    known_bytes_are_clamped,
];

/// Programs, and the statements of their entry points in turn. Without the pass `folding` SwiftShader has other results in the
/// sixth, and not there alone.
const PROGRAMS: u64 = 72;
const STATEMENTS: [u32; 3] = [3, 6, 12];

/// The arguments of generated programs, by their bindings.
const ARGUMENTS: [&str; 5] = ["in_words", "out", "cells", "approximate", "scratch"];

fn programs_compute_what_the_interpreter_does(f: &Fixture) {
    for (seed, statements) in (0..PROGRAMS).zip(STATEMENTS.into_iter().cycle()) {
        let options = Options {
            statements,
            ..Options::default()
        };
        let case = Case::new(&program(seed, options));
        let expected = case
            .expected()
            .unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        let got = run(f, &case).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{}", case.text));
        if let Some(difference) = case.compare(&expected, &got) {
            panic!("seed {seed}: {difference}\n{}", case.text);
        }
    }
}

fn run(f: &Fixture, case: &Case) -> Result<Vec<Vec<u8>>, Box<dyn std::error::Error>> {
    // A binding that nothing uses is no argument: programs ask for the lengths of all but the cells.
    let (asks, asks_for_all) = ("_ = arrayLength(", "_ = arrayLength(&cells) + arrayLength(");
    let text = case.text.replacen(asks, asks_for_all, 1);
    let program = Program::new("generated.wgsl", text)?;
    let kernel = f.device.kernel(&program, "main", &Constants::new())?;
    let buffers: Vec<DeviceBuffer<u8>> = (case.buffers.iter())
        .map(|contents| f.device.buffer(contents))
        .collect::<Result<_, _>>()?;
    let mut launch = kernel.launch().workgroups(case.workgroups);
    for (name, buffer) in ARGUMENTS.into_iter().zip(&buffers) {
        launch = launch.buffer(name, buffer);
    }
    launch.submit()?.wait()?;
    Ok((buffers.iter())
        .map(DeviceBuffer::read)
        .collect::<Result<_, _>>()?)
}

fn known_zeros_are_zeros(f: &Fixture) {
    let kernel = kernel(
        f,
        "struct Pair { at: vec2<i32>, is_known: bool }
        const NONE = vec2<i32>();
        var<private> nothing: bool;
        var<private> pair: Pair;
        @group(0) @binding(0) var<storage, read_write> out: array<vec4<u32>>;
        @compute @workgroup_size(1) fn main() {
            var n: i32;
            var f: f32;
            var few: array<i32, 2>;
            let same = vec4<i32>(n, 1, few[1], pair.at.y) == vec4<i32>(0, 1, 0, 0);
            let other = vec4<i32>(n, 1, few[1], pair.at.y) != vec4<i32>(-1);
            let less = vec4<f32>(f, 1.0, f, 2.0) < vec4<f32>(1.0, 1.0, 0.5, 3.0);
            let chosen = select(vec4<bool>(true), vec4<bool>(true, false, true, false), nothing);
            out[0] = vec4<u32>(same);
            out[1] = vec4<u32>(other);
            out[2] = vec4<u32>(less);
            out[3] = vec4<u32>(chosen);
            out[4] = vec4<u32>(vec2<u32>(NONE == pair.at), u32(all(!vec2<bool>(nothing, pair.is_known))), 9u);
        }",
    );
    let out: DeviceBuffer<u32> = f.device.buffer(&[0xdead_beef; 20]).unwrap();
    let launch = kernel.launch().buffer("out", &out).workgroups(1);
    { launch }.submit().unwrap().wait().unwrap();
    let expected = [
        [1, 1, 1, 1],
        [1, 1, 1, 1],
        [1, 0, 1, 1],
        [1, 1, 1, 1],
        [1, 1, 1, 9],
    ];
    assert_eq!(out.read().unwrap(), expected.as_flattened());
}

fn known_bytes_are_clamped(f: &Fixture) {
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn main() {
            var n = 0;
            var few = vec4<i32>(300, -300, 5, -5);
            out[0] = pack4xI8Clamp(vec4<i32>(n));
            out[1] = pack4xI8Clamp(few);
            out[2] = pack4xI8Clamp(few + i32(out[3]));
        }",
    );
    let out: DeviceBuffer<u32> = f.device.buffer(&[7, 7, 7, 2]).unwrap();
    let launch = kernel.launch().buffer("out", &out).workgroups(1);
    { launch }.submit().unwrap().wait().unwrap();
    let packed =
        |numbers: [i32; 4]| u32::from_le_bytes(numbers.map(|number| number.clamp(-128, 127) as u8));
    let expected = [
        packed([0; 4]),
        packed([300, -300, 5, -5]),
        packed([302, -298, 7, -3]),
        2,
    ];
    assert_eq!(out.read().unwrap(), expected);
}
