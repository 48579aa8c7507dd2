//! Every type that host and device share, behind a pointer: whole values, members, elements and components,
//! at constant and at computed indices, are moved from one place to another, and every byte around them is
//! compared. What lies where is computed here from the rules of the WGSL specification ("Alignment and
//! Size").

use crate::cases;
use crate::harness::Fixture;
use crate::wgsl_types::{Random, Scalar, Scalar::*, Step, Type, array, vector, written};
use tombolo::{
    Constants, Device, DeviceBuffer, Program, Ptr, SharedHeap,
    kernel::{KernelError, KernelOptions, TranslationMode},
    wgpu,
};

cases![
    scalars_and_vectors,
    matrices,
    structures_and_arrays,
    arrays_of_any_length,
    halves,
    wide_values,
    types_without_a_layout,
    values_in_device_memory,
    names_of_predeclared_types,
];

/// Bytes in front of a value and behind it.
const AROUND: usize = 64;

const HEAD: &str = "
@group(0) @binding(0) var<uniform> source: usm_ptr;
@group(0) @binding(1) var<uniform> sinks: array<vec4<u32>, 5>;
";

/// A kernel that moves a value of the type in four ways: whole; part by part; scalar by scalar, at constant
/// and at computed indices.
fn source(ty: &Type) -> String {
    let mut declarations = Vec::new();
    ty.declarations(&mut declarations);
    let halves = ty.leaves().iter().any(|(.., scalar)| *scalar == F16);
    let mut text = match halves {
        true => "enable f16;\n".to_owned(),
        false => String::new(),
    };
    text += &declarations.concat();
    text += &format!("alias T = {};\n{HEAD}", ty.name());
    text += "@compute @workgroup_size(1) fn main() {\n    let s = usm_T(source);\n";
    text += "    let zero = sinks[4].x;\n";
    for k in 0..4 {
        text += &format!("    let d{k} = usm_T(sinks[{k}].xy);\n");
    }
    text += "    *d0 = *s;\n";
    let parts: Vec<Vec<Step>> = match ty {
        Type::Scalar(_) => vec![Vec::new()],
        _ => ty.parts().iter().map(|(step, ..)| vec![*step]).collect(),
    };
    let leaves: Vec<Vec<Step>> = ty.leaves().into_iter().map(|(path, ..)| path).collect();
    for (d, paths, computed) in [
        ("d1", &parts, false),
        ("d2", &leaves, false),
        ("d3", &leaves, true),
    ] {
        for path in paths {
            let (to, from) = (written(d, path, computed), written("s", path, computed));
            text += &format!("    {to} = {from};\n");
        }
    }
    text + "}\n"
}

fn options(mode: TranslationMode, checked: bool) -> KernelOptions {
    let mut options = KernelOptions::default();
    options.pointers = mode;
    options.checked_pointers = Some(checked);
    options
}

/// Places of `bytes` bytes, each between poison, as bytes and as pointers.
struct Places {
    heap: SharedHeap,
    first: Ptr<u8>,
    count: usize,
    bytes: usize,
}

impl Places {
    fn new(heap: &SharedHeap, count: usize, size: usize, align: usize) -> Self {
        // The least alignment that the type may have, not a rounder one.
        let bytes = (size + 2 * AROUND).next_multiple_of(2 * align) + align;
        let first = heap
            .alloc_bytes((count * bytes) as u64, 2 * align as u64)
            .unwrap();
        heap.fill(first, 0xa5_u8, count * bytes).unwrap();
        Self {
            heap: heap.clone(),
            first,
            count,
            bytes,
        }
    }

    fn pointer(&self, index: usize) -> Ptr<u8> {
        self.first.byte_add((index * self.bytes + AROUND) as u64)
    }

    fn read(&self) -> Vec<Vec<u8>> {
        let all = self.heap.read(self.first, self.count * self.bytes).unwrap();
        all.chunks_exact(self.bytes).map(<[u8]>::to_vec).collect()
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        let _ = self.heap.free(self.first);
    }
}

/// Moves a value of the type, and compares every byte.
fn moves(device: &Device, ty: &Type, checked: bool, random: &mut Random) {
    let heap = device.heap().unwrap();
    let places = Places::new(&heap, 5, ty.size(), ty.align());
    let mut value = vec![0xa5_u8; places.bytes];
    for (_, offset, scalar) in ty.leaves() {
        let at = AROUND + offset;
        value[at..at + scalar.bytes()].copy_from_slice(&scalar.noise(random));
    }
    // The source's padding is another one than the sinks'.
    let mut given = value.clone();
    let mut is_leaf = vec![false; places.bytes];
    for (_, offset, scalar) in ty.leaves() {
        is_leaf[AROUND + offset..][..scalar.bytes()].fill(true);
    }
    for (byte, is_leaf) in given.iter_mut().zip(&is_leaf) {
        if !is_leaf {
            *byte = 0x3c;
        }
    }
    heap.write(places.first, &given).unwrap();
    let text = source(ty);
    let program = Program::new("types.wgsl", &*text).unwrap_or_else(|e| panic!("{text}\n{e}"));
    let options = options(TranslationMode::DeviceFavored, checked);
    let kernel = device
        .kernel_with(&program, "main", &Constants::new(), options)
        .unwrap_or_else(|e| panic!("{text}\n{e}"));
    let sink = |k| match k {
        5 => [0, 0],
        k => [places.pointer(k).address(), 0],
    };
    let sinks: [[u64; 2]; 5] = [1, 2, 3, 4, 5].map(sink);
    kernel
        .launch()
        .value("source", &places.pointer(0))
        .value("sinks", &sinks)
        .workgroups(1)
        .submit()
        .unwrap()
        .wait()
        .unwrap_or_else(|e| panic!("{}: {e}", ty.name()));
    for (k, seen) in places.read().into_iter().enumerate() {
        let expected = if k == 0 { &given } else { &value };
        let wrong = seen.iter().zip(expected).position(|(a, b)| a != b);
        assert_eq!(
            wrong.map(|at| at as i64 - AROUND as i64),
            None,
            "{} in way {k}, checked {checked}\n{text}",
            ty.name()
        );
    }
}

fn all_move(f: &Fixture, types: &[Type]) {
    let mut random = Random(0x1234_5678_9abc_def1);
    for ty in types {
        for checked in [false, true] {
            moves(&f.device, ty, checked, &mut random);
        }
    }
}

fn vectors_of(scalars: &[Scalar]) -> Vec<Type> {
    let mut types = Vec::new();
    for &scalar in scalars {
        types.push(Type::Scalar(scalar));
        types.extend([2, 3, 4].map(|count| vector(count, scalar)));
    }
    types
}

fn matrices_of(scalar: Scalar) -> Vec<Type> {
    let of = |columns| [2, 3, 4].map(|rows| Type::Matrix(columns, rows, scalar));
    [2, 3, 4].map(of).concat()
}

fn scalars_and_vectors(f: &Fixture) {
    all_move(f, &vectors_of(&[U32, I32, F32]));
}

fn matrices(f: &Fixture) {
    all_move(f, &matrices_of(F32));
}

/// Structures in structures, arrays in structures, structures in arrays.
fn composites() -> Vec<Type> {
    let scalar = Type::Scalar;
    let inner = Type::Struct(
        "Inner",
        vec![vector(3, F32), scalar(U32), vector(2, I32), scalar(F32)],
    );
    let odd = Type::Struct("Odd", vec![scalar(U32), scalar(F32), scalar(I32)]);
    let pointers = Type::Struct(
        "Pointers",
        vec![vector(2, U32), array(vector(2, U32), 3), scalar(I32)],
    );
    let outer = Type::Struct(
        "Outer",
        vec![
            scalar(F32),
            inner.clone(),
            array(inner.clone(), 2),
            Type::Matrix(3, 3, F32),
            array(array(scalar(U32), 3), 2),
            odd.clone(),
            vector(3, U32),
        ],
    );
    vec![
        array(scalar(F32), 5),
        array(vector(3, I32), 3),
        array(Type::Matrix(2, 3, F32), 2),
        array(odd.clone(), 3),
        array(array(vector(2, F32), 2), 3),
        odd,
        inner.clone(),
        pointers,
        outer.clone(),
        array(outer, 2),
    ]
}

fn structures_and_arrays(f: &Fixture) {
    all_move(f, &composites());
}

fn arrays_of_any_length(f: &Fixture) {
    // Their length is the program's business: elements are moved backwards, whole and in parts, one lane each.
    const LEN: usize = 37;
    let mut random = Random(77);
    let mut elements = composites();
    elements.truncate(8);
    elements.extend([
        Type::Scalar(U32),
        vector(3, F32),
        vector(4, I32),
        Type::Matrix(4, 3, F32),
    ]);
    for element in elements {
        for in_struct in [false, true] {
            let mut declarations = Vec::new();
            element.declarations(&mut declarations);
            let tail = match in_struct {
                // The length stands in front of the elements.
                true => "struct T { length: u32, items: array<E> }\n",
                false => "alias T = array<E>;\n",
            };
            let (items, start, align) = match in_struct {
                true => (".items", element.align().max(4), element.align().max(4)),
                false => ("", 0, element.align()),
            };
            let mut text = format!(
                "{}alias E = {};\n{tail}{HEAD}",
                declarations.concat(),
                element.name()
            );
            text += "@compute @workgroup_size(1) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
                let s = usm_T(source); let d = usm_T(sinks[0].xy); let e = usm_T(sinks[1].xy);
                let length = sinks[2].x; let i = id.x; let j = length - 1u - i;\n";
            text += &format!("d{items}[j] = s{items}[i];\n");
            for (path, ..) in element.leaves() {
                let place = |p: &str, index: &str| match path.as_slice() {
                    [] => format!("{p}{items}[{index}]"),
                    path => written(&format!("{p}{items}[{index}]"), path, false),
                };
                text += &format!("{} = {};\n", place("e", "j"), place("s", "i"));
            }
            if in_struct {
                text += "if i == 0u { d.length = s.length; e.length = length * 2u; }\n";
            }
            text += "}\n";
            let stride = element.stride();
            let heap = f.device.heap().unwrap();
            let places = Places::new(&heap, 3, start + LEN * stride, align);
            let mut given = vec![0xa5_u8; places.bytes];
            let mut expected = given.clone();
            if in_struct {
                given[AROUND..AROUND + 4].copy_from_slice(&(LEN as u32).to_le_bytes());
                expected[AROUND..AROUND + 4].copy_from_slice(&(LEN as u32).to_le_bytes());
            }
            for i in 0..LEN {
                for (_, offset, scalar) in element.leaves() {
                    let noise = scalar.noise(&mut random);
                    let at = |i: usize| AROUND + start + i * stride + offset;
                    given[at(i)..][..noise.len()].copy_from_slice(&noise);
                    expected[at(LEN - 1 - i)..][..noise.len()].copy_from_slice(&noise);
                }
            }
            heap.write(places.first, &given).unwrap();
            let program =
                Program::new("arrays.wgsl", &*text).unwrap_or_else(|e| panic!("{text}\n{e}"));
            for checked in [false, true] {
                let options = options(TranslationMode::SharedFavored, checked);
                let kernel = f
                    .device
                    .kernel_with(&program, "main", &Constants::new(), options);
                let kernel = kernel.unwrap_or_else(|e| panic!("{text}\n{e}"));
                let sinks = [
                    [places.pointer(1).address(), 0],
                    [places.pointer(2).address(), 0],
                    [LEN as u64, 0],
                    [0, 0],
                    [0, 0],
                ];
                kernel
                    .launch()
                    .value("source", &places.pointer(0))
                    .value("sinks", &sinks)
                    .workgroups(LEN as u32)
                    .submit()
                    .unwrap()
                    .wait()
                    .unwrap();
                let mut seen = places.read();
                assert!(seen[0] == given);
                assert!(seen[1] == expected, "{text}");
                if in_struct {
                    seen[2][AROUND..AROUND + 4].copy_from_slice(&(LEN as u32).to_le_bytes());
                }
                assert!(seen[2] == expected, "{text}");
                heap.fill(places.pointer(1).byte_add(0), 0xa5_u8, start + LEN * stride)
                    .unwrap();
                heap.fill(places.pointer(2), 0xa5_u8, start + LEN * stride)
                    .unwrap();
            }
        }
    }
}

/// The error of a kernel that has a member which the device cannot have.
fn refused(device: &Device, ty: &Type, words: &str) {
    let text = source(ty);
    let error = match Program::new("types.wgsl", &*text) {
        Err(error) => error,
        Ok(program) => device
            .kernel(&program, "main", &Constants::new())
            .map(|_| ())
            .unwrap_err(),
    };
    assert!(error.to_string().contains(words), "{error}");
    assert!(error.diagnostic().is_some(), "{error}");
    // Halves have to be enabled, and that is refused before any pointer is looked at.
    match error {
        KernelError::Pointer(_) => {}
        KernelError::Type(_) if words == "f16" => {}
        error => panic!("{error:?}"),
    }
}

fn halves(f: &Fixture) {
    let scalar = Type::Scalar;
    let mixed = Type::Struct(
        "Mixed",
        vec![
            scalar(F16),
            scalar(F16),
            scalar(F16),
            vector(3, F16),
            scalar(F16),
            scalar(F32),
            array(scalar(F16), 5),
            vector(2, F16),
            vector(4, F16),
        ],
    );
    let mut types = vectors_of(&[F16]);
    types.extend(matrices_of(F16));
    types.extend([array(scalar(F16), 3), array(vector(3, F16), 2), mixed]);
    if f.device
        .raw()
        .features()
        .contains(wgpu::Features::SHADER_F16)
    {
        return all_move(f, &types);
    }
    for ty in types {
        refused(&f.device, &ty, "f16");
    }
}

fn wide_values(f: &Fixture) {
    let scalar = Type::Scalar;
    let features = f.device.raw().features();
    let mut integers = vectors_of(&[I64, U64]);
    integers.extend([
        array(scalar(U64), 3),
        Type::Struct(
            "Wide",
            vec![
                scalar(U32),
                scalar(I64),
                vector(3, U64),
                scalar(F32),
                array(vector(2, I64), 2),
            ],
        ),
    ]);
    let mut floats = vectors_of(&[F64]);
    floats.extend([
        Type::Matrix(2, 2, F64),
        Type::Matrix(3, 3, F64),
        Type::Matrix(4, 2, F64),
        Type::Struct("Long", vec![scalar(F32), scalar(F64), vector(3, F64)]),
    ]);
    let has_integers = features.contains(wgpu::Features::SHADER_INT64);
    let has_floats = has_integers && features.contains(wgpu::Features::SHADER_F64);
    for (types, has, words) in [
        (integers, has_integers, "64-bit"),
        (floats, has_floats, "f64"),
    ] {
        match has {
            true => all_move(f, &types),
            false => types.iter().for_each(|ty| refused(&f.device, ty, words)),
        }
    }
}

fn types_without_a_layout(f: &Fixture) {
    for (declaration, ty) in [
        ("", "bool"),
        ("alias T = vec3<bool>;", "T"),
        ("alias T = array<bool, 3>;", "T"),
        ("struct T { a: u32, b: bool }", "T"),
        (
            "struct S { b: vec2<bool> } struct T { a: array<S, 2> }",
            "T",
        ),
    ] {
        let text = format!(
            "{declaration}
            @group(0) @binding(0) var<uniform> source: usm_ptr;
            @group(0) @binding(1) var<storage, read_write> sink: array<u32>;
            @compute @workgroup_size(1) fn main() {{ let x = usm_{ty}(source); let y = *x; sink[0] = 1u; }}"
        );
        let program = Program::new("bool.wgsl", &*text);
        let error = match program {
            Err(error) => error,
            Ok(program) => (f.device.kernel(&program, "main", &Constants::new()))
                .map(|_| ())
                .unwrap_err(),
        };
        assert!(matches!(error, KernelError::Pointer(_)), "{ty}: {error:?}");
        assert!(error.to_string().contains("use u32"), "{error}");
    }
}

fn values_in_device_memory(f: &Fixture) {
    // The device's own memory, apart from the heap: the value goes there and comes back.
    // Every access is made for each segment, so that a few types take as long as all of them elsewhere.
    let mut types = composites();
    types.truncate(6);
    types.extend([Type::Scalar(F32), vector(3, U32), Type::Matrix(4, 3, F32)]);
    let mut random = Random(99);
    let device = f.open(|options| options.unified_memory = Some(false));
    let heap = device.heap().unwrap();
    for ty in types {
        let text = source(&ty);
        let program = Program::new("types.wgsl", &*text).unwrap();
        let bytes = ty.size();
        let total = 5 * 512 * (1 + bytes / 512);
        let step = total / 5;
        let own = device.malloc::<u8>(total).unwrap();
        let mut given = vec![0xa5_u8; total];
        let mut value = vec![0xa5_u8; step];
        for (_, offset, scalar) in ty.leaves() {
            let noise = scalar.noise(&mut random);
            value[offset..offset + noise.len()].copy_from_slice(&noise);
        }
        given[..step].copy_from_slice(&value);
        let up = heap.alloc_slice(&given).unwrap();
        device.heap_copy(up, own, total).unwrap();
        for (mode, checked) in [
            (TranslationMode::DeviceFavored, false),
            (TranslationMode::SharedFavored, true),
        ] {
            let kernel = device
                .kernel_with(&program, "main", &Constants::new(), options(mode, checked))
                .unwrap();
            // One of the sinks is shared.
            let sinks: [[u64; 2]; 5] = [1, 2, 3, 4, 5].map(|k| match k {
                2 => [up.byte_add(2 * step as u64).address(), 0],
                5 => [0, 0],
                k => [own.byte_add((k * step) as u64).address(), 0],
            });
            kernel
                .launch()
                .value("source", &own)
                .value("sinks", &sinks)
                .workgroups(1)
                .submit()
                .unwrap()
                .wait()
                .unwrap();
            let back: DeviceBuffer<u8> = device.zeroed(total).unwrap();
            back.copy_from_heap(0, own, total as u64).unwrap();
            let mut seen = back.read().unwrap();
            let shared = heap.read(up, total).unwrap();
            assert!(seen[2 * step..3 * step].iter().all(|&byte| byte == 0xa5));
            seen[2 * step..3 * step].copy_from_slice(&shared[2 * step..3 * step]);
            for (k, seen) in seen.chunks_exact(step).enumerate() {
                assert!(seen == value, "{} in way {k}", ty.name());
            }
            assert!(shared[3 * step..].iter().all(|&byte| byte == 0xa5));
            device
                .heap_fill(own.byte_add(step as u64), 0xa5_u8, total - step)
                .unwrap();
            heap.fill(up.byte_add(step as u64), 0xa5_u8, total - step)
                .unwrap();
        }
        device.free(own).unwrap();
        heap.free(up).unwrap();
    }
}

fn names_of_predeclared_types(f: &Fixture) {
    // Many pointers in a row, in checked mode: such a kernel has to be made in no time.
    let names = [
        "f32", "i32", "u32", "vec2f", "vec3f", "vec4f", "vec2i", "vec3i", "vec4i", "vec2u",
        "vec3u", "vec4u", "mat2x2f", "mat2x3f", "mat2x4f", "mat3x2f", "mat3x3f", "mat3x4f",
        "mat4x2f", "mat4x3f", "mat4x4f",
    ];
    let mut text = "@group(0) @binding(0) var<uniform> source: usm_ptr;
        @group(0) @binding(1) var<uniform> sink: usm_ptr;
        @compute @workgroup_size(1) fn main() {\n"
        .to_owned();
    for (i, name) in names.iter().enumerate() {
        let at = i * 64;
        text += &format!(
            "{{ let d = usm_{name}(usm_add(sink, {at}u)); *d = *usm_{name}(usm_add(source, {at}u)); }}\n"
        );
    }
    text += "}";
    let heap = f.context.heap().unwrap();
    let values: Vec<f32> = (0..names.len() * 16).map(|i| i as f32 + 0.5).collect();
    let from = heap.alloc_slice(&values).unwrap();
    let to = heap.alloc_slice(&vec![-1f32; values.len()]).unwrap();
    let program = Program::new("names.wgsl", text).unwrap_or_else(|e| panic!("{e}"));
    let options = options(TranslationMode::DeviceFavored, true);
    let kernel = f
        .device
        .kernel_with(&program, "main", &Constants::new(), options)
        .unwrap();
    kernel
        .launch()
        .value("source", &from)
        .value("sink", &to)
        .workgroups(1)
        .submit()
        .unwrap();
    let seen: Vec<f32> = heap.read(to, values.len()).unwrap();
    for (i, name) in names.iter().enumerate() {
        let digits: Vec<usize> = (name.chars())
            .filter_map(|c| c.to_digit(10).map(|d| d as usize))
            .collect();
        let ty = match (&name[..3], digits.as_slice()) {
            ("vec", [count]) => vector(*count, F32),
            ("mat", [columns, rows]) => Type::Matrix(*columns, *rows, F32),
            _ => Type::Scalar(F32),
        };
        let mut expected = [-1f32; 16];
        for (_, offset, _) in ty.leaves() {
            expected[offset / 4] = values[i * 16 + offset / 4];
        }
        assert_eq!(seen[i * 16..][..16], expected, "{name}");
    }
    heap.free(from).unwrap();
    heap.free(to).unwrap();
}
