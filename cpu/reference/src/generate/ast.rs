//! The tree of a generated program. It holds what a shrinker needs to change a program without making
//! it invalid: types of expressions, and how large floating-point values can be.

/// A scalar type that programs compute with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScalarType {
    Bool,
    I32,
    U32,
    F32,
}

/// A type that programs compute with.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    Scalar(ScalarType),
    Vector(u8, ScalarType),
    /// Columns and rows, of `f32`.
    Matrix(u8, u8),
    Array(Box<Type>, u32),
    /// By its place in [`Program::structures`].
    Structure(usize),
}

impl Type {
    pub const BOOL: Type = Type::Scalar(ScalarType::Bool);
    pub const I32: Type = Type::Scalar(ScalarType::I32);
    pub const U32: Type = Type::Scalar(ScalarType::U32);
    pub const F32: Type = Type::Scalar(ScalarType::F32);

    /// The scalar type of scalars, vectors and matrices.
    pub fn scalar(&self) -> Option<ScalarType> {
        match self {
            Type::Scalar(scalar) | Type::Vector(_, scalar) => Some(*scalar),
            Type::Matrix(..) => Some(ScalarType::F32),
            _ => None,
        }
    }
}

/// What is known of a floating-point value: it is a multiple of `2^-fraction`, and its magnitude is at
/// most `bound`. Results of operations are exact while `bound * 2^fraction` is far below `2^24`, in
/// whatever order they are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exactness {
    pub bound: f64,
    pub fraction: u32,
}

impl Exactness {
    /// What every variable keeps to.
    pub const STORED: Exactness = Exactness {
        bound: 256.0,
        fraction: 2,
    };

    /// True if values of `self` keep to what `other` says.
    pub fn within(self, other: Exactness) -> bool {
        self.bound <= other.bound && self.fraction <= other.fraction
    }

    /// True if nothing is rounded among such values, with room for sums of a few.
    pub fn is_safe(self) -> bool {
        self.bound * 2f64.powi(self.fraction as i32) <= 2f64.powi(20)
    }
}

/// An expression, its type, and for floating-point types what is known of its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    pub ty: Type,
    pub exactness: Option<Exactness>,
    pub kind: ExpressionKind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum ExpressionKind {
    /// A literal as it is written.
    Literal(String),
    /// A value by name: a `let`, a parameter, a built-in value.
    Name(String),
    /// The value of a place.
    Load(Place),
    Unary(&'static str, Box<Expression>),
    Binary(&'static str, Box<Expression>, Box<Expression>),
    /// A built-in function, a constructor or a function of the program.
    Call(String, Vec<Argument>),
    /// A swizzle or a member, as it is written behind the dot.
    Member(Box<Expression>, String),
    /// An element of a value, by a constant.
    Element(Box<Expression>, u32),
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    Value(Expression),
    /// `&place`.
    Pointer(Place),
}

/// A place in memory: a variable or what a pointer leads to, and the way from there.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub root: String,
    /// True where the root is a pointer.
    pub through_pointer: bool,
    pub path: Vec<Step>,
    pub ty: Type,
}

/// A step into a composite.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A member, or a component of a vector by its letter, to which no pointer leads either.
    Member(String),
    /// An element, by an expression of type `u32` that is less than `length` once reduced.
    Index { index: Box<Expression>, length: u32 },
    /// A component of a vector, by the same. No pointer leads to one.
    Component { index: Box<Expression>, length: u32 },
    /// An element of an array that invocations share, among those that are the invocation's own.
    Own {
        base: String,
        index: Box<Expression>,
        length: u32,
    },
    /// Any element of an array that invocations share.
    Shared {
        base: Option<String>,
        index: Box<Expression>,
        length: u32,
    },
}

impl Place {
    /// True for a component of a vector, to which no pointer leads.
    pub fn is_component(&self) -> bool {
        match self.path.last() {
            Some(Step::Member(name)) => name.len() == 1,
            Some(Step::Component { .. }) => true,
            _ => false,
        }
    }
}

/// A sequence of statements.
pub type Block = Vec<Statement>;

#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    Let {
        name: String,
        value: Expression,
    },
    Var {
        name: String,
        ty: Type,
        value: Option<Expression>,
    },
    /// `let name = &place;`
    LetPointer {
        name: String,
        place: Place,
    },
    Assign {
        place: Place,
        value: Expression,
    },
    /// `place op= value;`
    Compound {
        place: Place,
        operator: &'static str,
        value: Expression,
    },
    If {
        condition: Expression,
        accept: Block,
        reject: Block,
    },
    Switch {
        selector: Expression,
        cases: Vec<(Vec<u32>, Block)>,
        default: Block,
        default_at: usize,
    },
    For {
        counter: String,
        count: u32,
        body: Block,
    },
    /// A counter that begins with the low bits of a word and becomes a part of itself in each turn, until nothing is left.
    Halve {
        counter: String,
        start: Expression,
        /// How many low bits, which are as many turns at most
        bits: u32,
        /// The operator of an assignment and its right side
        step: &'static str,
        body: Block,
    },
    /// `while counter < count && condition`, the counter being raised first in the body.
    While {
        counter: String,
        count: u32,
        condition: Expression,
        body: Block,
    },
    /// A `loop` that ends at `count` turns, or earlier by `break if`.
    Loop {
        counter: String,
        count: u32,
        body: Block,
        continuing: Block,
        break_if: Option<Expression>,
    },
    Break,
    Continue,
    Return(Option<Expression>),
    /// A call whose result, if any, is not used.
    Call {
        name: String,
        arguments: Vec<Argument>,
    },
    /// Folds a word into the invocation's result.
    Mix(Expression),
    /// An atomic function whose result is not used, on a cell that knows only this function.
    Atomic {
        function: &'static str,
        cell: u32,
        value: Expression,
    },
    Barrier(Barrier),
    /// One invocation stores a word, then all load it.
    UniformLoad {
        name: String,
        writer: u32,
        value: Expression,
    },
    /// A braced block.
    Nested(Block),
    /// An approximate value for the buffer of such: stored for comparison within bounds.
    Approximate {
        slot: u32,
        value: Expression,
    },
}

/// Which memory a barrier orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    WorkGroup,
    Storage,
    Both,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    pub ty: Type,
    /// The address space, for pointers.
    pub pointer: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    pub name: String,
    pub parameters: Vec<Parameter>,
    pub result: Option<Type>,
    pub body: Block,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Structure {
    pub name: String,
    pub members: Vec<(String, Type)>,
}

/// A variable of the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Global {
    pub name: String,
    /// `private` or `workgroup`.
    pub space: &'static str,
    pub ty: Type,
}

/// A program: one compute entry point and what it needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub workgroup_size: u32,
    pub workgroups: u32,
    pub structures: Vec<Structure>,
    pub globals: Vec<Global>,
    /// Callees before callers.
    pub functions: Vec<Function>,
    pub body: Block,
    /// What the input buffer holds.
    pub input: Vec<u32>,
}

impl Expression {
    /// An expression without floating-point values.
    pub fn new(ty: Type, kind: ExpressionKind) -> Expression {
        Expression {
            ty,
            exactness: None,
            kind,
        }
    }

    /// A value by name.
    pub fn name(ty: Type, name: impl Into<String>) -> Expression {
        let exactness = (ty.scalar() == Some(ScalarType::F32)).then_some(Exactness::STORED);
        Expression {
            ty,
            exactness,
            kind: ExpressionKind::Name(name.into()),
        }
    }

    /// A literal word.
    pub fn word(value: u32) -> Expression {
        Expression::new(Type::U32, ExpressionKind::Literal(format!("{value}u")))
    }

    /// A call with values for arguments.
    pub fn call(ty: Type, function: impl Into<String>, arguments: Vec<Expression>) -> Expression {
        let arguments = arguments.into_iter().map(Argument::Value).collect();
        Expression::new(ty, ExpressionKind::Call(function.into(), arguments))
    }

    /// An operator between two expressions.
    pub fn binary(
        ty: Type,
        operator: &'static str,
        left: Expression,
        right: Expression,
    ) -> Expression {
        Expression::new(
            ty,
            ExpressionKind::Binary(operator, Box::new(left), Box::new(right)),
        )
    }

    /// The same with something known of its value.
    pub fn known(mut self, exactness: Exactness) -> Expression {
        self.exactness = Some(exactness);
        self
    }

    /// The value of a place.
    pub fn load(place: Place) -> Expression {
        let exactness = (place.ty.scalar() == Some(ScalarType::F32)).then_some(Exactness::STORED);
        Expression {
            ty: place.ty.clone(),
            exactness,
            kind: ExpressionKind::Load(place),
        }
    }
}
