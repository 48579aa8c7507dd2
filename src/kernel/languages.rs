//! Every module for wgpu, written in each language of wgpu's backends for drivers, for judges outside.
//!
//! Only a build with `--cfg shading_languages` has this room: `cargo xtask languages` makes such a build, runs suites
//! of devices with the build, and has the tools of each language judge the written modules. No driver of Metal,
//! Direct3D or OpenGL is needed to learn whether a pass makes anything missing from their languages.
//!
//! # How it works
//! 1. The environment names a folder, and a module is written there once: its files are named by a hash of the module.
//! 2. naga's validator looks at the module with the capabilities of each language. Where the validator refuses, the file
//!    ends in `.refused`: a device of such a backend has no such capability, so the same refusal is the error of
//!    `Device::kernel` there.
//! 3. Otherwise the module is written. A failing writer leaves a file ending in `.failed`: a fault of naga's or of a
//!    pass.

use std::fmt::Display;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::{env, fs};

use naga::back::{glsl, hlsl, msl, spv, wgsl};
use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use naga::{Module, ShaderStage};

/// The environment's variable with the folder.
const FOLDER: &str = "TOMBOLO_LANGUAGES";

/// No adapter has more bind groups.
const GROUPS: u32 = 8;

/// Modules of the runtime beside the kernels of programs.
const RUNTIME: &[(&str, &str)] = &[
    ("fill", include_str!("../../shaders/fill.wgsl")),
    ("copy_bytes", include_str!("../../shaders/copy_bytes.wgsl")),
    ("copy_rows", include_str!("../../shaders/copy_rows.wgsl")),
    ("probe_loop", include_str!("../../shaders/probe_loop.wgsl")),
    (
        "probe_live",
        concat!(
            include_str!("../../shaders/probe_churn.wgsl"),
            include_str!("../../shaders/probe_live.wgsl")
        ),
    ),
    (
        "probe_import",
        concat!(
            include_str!("../../shaders/probe_churn.wgsl"),
            include_str!("../../shaders/probe_import.wgsl")
        ),
    ),
];

/// A language of backends for drivers.
struct Language {
    /// The extension of the language's files.
    extension: &'static str,
    /// The capabilities of naga's writer.
    capabilities: fn() -> Capabilities,
    write: fn(&Module, &ModuleInfo) -> Result<Vec<u8>, String>,
}

const LANGUAGES: &[Language] = &[
    Language {
        extension: "spv",
        capabilities: spv::supported_capabilities,
        write: write_spirv,
    },
    Language {
        extension: "metal",
        capabilities: msl::supported_capabilities,
        write: write_msl,
    },
    Language {
        extension: "hlsl",
        capabilities: hlsl::supported_capabilities,
        write: write_hlsl,
    },
    Language {
        extension: "comp",
        capabilities: glsl::supported_capabilities,
        write: write_glsl,
    },
    Language {
        extension: "wgsl",
        capabilities: Capabilities::all,
        write: write_wgsl,
    },
];

/// Writes a module in every language, if the environment asks for files.
///
/// # Panics
/// A file cannot be written: a suite going on would pass without a judgement.
pub(crate) fn note(module: &Module, label: &str) {
    static RUNTIME_IS_WRITTEN: Once = Once::new();
    let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else {
        return;
    };
    RUNTIME_IS_WRITTEN.call_once(|| {
        let search = crate::addresses::page_search::source();
        for (name, text) in RUNTIME.iter().chain(&[("heap_diff", search.as_str())]) {
            let mut module = naga::front::wgsl::parse_str(text).expect("the runtime's own text");
            crate::device::fence::fill(&mut module, "fence");
            write_all(&folder, &module, name);
        }
    });
    write_all(&folder, module, label);
}

fn write_all(folder: &Path, module: &Module, label: &str) {
    let mut hasher = DefaultHasher::new();
    format!("{module:?}").hash(&mut hasher);
    let name = format!("{:016x}", hasher.finish());
    let labelled = folder.join(format!("{name}.label"));
    if labelled.exists() {
        return;
    }
    let keep = |path: PathBuf, bytes: &[u8]| {
        fs::write(&path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    };
    for language in LANGUAGES {
        let path = folder.join(format!("{name}.{}", language.extension));
        let beside = |end: &str| path.with_added_extension(end);
        match validated(module, (language.capabilities)()) {
            Err(why) => keep(beside("refused"), why.as_bytes()),
            Ok(info) => match (language.write)(module, &info) {
                Err(why) => keep(beside("failed"), why.as_bytes()),
                Ok(bytes) => keep(path, &bytes),
            },
        }
    }
    // Last: a module without a label was cut short, and is written again.
    keep(labelled, label.as_bytes());
}

fn validated(module: &Module, capabilities: Capabilities) -> Result<ModuleInfo, String> {
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator
        .subgroup_stages(naga::valid::ShaderStages::all())
        .subgroup_operations(naga::valid::SubgroupOperationSet::all());
    let info = validator.validate(module);
    info.map_err(|error| error.emit_to_string(""))
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// wgpu's wishes unless a program says otherwise.
fn checks() -> BoundsCheckPolicies {
    BoundsCheckPolicies {
        index: BoundsCheckPolicy::Restrict,
        buffer: BoundsCheckPolicy::Restrict,
        image_load: BoundsCheckPolicy::Restrict,
        binding_array: BoundsCheckPolicy::Unchecked,
    }
}

fn write_spirv(module: &Module, info: &ModuleInfo) -> Result<Vec<u8>, String> {
    let options = spv::Options {
        lang_version: (1, 3),
        bounds_check_policies: checks(),
        ..spv::Options::default()
    };
    let words = spv::write_vec(module, info, &options, None).map_err(text)?;
    Ok(words.into_iter().flat_map(u32::to_le_bytes).collect())
}

fn write_msl(module: &Module, info: &ModuleInfo) -> Result<Vec<u8>, String> {
    let options = msl::Options {
        // macOS 12: the first with atomics of 64 bits.
        lang_version: (2, 4),
        bounds_check_policies: checks(),
        ..msl::Options::default()
    };
    let pipeline = msl::PipelineOptions::default();
    let (written, translated) =
        msl::write_string(module, info, &options, &pipeline).map_err(text)?;
    for name in translated.entry_point_names {
        name.map_err(text)?;
    }
    Ok(written.into_bytes())
}

fn write_hlsl(module: &Module, info: &ModuleInfo) -> Result<Vec<u8>, String> {
    // The highest space known to glslang.
    let bound_at = |register| hlsl::BindTarget {
        space: 7,
        register,
        ..hlsl::BindTarget::default()
    };
    let options = hlsl::Options {
        shader_model: hlsl::ShaderModel::V6_6,
        special_constants_binding: Some(bound_at(0)),
        immediates_target: Some(bound_at(1)),
        sampler_buffer_binding_map: (0..GROUPS)
            .map(|group| (hlsl::SamplerIndexBufferKey { group }, bound_at(2 + group)))
            .collect(),
        ..hlsl::Options::default()
    };
    let pipeline = hlsl::PipelineOptions::default();
    let mut written = String::new();
    let mut writer = hlsl::Writer::new(&mut written, &options, &pipeline);
    let reflection = writer.write(module, info, None).map_err(text)?;
    let mut entries = Vec::new();
    for name in reflection.entry_point_names {
        entries.push(name.map_err(text)?);
    }
    // Compilers of HLSL are told an entry point, possibly renamed by naga.
    let entry = entries.first().map_or("", String::as_str);
    Ok(format!("// {entry}\n{written}").into_bytes())
}

fn write_glsl(module: &Module, info: &ModuleInfo) -> Result<Vec<u8>, String> {
    let options = glsl::Options {
        // What wgpu asks of OpenGL ES to compute.
        version: glsl::Version::Embedded {
            version: 310,
            is_webgl: false,
        },
        ..glsl::Options::default()
    };
    // A text has a single entry point; texts of kernels have no other.
    let Some(entry) = module.entry_points.first() else {
        return Err("there is no entry point".to_owned());
    };
    let pipeline = glsl::PipelineOptions {
        shader_stage: ShaderStage::Compute,
        entry_point: entry.name.clone(),
        multiview: None,
    };
    let mut written = String::new();
    let writer = glsl::Writer::new(&mut written, module, info, &options, &pipeline, checks());
    writer.map_err(text)?.write().map_err(text)?;
    Ok(written.into_bytes())
}

/// As text that is a module again.
fn write_wgsl(module: &Module, info: &ModuleInfo) -> Result<Vec<u8>, String> {
    let written = wgsl::write_string(module, info, wgsl::WriterFlags::empty()).map_err(text)?;
    let again =
        naga::front::wgsl::parse_str(&written).map_err(|error| error.emit_to_string(&written))?;
    validated(&again, Capabilities::all())?;
    Ok(written.into_bytes())
}
