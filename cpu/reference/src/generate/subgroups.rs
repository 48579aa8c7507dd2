//! Operations of subgroups.

use super::ast::*;
use super::scope::Generator;

/// How deep their operands are.
const DEPTH: u32 = 2;

/// Operations on integers.
const COMBINATIONS: [&str; 11] = [
    "subgroupAdd",
    "subgroupMul",
    "subgroupMin",
    "subgroupMax",
    "subgroupAnd",
    "subgroupOr",
    "subgroupXor",
    "subgroupInclusiveAdd",
    "subgroupExclusiveAdd",
    "subgroupInclusiveMul",
    "subgroupExclusiveMul",
];

/// Values of other invocations, by a word.
const BY_WORD: [&str; 4] = [
    "subgroupShuffle",
    "subgroupShuffleXor",
    "subgroupShuffleUp",
    "subgroupShuffleDown",
];

/// Values of other invocations, without more.
const PLAIN: [&str; 4] = [
    "subgroupBroadcastFirst",
    "quadSwapX",
    "quadSwapY",
    "quadSwapDiagonal",
];

impl Generator {
    /// A value that invocations of a subgroup make together: named, or mixed into the result.
    pub fn subgroup_operation(&mut self, block: &mut Block) {
        let value = self.of_subgroup();
        if self.one_in(2) {
            return self.name_value(value, block);
        }
        let word = self.as_word(value);
        block.push(Statement::Mix(word));
    }

    fn of_subgroup(&mut self) -> Expression {
        let scalar = match self.rng.bool() {
            true => Type::U32,
            false => Type::I32,
        };
        match self.rng.u32(0..8) {
            0 => {
                let vote = self.pick(&["subgroupAll", "subgroupAny"]);
                let condition = self.expression(&Type::BOOL, DEPTH);
                Expression::call(Type::BOOL, vote, vec![condition])
            }
            1 => {
                let condition = self.expression(&Type::BOOL, DEPTH);
                let words = Type::Vector(4, ScalarType::U32);
                let ballot = Expression::call(words, "subgroupBallot", vec![condition]);
                let first = ExpressionKind::Member(Box::new(ballot), "x".to_owned());
                Expression::new(Type::U32, first)
            }
            2 | 3 => {
                let function = self.pick(&BY_WORD);
                let value = self.stored(&scalar, DEPTH);
                let word = self.expression(&Type::U32, DEPTH - 1);
                // Mostly of the subgroup.
                let lane = Expression::binary(Type::U32, "%", word, Expression::word(9));
                Expression::call(scalar, function, vec![value, lane])
            }
            4 => {
                let function = self.pick(&PLAIN);
                let value = self.stored(&scalar, DEPTH);
                Expression::call(scalar, function, vec![value])
            }
            5 => {
                let (function, limit) =
                    self.pick(&[("subgroupBroadcast", 8), ("quadBroadcast", 4)]);
                let value = self.stored(&scalar, DEPTH);
                let lane = Expression::word(self.rng.u32(0..limit));
                Expression::call(scalar, function, vec![value, lane])
            }
            _ => {
                let function = self.pick(&COMBINATIONS);
                let value = self.expression(&scalar, DEPTH);
                Expression::call(scalar, function, vec![value])
            }
        }
    }
}
