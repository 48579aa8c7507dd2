//! How great values can be.

use crate::compile::ir::{Binary, Builtin, Op, Program, Type, Value};

/// Operations that are looked through.
const DEPTH: u32 = 8;

/// A bound of an unsigned integer, for every invocation.
pub(crate) fn greatest(program: &Program, value: Value) -> u32 {
    let bound = match program.ty(value) {
        Type::I32 => bound(program, value, DEPTH),
        _ => None,
    };
    bound.unwrap_or(u32::MAX)
}

/// `None` if nothing is known, or the integer may have wrapped.
fn bound(program: &Program, value: Value, depth: u32) -> Option<u32> {
    let depth = depth.checked_sub(1)?;
    let of = |value| bound(program, value, depth);
    match program.values[value].op {
        Op::Const(bits) => u32::try_from(bits).ok(),
        Op::Builtin(Builtin::LocalIndex) => program.invocations().checked_sub(1),
        Op::Builtin(Builtin::LocalId(axis)) => {
            program.workgroup_size[usize::from(axis)].checked_sub(1)
        }
        Op::Binary(Binary::Add, a, b) => of(a)?.checked_add(of(b)?),
        Op::Binary(Binary::Mul, a, b) => of(a)?.checked_mul(of(b)?),
        Op::Binary(Binary::Shl, a, b) => {
            let amount = program.constant(b)? & 31;
            u32::try_from(u64::from(of(a)?) << amount).ok()
        }
        Op::Binary(Binary::ShrU, a, b) => {
            let amount = program.constant(b)? & 31;
            Some(of(a).unwrap_or(u32::MAX) >> amount)
        }
        Op::Binary(Binary::And | Binary::MinU, a, b) => match (of(a), of(b)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (known, None) | (None, known) => known,
        },
        Op::Binary(Binary::RemU, _, b) => (program.constant(b)? as u32).checked_sub(1),
        Op::Select { accept, reject, .. } => Some(of(accept)?.max(of(reject)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::ir::build::Builder;

    #[test]
    fn bounds_hold_and_wrapping_has_none() {
        let mut b = Builder::new(Program {
            workgroup_size: [16, 4, 1],
            ..Program::default()
        });
        let x = b.builtin(Builtin::LocalId(0));
        let y = b.builtin(Builtin::LocalId(1));
        let sixteen = b.u32(16);
        let row = b.mul(y, sixteen);
        let index = b.add(row, x);
        assert_eq!(greatest(&b.program, index), 63);
        let group = b.builtin(Builtin::GroupId(0));
        let unknown = b.add(group, x);
        assert_eq!(greatest(&b.program, unknown), u32::MAX);
        let mask = b.u32(255);
        let masked = b.binary(Binary::And, unknown, mask);
        assert_eq!(greatest(&b.program, masked), 255);
        let great = b.u32(u32::MAX);
        let wrapped = b.add(great, x);
        assert_eq!(greatest(&b.program, wrapped), u32::MAX);
        let most = b.binary(Binary::RemU, unknown, sixteen);
        assert_eq!(greatest(&b.program, most), 15);
    }
}
