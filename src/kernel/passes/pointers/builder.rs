//! Builds the new body of a function that follows pointers: what was made already in a block is not made again, and
//! short cuts for the arithmetic of addresses.

use std::collections::{HashMap, HashSet};

use naga::{
    Arena, BinaryOperator, Block, Expression, Handle, LocalVariable, Scalar, Statement, Type,
    UniqueArena,
};

use super::check::Cause;
use super::heap::{Heap, vector_size, vector_type};
use super::reuse::Elements;
use super::visit::operands;
use crate::kernel::passes::code::{Code, Emitter};

pub(super) use crate::kernel::passes::code::Value;

/// A function in the making.
pub(super) struct Builder<'a> {
    pub types: &'a mut UniqueArena<Type>,
    pub heap: &'a Heap,
    pub code: Code,
    variables: HashMap<Handle<naga::GlobalVariable>, Value>,
    /// Sums of a value and a constant, for each open block: an outer block's are in scope in an inner one.
    sums: Vec<HashMap<(Value, u32), Value>>,
    /// Reported conditions, for each open block: those found to hold.
    reported: Vec<HashSet<Value>>,
    /// What was loaded of the heap.
    pub elements: Elements,
    /// Words of the heap's uniform, as far as loaded by the function at its start.
    pub info_words: HashMap<u32, Value>,
    /// Per condition, the meaning of its failure.
    pub causes: HashMap<Value, Cause>,
    /// Variables in which checked mode notes the function's first fault: code (0 for none), low and high word of
    /// the address.
    pub notes: Option<[Value; 3]>,
    /// For a range of a size in `info_words`, where values of so many bytes do not fit any more.
    pub limits: HashMap<(Value, u32), Value>,
}

impl Emitter for Builder<'_> {
    fn code(&mut self) -> &mut Code {
        &mut self.code
    }
}

impl<'a> Builder<'a> {
    pub fn new(
        types: &'a mut UniqueArena<Type>,
        heap: &'a Heap,
        locals: Arena<LocalVariable>,
    ) -> Self {
        Self {
            types,
            heap,
            code: Code::new(locals),
            variables: HashMap::new(),
            sums: vec![HashMap::new()],
            reported: vec![HashSet::new()],
            elements: Elements::default(),
            info_words: HashMap::new(),
            causes: HashMap::new(),
            notes: None,
            limits: HashMap::new(),
        }
    }

    /// Begins a block inside the one at hand, which is returned and waits.
    pub fn open(&mut self) -> Block {
        self.sums.push(HashMap::new());
        self.reported.push(HashSet::new());
        self.elements.open();
        self.code.open()
    }

    /// Ends the block begun by [`open`](Self::open), and goes on with the block around.
    pub fn close(&mut self, outer: Block) -> Block {
        self.sums.pop();
        self.reported.pop();
        self.elements.close();
        self.code.close(outer)
    }

    /// Goes on with the statements of `block`.
    pub fn append(&mut self, mut block: Block) {
        self.code.flush();
        self.code.out.append(&mut block);
    }

    /// Notes that `condition` is about to be reported; `false` if already done in this block or around this block.
    pub fn first_report(&mut self, condition: Value) -> bool {
        if self.reported.iter().any(|r| r.contains(&condition)) {
            return false;
        }
        (self.reported.last_mut()).is_some_and(|reported| reported.insert(condition))
    }

    /// The second view of the memory whose first is `array`, for atomics of 64 bits.
    pub fn second_view(&mut self, array: Value) -> Option<Value> {
        let wide = self.heap.wide.as_ref()?;
        let mut views = self.heap.variables.iter().zip(&wide.variables);
        let (_, second) = views.find(|(first, _)| self.variables.get(first) == Some(&array))?;
        Some(self.global(*second))
    }

    /// `if condition { accept }`
    pub fn when(&mut self, condition: Value, accept: impl FnOnce(&mut Self)) {
        let outer = self.open();
        accept(self);
        let accept = self.close(outer);
        self.push(Statement::If {
            condition,
            accept,
            reject: Block::new(),
        });
    }

    /// A copy of a constant expression of the module.
    pub fn copied(&mut self, globals: &Arena<Expression>, handle: Value) -> Value {
        let mut copy = globals[handle].clone();
        let replaced: Result<(), std::convert::Infallible> = operands(&mut copy, &mut |operand| {
            *operand = self.copied(globals, *operand);
            Ok(())
        });
        replaced.unwrap_or_default();
        self.add(copy)
    }

    pub fn global(&mut self, variable: Handle<naga::GlobalVariable>) -> Value {
        if let Some(value) = self.variables.get(&variable) {
            return *value;
        }
        let value = self.add(Expression::GlobalVariable(variable));
        self.variables.insert(variable, value);
        value
    }

    /// `value + constant`; made once in a block.
    pub fn plus(&mut self, value: Value, constant: u32) -> Value {
        if constant == 0 {
            return value;
        }
        let key = (value, constant);
        if let Some(sum) = self.sums.iter().rev().find_map(|sums| sums.get(&key)) {
            return *sum;
        }
        let sum = self.with(BinaryOperator::Add, value, constant);
        if let Some(sums) = self.sums.last_mut() {
            sums.insert(key, sum);
        }
        sum
    }

    /// `value / constant`
    pub fn divided(&mut self, value: Value, constant: u32) -> Value {
        match constant {
            0 | 1 => value,
            c if c.is_power_of_two() => self.shifted(value, c.trailing_zeros()),
            c => self.with(BinaryOperator::Divide, value, c),
        }
    }

    /// `value >> bits`
    pub fn shifted(&mut self, value: Value, bits: u32) -> Value {
        match bits {
            0 => value,
            bits => self.with(BinaryOperator::ShiftRight, value, bits),
        }
    }

    /// The type of a vector, or of a scalar for a count of 1.
    pub fn vector_type(&mut self, count: u32, scalar: Scalar) -> Handle<Type> {
        vector_type(self.types, count, scalar)
    }

    pub fn compose(&mut self, ty: Handle<Type>, components: Vec<Value>) -> Value {
        self.add(Expression::Compose { ty, components })
    }

    /// `vec2<u32>(low, high)`
    pub fn pair(&mut self, low: Value, high: Value) -> Value {
        self.compose(self.heap.types.vec2, vec![low, high])
    }

    /// Components `first..first + count` of a vector with `of` components.
    pub fn part(&mut self, vector: Value, of: u32, first: u32, count: u32) -> Value {
        use naga::SwizzleComponent as C;
        if count == of {
            return vector;
        }
        let Some(size) = vector_size(count) else {
            return self.member(vector, first);
        };
        let component = |i: u32| match first + i {
            0 => C::X,
            1 => C::Y,
            2 => C::Z,
            _ => C::W,
        };
        self.add(Expression::Swizzle {
            size,
            vector,
            pattern: [component(0), component(1), component(2), component(3)],
        })
    }

    /// The zero of a type.
    pub fn zero(&mut self, ty: Handle<Type>) -> Value {
        self.add(Expression::ZeroValue(ty))
    }
}
