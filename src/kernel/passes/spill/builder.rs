//! Builds the new body of a function: expressions with their `Emit` statements, and memory of the function's frame.

use naga::{
    Arena, BinaryOperator, Block, Expression, GlobalVariable, Handle, Literal, Scalar, Span,
    Statement, Type, UniqueArena,
};

use super::layout::{self, Layout};
use crate::kernel::passes::code::{Code, Emitter};
use crate::kernel::passes::pointers::Ty;

pub(super) use crate::kernel::passes::code::Value;

/// The variables of scratch memory at module scope, and how it is laid out.
pub(super) struct Scratch {
    /// The words: `array<u32>` in the storage space.
    pub words: Handle<GlobalVariable>,
    /// Where the words of the invocation begin, in the private space.
    pub first: Handle<GlobalVariable>,
    /// Words from a word of an invocation to the next one: the invocations of a work-group.
    pub lanes: u32,
    pub layout: Layout,
}

/// Memory in scratch memory: a pointer into it, or the memory that holds a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// An index into the array of words.
    pub base: Value,
    /// Words of the invocation behind the base.
    pub constant: u32,
    pub ty: Ty,
}

/// A function in the making.
pub(super) struct Builder<'a> {
    pub types: &'a mut UniqueArena<Type>,
    pub scratch: &'a Scratch,
    pub code: Code,
    words: Value,
    /// Where the function's frame begins, and the literal with the frame's words behind those of the invocation.
    frame: Value,
    start: Value,
    first: Value,
    /// Words of the frame in use, and the most that were.
    top: u64,
    pub most: u64,
}

impl Emitter for Builder<'_> {
    fn code(&mut self) -> &mut Code {
        &mut self.code
    }
}

impl<'a> Builder<'a> {
    pub fn new(types: &'a mut UniqueArena<Type>, scratch: &'a Scratch) -> Self {
        let mut code = Code::new(Arena::new());
        let mut add = |expression| code.expressions.append(expression, Span::UNDEFINED);
        let words = add(Expression::GlobalVariable(scratch.words));
        let pointer = add(Expression::GlobalVariable(scratch.first));
        let start = add(Expression::Literal(Literal::U32(0)));
        let first = add(Expression::Load { pointer });
        let frame = add(Expression::Binary {
            op: BinaryOperator::Add,
            left: first,
            right: start,
        });
        let range = naga::Range::new_from_bounds(first, frame);
        code.out.push(Statement::Emit(range), Span::UNDEFINED);
        Self {
            types,
            scratch,
            code,
            words,
            frame,
            start,
            first,
            top: 0,
            most: 0,
        }
    }

    /// The literal that becomes the start of the frame: behind the frames of all callers.
    pub fn start(&self) -> Value {
        self.start
    }

    /// Begins a block inside the one at hand, which is returned and waits. Memory taken inside is free at the end.
    pub fn open(&mut self) -> (Block, u64) {
        (self.code.open(), self.top)
    }

    /// Ends the block begun by [`open`](Self::open), and goes on with the block around.
    pub fn close(&mut self, (outer, top): (Block, u64)) -> Block {
        self.top = top;
        self.code.close(outer)
    }

    /// Memory of the frame for a value, until the block at hand ends.
    pub fn take(&mut self, ty: Ty) -> Place {
        let constant = self.top as u32;
        self.top += u64::from(layout::words(self.types, ty));
        self.most = self.most.max(self.top);
        Place {
            base: self.frame,
            constant,
            ty,
        }
    }

    /// Memory of a variable in the private space, `constant` words behind the start of the invocation's.
    pub fn shared(&self, constant: u32, ty: Ty) -> Place {
        Place {
            base: self.first,
            constant,
            ty,
        }
    }

    /// The place as an index of its first word.
    pub fn address(&mut self, place: &Place) -> Value {
        self.behind(place, 0)
    }

    fn behind(&mut self, place: &Place, words: u32) -> Value {
        let words = place.constant.wrapping_add(words);
        match words.wrapping_mul(self.scratch.lanes) {
            0 => place.base,
            distance => self.with(BinaryOperator::Add, place.base, distance),
        }
    }

    /// A pointer to a word of the place.
    pub fn word_of(&mut self, place: &Place, word: u32) -> Value {
        let index = self.behind(place, word);
        self.element(self.words, index)
    }

    /// The place so many words behind, where the number is known as the kernel runs; `ty` lies there.
    pub fn moved(&mut self, place: &Place, index: Value, words: u32, ty: Ty) -> Place {
        let distance = words.wrapping_mul(self.scratch.lanes);
        let distance = self.times(index, distance);
        Place {
            base: self.binary(BinaryOperator::Add, place.base, distance),
            constant: place.constant,
            ty,
        }
    }

    /// Runs `each` for every index below `count`: in a loop of `step` indices at a time, or without one for a few.
    pub fn each(&mut self, count: u32, step: u32, each: &mut dyn FnMut(&mut Self, Index)) {
        let mut done = 0;
        if count > 2 * step {
            done = count / step * step;
            let ty = crate::kernel::passes::pointers::vector_type(self.types, 1, Scalar::U32);
            let counter = self.local(ty);
            let zero = self.word(0);
            self.store(counter, zero);
            let outer = self.open();
            let index = self.load(counter);
            let goes_on = self.with(BinaryOperator::Less, index, done);
            let mut leave = Block::new();
            leave.push(Statement::Break, self.code.span);
            self.push(Statement::If {
                condition: goes_on,
                accept: Block::new(),
                reject: leave,
            });
            for offset in 0..step {
                each(self, Index::Counted(index, offset));
            }
            let body = self.close(outer);
            let outer = self.open();
            let index = self.load(counter);
            let next = self.with(BinaryOperator::Add, index, step);
            self.store(counter, next);
            let continuing = self.close(outer);
            self.push(Statement::Loop {
                body,
                continuing,
                break_if: None,
            });
        }
        for index in done..count {
            each(self, Index::Known(index));
        }
    }
}

/// An index of [`Builder::each`].
#[derive(Clone, Copy)]
pub(super) enum Index {
    Known(u32),
    /// A value, and what is added.
    Counted(Value, u32),
}
