//! Reflection: the demands of a kernel's entry point on a launch.

use std::fmt;

use naga::valid::ModuleInfo;
use naga::{AddressSpace, GlobalVariable, ImageClass, ImageDimension, Module, StorageAccess};

use super::globals::GlobalUse;
use super::layout::TypeLayout;
use super::passes::globals::is_global;

/// The demands of an entry point on a launch: work-group size and arguments.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Interface {
    /// The entry point's name.
    pub entry: String,
    /// Invocations in a work-group, in x, y and z.
    pub workgroup_size: [u32; 3],
    /// The arguments that the entry point reaches, by group and binding.
    pub arguments: Vec<ArgumentInfo>,
    /// The device globals reached by the entry point, in the order of their declaration.
    pub globals: Vec<GlobalUse>,
    /// Layout of the `var<immediate>` that the entry point uses, if any.
    pub immediates: Option<TypeLayout>,
    /// Bytes of workgroup memory that the entry point uses.
    pub workgroup_bytes: u64,
}

/// One argument of a kernel.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ArgumentInfo {
    /// The variable's name in WGSL.
    pub name: String,
    /// Its `@group`.
    pub group: u32,
    /// Its `@binding`.
    pub binding: u32,
    /// The kind.
    pub kind: ArgumentKind,
}

/// For people: name and declaration, as `values: var<storage, read> array<f32>`.
impl fmt::Display for ArgumentInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.kind)
    }
}

/// The kind of an argument.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum ArgumentKind {
    /// `var<storage, …>`.
    Storage {
        /// True for `read_write`: launches count it as written.
        writable: bool,
        /// The variable's layout.
        layout: TypeLayout,
    },
    /// `var<uniform>`.
    Uniform {
        /// The variable's layout.
        layout: TypeLayout,
    },
    /// A sampled or storage texture.
    Texture {
        /// The binding in wgpu.
        binding: wgpu::BindingType,
    },
    /// A sampler.
    Sampler {
        /// The binding in wgpu.
        binding: wgpu::BindingType,
    },
    /// Something that launches cannot bind yet; see the message of the error.
    Unsupported {
        /// The type as WGSL writes it.
        wgsl: String,
    },
}

/// For people: the declaration without the name, as `var<storage, read_write> array<u32>`.
impl fmt::Display for ArgumentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.noun())
    }
}

impl ArgumentKind {
    /// The name in messages.
    pub(crate) fn noun(&self) -> String {
        match self {
            Self::Storage { writable, layout } => format!(
                "var<storage, {}> {}",
                if *writable { "read_write" } else { "read" },
                layout.wgsl
            ),
            Self::Uniform { layout } => format!("var<uniform> {}", layout.wgsl),
            Self::Texture { .. } => "texture".to_string(),
            Self::Sampler { .. } => "sampler".to_string(),
            Self::Unsupported { wgsl } => wgsl.clone(),
        }
    }
}

impl Interface {
    /// Reads the interface of `module.entry_points[entry]`.
    ///
    /// Variables at bindings that `ours` holds for belong to the runtime and are left out.
    pub(crate) fn of(
        module: &Module,
        info: &ModuleInfo,
        entry: usize,
        ours: impl Fn(&naga::ResourceBinding) -> bool,
    ) -> Self {
        let point = &module.entry_points[entry];
        let uses = info.get_entry_point(entry);
        let mut arguments = Vec::new();
        let mut immediates = None;
        let mut workgroup_bytes = 0u64;
        for (handle, variable) in module.global_variables.iter() {
            if uses[handle].is_empty() {
                continue;
            }
            if let AddressSpace::WorkGroup = variable.space {
                let bytes = module.types[variable.ty].inner.size(module.to_ctx());
                workgroup_bytes += u64::from(bytes.next_multiple_of(16));
            }
            if let AddressSpace::Immediate = variable.space {
                immediates = Some(TypeLayout::of(module, variable.ty));
            }
            let Some(binding) = variable
                .binding
                .as_ref()
                .filter(|b| !ours(b) && !is_global(b))
            else {
                continue;
            };
            let sampled = uses.sampling_set.iter().any(|key| key.image == handle);
            arguments.push(argument(module, variable, binding, sampled));
        }
        arguments.sort_by_key(|a| (a.group, a.binding));
        Self {
            entry: point.name.clone(),
            workgroup_size: point.workgroup_size,
            arguments,
            globals: Vec::new(),
            immediates,
            workgroup_bytes,
        }
    }

    /// Adds the variables of `module` at `places`, which the entry point reaches without naming them any more.
    pub(crate) fn add(
        &mut self,
        module: &Module,
        places: impl Iterator<Item = naga::ResourceBinding>,
    ) {
        for place in places {
            let is_it = |(_, v): &(_, &GlobalVariable)| v.binding == Some(place);
            let known = |a: &ArgumentInfo| (a.group, a.binding) == (place.group, place.binding);
            if let Some((_, variable)) = module.global_variables.iter().find(is_it)
                && !self.arguments.iter().any(known)
            {
                (self.arguments).push(argument(module, variable, &place, false));
            }
        }
        self.arguments.sort_by_key(|a| (a.group, a.binding));
    }

    /// The argument of that name.
    pub fn argument(&self, name: &str) -> Option<&ArgumentInfo> {
        self.arguments.iter().find(|argument| argument.name == name)
    }
}

fn argument(
    module: &Module,
    variable: &GlobalVariable,
    at: &naga::ResourceBinding,
    sampled: bool,
) -> ArgumentInfo {
    ArgumentInfo {
        name: variable
            .name
            .clone()
            .unwrap_or_else(|| format!("@{}:{}", at.group, at.binding)),
        group: at.group,
        binding: at.binding,
        kind: kind_of(module, variable, sampled),
    }
}

fn kind_of(module: &Module, variable: &GlobalVariable, sampled: bool) -> ArgumentKind {
    let inner = &module.types[variable.ty].inner;
    let layout = || TypeLayout::of(module, variable.ty);
    match (variable.space, inner) {
        (_, naga::TypeInner::BindingArray { .. }) => ArgumentKind::Unsupported {
            wgsl: layout().wgsl,
        },
        (AddressSpace::Storage { access }, _) => ArgumentKind::Storage {
            writable: access != StorageAccess::LOAD,
            layout: layout(),
        },
        (AddressSpace::Uniform, _) => ArgumentKind::Uniform { layout: layout() },
        (_, naga::TypeInner::Sampler { comparison }) => ArgumentKind::Sampler {
            binding: wgpu::BindingType::Sampler(if *comparison {
                wgpu::SamplerBindingType::Comparison
            } else {
                wgpu::SamplerBindingType::Filtering
            }),
        },
        (
            _,
            naga::TypeInner::Image {
                dim,
                arrayed,
                class,
            },
        ) => match texture_binding(*dim, *arrayed, class, sampled) {
            Some(binding) => ArgumentKind::Texture { binding },
            None => ArgumentKind::Unsupported {
                wgsl: layout().wgsl,
            },
        },
        _ => ArgumentKind::Unsupported {
            wgsl: layout().wgsl,
        },
    }
}

/// The binding type derived by wgpu itself for a texture; `None` for external textures.
fn texture_binding(
    dim: ImageDimension,
    arrayed: bool,
    class: &ImageClass,
    sampled: bool,
) -> Option<wgpu::BindingType> {
    use wgpu::TextureViewDimension as V;
    let view_dimension = match (dim, arrayed) {
        (ImageDimension::D1, _) => V::D1,
        (ImageDimension::D2, false) => V::D2,
        (ImageDimension::D2, true) => V::D2Array,
        (ImageDimension::D3, _) => V::D3,
        (ImageDimension::Cube, false) => V::Cube,
        (ImageDimension::Cube, true) => V::CubeArray,
    };
    let sampled_texture = |sample_type, multisampled| wgpu::BindingType::Texture {
        sample_type,
        view_dimension,
        multisampled,
    };
    Some(match class {
        ImageClass::Sampled { kind, multi } => sampled_texture(
            match kind {
                naga::ScalarKind::Sint => wgpu::TextureSampleType::Sint,
                naga::ScalarKind::Uint => wgpu::TextureSampleType::Uint,
                _ => wgpu::TextureSampleType::Float {
                    filterable: sampled,
                },
            },
            *multi,
        ),
        ImageClass::Depth { multi } => sampled_texture(wgpu::TextureSampleType::Depth, *multi),
        ImageClass::Storage { format, access } => {
            let access = if access.contains(StorageAccess::ATOMIC) {
                wgpu::StorageTextureAccess::Atomic
            } else {
                match (
                    access.contains(StorageAccess::LOAD),
                    access.contains(StorageAccess::STORE),
                ) {
                    (true, true) => wgpu::StorageTextureAccess::ReadWrite,
                    (true, false) => wgpu::StorageTextureAccess::ReadOnly,
                    _ => wgpu::StorageTextureAccess::WriteOnly,
                }
            };
            wgpu::BindingType::StorageTexture {
                access,
                format: wgpu_naga_bridge::map_storage_format_from_naga(*format),
                view_dimension,
            }
        }
        ImageClass::External => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(source: &str, entry: &str) -> Interface {
        let module = naga::front::wgsl::parse_str(source).unwrap();
        let info = naga::valid::Validator::new(
            naga::valid::ValidationFlags::all(),
            naga::valid::Capabilities::all(),
        )
        .validate(&module)
        .unwrap();
        let index = module
            .entry_points
            .iter()
            .position(|e| e.name == entry)
            .unwrap();
        Interface::of(&module, &info, index, |_| false)
    }

    const SOURCE: &str = "
        @group(0) @binding(1) var<storage, read_write> sink: array<f32>;
        @group(0) @binding(0) var<storage> source: array<f32>;
        @group(1) @binding(0) var<uniform> scale: f32;
        @group(0) @binding(2) var image: texture_2d<f32>;
        @group(0) @binding(3) var filtering: sampler;
        @group(0) @binding(4) var picture: texture_storage_2d<rgba8unorm, write>;
        var<workgroup> tile: array<f32, 60>;
        fn helper(i: u32) -> f32 { return source[i] * scale; }
        @compute @workgroup_size(8, 4) fn a(@builtin(local_invocation_index) i: u32) {
            tile[i] = helper(i);
            workgroupBarrier();
            sink[i] = tile[i];
        }
        @compute @workgroup_size(1) fn b() {
            textureStore(picture, vec2(0u), textureSampleLevel(image, filtering, vec2(0.5), 0.0));
        }";

    #[test]
    fn only_what_an_entry_point_reaches_is_an_argument() {
        let a = interface(SOURCE, "a");
        let names: Vec<_> = a.arguments.iter().map(|x| x.name.as_str()).collect();
        assert_eq!(names, ["source", "sink", "scale"]);
        assert_eq!(a.workgroup_size, [8, 4, 1]);
        assert_eq!(a.workgroup_bytes, 240);
        assert!(matches!(
            a.argument("source").unwrap().kind,
            ArgumentKind::Storage {
                writable: false,
                ..
            }
        ));
        assert!(matches!(
            a.argument("sink").unwrap().kind,
            ArgumentKind::Storage { writable: true, .. }
        ));
    }

    #[test]
    fn textures_and_samplers_are_arguments() {
        let b = interface(SOURCE, "b");
        let names: Vec<_> = b.arguments.iter().map(|x| x.name.as_str()).collect();
        assert_eq!(names, ["image", "filtering", "picture"]);
        let ArgumentKind::Texture {
            binding:
                wgpu::BindingType::Texture {
                    sample_type: wgpu::TextureSampleType::Float { filterable },
                    ..
                },
        } = &b.argument("image").unwrap().kind
        else {
            panic!("{b:?}")
        };
        assert!(filterable);
    }
}
