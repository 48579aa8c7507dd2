//! Lane programs: the work of one invocation of a kernel, between naga's IR and machine code.
//!
//! A [`Program`] is a kernel whose functions are inlined and whose values are scalars: a `vec3<f32>` is three values.
//! The number of lanes side by side is no part of a program, but a parameter of [`emit`](super::emit): the reason why
//! results are the same at each width.
//!
//! - **Values** ([`Value`], [`Def`]) are assigned once and are pure, except values defined by a statement
//!   ([`Op::Result`]). A [`Statement::Let`] says where a pure value is computed; constants and built-in values have no
//!   such place and are made at their uses.
//! - **Variables** ([`Variable`]) are scalars assigned more than once, in the place of block parameters.
//! - **Slots** ([`Slot`]) are memory of one invocation, for arrays indexed at run time.
//! - **Control flow** stays a tree, as in naga: masks of divergent flow and the regions between barriers follow from it.
//!   There is one way out of a construct, [`Statement::Exit`] of a [`Scope`]; `return` is the exit of a function's scope.
//! - **Memory** is reached by [`Place`]s: a base, a constant offset, and indices with their strides and counts. Bounds
//!   are therefore checked where code is emitted, by whatever policy, and contiguous accesses can be recognised.
//!
//! Integers wrap, shifts use the low bits of their amount, division by zero yields the dividend and the remainder zero,
//! and conversions to integers saturate: the points left open by WGSL are decided here.

pub(crate) mod build;
pub(crate) mod fold;
pub(crate) mod print;
pub(crate) mod verify;
pub(crate) mod visit;

use std::sync::Arc;

use cranelift_codegen::entity::{PrimaryMap, entity_impl};
use smallvec::SmallVec;

use super::{host::HostFunction, subgroup::Function};
use crate::sanitizer::Site;

/// A scalar assigned once.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Value(u32);
entity_impl!(Value, "v");

/// A scalar that can be assigned again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Variable(u32);
entity_impl!(Variable, "var");

/// Memory of one invocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(u32);
entity_impl!(Slot, "slot");

/// A construct with a way out by [`Statement::Exit`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Scope(u32);
entity_impl!(Scope, "scope");

/// An entry of the table of bindings passed to a kernel by a dispatch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Binding(u32);
entity_impl!(Binding, "binding");

/// Read-only bytes belonging to the code.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Table(u32);
entity_impl!(Table, "table");

/// The type of a scalar. Signedness is a matter of operations.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Type {
    Bool,
    I32,
    I64,
    /// A half float. Values are held as the `f32` of the same value and rounded behind each operation.
    F16,
    F32,
    F64,
}

impl Type {
    /// Bytes in buffers. Booleans cannot be shared with the host.
    pub(crate) fn host_bytes(self) -> u32 {
        match self {
            Type::F16 => 2,
            _ => self.own_bytes(),
        }
    }

    /// Bytes in memory seen by kernels only: private and work-group memory.
    pub(crate) fn own_bytes(self) -> u32 {
        match self {
            Type::Bool | Type::I32 | Type::F16 | Type::F32 => 4,
            Type::I64 | Type::F64 => 8,
        }
    }

    pub(crate) fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::F32 | Type::F64)
    }

    /// Bits of an integer type with as many bits as values of this type occupy in a register.
    pub(crate) fn bits(self) -> u32 {
        self.own_bytes() * 8
    }
}

/// Values given to a work-group at its start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Builtin {
    /// `local_invocation_index`
    LocalIndex,
    /// A component of `local_invocation_id`
    LocalId(u8),
    /// A component of `workgroup_id`
    GroupId(u8),
    /// A component of `num_workgroups`
    GroupCount(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Unary {
    /// Negation of integers and floats
    Negate,
    /// Absolute value of signed integers and floats; the least integer stays as it is
    Abs,
    /// Complement of booleans and integers
    Not,
    Sqrt,
    Ceil,
    Floor,
    Trunc,
    /// To the nearest integer, ties to even
    Nearest,
    CountOnes,
    /// The width for zero
    LeadingZeros,
    /// The width for zero
    TrailingZeros,
    ReverseBits,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    DivS,
    DivU,
    RemS,
    RemU,
    DivF,
    And,
    Or,
    Xor,
    Shl,
    ShrU,
    ShrS,
    MinS,
    MinU,
    MaxS,
    MaxU,
    /// `a < b ? a : b`
    MinF,
    /// `a > b ? a : b`
    MaxF,
}

/// Comparisons of numbers; the suffix says how operands are read: signed, unsigned, float.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Comparison {
    /// Of any type. A NaN equals nothing.
    Eq,
    Ne,
    LtS,
    LeS,
    LtU,
    LeU,
    LtF,
    LeF,
}

/// Conversions. The type of the result is the type of the definition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Conversion {
    SignedToFloat,
    UnsignedToFloat,
    /// Saturates; a NaN becomes zero
    FloatToSigned,
    /// Saturates; a NaN becomes zero
    FloatToUnsigned,
    /// `i32` to `i64` by its sign
    WidenS,
    /// `u32` to `u64`
    WidenU,
    /// The low half of 64 bits
    Narrow,
    /// Between float types, to the nearest, ties to even; from `f64` to half floats by way of `f32`
    Float,
    /// The same bits; a half float corresponds to the low 16 bits of an integer
    Bits,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Op {
    /// The bits of a value of the definition's type; a half float has the bits of its `f32`
    Const(u64),
    Builtin(Builtin),
    /// The value of a variable at this point
    Get(Variable),
    /// Defined by a statement other than `Let`
    Result,
    /// Elements of the run-time sized array of a binding
    Length(BindingAt),
    Unary(Unary, Value),
    Binary(Binary, Value, Value),
    Compare(Comparison, Value, Value),
    Select {
        condition: Value,
        accept: Value,
        reject: Value,
    },
    Convert(Conversion, Value),
    /// `a * b + c`, rounded once; a sum of half floats is rounded to `f32` before
    MultiplyAdd(Value, Value, Value),
}

/// A binding, or an element of the array of bindings beginning there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BindingAt {
    pub(crate) first: Binding,
    /// The index into an array of so many bindings
    pub(crate) index: Option<(Value, u32)>,
}

#[derive(Clone, Copy, Hash, Debug)]
pub(crate) struct Def {
    pub(crate) ty: Type,
    pub(crate) op: Op,
}

/// Where a [`Place`] begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Base {
    /// A uniform or storage buffer
    Binding(BindingAt),
    /// Work-group memory, from its start
    WorkGroup,
    /// Memory of the invocation
    Slot(Slot),
    /// Immediates of the pass
    Immediates,
    /// Bytes belonging to the code
    Table(Table),
}

impl Base {
    /// Whether only kernels see the memory, so that values lie there by [`Type::own_bytes`].
    pub(crate) fn is_own(self) -> bool {
        matches!(self, Base::WorkGroup | Base::Slot(_) | Base::Table(_))
    }
}

/// How many elements an index may select among.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Count {
    Fixed(u32),
    /// As many as the bound part of the buffer holds
    Bound(BindingAt),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Step {
    pub(crate) index: Value,
    /// Bytes between elements
    pub(crate) stride: u32,
    pub(crate) count: Count,
}

/// A place in memory: `base + offset + Σ index × stride`.
#[derive(Clone, PartialEq, Hash, Debug)]
pub(crate) struct Place {
    pub(crate) base: Base,
    pub(crate) offset: u32,
    pub(crate) steps: SmallVec<[Step; 2]>,
}

impl Place {
    pub(crate) fn new(base: Base, offset: u32) -> Self {
        Self {
            base,
            offset,
            steps: SmallVec::new(),
        }
    }
}

/// A scalar of an access: bytes from the place, and the value read or written.
#[derive(Clone, Copy, PartialEq, Hash, Debug)]
pub(crate) struct Leaf {
    pub(crate) offset: u32,
    pub(crate) value: Value,
}

/// How an access may be treated by the compiler.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Access {
    Plain,
    /// One indivisible access, never repeated or left out
    Atomic,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum AtomicFunction {
    Add,
    Sub,
    And,
    Or,
    Xor,
    MinS,
    MinU,
    MaxS,
    MaxU,
    Exchange,
    /// Compares with [`Atomic::compare`] and exchanges when equal
    CompareExchange,
}

#[derive(Clone, Hash, Debug)]
pub(crate) struct Atomic {
    pub(crate) place: Place,
    pub(crate) function: AtomicFunction,
    pub(crate) value: Value,
    pub(crate) compare: Option<Value>,
    /// The value from before
    pub(crate) result: Value,
    /// Whether a compare-exchange took place
    pub(crate) exchanged: Option<Value>,
}

/// A call of a function in Rust.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Call {
    pub(crate) function: HostFunction,
    pub(crate) resources: SmallVec<[BindingAt; 2]>,
    pub(crate) operands: SmallVec<[Value; 4]>,
    pub(crate) results: SmallVec<[Value; 4]>,
}

/// An operation of the invocations of a subgroup together: of the invocations coming to the same pass of the same operation.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Subgroup {
    pub(crate) function: Function,
    /// For [`Function::Shuffle`] the invocation to read, by its number in the subgroup; then the scalars
    pub(crate) operands: SmallVec<[Value; 5]>,
    pub(crate) results: SmallVec<[Value; 4]>,
    /// The loops around the operation, outermost first, and the number of each loop's pass, counted from one: known of
    /// a finished program
    pub(crate) passes: SmallVec<[(Scope, Value); 2]>,
    /// Numbers the operations and barriers of a finished program, in the order of the text
    pub(crate) number: u32,
}

#[derive(Clone, Hash, Debug)]
pub(crate) struct Case {
    pub(crate) selectors: SmallVec<[u32; 2]>,
    pub(crate) body: Block,
}

/// The memory ordered by a barrier, beside waiting.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Barrier {
    /// Whether invocations wait for one another; a fence alone otherwise
    pub(crate) waits: bool,
    /// Whether accesses to memory seen by other work-groups are ordered
    pub(crate) storage: bool,
    /// Numbers the barriers of a finished program
    pub(crate) number: u32,
}

pub(crate) type Block = Vec<Statement>;

#[derive(Clone, Hash, Debug)]
pub(crate) enum Statement {
    /// Computes a pure value here.
    Let(Value),
    Set(Variable, Value),
    /// Defines the values of the leaves.
    Load {
        place: Place,
        leaves: SmallVec<[Leaf; 4]>,
        access: Access,
    },
    Store {
        place: Place,
        leaves: SmallVec<[Leaf; 4]>,
        access: Access,
    },
    Atomic(Box<Atomic>),
    Call(Box<Call>),
    If {
        condition: Value,
        accept: Block,
        reject: Block,
    },
    /// Repeats `body`, then `continuing`, until the scope is left. `Continue` goes to `continuing`.
    Loop {
        scope: Scope,
        /// Variables assigned by the loop and holding a constant at its start, with the bits of the constant
        starts: SmallVec<[(Variable, u64); 2]>,
        body: Block,
        continuing: Block,
    },
    /// Runs `body` once.
    Scope {
        scope: Scope,
        body: Block,
    },
    /// Runs one of the bodies. Leaving early is the matter of a scope around the switch.
    Switch {
        selector: Value,
        cases: Vec<Case>,
        default: Block,
    },
    /// Goes to the end of an enclosing scope or loop.
    Exit(Scope),
    /// Goes to `continuing` of an enclosing loop.
    Continue(Scope),
    Barrier(Barrier),
    Subgroup(Box<Subgroup>),
}

/// A binding used by a kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct BindingUse {
    pub(crate) group: u32,
    pub(crate) binding: u32,
    /// The element of an array of bindings
    pub(crate) element: u32,
    /// Offset and stride of the run-time sized array
    pub(crate) array: Option<(u32, u32)>,
    /// Bytes of the type without a run-time sized array, or with one element of the array
    pub(crate) least: u64,
    /// Whether the binding is a uniform buffer
    pub(crate) uniform: bool,
    /// Whether nobody writes to the binding while a work-group runs
    pub(crate) constant: bool,
    /// Whether somebody beside the dispatch may look at the binding or write to it meanwhile
    pub(crate) shared: bool,
    /// The reduction forming the whole use, if there is a reduction: known of a finished program
    pub(crate) reduction: Option<Reduction>,
}

/// The use of a buffer for nothing but atomic operations of one kind whose results nobody needs, on words of one size.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Reduction {
    pub(crate) combine: Combine,
    /// 4 or 8
    pub(crate) word_bytes: u8,
}

/// How a reduction combines words: in any order, and with zero to no effect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Combine {
    Add,
    Or,
    Xor,
    /// The greater number, without signs
    Max,
}

/// A kernel, as run by one invocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) values: PrimaryMap<Value, Def>,
    pub(crate) variables: PrimaryMap<Variable, Type>,
    /// Bytes of each slot
    pub(crate) slots: PrimaryMap<Slot, u32>,
    pub(crate) tables: PrimaryMap<Table, Vec<u8>>,
    pub(crate) bindings: PrimaryMap<Binding, BindingUse>,
    pub(crate) scopes: u32,
    pub(crate) workgroup_size: [u32; 3],
    /// Bytes of work-group memory
    pub(crate) workgroup_bytes: u32,
    /// The sites that calls of [`HostFunction::Check`] are about, by number
    pub(crate) sites: Arc<[Site]>,
    pub(crate) body: Block,
}

impl Program {
    pub(crate) fn ty(&self, value: Value) -> Type {
        self.values[value].ty
    }

    /// Whether nobody writes to a memory while a kernel runs.
    pub(crate) fn is_constant(&self, base: Base) -> bool {
        match base {
            Base::Binding(at) => self.bindings[at.first].constant,
            Base::Immediates | Base::Table(_) => true,
            Base::WorkGroup | Base::Slot(_) => false,
        }
    }

    /// The bits of a constant value.
    pub(crate) fn constant(&self, value: Value) -> Option<u64> {
        match self.values[value].op {
            Op::Const(bits) => Some(bits),
            _ => None,
        }
    }

    pub(crate) fn new_scope(&mut self) -> Scope {
        self.scopes += 1;
        Scope::from_u32(self.scopes - 1)
    }

    /// Invocations of a work-group.
    pub(crate) fn invocations(&self) -> u32 {
        self.workgroup_size.iter().product()
    }
}
