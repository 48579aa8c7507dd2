//! Integer functions against plain Rust.

use super::super::{bits, division, packing};
use super::{i, word};

/// Integers with few and with many bits, and the edges.
fn integers(count: u64) -> impl Iterator<Item = i32> {
    let powers = (0..32).flat_map(|shift| {
        let power = 1i32 << shift;
        [
            power,
            !power,
            power.wrapping_sub(1),
            power.wrapping_add(1),
            power.wrapping_neg(),
        ]
    });
    let random = (0..count).map(|index| {
        let (word, shift) = (word(index), word(!index) % 32);
        (word as u32 >> shift) as i32
    });
    [0, -1, i32::MIN, i32::MAX]
        .into_iter()
        .chain(powers)
        .chain(random)
}

#[test]
fn bit_functions_match_the_standard_library() {
    for x in integers(200_000) {
        let lane = i(x);
        assert_eq!(
            bits::count_one_bits(lane).raw() as u32,
            x.count_ones(),
            "{x:#x}"
        );
        assert_eq!(bits::reverse_bits(lane).raw(), x.reverse_bits(), "{x:#x}");
        assert_eq!(
            bits::count_leading_zeros(lane).raw() as u32,
            x.leading_zeros(),
            "{x:#x}"
        );
        assert_eq!(
            bits::count_trailing_zeros(lane).raw() as u32,
            x.trailing_zeros(),
            "{x:#x}"
        );
        let highest = |x: i32| {
            if x == 0 {
                -1
            } else {
                31 - x.leading_zeros() as i32
            }
        };
        assert_eq!(
            bits::first_leading_bit_unsigned(lane).raw(),
            highest(x),
            "{x:#x}"
        );
        let signed = if x < 0 { highest(!x) } else { highest(x) };
        assert_eq!(bits::first_leading_bit_signed(lane).raw(), signed, "{x:#x}");
        let lowest = if x == 0 {
            -1
        } else {
            x.trailing_zeros() as i32
        };
        assert_eq!(bits::first_trailing_bit(lane).raw(), lowest, "{x:#x}");
    }
}

#[test]
fn fields_are_clamped_to_the_integer() {
    for index in 0..20_000 {
        let (x, new) = (word(2 * index) as u32, word(2 * index + 1) as u32);
        let pick =
            |seed: u64| [seed % 34, word(seed) & 0xffff_ffff][(seed % 9 == 0) as usize] as u32;
        let (offset, count) = (pick(word(index ^ 0xabc)), pick(word(index ^ 0xdef)));
        let (o, c) = (offset.min(32), count.min(32 - offset.min(32)));
        let mask = if c == 0 {
            0
        } else {
            u64::from(u32::MAX >> (32 - c)) << o
        };
        let field = ((u64::from(x) & mask) >> o) as u32;
        let of = (x, offset, count);
        let (a, b) = (i(offset as i32), i(count as i32));
        assert_eq!(
            bits::extract_bits_unsigned(i(x as i32), a, b).raw() as u32,
            field,
            "{of:?}"
        );
        let signed = if c == 0 {
            0
        } else {
            ((field << (32 - c)) as i32) >> (32 - c)
        };
        assert_eq!(
            bits::extract_bits_signed(i(x as i32), a, b).raw(),
            signed,
            "{of:?}"
        );
        let inserted = (u64::from(x) & !mask | (u64::from(new) << o) & mask) as u32;
        assert_eq!(
            bits::insert_bits(i(x as i32), i(new as i32), a, b).raw() as u32,
            inserted,
            "{of:?}"
        );
    }
}

#[test]
fn division_is_exact_and_total() {
    let xs: Vec<i32> = integers(300).collect();
    for &x in &xs {
        for &y in &xs {
            check_division(x, y);
        }
    }
    for index in 0..300_000 {
        // Quotients one step from a whole number, where rounding could go astray.
        let y = (word(index) as u32 >> (index % 31)).max(1);
        let n = u32::MAX / y;
        let whole = y * (word(!index) as u32 % n.max(1)).max(1);
        for x in [whole.wrapping_sub(1), whole, whole.wrapping_add(1)] {
            check_division(x as i32, y as i32);
        }
    }
}

fn check_division(x: i32, y: i32) {
    let (ux, uy) = (x as u32, y as u32);
    let quotient = ux.checked_div(uy).unwrap_or(ux);
    assert_eq!(
        division::divide_unsigned(i(x), i(y)).raw() as u32,
        quotient,
        "{ux} / {uy}"
    );
    let remainder = ux.checked_rem(uy).unwrap_or(0);
    assert_eq!(
        division::remainder_unsigned(i(x), i(y)).raw() as u32,
        remainder,
        "{ux} % {uy}"
    );
    let quotient = if y == 0 { x } else { x.wrapping_div(y) };
    assert_eq!(
        division::divide_signed(i(x), i(y)).raw(),
        quotient,
        "{x} / {y}"
    );
    let remainder = if y == 0 { 0 } else { x.wrapping_rem(y) };
    assert_eq!(
        division::remainder_signed(i(x), i(y)).raw(),
        remainder,
        "{x} % {y}"
    );
}

#[test]
fn packed_integers_match_byte_arithmetic() {
    for index in 0..50_000 {
        let (x, y) = (word(2 * index) as i32, word(2 * index + 1) as i32);
        let (a, b) = (x.to_le_bytes(), y.to_le_bytes());
        let unsigned: i32 = (0..4).map(|n| i32::from(a[n]) * i32::from(b[n])).sum();
        assert_eq!(packing::dot_4xu8(i(x), i(y)).raw(), unsigned);
        let signed: i32 = (0..4)
            .map(|n| i32::from(a[n] as i8) * i32::from(b[n] as i8))
            .sum();
        assert_eq!(packing::dot_4xi8(i(x), i(y)).raw(), signed);
        let four = [x, y, x >> 20, (y as u32 >> 20) as i32];
        let lanes = four.map(i);
        assert_eq!(
            packing::pack_4x8(lanes).raw().to_le_bytes(),
            four.map(|v| v as u8)
        );
        let clamped = four.map(|v| v.clamp(-128, 127) as u8);
        assert_eq!(packing::pack_4xi8_clamp(lanes).raw().to_le_bytes(), clamped);
        let clamped = four.map(|v| (v as u32).min(255) as u8);
        assert_eq!(packing::pack_4xu8_clamp(lanes).raw().to_le_bytes(), clamped);
    }
}
