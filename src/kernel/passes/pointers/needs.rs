//! The needs of a kernel's accesses: the heap's element type suitable for all of them.

use naga::{
    AtomicFunction, Block, Expression, Function, Handle, Module, Scalar, ScalarKind, Statement,
};

use super::super::blocks::each_statement;
use super::options::{HeapElement, PointerErrorKind};
use super::scan::{FunctionScan, Role, role};
use super::shape::{Shape, Ty, vector_align};

/// Needs gathered over all functions.
pub(super) struct Needs {
    /// The least alignment of loads and stores, and the widest vector, in bytes.
    pub align: u32,
    widest: u32,
    atomics: bool,
    signed_order: bool,
    unsigned_order: bool,
    pub writes: bool,
    pub addresses: bool,
}

impl Needs {
    pub fn new() -> Self {
        Self {
            align: 16,
            widest: 4,
            atomics: false,
            signed_order: false,
            unsigned_order: false,
            writes: false,
            addresses: false,
        }
    }

    /// The element type that suits all accesses.
    pub fn element(&self) -> Result<HeapElement, PointerErrorKind> {
        Ok(
            match (self.atomics, self.signed_order, self.unsigned_order) {
                (_, true, true) => return Err(PointerErrorKind::MixedAtomics),
                (true, true, _) => HeapElement::AtomicSigned,
                (true, ..) => HeapElement::AtomicWord,
                _ => match self.align.min(self.widest) {
                    16.. => HeapElement::Quad,
                    8..16 => HeapElement::Pair,
                    _ => HeapElement::Word,
                },
            },
        )
    }

    /// Adds the loads, stores, atomics and calls of a function whose pointers are known.
    pub fn add(&mut self, module: &Module, function: &Function, scan: &FunctionScan) {
        for (_, expression) in function.expressions.iter() {
            if let Expression::Load { pointer } = *expression {
                self.add_access(module, scan, pointer, false);
            }
        }
        let body: &Block = &function.body;
        each_statement(body, &mut |statement| match *statement {
            Statement::Store { pointer, .. } => self.add_access(module, scan, pointer, true),
            Statement::Atomic {
                pointer, ref fun, ..
            } => self.add_atomic(module, scan, pointer, fun),
            Statement::Call { function, .. } => {
                self.addresses |= role(&module.functions[function], &module.types) == Role::Address;
            }
            _ => {}
        });
    }

    fn add_atomic(
        &mut self,
        module: &Module,
        scan: &FunctionScan,
        pointer: Handle<Expression>,
        fun: &AtomicFunction,
    ) {
        let Some(heap) = scan.pointers.get(&pointer) else {
            return;
        };
        self.atomics = true;
        self.writes = true;
        if let AtomicFunction::Min | AtomicFunction::Max = fun {
            let signed = matches!(
                heap.pointee.shape(&module.types),
                Shape::Atomic(Scalar {
                    kind: ScalarKind::Sint,
                    ..
                })
            );
            self.signed_order |= signed;
            self.unsigned_order |= !signed;
        }
    }

    fn add_access(
        &mut self,
        module: &Module,
        scan: &FunctionScan,
        pointer: Handle<Expression>,
        store: bool,
    ) {
        let Some(pointer) = scan.pointers.get(&pointer) else {
            return;
        };
        self.align = self.align.min(pointer.align);
        self.writes |= store;
        self.add_type(module, pointer.pointee, store);
    }

    fn add_type(&mut self, module: &Module, ty: Ty, store: bool) {
        let mut vector = |count: u32, scalar: Scalar| {
            self.widest = self.widest.max(vector_bytes(count, scalar));
            // Half a word is stored by two atomic operations, which keeps its neighbour.
            self.atomics |= store && scalar.width == 2 && count % 2 == 1;
        };
        match ty.shape(&module.types) {
            Shape::Scalar(scalar) => vector(1, scalar),
            Shape::Vector { count, scalar } => vector(count, scalar),
            Shape::Matrix { rows, scalar, .. } => vector(rows, scalar),
            Shape::Atomic(_) => self.atomics = true,
            Shape::Array { base, .. } => self.add_type(module, Ty::Handle(base), store),
            Shape::Struct(members) => {
                for (ty, _) in members {
                    self.add_type(module, Ty::Handle(ty), store);
                }
            }
            Shape::Other => {}
        }
    }
}

/// The most bytes in a single load of such a vector.
fn vector_bytes(count: u32, scalar: Scalar) -> u32 {
    vector_align(count, scalar).clamp(4, 16)
}
