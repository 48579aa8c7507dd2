//! The variables added to a module by the pass, and the types of its expressions.

use naga::{
    AddressSpace, ArraySize, Expression, GlobalVariable, Handle, MemoryDecorations, Module,
    ResourceBinding, Scalar, Span, StorageAccess, Type, TypeInner, UniqueArena, VectorSize,
};

use super::super::{status, type_of, unique_name};
use super::options::{
    ArgumentTable, HeapElement, HeapInfo, HeapMemory, PointerErrorKind, PointerOptions,
    TranslationMode,
};
use super::reuse::may_see_others;
use super::scan::{Scan, row_of};
use super::system::System;

/// How pointers cross the boundary of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Boundary {
    /// As the byte offset in the shared heap: `u32`.
    Offset,
    /// As the pointer itself: `vec2<u32>`.
    Pointer,
}

/// How a pointer becomes a byte offset and a binding.
#[derive(Clone, Copy, Debug)]
pub(super) struct Translation {
    /// Bindings of the shared heap and of device memory.
    pub shared: u32,
    pub device: u32,
    pub first_tag: u32,
    /// Logarithm of the bytes in a segment of the shared heap.
    pub segment_shift: u32,
    pub window_aligned: bool,
    pub shared_first: bool,
}

impl Translation {
    pub fn bindings(&self) -> u32 {
        self.shared + self.device
    }
}

/// The second view of the heap, for atomics of 64 bits.
pub(super) struct Wide {
    /// The variables, in the order of [`Heap::variables`].
    pub variables: Vec<Handle<GlobalVariable>>,
    pub scalar: Scalar,
    /// The type of a comparing exchange's result.
    pub exchange: Handle<Type>,
}

/// Everything at module scope that lowered code refers to.
pub(super) struct Heap {
    /// The bindings, the favoured ones first.
    pub variables: Vec<Handle<GlobalVariable>>,
    pub element: HeapElement,
    pub wide: Option<Wide>,
    /// Pointers in a node have a choice of their own.
    pub pointers_apart: bool,
    /// What was loaded need not be loaded again.
    pub reuses: bool,
    pub translation: Translation,
    pub boundary: Boundary,
    pub info: Option<Handle<GlobalVariable>>,
    /// The parts of the allocation table, and that of device memory.
    pub allocations: Vec<Handle<GlobalVariable>>,
    pub device_allocations: Option<Handle<GlobalVariable>>,
    pub table: Option<Handle<GlobalVariable>>,
    /// The status record, in checked mode, and where an invocation keeps its number.
    pub status: Option<Handle<GlobalVariable>>,
    pub invocation: Option<Handle<GlobalVariable>>,
    /// Where an invocation notes its first fault: code (0 for none), low and high word of the address.
    pub notes: Option<[Handle<GlobalVariable>; 3]>,
    pub fault: Option<Handle<naga::Function>>,
    /// The functions that translate addresses of the host's memory, where pointers are such addresses.
    pub system: Option<System>,
    pub types: Types,
}

/// Handles of types needed again and again.
#[derive(Clone, Copy)]
pub(super) struct Types {
    pub u32: Handle<Type>,
    pub vec2: Handle<Type>,
    pub vec3: Handle<Type>,
    pub bool: Handle<Type>,
    pub exchange: Option<Handle<Type>>,
}

/// The handle of a vector of `count` (1 for the scalar itself).
pub(in crate::kernel::passes) fn vector_type(
    types: &mut UniqueArena<Type>,
    count: u32,
    scalar: Scalar,
) -> Handle<Type> {
    let inner = match vector_size(count) {
        Some(size) => TypeInner::Vector { size, scalar },
        None => TypeInner::Scalar(scalar),
    };
    types.insert(Type { name: None, inner }, Span::UNDEFINED)
}

pub(super) fn vector_size(count: u32) -> Option<VectorSize> {
    match count {
        2 => Some(VectorSize::Bi),
        3 => Some(VectorSize::Tri),
        4 => Some(VectorSize::Quad),
        _ => None,
    }
}

fn check(options: &PointerOptions) -> Result<(), PointerErrorKind> {
    let segments = Segments::of(&options.memory);
    let (shared, device) = (segments.shared.len(), segments.device.len());
    let problem = if shared == 0 {
        "the shared heap has no binding; give it at least one segment"
    } else if matches!(options.memory, HeapMemory::Split { .. }) && device == 0 {
        "split memory has no device segment; describe it as unified"
    } else if shared > 1 && !options.segment_bytes.is_power_of_two() {
        "the size of a segment must be a power of two"
    } else if shared > 1 && options.segment_bytes < 16 {
        "a segment must have at least 16 bytes"
    } else if options.info.is_none() && (!options.window_aligned || options.checked.is_some()) {
        "a heap that is not window-aligned, or checked, needs the uniform that describes it"
    } else {
        return Ok(());
    };
    Err(PointerErrorKind::Options(problem))
}

/// The bindings of a heap, by where their memory is.
struct Segments<'o> {
    shared: &'o [ResourceBinding],
    device: &'o [ResourceBinding],
    /// The tag in addresses of the first segment of device memory.
    first_tag: u32,
}

impl<'o> Segments<'o> {
    fn of(memory: &'o HeapMemory) -> Self {
        match memory {
            HeapMemory::Unified { segments } => Self {
                shared: segments,
                device: &[],
                first_tag: 0,
            },
            HeapMemory::Split {
                shared,
                device,
                first_tag,
            } => Self {
                shared,
                device,
                first_tag: (*first_tag).into(),
            },
            HeapMemory::System { pool, .. } => Self {
                shared: std::slice::from_ref(pool),
                device: &[],
                first_tag: 0,
            },
        }
    }

    fn translation(&self, options: &PointerOptions) -> Translation {
        Translation {
            shared: self.shared.len() as u32,
            device: self.device.len() as u32,
            first_tag: self.first_tag,
            segment_shift: options.segment_bytes.trailing_zeros().min(31),
            window_aligned: options.window_aligned,
            shared_first: self.device.is_empty() || options.mode == TranslationMode::SharedFavored,
        }
    }

    /// The bindings, the favoured ones first.
    fn in_order(&self, shared_first: bool) -> Vec<ResourceBinding> {
        match shared_first {
            true => self.shared.iter().chain(self.device).copied().collect(),
            false => self.device.iter().chain(self.shared).copied().collect(),
        }
    }

    /// The second bindings of the same memory, in the same order.
    fn wide_in_order(
        &self,
        options: &PointerOptions,
        shared_first: bool,
    ) -> Result<Vec<ResourceBinding>, PointerErrorKind> {
        let (shared, device) = (self.shared.len(), self.device.len());
        if options.wide.len() != shared + device {
            let problem = "atomics of 64 bits need a second binding for each segment";
            return Err(PointerErrorKind::Options(problem));
        }
        let mut order = options.wide.clone();
        if !shared_first {
            order.rotate_left(shared);
        }
        Ok(order)
    }
}

const READ_ONLY: AddressSpace = AddressSpace::Storage {
    access: StorageAccess::LOAD,
};

/// The arrays of such elements that the heap's segments are to the kernel.
fn segment_variables(
    module: &mut Module,
    options: &PointerOptions,
    (base, stride): (Handle<Type>, u32),
    order: Vec<ResourceBinding>,
) -> Vec<Handle<GlobalVariable>> {
    let array = TypeInner::Array {
        base,
        size: ArraySize::Dynamic,
        stride,
    };
    let array = type_of(module, array);
    let space = AddressSpace::Storage {
        access: StorageAccess::LOAD | StorageAccess::STORE,
    };
    let variables: Vec<_> = (order.into_iter())
        .map(|binding| variable(module, "tombolo_heap", space, Some(binding), array))
        .collect();
    // The program's decorations of its variables hold for the memory in their place.
    let decorations = (module.global_variables.iter())
        .filter(|(handle, _)| row_of(module, *handle, options).is_some())
        .fold(MemoryDecorations::empty(), |all, (_, variable)| {
            all | variable.memory_decorations
        });
    for &variable in &variables {
        module.global_variables[variable].memory_decorations = decorations;
    }
    variables
}

/// The second view of the heap's segments, of atomics of kind `scalar`.
fn wide_view(
    module: &mut Module,
    options: &PointerOptions,
    scalar: Scalar,
    order: Vec<ResourceBinding>,
) -> Wide {
    let base = type_of(module, TypeInner::Atomic(scalar));
    let stride = scalar.width.into();
    let exchange = naga::PredeclaredType::AtomicCompareExchangeWeakResult(scalar);
    Wide {
        variables: segment_variables(module, options, (base, stride), order),
        scalar,
        exchange: module.generate_predeclared_type(exchange),
    }
}

/// The uniform that says where the heap lies.
fn info_variable(
    module: &mut Module,
    binding: ResourceBinding,
    device_segments: u32,
) -> Handle<GlobalVariable> {
    let quad = vector_type(&mut module.types, 4, Scalar::U32);
    let ty = uniform_rows(module, quad, HeapInfo::len(device_segments) / 4);
    let space = AddressSpace::Uniform;
    variable(module, "tombolo_heap_info", space, Some(binding), ty)
}

/// A part of an allocation table.
fn allocations_variable(module: &mut Module, binding: ResourceBinding) -> Handle<GlobalVariable> {
    let base = vector_type(&mut module.types, 1, Scalar::U32);
    let words = TypeInner::Array {
        base,
        size: ArraySize::Dynamic,
        stride: 4,
    };
    let ty = type_of(module, words);
    variable(module, "tombolo_allocations", READ_ONLY, Some(binding), ty)
}

/// The argument table. No uniform: lavapipe folds uniforms into the conditions of branches, the use of lengths, and
/// ends the process for more than a few of them.
fn table_variable(module: &mut Module, table: &ArgumentTable) -> Handle<GlobalVariable> {
    let quad = vector_type(&mut module.types, 4, Scalar::U32);
    let length = u32::try_from(table.rows.len()).unwrap_or(u32::MAX);
    let ty = uniform_rows(module, quad, length);
    let binding = Some(table.binding);
    variable(module, "tombolo_arguments", READ_ONLY, binding, ty)
}

/// A word private to each invocation.
fn private_word(module: &mut Module, name: &str) -> Handle<GlobalVariable> {
    let u32 = vector_type(&mut module.types, 1, Scalar::U32);
    variable(module, name, AddressSpace::Private, None, u32)
}

impl Types {
    fn add(module: &mut Module, element: HeapElement) -> Self {
        let u32 = vector_type(&mut module.types, 1, Scalar::U32);
        let exchange = element.is_atomic().then(|| {
            module.generate_predeclared_type(
                naga::PredeclaredType::AtomicCompareExchangeWeakResult(element_scalar(element)),
            )
        });
        Self {
            u32,
            vec2: vector_type(&mut module.types, 2, Scalar::U32),
            vec3: vector_type(&mut module.types, 3, Scalar::U32),
            bool: vector_type(&mut module.types, 1, Scalar::BOOL),
            exchange,
        }
    }
}

impl Heap {
    /// Adds the bindings to `module`.
    pub fn add(
        module: &mut Module,
        options: &PointerOptions,
        scan: &Scan,
    ) -> Result<Self, PointerErrorKind> {
        check(options)?;
        let segments = Segments::of(&options.memory);
        let translation = segments.translation(options);
        let order = segments.in_order(translation.shared_first);
        let has_atomics = scan.element.is_atomic() || scan.wide.is_some();
        let reuses = !options.pointers_apart && !has_atomics && !may_see_others(module, &[]);
        let element = (element_type(module, scan.element), scan.element.bytes());
        let variables = segment_variables(module, options, element, order);
        let wide = match scan.wide {
            Some(scalar) => {
                let order = segments.wide_in_order(options, translation.shared_first)?;
                Some(wide_view(module, options, scalar, order))
            }
            None => None,
        };
        let is_system = matches!(options.memory, HeapMemory::System { .. });
        let checked = options.checked.is_some() && !is_system;
        let unified = segments.device.is_empty();
        let info = (options.info)
            .filter(|_| !options.window_aligned || checked)
            .map(|binding| info_variable(module, binding, translation.device));
        let asked = options.allocations.iter().filter(|_| checked);
        let allocations = asked
            .map(|&binding| allocations_variable(module, binding))
            .collect();
        let device_allocations = (options.device_allocations)
            .filter(|_| checked && !unified)
            .map(|binding| allocations_variable(module, binding));
        let table = (options.arguments.as_ref())
            .filter(|_| scan.uses_table)
            .map(|table| table_variable(module, table));
        let invocation = (checked || is_system).then(|| private_word(module, "tombolo_invocation"));
        let notes = checked.then(|| {
            ["tombolo_fault", "tombolo_fault_low", "tombolo_fault_high"]
                .map(|name| private_word(module, name))
        });
        let status = (options.checked.filter(|_| checked))
            .map(|binding| status::status_global(module, binding));
        let boundary = match unified && !checked && !scan.takes_addresses && !is_system {
            true => Boundary::Offset,
            false => Boundary::Pointer,
        };
        Ok(Self {
            variables,
            element: scan.element,
            wide,
            pointers_apart: options.pointers_apart,
            reuses,
            translation,
            boundary,
            info,
            allocations,
            device_allocations,
            table,
            status,
            invocation,
            notes,
            fault: None,
            system: None,
            types: Types::add(module, scan.element),
        })
    }

    /// The scalar type of a word of the heap.
    pub fn scalar(&self) -> Scalar {
        element_scalar(self.element)
    }

    /// Words in one element.
    pub fn words(&self) -> u32 {
        self.element.bytes() / 4
    }

    /// Logarithm of the bytes in one element.
    pub fn shift(&self) -> u32 {
        self.element.bytes().trailing_zeros()
    }

    /// The type in which pointers cross the boundary of a function, alone or with the bytes behind them.
    pub fn boundary_type(&self, with_bytes: bool) -> Handle<Type> {
        match (self.boundary, with_bytes) {
            (Boundary::Offset, false) => self.types.u32,
            (Boundary::Offset, true) | (Boundary::Pointer, false) => self.types.vec2,
            (Boundary::Pointer, true) => self.types.vec3,
        }
    }
}

pub(super) fn element_scalar(element: HeapElement) -> Scalar {
    match element {
        HeapElement::AtomicSigned => Scalar::I32,
        _ => Scalar::U32,
    }
}

fn element_type(module: &mut Module, element: HeapElement) -> Handle<Type> {
    let scalar = element_scalar(element);
    match element {
        HeapElement::AtomicWord | HeapElement::AtomicSigned => {
            type_of(module, TypeInner::Atomic(scalar))
        }
        _ => vector_type(&mut module.types, element.bytes() / 4, scalar),
    }
}

/// `array<vec4<u32>, length>`
fn uniform_rows(module: &mut Module, quad: Handle<Type>, length: u32) -> Handle<Type> {
    let length = std::num::NonZeroU32::new(length);
    type_of(
        module,
        TypeInner::Array {
            base: quad,
            size: length.map_or(ArraySize::Dynamic, ArraySize::Constant),
            stride: 16,
        },
    )
}

fn variable(
    module: &mut Module,
    name: &str,
    space: AddressSpace,
    binding: Option<ResourceBinding>,
    ty: Handle<Type>,
) -> Handle<GlobalVariable> {
    let name = Some(unique_name(module, name));
    let variable = GlobalVariable {
        name,
        space,
        binding,
        ty,
        init: None,
        memory_decorations: MemoryDecorations::empty(),
    };
    module.global_variables.append(variable, Span::UNDEFINED)
}

/// Whether naga evaluates an expression without a statement or with the statement of its result, and not in an `Emit`.
pub(in crate::kernel::passes) fn is_not_emitted(expression: &Expression) -> bool {
    expression.needs_pre_emit()
        || matches!(
            expression,
            Expression::CallResult(_)
                | Expression::AtomicResult { .. }
                | Expression::WorkGroupUniformLoadResult { .. }
                | Expression::RayQueryProceedResult
                | Expression::SubgroupBallotResult
                | Expression::SubgroupOperationResult { .. }
        )
}
