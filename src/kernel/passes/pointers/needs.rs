//! The needs of a kernel's accesses: the heap's element type suitable for all of them.

use naga::{
    AtomicFunction, Block, Expression, Function, Handle, Module, Scalar, ScalarKind, Statement,
};

use super::super::blocks::each_statement;
use super::options::{HeapElement, PointerErrorKind};
use super::scan::{FunctionScan, Role, role};
use super::shape::{Shape, Ty, vector_align};

/// The atomic operations on scalars of one width.
#[derive(Clone, Copy, Default)]
struct Atomics {
    used: bool,
    /// Minima or maxima of signed scalars, and of unsigned ones.
    signed_order: bool,
    unsigned_order: bool,
}

impl Atomics {
    /// Whether the scalars are bound as signed ones; `bits` is their width.
    fn signed(self, bits: u32) -> Result<bool, PointerErrorKind> {
        match (self.signed_order, self.unsigned_order) {
            (true, true) => Err(PointerErrorKind::MixedAtomics { bits }),
            (signed, _) => Ok(signed),
        }
    }
}

/// Needs gathered over all functions.
pub(super) struct Needs {
    /// The least alignment of loads and stores, and the widest vector, in bytes.
    pub align: u32,
    widest: u32,
    atomics: Atomics,
    /// Atomics of 64 bits.
    wide: Atomics,
    /// The least alignment of one of those, in bytes.
    wide_align: u32,
    pub writes: bool,
    pub addresses: bool,
}

impl Needs {
    pub fn new() -> Self {
        Self {
            align: 16,
            widest: 4,
            atomics: Atomics::default(),
            wide: Atomics::default(),
            wide_align: 16,
            writes: false,
            addresses: false,
        }
    }

    /// The element type that suits all accesses.
    pub fn element(&self) -> Result<HeapElement, PointerErrorKind> {
        Ok(match (self.atomics.used, self.atomics.signed(32)?) {
            (true, true) => HeapElement::AtomicSigned,
            (true, false) => HeapElement::AtomicWord,
            (false, _) => match self.align.min(self.widest) {
                16.. => HeapElement::Quad,
                8..16 => HeapElement::Pair,
                _ => HeapElement::Word,
            },
        })
    }

    /// The scalar of the second view, for kernels with atomics of 64 bits.
    pub fn wide(&self) -> Result<Option<Scalar>, PointerErrorKind> {
        let scalar = match self.wide.signed(64)? {
            true => Scalar::I64,
            false => Scalar::U64,
        };
        match self.wide.used {
            true if self.wide_align < 8 => Err(PointerErrorKind::MisalignedAtomic),
            used => Ok(used.then_some(scalar)),
        }
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
        self.writes = true;
        let Shape::Atomic(scalar) = heap.pointee.shape(&module.types) else {
            return;
        };
        // Where an element of the heap begins, a pair of words has to begin as well.
        self.align = self.align.min(heap.align);
        let atomics = self.atomics_of(scalar, heap.align);
        atomics.used = true;
        if let AtomicFunction::Min | AtomicFunction::Max = fun {
            let signed = scalar.kind == ScalarKind::Sint;
            atomics.signed_order |= signed;
            atomics.unsigned_order |= !signed;
        }
    }

    /// The atomics of such scalars, one more of which is at a multiple of `align`.
    fn atomics_of(&mut self, scalar: Scalar, align: u32) -> &mut Atomics {
        match scalar.width {
            8 => {
                self.wide_align = self.wide_align.min(align);
                &mut self.wide
            }
            _ => &mut self.atomics,
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
        match pointer.pointee.shape(&module.types) {
            Shape::Atomic(scalar) => self.atomics_of(scalar, pointer.align).used = true,
            _ => self.add_type(module, pointer.pointee, store),
        }
    }

    fn add_type(&mut self, module: &Module, ty: Ty, store: bool) {
        let mut vector = |count: u32, scalar: Scalar| {
            self.widest = self.widest.max(vector_bytes(count, scalar));
            // Half a word is stored by two atomic operations, which keeps its neighbour.
            self.atomics.used |= store && scalar.width == 2 && count % 2 == 1;
        };
        match ty.shape(&module.types) {
            Shape::Scalar(scalar) => vector(1, scalar),
            Shape::Vector { count, scalar } => vector(count, scalar),
            Shape::Matrix { rows, scalar, .. } => vector(rows, scalar),
            Shape::Array { base, .. } => self.add_type(module, Ty::Handle(base), store),
            Shape::Struct(members) => {
                for (ty, _) in members {
                    self.add_type(module, Ty::Handle(ty), store);
                }
            }
            // Values have no atomics inside.
            Shape::Atomic(_) | Shape::Other => {}
        }
    }
}

/// The most bytes in a single load of such a vector.
fn vector_bytes(count: u32, scalar: Scalar) -> u32 {
    vector_align(count, scalar).clamp(4, 16)
}
