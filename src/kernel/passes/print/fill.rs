//! The bodies of the functions that calls of `print`, `assert` and `panic` have become.

use naga::{
    BinaryOperator, Block, Expression, Function, FunctionArgument, FunctionResult, GlobalVariable,
    Handle, Literal, ScalarKind, Span, Statement, Type,
};

use super::{Parameter, Runtime};
use crate::print::record::{MAX_VALUES, SiteKind, check};
use crate::print::value::{ScalarType, ValueType};

/// Members of `TomboloPrint` in shaders/print.wgsl.
const FAILED_VALUES: u32 = 8;
const WORDS: u32 = 9;

/// The structure of values for a function of the host, and the array of words in the structure.
#[derive(Clone, Copy)]
pub(super) struct ValuesType {
    pub structure: Handle<Type>,
    pub words: Handle<Type>,
}

/// Makes the function of a site.
pub(super) struct Filler<'m> {
    runtime: &'m Runtime,
    arguments: Vec<ValueType>,
    function: Function,
    block: Block,
}

impl<'m> Filler<'m> {
    pub fn new(runtime: &'m Runtime, arguments: &[Parameter]) -> Self {
        let parameters = arguments
            .iter()
            .enumerate()
            .map(|(i, (ty, _))| FunctionArgument {
                name: Some(format!("value_{i}")),
                ty: *ty,
                binding: None,
            });
        Self {
            runtime,
            arguments: arguments.iter().map(|(_, ty)| *ty).collect(),
            function: Function {
                arguments: parameters.collect(),
                ..Function::default()
            },
            block: Block::new(),
        }
    }

    pub fn fill(mut self, kind: SiteKind, code: u32) -> Function {
        match kind {
            SiteKind::Print => self.record(code),
            SiteKind::Assert | SiteKind::Panic => self.fail(code),
            SiteKind::Values => {}
        }
        self.block
            .push(Statement::Return { value: None }, Span::UNDEFINED);
        self.function.body = self.block;
        self.function
    }

    /// Returns the values for a function of the host: the word of a type and the words of the value, one value after the
    /// other, and zeros behind.
    pub fn values(mut self, types: ValuesType) -> Function {
        let mut words = Vec::with_capacity(MAX_VALUES);
        for (index, ty) in self.arguments.clone().into_iter().enumerate() {
            words.push(self.literal(ty.code()));
            self.words_of(index, ty, &mut words);
        }
        let zero = self.literal(0);
        words.resize(MAX_VALUES, zero);
        let words = self.emitted(Expression::Compose {
            ty: types.words,
            components: words,
        });
        let value = self.emitted(Expression::Compose {
            ty: types.structure,
            components: vec![words],
        });
        let end = Statement::Return { value: Some(value) };
        self.block.push(end, Span::UNDEFINED);
        self.function.result = Some(FunctionResult {
            ty: types.structure,
            binding: None,
        });
        self.function.body = self.block;
        self.function
    }

    /// A record: consecutive words from the start of the free room.
    fn record(&mut self, code: u32) {
        let values: usize = self.arguments.iter().map(|ty| ty.words()).sum();
        let words = self.literal(values as u32 + 3);
        let at = self.call(self.runtime.reserve, vec![words]);
        let none = self.literal(u32::MAX);
        let has_room = self.binary(BinaryOperator::NotEqual, at, none);
        let outer = std::mem::take(&mut self.block);
        let code = self.literal(code);
        let invocation = self.global(self.runtime.invocation);
        let invocation = self.load(invocation);
        let mut record = vec![code, invocation];
        record.extend(self.value_words());
        // The seed of an empty check at place 0, so the place can be added here.
        let seed = self.literal(check(0, []));
        let mut hash = self.binary(BinaryOperator::ExclusiveOr, seed, at);
        for word in &record {
            hash = self.call(self.runtime.mix, vec![hash, *word]);
        }
        record.push(hash);
        for (offset, word) in record.into_iter().enumerate() {
            let offset = self.literal(offset as u32);
            let index = self.binary(BinaryOperator::Add, at, offset);
            self.put(WORDS, index, word);
        }
        self.only_if(has_room, outer);
    }

    /// The values of a message, for the invocation that fails first.
    fn fail(&mut self, code: u32) {
        let code = self.literal(code);
        let is_first = self.call(self.runtime.claim, vec![code]);
        let outer = std::mem::take(&mut self.block);
        for (index, word) in self.value_words().into_iter().enumerate() {
            let index = self.literal(index as u32);
            self.put(FAILED_VALUES, index, word);
        }
        self.only_if(is_first, outer);
    }

    fn only_if(&mut self, condition: Handle<Expression>, outer: Block) {
        let accept = std::mem::replace(&mut self.block, outer);
        let test = Statement::If {
            condition,
            accept,
            reject: Block::new(),
        };
        self.block.push(test, Span::UNDEFINED);
    }

    /// The words of all arguments.
    fn value_words(&mut self) -> Vec<Handle<Expression>> {
        let mut words = Vec::new();
        for (index, ty) in self.arguments.clone().into_iter().enumerate() {
            self.words_of(index, ty, &mut words);
        }
        words
    }

    /// Appends the words of an argument.
    fn words_of(&mut self, index: usize, ty: ValueType, words: &mut Vec<Handle<Expression>>) {
        let value = self.add(Expression::FunctionArgument(index as u32));
        for column in 0..ty.columns {
            let column = match ty.columns {
                1 => value,
                _ => self.member(value, column),
            };
            for row in 0..ty.rows {
                let component = match ty.rows {
                    1 => column,
                    _ => self.member(column, row),
                };
                self.component(component, ty.scalar, words);
            }
        }
    }

    fn component(
        &mut self,
        value: Handle<Expression>,
        ty: ScalarType,
        words: &mut Vec<Handle<Expression>>,
    ) {
        let (bits, value) = match ty {
            ScalarType::Bool => {
                let (one, zero) = (self.literal(1), self.literal(0));
                let select = Expression::Select {
                    condition: value,
                    accept: one,
                    reject: zero,
                };
                (None, self.emitted(select))
            }
            ScalarType::U32 => (None, value),
            ScalarType::I32 | ScalarType::F32 => (None, self.cast(value, ScalarKind::Uint, None)),
            ScalarType::U16 => (None, self.cast(value, ScalarKind::Uint, Some(4))),
            ScalarType::I16 => {
                let wide = self.cast(value, ScalarKind::Sint, Some(4));
                (None, self.cast(wide, ScalarKind::Uint, None))
            }
            ScalarType::F16 => {
                let wide = self.cast(value, ScalarKind::Float, Some(4));
                (None, self.cast(wide, ScalarKind::Uint, None))
            }
            ScalarType::U64 => (Some(value), value),
            ScalarType::I64 | ScalarType::F64 => {
                let bits = self.cast(value, ScalarKind::Uint, None);
                (Some(bits), bits)
            }
        };
        match bits {
            None => words.push(value),
            Some(bits) => {
                words.push(self.cast(bits, ScalarKind::Uint, Some(4)));
                let distance = self.literal(32);
                let high = self.binary(BinaryOperator::ShiftRight, bits, distance);
                words.push(self.cast(high, ScalarKind::Uint, Some(4)));
            }
        }
    }

    fn put(&mut self, member: u32, index: Handle<Expression>, value: Handle<Expression>) {
        let buffer = self.global(self.runtime.buffer);
        let base = self.member(buffer, member);
        let pointer = self.emitted(Expression::Access { base, index });
        self.block
            .push(Statement::Store { pointer, value }, Span::UNDEFINED);
    }

    fn call(
        &mut self,
        function: Handle<Function>,
        arguments: Vec<Handle<Expression>>,
    ) -> Handle<Expression> {
        let result = self.add(Expression::CallResult(function));
        let call = Statement::Call {
            function,
            arguments,
            result: Some(result),
        };
        self.block.push(call, Span::UNDEFINED);
        result
    }

    fn cast(
        &mut self,
        expr: Handle<Expression>,
        kind: ScalarKind,
        convert: Option<u8>,
    ) -> Handle<Expression> {
        self.emitted(Expression::As {
            expr,
            kind,
            convert,
        })
    }

    fn binary(
        &mut self,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Handle<Expression> {
        self.emitted(Expression::Binary { op, left, right })
    }

    fn member(&mut self, base: Handle<Expression>, index: u32) -> Handle<Expression> {
        self.emitted(Expression::AccessIndex { base, index })
    }

    fn load(&mut self, pointer: Handle<Expression>) -> Handle<Expression> {
        self.emitted(Expression::Load { pointer })
    }

    fn literal(&mut self, value: u32) -> Handle<Expression> {
        self.add(Expression::Literal(Literal::U32(value)))
    }

    fn global(&mut self, variable: Handle<GlobalVariable>) -> Handle<Expression> {
        self.add(Expression::GlobalVariable(variable))
    }

    /// Adds an expression evaluated without a statement.
    fn add(&mut self, expression: Expression) -> Handle<Expression> {
        (self.function.expressions).append(expression, Span::UNDEFINED)
    }

    /// Adds an expression and its evaluating statement.
    fn emitted(&mut self, expression: Expression) -> Handle<Expression> {
        let before = self.function.expressions.len();
        let handle = self.add(expression);
        let range = self.function.expressions.range_from(before);
        self.block.push(Statement::Emit(range), Span::UNDEFINED);
        handle
    }
}
