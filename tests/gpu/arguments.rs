//! Arguments of launches by their names, and what is wrong with those that do not fit.

use crate::cases;
use crate::harness::Fixture;
use crate::launches::{Params, SCALE, kernel};
use tombolo::{DeviceBuffer, launch::LaunchError};

cases![
    arguments_by_name_in_any_order,
    uniform_structs_and_scalars_as_values,
    more_values_than_dynamic_offsets,
    a_value_may_also_be_a_buffer,
    unknown_missing_and_doubled_arguments,
    wrong_kinds_are_named,
    padding_of_vec3_is_noticed,
    dense_elements_may_be_flattened,
    uniforms_of_the_wrong_size_are_refused,
    too_small_and_partial_buffers_are_refused,
];

fn arguments_by_name_in_any_order(f: &Fixture) {
    let kernel = kernel(f, SCALE);
    let input: Vec<f32> = (0..1000).map(|i| i as f32).collect();
    let source = f.device.buffer(&input).unwrap();
    let sink = f.device.buffer(&[f32::NAN; 1000]).unwrap();
    let params = Params {
        factor: 3.0,
        offset: -1.0,
        count: 1000,
    };
    kernel
        .launch()
        .value("params", &params)
        .buffer("sink", &sink)
        .buffer("source", &source)
        .invocations(1000)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    let expected: Vec<f32> = input.iter().map(|x| x * 3.0 - 1.0).collect();
    assert_eq!(sink.read().unwrap(), expected);
}

fn uniform_structs_and_scalars_as_values(f: &Fixture) {
    let kernel = kernel(
        f,
        "struct S { a: vec3<f32>, b: f32, m: mat2x2<f32> }
         @group(0) @binding(0) var<uniform> s: S;
         @group(0) @binding(1) var<uniform> k: u32;
         @group(1) @binding(0) var<uniform> v: vec3<f32>;
         @group(1) @binding(5) var<storage, read_write> sink: array<f32>;
         @compute @workgroup_size(1) fn main() {
            sink[0] = s.a.x; sink[1] = s.a.z; sink[2] = s.b; sink[3] = s.m[1].x;
            sink[4] = f32(k); sink[5] = v.z;
         }",
    );
    let sink = f.device.buffer(&[-9f32; 6]).unwrap();
    kernel
        .launch()
        .value("s", &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0])
        .value("k", &77u32)
        .value("v", &[9f32, 10.0, 11.0])
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(sink.read().unwrap(), [1.0, 3.0, 4.0, 7.0, 77.0, 11.0]);
}

fn more_values_than_dynamic_offsets(f: &Fixture) {
    let limits = f.device.raw().limits();
    let count = (limits.max_dynamic_uniform_buffers_per_pipeline_layout + 3)
        .min(limits.max_uniform_buffers_per_shader_stage)
        .min(24);
    let mut source = String::new();
    let mut body = String::new();
    for i in 0..count {
        source += &format!("@group(0) @binding({}) var<uniform> u{i}: u32;\n", i + 1);
        body += &format!("sink[{i}] = u{i};\n");
    }
    source += "@group(0) @binding(0) var<storage, read_write> sink: array<u32>;\n";
    source += &format!("@compute @workgroup_size(1) fn main() {{ {body} }}");
    let kernel = kernel(f, &source);
    let sink: DeviceBuffer<u32> = f.device.zeroed(count as usize).unwrap();
    for round in 0..3 {
        let mut launch = kernel.launch().buffer("sink", &sink).workgroups(1);
        for i in 0..count {
            launch = launch.value(&format!("u{i}"), &(1000 * (round + 1) + i));
        }
        launch.submit().unwrap().wait().unwrap();
        let expected: Vec<u32> = (0..count).map(|i| 1000 * (round + 1) + i).collect();
        assert_eq!(sink.read().unwrap(), expected);
    }
}

fn a_value_may_also_be_a_buffer(f: &Fixture) {
    let kernel = kernel(f, SCALE);
    let params = f
        .device
        .buffer(&[Params {
            factor: 2.0,
            offset: 0.5,
            count: 4,
        }])
        .unwrap();
    let source = f.device.buffer(&[1f32, 2.0, 3.0, 4.0]).unwrap();
    let sink: DeviceBuffer<f32> = f.device.zeroed(4).unwrap();
    kernel
        .launch()
        .buffer("params", &params)
        .buffer("source", &source)
        .buffer("sink", &sink)
        .invocations(4)
        .submit()
        .unwrap();
    assert_eq!(sink.read().unwrap(), [2.5, 4.5, 6.5, 8.5]);
}

fn unknown_missing_and_doubled_arguments(f: &Fixture) {
    let kernel = kernel(f, SCALE);
    let buffer = f.device.buffer(&[1f32; 4]).unwrap();
    let error = kernel
        .launch()
        .buffer("sauce", &buffer)
        .invocations(4)
        .submit()
        .unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, LaunchError::UnknownArgument { .. }),
        "{text}"
    );
    for part in ["`sauce`", "`source`", "`sink`", "`params`", "array<f32>"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let error = kernel
        .launch()
        .buffer("source", &buffer)
        .invocations(4)
        .submit()
        .unwrap_err();
    let text = error.to_string();
    assert!(
        matches!(error, LaunchError::MissingArguments { .. }),
        "{text}"
    );
    assert!(text.contains("`sink`") && text.contains("`params`") && !text.contains("`source`"));
    let error = kernel
        .launch()
        .buffer("source", &buffer)
        .buffer("source", &buffer)
        .invocations(4)
        .submit()
        .unwrap_err();
    assert!(matches!(error, LaunchError::DuplicateArgument { .. }));
    let sink: DeviceBuffer<f32> = f.device.zeroed(4).unwrap();
    let error = kernel
        .launch()
        .buffer("source", &buffer)
        .buffer("sink", &sink)
        .value("params", &[0u32; 3])
        .submit()
        .unwrap_err();
    assert!(matches!(error, LaunchError::NoGrid { .. }));
}

fn wrong_kinds_are_named(f: &Fixture) {
    let kernel = kernel(f, SCALE);
    let buffer = f.device.buffer(&[1f32; 4]).unwrap();
    let sink: DeviceBuffer<f32> = f.device.zeroed(4).unwrap();
    let error = kernel
        .launch()
        .value("source", &1f32)
        .buffer("sink", &sink)
        .buffer("params", &buffer)
        .invocations(4)
        .submit()
        .unwrap_err();
    assert!(
        matches!(&error, LaunchError::WrongKind { argument, .. } if argument == "source"),
        "{error}"
    );
}

const VEC3: &str = "
struct Body { at: vec3<f32>, velocity: vec3<f32> }
@group(0) @binding(0) var<storage, read> points: array<vec3<f32>>;
@group(0) @binding(1) var<storage, read> bodies: array<Body>;
@group(0) @binding(2) var<storage, read_write> sink: array<f32>;
@compute @workgroup_size(1) fn main() {
    sink[0] = points[1].x; sink[1] = bodies[1].velocity.y;
}";

fn padding_of_vec3_is_noticed(f: &Fixture) {
    let kernel = kernel(f, VEC3);
    let sink: DeviceBuffer<f32> = f.device.zeroed(2).unwrap();
    let tight = f.device.buffer(&[[1f32, 2.0, 3.0]; 8]).unwrap();
    let padded = f
        .device
        .buffer(&[[1f32, 2.0, 3.0, 0.0], [4.0, 5.0, 6.0, 0.0]])
        .unwrap();
    let bodies = f
        .device
        .buffer(&[[0f32; 8], [1.0, 2.0, 3.0, 0.0, 4.0, 5.0, 6.0, 0.0]])
        .unwrap();
    let tight_bodies = f.device.buffer(&[[0f32; 6]; 4]).unwrap();
    let error = kernel
        .launch()
        .buffer("points", &tight)
        .buffer("bodies", &bodies)
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap_err();
    let text = error.to_string();
    match error {
        LaunchError::ElementMismatch {
            stride: 16,
            element_bytes: 12,
            argument,
            ..
        } => {
            assert_eq!(argument, "points");
            assert!(text.contains("[f32; 4]"), "{text}");
        }
        other => panic!("{other}"),
    }
    let error = kernel
        .launch()
        .buffer("points", &padded)
        .buffer("bodies", &tight_bodies)
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("4 bytes before `velocity`") && text.contains("32 bytes"),
        "{text}"
    );
    kernel
        .launch()
        .buffer("points", &padded)
        .buffer("bodies", &bodies)
        .buffer("sink", &sink)
        .workgroups(1)
        .submit()
        .unwrap();
    assert_eq!(sink.read().unwrap(), [4.0, 5.0]);
}

fn dense_elements_may_be_flattened(f: &Fixture) {
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var<storage, read> a: array<vec4<f32>>;
         @group(0) @binding(1) var<storage, read_write> sink: array<f32>;
         @compute @workgroup_size(1) fn main() { sink[0] = a[1].z; sink[1] = f32(arrayLength(&a)); }",
    );
    let values: Vec<f32> = (0..12).map(|i| i as f32).collect();
    let flat = f.device.buffer(&values).unwrap();
    let bytes = f
        .device
        .buffer(bytemuck::cast_slice::<f32, u8>(&values))
        .unwrap();
    let sink: DeviceBuffer<[f32; 2]> = f.device.zeroed(1).unwrap();
    let mut launch = kernel
        .launch()
        .buffer("a", &flat)
        .buffer("sink", &sink)
        .workgroups(1);
    launch.submit().unwrap();
    assert_eq!(sink.read().unwrap(), [[6.0, 3.0]]);
    launch.set_buffer("a", &bytes).unwrap();
    launch.submit().unwrap();
    assert_eq!(sink.read().unwrap(), [[6.0, 3.0]]);
}

fn uniforms_of_the_wrong_size_are_refused(f: &Fixture) {
    let kernel = kernel(f, SCALE);
    let buffer = f.device.buffer(&[1f32; 4]).unwrap();
    let sink: DeviceBuffer<f32> = f.device.zeroed(4).unwrap();
    let error = kernel
        .launch()
        .buffer("source", &buffer)
        .buffer("sink", &sink)
        .value("params", &[1f32; 2])
        .invocations(4)
        .submit()
        .unwrap_err();
    assert!(matches!(
        error,
        LaunchError::UniformSize {
            size: 12,
            value_bytes: 8,
            ..
        }
    ));
}

fn too_small_and_partial_buffers_are_refused(f: &Fixture) {
    let kernel = kernel(
        f,
        "@group(0) @binding(0) var<storage, read_write> a: array<u32, 16>;
         @group(0) @binding(1) var<storage, read_write> b: array<vec2<u32>>;
         @compute @workgroup_size(1) fn main() { a[0] = 1u; b[0].x = 1u; }",
    );
    let few: DeviceBuffer<u32> = f.device.zeroed(15).unwrap();
    let enough: DeviceBuffer<u32> = f.device.zeroed(16).unwrap();
    let odd: DeviceBuffer<u32> = f.device.zeroed(7).unwrap();
    let error = kernel
        .launch()
        .buffer("a", &few)
        .buffer("b", &enough)
        .workgroups(1)
        .submit()
        .unwrap_err();
    assert!(matches!(
        error,
        LaunchError::BufferTooSmall {
            needed: 64,
            given: 60,
            ..
        }
    ));
    let error = kernel
        .launch()
        .buffer("a", &enough)
        .buffer("b", &odd)
        .workgroups(1)
        .submit()
        .unwrap_err();
    assert!(matches!(
        error,
        LaunchError::PartialElement {
            stride: 8,
            given: 28,
            ..
        }
    ));
}
