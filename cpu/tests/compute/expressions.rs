//! Operators and functions, against the same computation in Rust.

use crate::harness::Cpu;

/// Numbers that tend to go wrong.
const EDGES: [u32; 12] = [
    0,
    1,
    2,
    7,
    31,
    32,
    33,
    0x7fff_ffff,
    0x8000_0000,
    0x8000_0001,
    0xffff_fffe,
    0xffff_ffff,
];

/// Every pair of edges, as a kernel finds it by its index.
const PAIRS: &str = "
    const EDGES = array<u32, 12>(0u, 1u, 2u, 7u, 31u, 32u, 33u,
        0x7fffffffu, 0x80000000u, 0x80000001u, 0xfffffffeu, 0xffffffffu);";

fn binary(cpu: &Cpu, expression: &str, expected: impl Fn(u32, u32) -> u32) {
    let body = format!("let a = EDGES[i / 12u]; let b = EDGES[i % 12u]; out[i] = {expression};");
    let found = cpu.map(PAIRS, &body, 144);
    for (i, &found) in found.iter().enumerate() {
        let (a, b) = (EDGES[i / 12], EDGES[i % 12]);
        assert_eq!(found, expected(a, b), "{expression} of {a:#x} and {b:#x}");
    }
}

#[test]
fn unsigned_integers() {
    let cpu = Cpu::new();
    binary(&cpu, "a + b", u32::wrapping_add);
    binary(&cpu, "a - b", u32::wrapping_sub);
    binary(&cpu, "a * b", u32::wrapping_mul);
    binary(&cpu, "a / b", |a, b| a.checked_div(b).unwrap_or(a));
    binary(&cpu, "a % b", |a, b| a.checked_rem(b).unwrap_or(0));
    binary(&cpu, "a << b", |a, b| a.wrapping_shl(b));
    binary(&cpu, "a >> b", |a, b| a.wrapping_shr(b));
    binary(&cpu, "a & b", |a, b| a & b);
    binary(&cpu, "a | ~b", |a, b| a | !b);
    binary(&cpu, "a ^ b", |a, b| a ^ b);
    binary(&cpu, "min(a, b)", u32::min);
    binary(&cpu, "max(a, b)", u32::max);
    binary(&cpu, "clamp(a, 7u, 0x80000000u) + b", |a, b| {
        a.clamp(7, 0x8000_0000).wrapping_add(b)
    });
    binary(&cpu, "select(a, b, a < b)", u32::max);
    binary(
        &cpu,
        "u32(a <= b) + 2u * u32(a == b) + 4u * u32(a != b)",
        |a, b| u32::from(a <= b) + 2 * u32::from(a == b) + 4 * u32::from(a != b),
    );
    binary(
        &cpu,
        "countOneBits(a) + 100u * countLeadingZeros(b)",
        |a, b| a.count_ones() + 100 * b.leading_zeros(),
    );
    binary(&cpu, "countTrailingZeros(a) ^ reverseBits(b)", |a, b| {
        a.trailing_zeros() ^ b.reverse_bits()
    });
    binary(&cpu, "firstLeadingBit(a) ^ firstTrailingBit(b)", |a, b| {
        let leading = 31u32.wrapping_sub(a.leading_zeros());
        let trailing = if b == 0 { u32::MAX } else { b.trailing_zeros() };
        leading ^ trailing
    });
}

#[test]
fn signed_integers() {
    let cpu = Cpu::new();
    let signed = |expression: &str, expected: fn(i32, i32) -> i32| {
        let expression = expression
            .replace('a', "bitcast<i32>(a)")
            .replace('y', "bitcast<i32>(b)");
        binary(&cpu, &format!("bitcast<u32>({expression})"), |a, b| {
            expected(a as i32, b as i32) as u32
        });
    };
    signed("a / y", |a, b| if b == 0 { a } else { a.wrapping_div(b) });
    signed("a % y", |a, b| if b == 0 { 0 } else { a.wrapping_rem(b) });
    signed("-a * y", |a, b| a.wrapping_neg().wrapping_mul(b));
    signed("a >> (b & 31u)", |a, b| a >> (b & 31));
    signed("i32(a < y)", |a, b| i32::from(a < b));
    signed("i32(a >= y)", |a, b| i32::from(a >= b));
    binary(
        &cpu,
        "bitcast<u32>(abs(bitcast<i32>(a))) + bitcast<u32>(sign(bitcast<i32>(b)))",
        |a, b| ((a as i32).wrapping_abs() as u32).wrapping_add((b as i32).signum() as u32),
    );
    binary(
        &cpu,
        "bitcast<u32>(firstLeadingBit(bitcast<i32>(a) - bitcast<i32>(b)))",
        |a, b| {
            let x = a.wrapping_sub(b) as i32;
            let magnitude = if x < 0 { !x } else { x };
            31u32.wrapping_sub(magnitude.leading_zeros())
        },
    );
}

#[test]
fn bit_fields() {
    let cpu = Cpu::new();
    let extract = |x: u32, offset: u32, count: u32| {
        let offset = offset.min(32);
        let count = count.min(32 - offset);
        (
            offset,
            count,
            (u64::from(x) >> offset) & ((1u64 << count) - 1),
        )
    };
    binary(&cpu, "extractBits(0x9abcdef1u, a, b)", |a, b| {
        extract(0x9abc_def1, a, b).2 as u32
    });
    binary(
        &cpu,
        "bitcast<u32>(extractBits(bitcast<i32>(0x9abcdef1u), a, b))",
        |a, b| {
            let (_, count, field) = extract(0x9abc_def1, a, b);
            if count == 0 {
                return 0;
            }
            let shift = 64 - count;
            (((field << shift) as i64) >> shift) as u32
        },
    );
    binary(
        &cpu,
        "insertBits(0x9abcdef1u, 0x12345678u, a, b)",
        |a, b| {
            let (offset, count, _) = extract(0, a, b);
            let mask = (((1u64 << count) - 1) << offset) as u32;
            (0x9abc_def1 & !mask) | (((0x1234_5678u64 << offset) as u32) & mask)
        },
    );
}

/// Floats that tend to go wrong.
const FLOATS: [f32; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    2.5,
    -0.5,
    1e-40,
    3.0e38,
    -3.0e9,
    5.0e9,
    16_777_217.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
];

fn floats(cpu: &Cpu, expression: &str, expected: impl Fn(f32, f32) -> f32) {
    let source = format!(
        "@group(0) @binding(0) var<storage, read> given: array<f32>;
         @group(0) @binding(1) var<storage, read_write> out: array<f32>;
         @compute @workgroup_size(14) fn main(
             @builtin(workgroup_id) row: vec3<u32>, @builtin(local_invocation_index) column: u32
         ) {{
             let a = given[row.x];
             let b = given[column];
             out[row.x * 14u + column] = {expression};
         }}"
    );
    let poison = [f32::from_bits(0x1234_5678); 196];
    let given = bytemuck::cast_slice(&FLOATS);
    let found: Vec<f32> = cpu.run(&source, [14, 1, 1], &[given, bytemuck::cast_slice(&poison)]);
    for (i, found) in found.into_iter().enumerate() {
        let (a, b) = (FLOATS[i / 14], FLOATS[i % 14]);
        let expected = expected(a, b);
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(
            same,
            "{expression} of {a:?} and {b:?}: {found:?}, not {expected:?}"
        );
    }
}

#[test]
fn floats_are_those_of_ieee() {
    let cpu = Cpu::new();
    floats(&cpu, "a + b", |a, b| a + b);
    floats(&cpu, "a - b", |a, b| a - b);
    floats(&cpu, "a * b", |a, b| a * b);
    floats(&cpu, "a / b", |a, b| a / b);
    floats(&cpu, "a % b", |a, b| a - b * (a / b).trunc());
    // The standard library's own rounds twice where the C library is that of MinGW.
    floats(&cpu, "fma(a, b, 0.1)", |a, b| libm::fmaf(a, b, 0.1));
    floats(&cpu, "sqrt(a) + abs(b)", |a, b| a.sqrt() + b.abs());
    floats(&cpu, "floor(a) - ceil(b)", |a, b| a.floor() - b.ceil());
    floats(&cpu, "trunc(a) + round(b)", |a, b| {
        a.trunc() + b.round_ties_even()
    });
    floats(
        &cpu,
        "f32(a < b) + 2.0 * f32(a <= b) + 4.0 * f32(a == b) + 8.0 * f32(a != b)",
        |a, b| {
            let one = |holds: bool| f32::from(u8::from(holds));
            one(a < b) + 2.0 * one(a <= b) + 4.0 * one(a == b) + 8.0 * one(a != b)
        },
    );
    floats(&cpu, "min(a, b) + max(b, 0.0) * 0.0", |a, b| {
        (if b < a { b } else { a }) + (if b < 0.0 { 0.0 } else { b }) * 0.0
    });
    floats(&cpu, "mix(a, 2.0, b)", |a, b| a * (1.0 - b) + 2.0 * b);
    floats(&cpu, "step(a, b) + sign(a)", |a, b| {
        let sign = if a > 0.0 {
            1.0
        } else if a < 0.0 {
            -1.0
        } else {
            a
        };
        f32::from(u8::from(a <= b)) + sign
    });
    floats(&cpu, "f32(i32(a)) + f32(u32(b))", |a, b| {
        // Clamped to what both types represent.
        let (a, b) = (
            a.clamp(-2147483648.0, 2147483520.0),
            b.clamp(0.0, 4294967040.0),
        );
        a as i32 as f32 + b as u32 as f32
    });
    floats(
        &cpu,
        "f32(bitcast<i32>(a)) + f32(bitcast<u32>(b))",
        |a, b| a.to_bits() as i32 as f32 + b.to_bits() as f32,
    );
}

#[test]
fn vectors_and_matrices() {
    let cpu = Cpu::new();
    let source = "
        struct Rows { m: mat3x2<f32>, n: mat2x4<f32>, v: vec3<f32> }
        @group(0) @binding(0) var<storage, read> given: Rows;
        @group(0) @binding(1) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(1) fn main() {
            let mv = given.m * given.v;
            out[0] = mv.x; out[1] = mv.y;
            let vm = vec2(3.0, -1.0) * given.m;
            out[2] = vm.x; out[3] = vm.y; out[4] = vm.z;
            let nm = given.n * given.m;
            for (var c = 0; c < 3; c++) { for (var r = 0; r < 4; r++) { out[5 + 4 * c + r] = nm[c][r]; } }
            out[17] = dot(given.v, given.v.zxy);
            let x = cross(given.v, vec3(1.0, 0.0, 2.0));
            out[18] = x.x; out[19] = x.y; out[20] = x.z;
            let d = mat3x3<f32>(2.0, 0.0, 1.0, -1.0, 3.0, 0.0, 4.0, 1.0, 1.0);
            out[21] = determinant(d);
            out[22] = transpose(given.m)[1][2];
            out[23] = length(given.v); out[24] = distance(given.v.xy, vec2(4.0, 6.0));
            let r = reflect(given.v, vec3(0.0, 1.0, 0.0));
            out[25] = r.y; out[26] = faceForward(given.v, given.v, r).z;
            out[27] = normalize(vec2(3.0, 4.0)).y;
            var swizzled = vec4<f32>(given.v, 9.0);
            swizzled.y = 100.0;
            out[28] = swizzled.wyx.y;
        }";
    // Columns of `m` are two floats each, those of `n` four.
    let m = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let n = [1.0f32, -1.0, 2.0, 0.5, 3.0, 0.0, -2.0, 1.0];
    let v = [1.0f32, 2.0, 3.0];
    let mut given = m.to_vec();
    given.extend([0.0; 2]);
    given.extend(n);
    given.extend(v);
    given.push(0.0);
    let poison = [-1.0f32; 29];
    let out: Vec<f32> = cpu.run(
        source,
        [1, 1, 1],
        &[bytemuck::cast_slice(&given), bytemuck::cast_slice(&poison)],
    );
    let mut expected = vec![
        m[0] * v[0] + m[2] * v[1] + m[4] * v[2],
        m[1] * v[0] + m[3] * v[1] + m[5] * v[2],
    ];
    expected.extend([0, 2, 4].map(|c| 3.0 * m[c] - m[c + 1]));
    for c in 0..3 {
        expected.extend((0..4).map(|r| n[r] * m[2 * c] + n[4 + r] * m[2 * c + 1]));
    }
    expected.push(v[0] * v[2] + v[1] * v[0] + v[2] * v[1]);
    expected.extend([
        2.0 * 2.0 - 3.0 * 0.0,
        3.0 * 1.0 - 1.0 * 2.0,
        1.0 * 0.0 - 2.0 * 1.0,
    ]);
    expected.push(2.0 * (3.0 - 0.0) - 0.0 + (-1.0 - 12.0));
    expected.push(m[5]);
    expected.extend([14f32.sqrt(), 5.0, -2.0, -3.0, 0.8, 100.0]);
    for (at, (found, expected)) in out.iter().zip(&expected).enumerate() {
        assert!(
            (found - expected).abs() < 1e-5,
            "at {at}: {found}, not {expected}"
        );
    }
    assert_eq!(out.len(), expected.len());
}

#[test]
fn integers_of_64_bits() {
    let cpu = Cpu::new();
    let source = "
        @group(0) @binding(0) var<storage, read> given: array<u64>;
        @group(0) @binding(1) var<storage, read_write> out: array<u64>;
        @compute @workgroup_size(1) fn main() {
            let a = given[0]; let b = given[1];
            out[0] = a * b + 7lu; out[1] = a / b; out[2] = a % b; out[3] = a >> 33u; out[4] = b << 40u;
            out[5] = u64(i64(a) / -3li); out[6] = u64(u32(a)); out[7] = u64(i64(i32(u32(a))));
            out[8] = u64(f32(b)); out[9] = bitcast<u64>(f64(a) / 3.0lf); out[10] = a / (b - b);
            out[11] = min(a, b) ^ max(a, b); out[12] = u64(countLeadingZeros(b));
        }";
    let (a, b) = (0x8234_5678_9abc_def1u64, 0x0000_0012_3456_7891u64);
    let given = [a, b];
    let poison = [1u64; 13];
    let out: Vec<u64> = cpu.run(
        source,
        [1, 1, 1],
        &[bytemuck::cast_slice(&given), bytemuck::cast_slice(&poison)],
    );
    let expected = [
        a.wrapping_mul(b).wrapping_add(7),
        a / b,
        a % b,
        a >> 33,
        b << 40,
        (a as i64 / -3) as u64,
        u64::from(a as u32),
        i64::from(a as u32 as i32) as u64,
        b as f32 as u64,
        (a as f64 / 3.0).to_bits(),
        a,
        a ^ b,
        b.leading_zeros().into(),
    ];
    assert_eq!(out, expected);
}

#[test]
fn half_floats_are_rounded_after_each_operation() {
    use half::f16;
    let cpu = Cpu::new();
    let source = "
        enable f16;
        @group(0) @binding(0) var<storage, read> given: array<f16>;
        @group(0) @binding(1) var<storage, read_write> out: array<f16>;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let n = arrayLength(&given);
            if (id.x >= n * n) { return; }
            let a = given[id.x / n]; let b = given[id.x % n];
            out[5u * id.x] = a + b; out[5u * id.x + 1u] = a * b; out[5u * id.x + 2u] = a / b;
            out[5u * id.x + 3u] = sqrt(a); out[5u * id.x + 4u] = f16(f32(a) * 3.0);
        }";
    let bits: Vec<u16> = (0..64u16)
        .map(|i| i.wrapping_mul(1031))
        .chain([0, 0x8000, 1, 0x3ff, 0x400, 0x7bff, 0x7c00, 0xfc00])
        .collect();
    let n = bits.len();
    let poison = vec![0x5555u16; 5 * n * n];
    let out: Vec<u16> = cpu.run(
        source,
        [(n * n).div_ceil(64) as u32, 1, 1],
        &[bytemuck::cast_slice(&bits), bytemuck::cast_slice(&poison)],
    );
    for i in 0..n * n {
        let (a, b) = (f16::from_bits(bits[i / n]), f16::from_bits(bits[i % n]));
        let expected = [
            f16::from_f64(a.to_f64() + b.to_f64()),
            f16::from_f64(a.to_f64() * b.to_f64()),
            f16::from_f64(a.to_f64() / b.to_f64()),
            f16::from_f64(a.to_f64().sqrt()),
            f16::from_f32(a.to_f32() * 3.0),
        ];
        for (at, expected) in expected.into_iter().enumerate() {
            let found = f16::from_bits(out[5 * i + at]);
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{at} of {a:?} and {b:?}: {found:?}, not {expected:?}");
        }
    }
}

/// Runs a function of one float on numbers of every size, and compares with the same function in Rust, bit by bit.
fn same_as_rust(cpu: &Cpu, expression: &str, expected: impl Fn(f32) -> f32) {
    let given: Vec<f32> = (0..4096u32)
        .map(|i| f32::from_bits(i.wrapping_mul(0x0010_0801)))
        .collect();
    let source = format!(
        "@group(0) @binding(0) var<storage, read> given: array<f32>;
         @group(0) @binding(1) var<storage, read_write> out: array<f32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
             let x = given[id.x];
             out[id.x] = {expression};
         }}"
    );
    let poison = vec![0f32; given.len()];
    let found: Vec<f32> = cpu.run(
        &source,
        [64, 1, 1],
        &[bytemuck::cast_slice(&given), bytemuck::cast_slice(&poison)],
    );
    for (&x, found) in given.iter().zip(found) {
        let expected = expected(x);
        let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
        assert!(same, "{expression} of {x:?}: {found:?}, not {expected:?}");
    }
}

#[test]
fn functions_of_floats_are_those_of_the_numeric_library() {
    use tombolo_cpu::math::{
        F, Scalar32, exponential, hyperbolic, inverse, logarithm, rounding, trigonometric,
    };
    let cpu = Cpu::new();
    macro_rules! check {
        ($($name:literal: $room:ident::$function:ident),* $(,)?) => {
            $(same_as_rust(&cpu, $name, |x| $room::$function(F::new(&Scalar32, x)).raw());)*
        };
    }
    check!(
        "sin(x)": trigonometric::sin,
        "cos(x)": trigonometric::cos,
        "tan(x)": trigonometric::tan,
        "asin(x)": inverse::asin,
        "acos(x)": inverse::acos,
        "atan(x)": inverse::atan,
        "exp(x)": exponential::exp,
        "exp2(x)": exponential::exp2,
        "log(x)": logarithm::log,
        "log2(x)": logarithm::log2,
        "sinh(x)": hyperbolic::sinh,
        "cosh(x)": hyperbolic::cosh,
        "tanh(x)": hyperbolic::tanh,
        "asinh(x)": hyperbolic::asinh,
        "acosh(x)": hyperbolic::acosh,
        "atanh(x)": hyperbolic::atanh,
        "fract(x)": rounding::fract,
    );
    let of = |x: f32| F::new(&Scalar32, x);
    same_as_rust(&cpu, "pow(x, 2.5)", |x| {
        logarithm::pow(of(x), of(2.5)).raw()
    });
    same_as_rust(&cpu, "atan2(x, -3.0)", |x| {
        inverse::atan2(of(x), of(-3.0)).raw()
    });
    same_as_rust(&cpu, "modf(x).whole + modf(x).fract", |x| {
        let (fraction, whole) = rounding::modf(of(x));
        whole.raw() + fraction.raw()
    });
    same_as_rust(&cpu, "ldexp(frexp(x).fract, frexp(x).exp)", |x| x);
    same_as_rust(&cpu, "quantizeToF16(x)", |x| {
        half::f16::from_f32(x).to_f32()
    });
}

#[test]
fn functions_of_doubles() {
    let cpu = Cpu::new();
    let source = "
        @group(0) @binding(0) var<storage, read> given: array<f64>;
        @group(0) @binding(1) var<storage, read_write> out: array<f64>;
        @compute @workgroup_size(1) fn main() {
            let x = given[0];
            out[0] = sin(x); out[1] = exp(x); out[2] = pow(x, 3.5lf); out[3] = atan2(x, -2.0lf); out[4] = fma(x, x, x);
        }";
    let x = 1.2345f64;
    let poison = [0f64; 5];
    let out: Vec<f64> = cpu.run(
        source,
        [1, 1, 1],
        &[bytemuck::bytes_of(&x), bytemuck::cast_slice(&poison)],
    );
    let expected = [
        x.sin(),
        x.exp(),
        x.powf(3.5),
        x.atan2(-2.0),
        x.mul_add(x, x),
    ];
    for (found, expected) in out.iter().zip(expected) {
        assert!(
            (found - expected).abs() <= 4.0 * f64::EPSILON * expected.abs(),
            "{found}, not {expected}"
        );
    }
}

#[test]
fn packing() {
    let cpu = Cpu::new();
    let body = "
        let v = vec4<f32>(0.5, -1.5, 0.25, 1.0);
        let words = array<u32, 12>(pack4x8unorm(v), pack4x8snorm(v), pack2x16unorm(v.xz), pack2x16snorm(v.xy),
            pack2x16float(v.xz), pack4xI8(vec4(1, -2, 300, 4)), pack4xU8Clamp(vec4(1u, 2u, 300u, 4u)),
            u32(dot4U8Packed(0x01020304u, 0x05060708u)), bitcast<u32>(dot4I8Packed(0xff020304u, 0x05060708u)),
            u32(1000.0 * unpack4x8unorm(0x80ff4000u).w), bitcast<u32>(unpack4xI8(0xff020304u).w),
            u32(unpack2x16float(0x3c004000u).x));
        out[i] = words[i];";
    let unorm = |x: f32, most: f32| (0.5 + most * x.clamp(0.0, 1.0)).floor() as u32;
    let snorm = |x: f32, most: f32| (0.5 + most * x.clamp(-1.0, 1.0)).floor() as i32 as u32;
    let v = [0.5f32, -1.5, 0.25, 1.0];
    let four =
        |f: &dyn Fn(f32) -> u32| (0..4).fold(0, |all, at| all | (f(v[at]) & 0xff) << (8 * at));
    let expected = [
        four(&|x| unorm(x, 255.0)),
        four(&|x| snorm(x, 127.0)),
        unorm(0.5, 65535.0) | unorm(0.25, 65535.0) << 16,
        snorm(0.5, 32767.0) & 0xffff | snorm(-1.5, 32767.0) << 16,
        0x3800 | 0x3400 << 16,
        0x042c_fe01,
        0x04ff_0201,
        4 * 8 + 3 * 7 + 2 * 6 + 5,
        4 * 8 + 3 * 7 + 2 * 6 - 5,
        501,
        u32::MAX,
        2,
    ];
    assert_eq!(cpu.map("", body, 12), expected);
}
