//! What a program under construction has: names, types, and what may stand at the current place.

use fastrand::Rng;

use super::Options;
use super::ast::*;

/// A variable, a value or a pointer that has a name.
#[derive(Clone, Debug)]
pub struct Named {
    pub name: String,
    pub ty: Type,
    pub kind: NamedKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedKind {
    /// A `let` or a parameter.
    Value,
    /// A variable of the function.
    Variable,
    /// A private variable of the module.
    Private,
    /// A parameter that points to memory of the given space.
    Pointer(&'static str),
    /// A `let` that points to a variable which has a name as well.
    Alias,
}

/// An array that the invocations of a work-group share.
#[derive(Clone, Debug)]
pub struct SharedArray {
    pub name: String,
    pub element: Type,
    /// Where the invocation's own elements begin.
    pub own_base: String,
    pub own_length: u32,
    /// Where the work-group's elements begin; `None` at the array's beginning.
    pub group_base: Option<String>,
    pub group_length: u32,
    /// True in storage memory, false in work-group memory.
    pub storage: bool,
    /// True where everybody may read everything, false where each has its own part.
    pub readable: bool,
}

/// What may stand at the current place of a function.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    pub named: Vec<Named>,
    pub shared: Vec<SharedArray>,
    /// Values that are the same for the whole work-group.
    pub uniform: Vec<String>,
    /// All invocations of the work-group come here together, so that barriers may stand here.
    pub together: bool,
    /// What `break` and `continue` may leave.
    pub breakable: bool,
    pub continuable: bool,
    /// `return` may stand here: with a value of this type, or without.
    pub returns: Option<Option<Type>>,
    /// The invocations of the work-group may end here, if they do so together.
    pub ends: bool,
    /// The entry point's built-in values are in scope.
    pub built_ins: bool,
    /// How often this place may be executed by one invocation.
    pub times: f64,
    pub depth: u32,
}

/// A function that may be called.
#[derive(Clone, Debug)]
pub struct Signature {
    pub name: String,
    pub parameters: Vec<Parameter>,
    pub result: Option<Type>,
    /// Steps of a call.
    pub cost: f64,
    /// Has barriers: to be called where all invocations are together.
    pub together: bool,
    /// Uses private variables by name, so that no pointer to one may be passed beside.
    pub uses_private: bool,
}

/// A program under construction.
pub struct Generator {
    pub rng: Rng,
    pub options: Options,
    pub structures: Vec<Structure>,
    pub signatures: Vec<Signature>,
    pub workgroup_size: u32,
    /// Steps that an invocation has left.
    pub steps_left: f64,
    pub scope: Scope,
    counter: u32,
}

impl Generator {
    pub fn new(seed: u64, options: Options) -> Generator {
        let mut rng = Rng::with_seed(seed);
        let workgroup_size = [1, 4, 8, 12, 16, 32, 33, 64][rng.usize(0..8)];
        Generator {
            rng,
            options,
            structures: Vec::new(),
            signatures: Vec::new(),
            workgroup_size,
            steps_left: options.steps.into(),
            scope: Scope::default(),
            counter: 0,
        }
    }

    /// A name that nothing else has.
    pub fn fresh(&mut self, prefix: &str) -> String {
        self.counter += 1;
        // The underscore keeps `i` and 32 from becoming the name of a type.
        format!("{prefix}_{}", self.counter)
    }

    /// True once in `times`.
    pub fn one_in(&mut self, times: u32) -> bool {
        self.rng.u32(0..times) == 0
    }

    /// One of several.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.rng.usize(0..choices.len())].clone()
    }

    /// Takes steps from what is left; false if too few are.
    pub fn spend(&mut self, steps: f64) -> bool {
        let needed = steps * self.scope.times;
        let enough = needed <= self.steps_left;
        if enough {
            self.steps_left -= needed;
        }
        enough
    }

    /// Does something in a scope within the current one, and returns to this one.
    pub fn within<T>(
        &mut self,
        change: impl FnOnce(&mut Scope),
        inside: impl FnOnce(&mut Generator) -> T,
    ) -> T {
        let outer = self.scope.clone();
        self.scope.depth += 1;
        change(&mut self.scope);
        let result = inside(self);
        self.scope = outer;
        result
    }

    /// A scalar type.
    pub fn scalar_type(&mut self) -> ScalarType {
        self.pick(&[
            ScalarType::U32,
            ScalarType::U32,
            ScalarType::I32,
            ScalarType::I32,
            ScalarType::F32,
            ScalarType::Bool,
        ])
    }

    /// A type of a value, not too large.
    pub fn value_type(&mut self) -> Type {
        match self.rng.u32(0..12) {
            0..=5 => Type::Scalar(self.scalar_type()),
            6..=8 => Type::Vector(self.rng.u8(2..=4), self.scalar_type()),
            9 => Type::Matrix(self.rng.u8(2..=4), self.rng.u8(2..=4)),
            10 => {
                let element = self.element_type();
                Type::Array(Box::new(element), self.rng.u32(2..=5))
            }
            _ if !self.structures.is_empty() => {
                Type::Structure(self.rng.usize(0..self.structures.len()))
            }
            _ => Type::U32,
        }
    }

    /// A type of elements: a scalar, a vector, now and then an array or a structure.
    pub fn element_type(&mut self) -> Type {
        match self.rng.u32(0..8) {
            0..=3 => Type::Scalar(self.scalar_type()),
            4 | 5 => Type::Vector(self.rng.u8(2..=4), self.scalar_type()),
            6 if !self.structures.is_empty() => {
                Type::Structure(self.rng.usize(0..self.structures.len()))
            }
            _ => Type::Array(Box::new(Type::U32), self.rng.u32(2..=3)),
        }
    }

    /// A type that values of a type are made of, on the way to a scalar: `None` for scalars.
    pub fn members(&self, ty: &Type) -> Vec<(String, Type)> {
        match ty {
            Type::Vector(size, scalar) => ["x", "y", "z", "w"][..usize::from(*size)]
                .iter()
                .map(|name| ((*name).to_owned(), Type::Scalar(*scalar)))
                .collect(),
            Type::Structure(index) => self.structures[*index].members.clone(),
            _ => Vec::new(),
        }
    }
}
