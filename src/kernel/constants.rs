//! Specialization constants: the values of a program's `override` declarations, and the check of a caller's values
//! against the declarations.
//!
//! WGSL section 7.2 "override Declarations". A constant is set by name or by `@id`, whichever the caller prefers, and
//! the type must be the declared type: a `u32` is not converted to an `i32`. Rust integers without a WGSL type of the
//! same size (`usize`, `u64`, `i64`) fit every integer type able to hold the value.

use std::borrow::Cow;
use std::fmt;

use half::f16;

use super::error::KernelError;

/// Type of a specialization constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConstantType {
    /// `bool`
    Bool,
    /// `i32`
    I32,
    /// `u32`
    U32,
    /// `f32`
    F32,
    /// `f16` (needs `enable f16;` and a device with the feature)
    F16,
    /// `f64` (an extension of naga; needs a device with the feature)
    F64,
    /// `i16` (an extension of naga; needs a device with the feature)
    I16,
    /// `u16` (an extension of naga; needs a device with the feature)
    U16,
}

impl ConstantType {
    /// The type's name in WGSL.
    pub fn wgsl(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I32 => "i32",
            Self::U32 => "u32",
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::F64 => "f64",
            Self::I16 => "i16",
            Self::U16 => "u16",
        }
    }

    pub(crate) fn from_scalar(scalar: naga::Scalar) -> Option<Self> {
        Some(match scalar {
            naga::Scalar::BOOL => Self::Bool,
            naga::Scalar::I32 => Self::I32,
            naga::Scalar::U32 => Self::U32,
            naga::Scalar::F32 => Self::F32,
            naga::Scalar::F16 => Self::F16,
            naga::Scalar::F64 => Self::F64,
            naga::Scalar::I16 => Self::I16,
            naga::Scalar::U16 => Self::U16,
            _ => return None,
        })
    }

    /// The type's least and greatest value, for integer types.
    fn integer_range(self) -> Option<(i128, i128)> {
        Some(match self {
            Self::I32 => (i32::MIN.into(), i32::MAX.into()),
            Self::U32 => (0, u32::MAX.into()),
            Self::I16 => (i16::MIN.into(), i16::MAX.into()),
            Self::U16 => (0, u16::MAX.into()),
            _ => return None,
        })
    }
}

impl fmt::Display for ConstantType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.wgsl())
    }
}

/// Value of a specialization constant.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum ConstantValue {
    /// A `bool`.
    Bool(bool),
    /// An `i32`.
    I32(i32),
    /// A `u32`.
    U32(u32),
    /// An `f32`; must be finite.
    F32(f32),
    /// An `f16`; must be finite.
    F16(f16),
    /// An `f64`; must be finite.
    F64(f64),
    /// An `i16`.
    I16(i16),
    /// A `u16`.
    U16(u16),
    /// An integer without a WGSL type: takes the declared type of its constant, if that is an integer type able to hold
    /// the value.
    Integer(i128),
}

macro_rules! value_from {
    ($($from:ty => $variant:ident),* $(,)?) => {$(
        impl From<$from> for ConstantValue {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}
value_from!(bool => Bool, i32 => I32, u32 => U32, f32 => F32, f16 => F16, f64 => F64, i16 => I16, u16 => U16,
            i64 => Integer, u64 => Integer, i128 => Integer);

impl From<usize> for ConstantValue {
    fn from(value: usize) -> Self {
        // A usize has at most 64 bits on every platform of Rust.
        Self::Integer(value as i128)
    }
}

impl ConstantValue {
    /// The type; none for an integer not yet given to a constant.
    pub fn ty(&self) -> Option<ConstantType> {
        Some(match self {
            Self::Bool(_) => ConstantType::Bool,
            Self::I32(_) => ConstantType::I32,
            Self::U32(_) => ConstantType::U32,
            Self::F32(_) => ConstantType::F32,
            Self::F16(_) => ConstantType::F16,
            Self::F64(_) => ConstantType::F64,
            Self::I16(_) => ConstantType::I16,
            Self::U16(_) => ConstantType::U16,
            Self::Integer(_) => return None,
        })
    }

    /// Its value as an integer, a bool counting as 0 or 1; none for floating-point numbers.
    pub fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::Bool(v) => v.into(),
            Self::I32(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::Integer(v) => v,
            Self::F32(_) | Self::F16(_) | Self::F64(_) => return None,
        })
    }

    /// The value in the form for naga and wgpu. Exact for every value that [`ConstantInfo::convert`] lets pass.
    pub(crate) fn as_f64(&self) -> f64 {
        match *self {
            Self::F32(v) => v.into(),
            Self::F16(v) => v.into(),
            Self::F64(v) => v,
            Self::Bool(v) => f64::from(u8::from(v)),
            Self::I32(v) => v.into(),
            Self::U32(v) => v.into(),
            Self::I16(v) => v.into(),
            Self::U16(v) => v.into(),
            Self::Integer(v) => v as f64,
        }
    }

    /// The value as a WGSL expression of its type, exactly.
    pub(crate) fn to_wgsl(self) -> String {
        match self {
            Self::Bool(v) => v.to_string(),
            // `-2147483648i` would be the negation of a literal that is out of range.
            Self::I32(i32::MIN) => "i32(-2147483648)".to_owned(),
            Self::I32(v) => format!("{v}i"),
            Self::U32(v) => format!("{v}u"),
            // Rust prints the shortest decimal that reads back as the same value.
            Self::F32(v) => format!("{v:?}f"),
            Self::F16(v) => format!("{:?}h", f32::from(v)),
            Self::F64(v) => format!("{v:?}lf"),
            Self::I16(v) => format!("i16({v})"),
            Self::U16(v) => format!("u16({v})"),
            Self::Integer(v) => v.to_string(),
        }
    }

    pub(crate) fn from_literal(literal: naga::Literal) -> Option<Self> {
        Some(match literal {
            naga::Literal::Bool(v) => Self::Bool(v),
            naga::Literal::I32(v) => Self::I32(v),
            naga::Literal::U32(v) => Self::U32(v),
            naga::Literal::F32(v) => Self::F32(v),
            naga::Literal::F16(v) => Self::F16(v),
            naga::Literal::F64(v) => Self::F64(v),
            naga::Literal::I16(v) => Self::I16(v),
            naga::Literal::U16(v) => Self::U16(v),
            naga::Literal::AbstractInt(v) | naga::Literal::I64(v) => Self::Integer(v.into()),
            naga::Literal::U64(v) => Self::Integer(v.into()),
            naga::Literal::AbstractFloat(v) => Self::F64(v),
        })
    }

    /// A bit pattern unique among values of a type.
    pub(crate) fn bits(&self) -> u64 {
        match *self {
            Self::F32(v) => v.to_bits().into(),
            Self::F16(v) => v.to_bits().into(),
            Self::F64(v) => v.to_bits(),
            // Only 32 bits and a sign remain after the range check; the cast keeps both.
            _ => self.as_integer().unwrap_or(0) as u64,
        }
    }
}

impl fmt::Display for ConstantValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(v) => v.fmt(f),
            Self::F32(v) => v.fmt(f),
            Self::F16(v) => v.fmt(f),
            Self::F64(v) => v.fmt(f),
            _ => self.as_integer().unwrap_or(0).fmt(f),
        }
    }
}

/// A specialization constant that a program declares.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConstantInfo {
    /// Its name.
    pub name: String,
    /// The `@id`, if declared.
    pub id: Option<u16>,
    /// Its type.
    pub ty: ConstantType,
    /// The value if nothing is set, neither the constant itself nor another constant in its initializer. None without
    /// an initializer, or if the initializer depends on a constant without a value.
    pub default: Option<ConstantValue>,
    /// Whether its declaration has an initializer.
    pub has_initializer: bool,
    /// Whether the constant decides, directly or through others, the length of an array outside work-group memory.
    pub sizes_private_array: bool,
    /// Line of its declaration, counted from 1.
    pub line: u32,
}

impl fmt::Display for ConstantInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(id) = self.id {
            write!(f, "@id({id}) ")?;
        }
        write!(f, "{}: {}", self.name, self.ty)?;
        match &self.default {
            Some(value) => write!(f, " = {value}"),
            None if self.has_initializer => f.write_str(" (derived)"),
            None => f.write_str(" (no default)"),
        }
    }
}

impl ConstantInfo {
    /// `value` as a value of this constant's type.
    ///
    /// # Errors
    /// [`KernelError::WrongConstantType`] if the types differ, [`KernelError::ConstantOutOfRange`] if an integer
    /// does not fit or a floating-point number is not finite.
    pub(crate) fn convert(&self, value: ConstantValue) -> Result<ConstantValue, KernelError> {
        let out_of_range = || KernelError::ConstantOutOfRange {
            name: self.name.clone(),
            ty: self.ty,
            given: value,
        };
        if !value.as_f64().is_finite() {
            return Err(out_of_range());
        }
        if value.ty() == Some(self.ty) {
            return Ok(value);
        }
        match (value, self.ty.integer_range()) {
            (ConstantValue::Integer(v), Some((least, greatest))) => {
                let fitting = (least..=greatest).contains(&v).then_some(v);
                match self.ty {
                    ConstantType::I32 => fitting
                        .and_then(|v| v.try_into().ok())
                        .map(ConstantValue::I32),
                    ConstantType::U32 => fitting
                        .and_then(|v| v.try_into().ok())
                        .map(ConstantValue::U32),
                    ConstantType::I16 => fitting
                        .and_then(|v| v.try_into().ok())
                        .map(ConstantValue::I16),
                    _ => fitting
                        .and_then(|v| v.try_into().ok())
                        .map(ConstantValue::U16),
                }
                .ok_or_else(out_of_range)
            }
            _ => Err(KernelError::WrongConstantType {
                name: self.name.clone(),
                expected: self.ty,
                given: value,
            }),
        }
    }
}

/// How a caller names a constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum OverrideKey {
    /// By its name.
    Name(Cow<'static, str>),
    /// By its `@id`.
    Id(u16),
}

impl fmt::Display for OverrideKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Id(id) => write!(f, "@id({id})"),
        }
    }
}

/// Values for a program's specialization constants; unmentioned constants keep their defaults.
///
/// ```
/// # use tombolo::Constants;
/// let constants = Constants::new().set("N", 9u32).set_id(3, 1.5f32);
/// assert_eq!(constants.iter().count(), 2);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Constants {
    values: Vec<(OverrideKey, ConstantValue)>,
}

impl Constants {
    /// No values: every constant keeps its default.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the constant called `name`. A second setting replaces the value.
    #[must_use]
    pub fn set(self, name: impl Into<Cow<'static, str>>, value: impl Into<ConstantValue>) -> Self {
        self.with(OverrideKey::Name(name.into()), value.into())
    }

    /// Sets the constant declared with `@id(id)`. A second setting replaces the value.
    #[must_use]
    pub fn set_id(self, id: u16, value: impl Into<ConstantValue>) -> Self {
        self.with(OverrideKey::Id(id), value.into())
    }

    fn with(mut self, key: OverrideKey, value: ConstantValue) -> Self {
        match self.values.iter_mut().find(|(k, _)| *k == key) {
            Some((_, old)) => *old = value,
            None => self.values.push((key, value)),
        }
        self
    }

    /// The value set under `name`, if one is.
    pub fn get(&self, name: &str) -> Option<ConstantValue> {
        self.iter()
            .find(|(k, _)| matches!(k, OverrideKey::Name(n) if n == name))
            .map(|(_, v)| v)
    }

    /// The value set under `@id(id)`, if one is.
    pub fn get_id(&self, id: u16) -> Option<ConstantValue> {
        self.iter()
            .find(|(k, _)| **k == OverrideKey::Id(id))
            .map(|(_, v)| v)
    }

    /// The given values, in the order of setting.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&OverrideKey, ConstantValue)> {
        self.values.iter().map(|(k, v)| (k, *v))
    }

    /// Whether nothing was set.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

#[cfg(test)]
mod tests;
