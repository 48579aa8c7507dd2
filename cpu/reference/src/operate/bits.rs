//! Built-in functions on the bits of integers.

use crate::value::Scalar;

fn width(scalar: Scalar) -> u32 {
    u32::from(scalar.ty().width) * 8
}

fn count(scalar: Scalar, count: u32) -> Option<Scalar> {
    Scalar::wrapped(scalar.ty(), count.into())
}

/// `countLeadingZeros`.
pub fn leading_zeros(scalar: Scalar) -> Option<Scalar> {
    scalar.integer()?;
    count(scalar, scalar.bits().leading_zeros() - (64 - width(scalar)))
}

/// `countTrailingZeros`.
pub fn trailing_zeros(scalar: Scalar) -> Option<Scalar> {
    scalar.integer()?;
    count(scalar, scalar.bits().trailing_zeros().min(width(scalar)))
}

/// `countOneBits`.
pub fn ones(scalar: Scalar) -> Option<Scalar> {
    scalar.integer()?;
    count(scalar, scalar.bits().count_ones())
}

/// `reverseBits`.
pub fn reverse(scalar: Scalar) -> Option<Scalar> {
    scalar.integer()?;
    Scalar::from_bits(
        scalar.ty(),
        scalar.bits().reverse_bits() >> (64 - width(scalar)),
    )
}

/// `firstLeadingBit`: for signed integers, of the highest bit that differs from the sign.
pub fn first_leading(scalar: Scalar) -> Option<Scalar> {
    let value = scalar.integer()?;
    let seen = if value < 0 { !value } else { value };
    let position = 127 - i128::from(seen.leading_zeros());
    Scalar::wrapped(scalar.ty(), position)
}

/// `firstTrailingBit`.
pub fn first_trailing(scalar: Scalar) -> Option<Scalar> {
    let position = match scalar.integer()? {
        0 => -1,
        _ => scalar.bits().trailing_zeros().into(),
    };
    Scalar::wrapped(scalar.ty(), position)
}

/// Offset and count of a bit field, cut to the width: `min(offset, w)` and `min(count, w - offset)`.
fn field(scalar: Scalar, offset: Scalar, count: Scalar) -> Option<(u32, u32)> {
    let (Scalar::U32(offset), Scalar::U32(count)) = (offset, count) else {
        return None;
    };
    let offset = offset.min(width(scalar));
    Some((offset, count.min(width(scalar) - offset)))
}

/// `count` ones.
fn mask(count: u32) -> u64 {
    if count == 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

/// `extractBits`: signed integers extend the sign of the field.
pub fn extract(scalar: Scalar, offset: Scalar, count: Scalar) -> Option<Scalar> {
    let (offset, count) = field(scalar, offset, count)?;
    scalar.integer()?;
    if count == 0 {
        return Scalar::zero(scalar.ty());
    }
    let field = scalar.bits() >> offset & mask(count);
    let negative = scalar.ty().kind == naga::ScalarKind::Sint && field >> (count - 1) & 1 == 1;
    let extended = if negative {
        field | !mask(count)
    } else {
        field
    };
    Scalar::from_bits(scalar.ty(), extended)
}

/// `insertBits`.
pub fn insert(scalar: Scalar, new: Scalar, offset: Scalar, count: Scalar) -> Option<Scalar> {
    if scalar.ty() != new.ty() {
        return None;
    }
    let (offset, count) = field(scalar, offset, count)?;
    scalar.integer()?;
    if count == 0 {
        return Some(scalar);
    }
    let place = mask(count) << offset;
    Scalar::from_bits(
        scalar.ty(),
        scalar.bits() & !place | new.bits() << offset & place,
    )
}
