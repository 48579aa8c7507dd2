//! The bindings of an entry point, read from naga's own analysis and not from tombolo's.

use naga::valid::{Capabilities, ValidationFlags, Validator};

/// A buffer that an entry point uses.
pub struct Binding {
    pub name: String,
    pub group: u32,
    pub binding: u32,
    pub uniform: bool,
    pub writable: bool,
    /// Bytes of the type; one element, where it is an array without a size.
    pub bytes: u32,
    pub runtime_sized: bool,
    /// The first scalar in it.
    pub scalar: Scalar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    Float,
    Integer,
    Atomic,
}

/// The buffers that `entry` reaches, by group and binding.
pub fn bindings(source: &str, entry: &str) -> Vec<Binding> {
    let module = naga::front::wgsl::parse_str(source).expect("naga reads the shader");
    let info = Validator::new(ValidationFlags::all(), Capabilities::all())
        .validate(&module)
        .expect("naga accepts the shader");
    let index = module
        .entry_points
        .iter()
        .position(|point| point.name == entry)
        .unwrap_or_else(|| panic!("the shader has no entry point `{entry}`"));
    let uses = info.get_entry_point(index);
    let mut bindings: Vec<Binding> = module
        .global_variables
        .iter()
        .filter(|(handle, _)| !uses[*handle].is_empty())
        .filter_map(|(_, variable)| {
            let at = variable.binding?;
            let (uniform, writable) = match variable.space {
                naga::AddressSpace::Uniform => (true, false),
                naga::AddressSpace::Storage { access } => {
                    (false, access.contains(naga::StorageAccess::STORE))
                }
                other => panic!("the corpus has buffers only, and this is {other:?}"),
            };
            let inner = &module.types[variable.ty].inner;
            Some(Binding {
                name: variable.name.clone().expect("bindings have names"),
                group: at.group,
                binding: at.binding,
                uniform,
                writable,
                bytes: inner.size(module.to_ctx()),
                runtime_sized: inner.is_dynamically_sized(&module.types),
                scalar: first_scalar(&module, inner),
            })
        })
        .collect();
    bindings.sort_by_key(|b| (b.group, b.binding));
    bindings
}

fn first_scalar(module: &naga::Module, inner: &naga::TypeInner) -> Scalar {
    use naga::TypeInner as T;
    match inner {
        T::Scalar(scalar) | T::Vector { scalar, .. } | T::Matrix { scalar, .. } => {
            match scalar.kind {
                naga::ScalarKind::Float => Scalar::Float,
                _ => Scalar::Integer,
            }
        }
        T::Atomic(_) => Scalar::Atomic,
        T::Array { base, .. } => first_scalar(module, &module.types[*base].inner),
        T::Struct { members, .. } => first_scalar(module, &module.types[members[0].ty].inner),
        other => panic!("no such type in a buffer of the corpus: {other:?}"),
    }
}
