//! Places in memory to read or write.

use super::ast::*;
use super::print::SCRATCH;
use super::scope::{Generator, Named, NamedKind, SharedArray};

impl Generator {
    /// A place of a type in a variable of the function or of the module, or behind a pointer. `None` if
    /// there is no such place.
    pub fn place(&mut self, ty: &Type, depth: u32) -> Option<Place> {
        self.place_where(ty, depth, |_| true)
    }

    /// As [`Generator::place`], with roots of the wanted kind only.
    pub fn place_where(
        &mut self,
        ty: &Type,
        depth: u32,
        wanted: impl Fn(NamedKind) -> bool,
    ) -> Option<Place> {
        let mut candidates: Vec<(String, bool, Vec<Choice>)> = Vec::new();
        for named in &self.scope.named {
            if named.kind == NamedKind::Value || !wanted(named.kind) {
                continue;
            }
            let through_pointer = matches!(named.kind, NamedKind::Pointer(_) | NamedKind::Alias);
            for path in self.paths(&named.ty, ty, 3) {
                candidates.push((named.name.clone(), through_pointer, path));
            }
        }
        if candidates.is_empty() {
            return None;
        }
        let (root, through_pointer, path) = self.pick(&candidates);
        let path = path
            .into_iter()
            .map(|choice| self.step(choice, depth))
            .collect();
        Some(Place {
            root,
            through_pointer,
            path,
            ty: ty.clone(),
        })
    }

    /// A variable or pointer to pass as a pointer of a space to a function; not one of `taken`.
    pub fn pointer_argument(
        &mut self,
        parameter: &Parameter,
        space: &str,
        taken: &[String],
        depth: u32,
    ) -> Option<Place> {
        let kinds = move |kind: NamedKind| match kind {
            NamedKind::Variable => space == "function",
            NamedKind::Private => space == "private",
            NamedKind::Pointer(of) => space == of,
            // Somebody else may pass the variable itself.
            NamedKind::Value | NamedKind::Alias => false,
        };
        let place = self.place_where(&parameter.ty, depth, kinds)?;
        // Only whole variables may be passed: SPIR-V has no other pointers for parameters.
        (!taken.contains(&place.root) && place.path.is_empty()).then_some(place)
    }

    /// Ways from values of type `from` to parts of type `to`, of at most `most` steps.
    fn paths(&self, from: &Type, to: &Type, most: u32) -> Vec<Vec<Choice>> {
        let mut paths = Vec::new();
        if from == to {
            paths.push(Vec::new());
        }
        if most == 0 {
            return paths;
        }
        let mut within = |choice: Choice, part: &Type| {
            for mut path in self.paths(part, to, most - 1) {
                path.insert(0, choice.clone());
                paths.push(path);
            }
        };
        match from {
            Type::Array(element, length) => within(Choice::Index(*length), element),
            Type::Matrix(columns, rows) => within(
                Choice::Index((*columns).into()),
                &Type::Vector(*rows, ScalarType::F32),
            ),
            Type::Vector(size, scalar) => {
                within(Choice::Component((*size).into()), &Type::Scalar(*scalar))
            }
            _ => {}
        }
        for (name, part) in self.members(from) {
            within(Choice::Member(name), &part);
        }
        paths
    }

    fn step(&mut self, choice: Choice, depth: u32) -> Step {
        match choice {
            Choice::Member(name) => Step::Member(name),
            Choice::Index(length) => Step::Index {
                index: Box::new(self.index(depth)),
                length,
            },
            Choice::Component(length) => Step::Component {
                index: Box::new(self.index(depth)),
                length,
            },
        }
    }

    /// An index, to be reduced to the length. Without depth it is no place itself: places with indices
    /// that are places would have no end.
    pub fn index(&mut self, depth: u32) -> Expression {
        if depth > 0 && self.one_in(2) {
            return self.expression(&Type::U32, depth - 1);
        }
        let values = |named: &&Named| named.kind == NamedKind::Value && named.ty == Type::U32;
        let names: Vec<String> = self
            .scope
            .named
            .iter()
            .filter(values)
            .map(|named| named.name.clone())
            .collect();
        if !names.is_empty() && self.one_in(2) {
            let name = self.pick(&names);
            return Expression::name(Type::U32, name);
        }
        self.word()
    }

    /// An element of a shared array that this invocation may write.
    pub fn own_element(&mut self, depth: u32) -> Option<(Place, SharedArray)> {
        let arrays: Vec<SharedArray> = self
            .scope
            .shared
            .iter()
            .filter(|array| !array.readable)
            .cloned()
            .collect();
        if arrays.is_empty() {
            return None;
        }
        let array = self.pick(&arrays);
        let index = Box::new(self.index(depth));
        let step = Step::Own {
            base: array.own_base.clone(),
            index,
            length: array.own_length,
        };
        let place = Place {
            root: array.name.clone(),
            through_pointer: false,
            path: vec![step],
            ty: array.element.clone(),
        };
        Some((place, array))
    }

    /// An element of a shared array that everybody may read now, or of the invocation's own.
    pub fn shared_element(&mut self, ty: &Type, depth: u32) -> Option<Place> {
        let arrays: Vec<SharedArray> = self
            .scope
            .shared
            .iter()
            .filter(|array| array.element == *ty)
            .cloned()
            .collect();
        if arrays.is_empty() {
            return None;
        }
        let array = self.pick(&arrays);
        let index = Box::new(self.index(depth));
        let step = match array.readable {
            true => Step::Shared {
                base: array.group_base.clone(),
                index,
                length: array.group_length,
            },
            false => Step::Own {
                base: array.own_base.clone(),
                index,
                length: array.own_length,
            },
        };
        Some(Place {
            root: array.name,
            through_pointer: false,
            path: vec![step],
            ty: ty.clone(),
        })
    }

    /// The scratch memory in storage.
    pub fn scratch(&self) -> SharedArray {
        SharedArray {
            name: "scratch".to_owned(),
            element: Type::U32,
            own_base: format!("gid.x * {SCRATCH}u"),
            own_length: SCRATCH,
            group_base: Some(format!("wid.x * {}u", SCRATCH * self.workgroup_size)),
            group_length: SCRATCH * self.workgroup_size,
            storage: true,
            readable: false,
        }
    }
}

/// A step of which the index is not chosen yet.
#[derive(Clone, Debug)]
enum Choice {
    Member(String),
    Index(u32),
    Component(u32),
}
