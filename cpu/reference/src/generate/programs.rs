//! Whole programs.

use super::Options;
use super::ast::*;
use super::scope::{Generator, Named, NamedKind, Scope, SharedArray, Signature};

/// Words of input.
const INPUT: usize = 64;

/// Makes a program. The same seed and options give the same program.
pub fn program(seed: u64, options: Options) -> Program {
    let mut generator = Generator::new(seed, options);
    generator.program()
}

impl Generator {
    fn program(&mut self) -> Program {
        for _ in 0..self.rng.usize(0..3) {
            let structure = self.structure();
            self.structures.push(structure);
        }
        let (globals, shared) = self.globals();
        let privates: Vec<Named> = globals
            .iter()
            .filter(|global| global.space == "private")
            .map(|global| Named {
                name: global.name.clone(),
                ty: global.ty.clone(),
                kind: NamedKind::Private,
            })
            .collect();
        let mut functions = Vec::new();
        for _ in 0..self.rng.usize(0..4) {
            functions.push(self.function(&privates));
        }
        if self.one_in(3) {
            functions.push(self.meeting_function(&privates, &shared));
        }
        self.scope = Scope {
            named: privates,
            shared,
            uniform: Vec::new(),
            together: true,
            ends: true,
            built_ins: true,
            times: 1.0,
            ..Scope::default()
        };
        let count = self.options.statements;
        let body = self.statements(count);
        Program {
            workgroup_size: self.workgroup_size,
            workgroups: self.rng.u32(1..4),
            structures: std::mem::take(&mut self.structures),
            globals,
            functions,
            body,
            input: (0..INPUT).map(|_| self.input_word()).collect(),
        }
    }

    fn input_word(&mut self) -> u32 {
        match self.rng.u32(0..4) {
            0 => self.rng.u32(0..16),
            1 => self.rng.u32(..) >> self.rng.u32(0..32),
            2 => self.pick(&[0, 1, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff]),
            _ => self.rng.u32(..),
        }
    }

    fn structure(&mut self) -> Structure {
        let count = self.rng.usize(1..5);
        let name = self.fresh("S");
        let members = (0..count)
            .map(|_| {
                let ty = self.element_type();
                (self.fresh("m"), ty)
            })
            .collect();
        Structure { name, members }
    }

    /// Private variables, and arrays that the invocations of a work-group share.
    fn globals(&mut self) -> (Vec<Global>, Vec<SharedArray>) {
        let mut globals = Vec::new();
        for _ in 0..self.rng.usize(0..3) {
            let ty = self.value_type();
            globals.push(Global {
                name: self.fresh("g"),
                space: "private",
                ty,
            });
        }
        let mut shared = vec![self.scratch()];
        for _ in 0..self.rng.usize(0..3) {
            let element = self.element_type();
            let own_length = self.rng.u32(1..4);
            let group_length = own_length * self.workgroup_size;
            let name = self.fresh("w");
            let ty = Type::Array(Box::new(element.clone()), group_length);
            globals.push(Global {
                name: name.clone(),
                space: "workgroup",
                ty,
            });
            shared.push(SharedArray {
                name,
                element,
                own_base: format!("lid * {own_length}u"),
                own_length,
                group_base: None,
                group_length,
                storage: false,
                readable: false,
            });
        }
        (globals, shared)
    }

    /// A function that any invocation may call alone: values and pointers in, a value out.
    fn function(&mut self, privates: &[Named]) -> Function {
        let mut parameters = Vec::new();
        for _ in 0..self.rng.usize(0..4) {
            let name = self.fresh("a");
            let pointer = match self.rng.u32(0..5) {
                0 | 1 => Some("function"),
                2 => Some("private"),
                _ => None,
            };
            parameters.push(Parameter {
                name,
                ty: self.value_type(),
                pointer,
            });
        }
        let points_to_private = parameters
            .iter()
            .any(|parameter| parameter.pointer == Some("private"));
        let result = if self.one_in(5) {
            None
        } else {
            Some(self.value_type())
        };
        let uses_private = !points_to_private && self.rng.bool();
        self.scope = Scope {
            returns: Some(result.clone()),
            times: 1.0,
            ..Scope::default()
        };
        if uses_private {
            self.scope.named.extend(privates.iter().cloned());
        }
        self.body(parameters, result, uses_private, false)
    }

    /// A function with barriers, which all invocations of a work-group call together.
    fn meeting_function(&mut self, privates: &[Named], shared: &[SharedArray]) -> Function {
        let built_in = |name: &str, ty: Type| Parameter {
            name: name.to_owned(),
            ty,
            pointer: None,
        };
        let triple = Type::Vector(3, ScalarType::U32);
        let parameters = vec![
            built_in("lid", Type::U32),
            built_in("wid", triple.clone()),
            built_in("gid", triple),
        ];
        self.scope = Scope {
            named: privates.to_vec(),
            shared: shared.to_vec(),
            together: true,
            built_ins: true,
            times: 1.0,
            ..Scope::default()
        };
        self.choose_modes(true, true);
        self.body(parameters, None, true, true)
    }

    /// The body of a function in the scope that was prepared, and its signature.
    fn body(
        &mut self,
        parameters: Vec<Parameter>,
        result: Option<Type>,
        uses_private: bool,
        together: bool,
    ) -> Function {
        for parameter in &parameters {
            let kind = match parameter.pointer {
                Some(space) => NamedKind::Pointer(space),
                None => NamedKind::Value,
            };
            self.scope.named.push(Named {
                name: parameter.name.clone(),
                ty: parameter.ty.clone(),
                kind,
            });
        }
        // A function may take a part of all steps, since it is called several times.
        let before = self.steps_left;
        self.steps_left = f64::from(self.options.steps) / 16.0;
        let statements = self.rng.u32(2..10);
        let mut block = Vec::new();
        if together {
            block.push(Statement::Barrier(Barrier::Both));
        }
        block.extend(self.statements(statements));
        if together {
            block.push(Statement::Barrier(Barrier::Both));
        }
        if let Some(ty) = &result
            && !matches!(block.last(), Some(Statement::Return(_)))
        {
            let value = self.stored(ty, 3);
            block.push(Statement::Return(Some(value)));
        }
        let cost = f64::from(self.options.steps) / 16.0 - self.steps_left + 1.0;
        self.steps_left = before;
        let name = self.fresh("f");
        // A function that calls one with private variables has them, too: nobody keeps count of calls.
        let uses_private = uses_private
            || self
                .signatures
                .iter()
                .any(|signature| signature.uses_private);
        self.signatures.push(Signature {
            name: name.clone(),
            parameters: parameters.clone(),
            result: result.clone(),
            cost,
            together,
            uses_private,
        });
        Function {
            name,
            parameters,
            result,
            body: block,
        }
    }
}
