//! Each limit of a device, exceeded once: an error that names it, from a text with any numbers.

use crate::cases;
use crate::harness::Fixture;
use tombolo::{Constants, Device, Program, kernel::KernelError};

cases![
    each_limit_is_an_error_of_its_own,
    numbers_of_any_size_are_no_panic
];

fn made(device: &Device, source: &str) -> Result<(), KernelError> {
    let program = Program::new("limits.wgsl", source)?;
    let entry = program.entry_points()[0].clone();
    device
        .kernel(&program, &entry, &Constants::new())
        .map(|_| ())
}

/// A kernel that uses so many variables, each declared by `of`.
fn many(count: u32, of: impl Fn(u32) -> (String, String)) -> String {
    let (heads, uses): (String, String) = (0..count).map(of).unzip();
    format!("{heads}\n@compute @workgroup_size(1) fn main() {{ var sum = 0.0; {uses} }}")
}

/// Declares variable number so-and-so, and says how a kernel uses it.
type Variable<'a> = &'a dyn Fn(u32) -> (String, String);

/// Each limit: what the error calls it, the limit, and a kernel that needs one more.
fn beyond(limits: &wgpu::Limits) -> Vec<(&'static str, u64, String)> {
    let kernel = |head: &str, body: &str| {
        format!("{head}\n@compute @workgroup_size(1) fn main() {{ {body} }}")
    };
    let one = |place: String| {
        kernel(
            &format!("{place} var<storage, read_write> data: array<u32>;"),
            "data[0] = 1u;",
        )
    };
    let group =
        |x: u32, y: u32, z: u32| format!("@compute @workgroup_size({x}, {y}, {z}) fn main() {{}}");
    let texture = |i: u32| {
        (
            format!("@group(0) @binding({i}) var t{i}: texture_2d<f32>;\n"),
            format!("sum += textureLoad(t{i}, vec2(0, 0), 0).x;\n"),
        )
    };
    let image = |i: u32| {
        (
            format!("@group(0) @binding({i}) var t{i}: texture_storage_2d<r32float, write>;\n"),
            format!("textureStore(t{i}, vec2(0, 0), vec4f());\n"),
        )
    };
    let sampler = |i: u32| {
        let texture = match i {
            0 => "@group(1) @binding(0) var t: texture_2d<f32>;",
            _ => "",
        };
        (
            format!("{texture} @group(0) @binding({i}) var s{i}: sampler;\n"),
            format!("sum += textureSampleLevel(t, s{i}, vec2f(), 0.0).x;\n"),
        )
    };
    let uniform = |i: u32| {
        (
            format!("@group(0) @binding({i}) var<uniform> u{i}: vec4f;\n"),
            format!("sum += u{i}.x;\n"),
        )
    };
    let mut all = vec![
        (
            "bind groups",
            u64::from(limits.max_bind_groups),
            one(format!("@group({}) @binding(0)", limits.max_bind_groups)),
        ),
        (
            "bindings in a bind group",
            u64::from(limits.max_bindings_per_bind_group),
            one(format!(
                "@group(0) @binding({})",
                limits.max_bindings_per_bind_group
            )),
        ),
        (
            "work-group size in x",
            limits.max_compute_workgroup_size_x.into(),
            group(limits.max_compute_workgroup_size_x + 1, 1, 1),
        ),
        (
            "work-group size in y",
            limits.max_compute_workgroup_size_y.into(),
            group(1, limits.max_compute_workgroup_size_y + 1, 1),
        ),
        (
            "work-group size in z",
            limits.max_compute_workgroup_size_z.into(),
            group(1, 1, limits.max_compute_workgroup_size_z + 1),
        ),
        (
            "bytes of workgroup memory",
            limits.max_compute_workgroup_storage_size.into(),
            kernel(
                &format!(
                    "var<workgroup> tile: array<u32, {}>;",
                    limits.max_compute_workgroup_storage_size / 4 + 1
                ),
                "tile[0] = 1u;",
            ),
        ),
        (
            "bytes of a uniform variable",
            limits.max_uniform_buffer_binding_size,
            kernel(
                &format!(
                    "@group(0) @binding(0) var<uniform> u: array<vec4u, {}>; var<workgroup> x: u32;",
                    limits.max_uniform_buffer_binding_size / 16 + 1
                ),
                "x = u[0].x;",
            ),
        ),
    ];
    // Some devices have more than a text can ask for.
    let counts: [(&str, u32, Variable<'_>); 4] = [
        (
            "sampled textures",
            limits.max_sampled_textures_per_shader_stage,
            &texture,
        ),
        (
            "storage textures",
            limits.max_storage_textures_per_shader_stage,
            &image,
        ),
        ("samplers", limits.max_samplers_per_shader_stage, &sampler),
        (
            "uniform buffers",
            limits.max_uniform_buffers_per_shader_stage,
            &uniform,
        ),
    ];
    for (what, limit, of) in counts {
        if limit < limits.max_bindings_per_bind_group.min(900) {
            all.push((what, limit.into(), many(limit + 1, of)));
        }
    }
    // naga lays out no type of 2 GiB or more, and says so first.
    if limits.max_storage_buffer_binding_size < u64::from(i32::MAX.unsigned_abs()) - 16 {
        all.push((
            "bytes of a storage variable",
            limits.max_storage_buffer_binding_size,
            kernel(
                &format!(
                    "@group(0) @binding(0) var<storage, read_write> data: array<u32, {}>;",
                    limits.max_storage_buffer_binding_size / 4 + 1
                ),
                "data[0] = 1u;",
            ),
        ));
    }
    all
}

fn each_limit_is_an_error_of_its_own(f: &Fixture) {
    let limits = f.device.raw().limits();
    for (name, most, source) in beyond(&limits) {
        match made(&f.device, &source) {
            Err(KernelError::Limit {
                what,
                wanted,
                limit,
                ..
            }) => {
                // A group that is too large in one direction may have too many invocations first.
                let invocations = u64::from(limits.max_compute_invocations_per_workgroup);
                match what {
                    "invocations in a work-group" => assert_eq!(limit, invocations, "{name}"),
                    _ => assert_eq!((what, limit), (name, most), "{name}"),
                }
                assert!(wanted > limit, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

fn numbers_of_any_size_are_no_panic(f: &Fixture) {
    let groups = f.device.raw().limits().max_bind_groups;
    let all_groups: String = (0..groups)
        .map(|group| {
            format!("@group({group}) @binding(4294967295) var<storage, read_write> d{group}: array<u32>;\n")
        })
        .collect();
    let uses: String = (0..groups)
        .map(|group| format!("d{group}[0] = 1u;"))
        .collect();
    let place = |place: &str| {
        format!(
            "{place} var<storage, read_write> data: array<u32>;
            @compute @workgroup_size(1) fn main() {{ print(\"one\"); data[0] = 1u; }}"
        )
    };
    let heads = [
        format!("{all_groups}@compute @workgroup_size(1) fn main() {{ {uses} print(\"one\"); }}"),
        place("@group(4294967295) @binding(4294967295)"),
        place("@group(4294967295) @binding(0)"),
        place("@group(0) @binding(4294967295)"),
        place("@group(8) @binding(0)"),
        place("@group(2147483647) @binding(2147483647)"),
        place("@group(4294967296) @binding(0)"),
        place("@group(-1) @binding(0)"),
        place("@group(0x7fffffffffffffffffff) @binding(0)"),
        "@compute @workgroup_size(4294967295, 4294967295, 4294967295) fn main() {}".into(),
        "@compute @workgroup_size(65536, 65536) fn main() {}".into(),
        "@compute @workgroup_size(0) fn main() {}".into(),
        "var<workgroup> a: array<u32, 4294967295>; @compute @workgroup_size(1) fn main() { a[0] = 1u; }".into(),
        "var<workgroup> a: array<array<u32, 65536>, 65536>; @compute @workgroup_size(1) fn main() { a[0][0] = 1u; }".into(),
        "@compute @workgroup_size(1) fn main() { var a: array<u32, 4294967295>; a[0] = 1u; }".into(),
        "override N: u32 = 4294967295; @compute @workgroup_size(1) fn main() { var a: array<vec4f, N>; a[0].x = 1.0; }".into(),
        "struct S { @size(4294967292) a: u32, b: u32 } @group(0) @binding(0) var<storage, read_write> s: S;
         @compute @workgroup_size(1) fn main() { s.b = 1u; }".into(),
        "struct S { @align(2147483648) a: u32, b: u32 } @group(0) @binding(0) var<storage, read_write> s: S;
         @compute @workgroup_size(1) fn main() { s.b = 1u; }".into(),
        "@group(0) @binding(0) var<storage, read_write> s: array<array<u32, 65536>, 65536>;
         @compute @workgroup_size(1) fn main() { s[0][0] = 1u; }".into(),
        "@id(4294967295) override N: u32 = 3; @compute @workgroup_size(N) fn main() {}".into(),
        "@compute @workgroup_size(1) fn main() { @align(4294967296) var a: array<u32, 4>; a[0] = 1u; }".into(),
    ];
    for source in heads {
        if let Err(error) = made(&f.device, &source) {
            assert!(
                !matches!(error, KernelError::Internal { .. }),
                "{source}: {error}"
            );
            assert!(!error.to_string().is_empty());
        }
    }
}
