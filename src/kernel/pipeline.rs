//! Kernels: specialized modules turned into pipelines of one device.

mod form;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use super::cache::ProgramKey;
use super::compile::{Code, Compiled, ModuleKey, Variant, compile, lower};
use super::constants::{ConstantInfo, ConstantValue, Constants};
use super::deep_stack::on_deep_stack;
use super::error::KernelError;
use super::limits::check_limits;
use super::passes::every_loop_ends;
use super::passes::pointers::TranslationMode;
use super::plan::{GroupPlan, plan_groups};
use super::private_array::PrivateArrayInfo;
use super::program::Program;
use super::reflect::Interface;
use crate::device::heap_shape::HeapShape;
use crate::device::spill_policy::SpillPolicy;
use crate::device::wait::lock;
use crate::device::{Device, DeviceShared, capture, unique_id};
use crate::extensions::KernelExtensions;
use crate::span::span;
pub(crate) use form::{Form, scratch_bytes};
use form::{compile_options, heap_shape};

/// Options for compiling a kernel, in place of the device's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct KernelOptions {
    /// The expected target of the kernel's pointers (default: device memory). Where host and device share all memory
    /// the answer makes no difference; `Disabled` refuses kernels that follow pointers. With `System` pointers lead
    /// into any memory of the host lent to the launch ([`SystemMemory`](crate::system::SystemMemory)).
    pub pointers: TranslationMode,
    /// Test every pointer followed by the kernel (default:
    /// [`DeviceOptions::checked_pointers`](crate::DeviceOptions::checked_pointers)).
    pub checked_pointers: Option<bool>,
    /// Compare tested pointers with the allocations (default:
    /// [`DeviceOptions::checked_allocations`](crate::DeviceOptions::checked_allocations)).
    pub checked_allocations: Option<bool>,
    /// Whether private arrays move to scratch memory (default: [`DeviceOptions::spill`](crate::DeviceOptions::spill)).
    pub spill: Option<SpillPolicy>,
    /// Whether a pointer into lent memory ([`TranslationMode::System`]) is translated once for several accesses of its
    /// pointee, where the pointee has a fixed size (default: where that takes less time, which leaves out pages that come while
    /// the kernel runs on lavapipe and SwiftShader).
    pub hoisted: Option<bool>,
}

impl Default for KernelOptions {
    fn default() -> Self {
        Self {
            pointers: TranslationMode::DeviceFavored,
            checked_pointers: None,
            checked_allocations: None,
            spill: None,
            hoisted: None,
        }
    }
}

/// Setters that take and give the options by value; a field set alone does the same.
impl KernelOptions {
    /// Sets the expected target of the kernel's pointers.
    #[must_use]
    pub fn pointers(mut self, mode: TranslationMode) -> Self {
        self.pointers = mode;
        self
    }

    /// Sets whether every pointer followed by the kernel is tested; `None`: as the device does.
    #[must_use]
    pub fn checked_pointers(mut self, tests: impl Into<Option<bool>>) -> Self {
        self.checked_pointers = tests.into();
        self
    }

    /// Sets whether tested pointers are compared with the allocations; `None`: as the device does.
    #[must_use]
    pub fn checked_allocations(mut self, tests: impl Into<Option<bool>>) -> Self {
        self.checked_allocations = tests.into();
        self
    }

    /// Sets whether private arrays move to scratch memory; `None`: as the device does.
    #[must_use]
    pub fn spill(mut self, policy: impl Into<Option<SpillPolicy>>) -> Self {
        self.spill = policy.into();
        self
    }

    /// Sets whether a pointer into lent memory is translated once for several accesses; `None`: where that takes less time.
    #[must_use]
    pub fn hoisted(mut self, once: impl Into<Option<bool>>) -> Self {
        self.hoisted = once.into();
        self
    }
}

/// A kernel on a device: an entry point, specialized and compiled, ready to launch.
///
/// Kernels come from [`Device::kernel`]; asking again for the same kernel costs a look-up. Cloning is cheap.
#[derive(Clone)]
pub struct Kernel {
    pub(crate) device: Arc<DeviceShared>,
    pub(crate) shared: Arc<KernelShared>,
}

pub(crate) struct KernelShared {
    pub(crate) compiled: Arc<Compiled>,
    pub(crate) name: Arc<str>,
    pub(crate) plain: Arc<Built>,
    /// The inputs of the kernel, for making the kernel anew when the heap has grown.
    origin: Option<Origin>,
    /// The same kernel for other segments of the heap, or with other arguments in the heap.
    forms: Mutex<HashMap<Form, Arc<KernelShared>>>,
    /// The forms for only some launches, made when first needed.
    variants: Mutex<HashMap<Variant, Result<Arc<Built>, KernelError>>>,
    pub(crate) extensions: KernelExtensions,
}

/// A program, its entry point and the values of its constants.
#[derive(Clone)]
pub(crate) struct Origin {
    program: Program,
    entry: String,
    constants: Constants,
    options: KernelOptions,
}

impl Origin {
    fn compile(&self, device: &DeviceShared, form: &Form) -> Result<Arc<Compiled>, KernelError> {
        let (program, entry, constants) = (&self.program, self.entry.as_str(), &self.constants);
        let options = compile_options(device, form, self.options);
        let key = ModuleKey {
            name: program.name().into(),
            source: program.source_text(),
            global_prefix: program.identity().prefix,
            entry: entry.into(),
            values: program.key(constants)?,
            options: options.clone(),
        };
        let modules = &device.context.modules;
        let names = &device.context.globals;
        modules.get(key, || {
            on_deep_stack(program.name(), || {
                compile(program, entry, constants, &options, names)
            })
        })
    }
}

/// A pipeline and how its bind groups are made up.
pub(crate) struct Built {
    pub(crate) pipeline: wgpu::ComputePipeline,
    pub(crate) groups: Vec<GroupPlan>,
}

impl Device {
    /// Specializes and compiles the entry point `entry` of `program` for this device.
    ///
    /// Modules and pipelines are cached: asking again with the same values costs well under a
    /// microsecond.
    ///
    /// # Errors
    /// [`KernelError`], for everything that is wrong with the entry point, the values or the device's
    /// limits; nothing has been submitted then.
    pub fn kernel(
        &self,
        program: &Program,
        entry: &str,
        constants: &Constants,
    ) -> Result<Kernel, KernelError> {
        self.kernel_with(program, entry, constants, KernelOptions::default())
    }

    /// As [`Device::kernel`], with options.
    ///
    /// # Errors
    /// As [`Device::kernel`].
    pub fn kernel_with(
        &self,
        program: &Program,
        entry: &str,
        constants: &Constants,
        options: KernelOptions,
    ) -> Result<Kernel, KernelError> {
        let shared = &self.shared;
        let kernels = &shared.extensions.kernels;
        let key = ProgramKey {
            program: program.id(),
            values: program.key(constants)?,
            options,
        };
        let found = match kernels.find(&key, entry) {
            Some(found) => found,
            None => {
                let _span = span!("compile", kernel = entry, device = %shared.capabilities.name);
                let origin = Origin {
                    program: program.clone(),
                    entry: entry.to_string(),
                    constants: constants.clone(),
                    options,
                };
                let form = Form::plain(heap_shape(shared, program, options)?);
                let compiled = origin.compile(shared, &form)?;
                kernels.insert(key, entry, compiled.id, || {
                    KernelShared::build(shared, Arc::clone(&compiled), Some(origin))
                })?
            }
        };
        Ok(Kernel {
            device: Arc::clone(shared),
            shared: found,
        })
    }
}

impl KernelShared {
    pub(crate) fn build(
        device: &DeviceShared,
        compiled: Arc<Compiled>,
        origin: Option<Origin>,
    ) -> Result<Self, KernelError> {
        check_limits(device, &compiled)?;
        let module = match &compiled.code {
            Code::Naga { module, .. } => match lower(&compiled, Variant::default()) {
                Some((module, _)) => Shader::Naga(Box::new(module)),
                None => Shader::Naga(module.clone()),
            },
            Code::SpirV(words) => Shader::SpirV(words),
        };
        // wgpu validates the module and writes the module in the language of the driver, whose compiler runs here, too.
        let plain = on_deep_stack(&compiled.program, || {
            build(device, &compiled, module, Variant::default(), false)
        })?;
        Ok(Self {
            name: compiled.interface.entry.as_str().into(),
            compiled,
            plain: Arc::new(plain),
            origin,
            forms: Mutex::default(),
            variants: Mutex::default(),
            extensions: KernelExtensions::default(),
        })
    }

    /// Whether the kernel checks allocations.
    pub(crate) fn asks_allocations(&self) -> bool {
        (self.compiled.heap).is_some_and(|heap| heap.tables != (0, false))
    }

    /// The kernel for a launch, perhaps for fewer segments than at its making.
    pub(crate) fn form(
        self: &Arc<Self>,
        device: &DeviceShared,
        form: Form,
    ) -> Result<Arc<Self>, KernelError> {
        let (Some(heap), Some(origin)) = (self.compiled.heap, &self.origin) else {
            return Ok(Arc::clone(self));
        };
        // Not more either: a trimmed heap has nothing to bind there.
        if heap.shape() == form.heap && form.beside.is_empty() {
            return Ok(Arc::clone(self));
        }
        self.in_form(device, origin, form)
    }

    /// The kernel following pointers into lent memory and waiting for missing pages; the kernel itself where there are
    /// no such pointers.
    ///
    /// # Errors
    /// Those of compiling a kernel.
    pub(crate) fn with_live_pages(
        self: &Arc<Self>,
        device: &DeviceShared,
    ) -> Result<Arc<Self>, KernelError> {
        let Some(origin) = self.origin.as_ref().filter(|_| self.compiled.system) else {
            return Ok(Arc::clone(self));
        };
        let form = Form {
            live_pages: true,
            ..Form::plain(HeapShape::of_arguments(1))
        };
        self.in_form(device, origin, form)
    }

    fn in_form(
        &self,
        device: &DeviceShared,
        origin: &Origin,
        form: Form,
    ) -> Result<Arc<Self>, KernelError> {
        let mut forms = lock(&self.forms);
        if let Some(kernel) = forms.get(&form) {
            return Ok(Arc::clone(kernel));
        }
        let compiled = origin.compile(device, &form)?;
        let kernel = Arc::new(Self::build(device, compiled, Some(origin.clone()))?);
        forms.insert(form, Arc::clone(&kernel));
        Ok(kernel)
    }

    /// The pipeline to dispatch for a launch with this form of the kernel.
    pub(crate) fn variant(
        &self,
        device: &DeviceShared,
        variant: Variant,
    ) -> Result<Arc<Built>, KernelError> {
        if variant == Variant::default() {
            return Ok(Arc::clone(&self.plain));
        }
        lock(&self.variants)
            .entry(variant)
            .or_insert_with(|| {
                on_deep_stack(&self.compiled.program, || {
                    match lower(&self.compiled, variant) {
                        None => Ok(Arc::clone(&self.plain)),
                        Some((module, gridded)) => {
                            let shader = Shader::Naga(Box::new(module));
                            build(device, &self.compiled, shader, variant, gridded).map(Arc::new)
                        }
                    }
                })
            })
            .clone()
    }
}

enum Shader<'a> {
    Naga(Box<naga::Module>),
    SpirV(&'a [u32]),
}

fn build(
    device: &DeviceShared,
    compiled: &Compiled,
    shader: Shader<'_>,
    variant: Variant,
    with_grid: bool,
) -> Result<Built, KernelError> {
    let plans = plan_groups(device, compiled, variant, with_grid);
    let entry = &compiled.interface.entry;
    let (built, error) = capture(&device.raw, || {
        let mut groups = Vec::with_capacity(plans.len());
        for (index, layout_entries, entries) in plans {
            let layout = device
                .raw
                .create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                    label: Some(entry),
                    entries: &layout_entries,
                });
            groups.push(GroupPlan {
                index,
                layout,
                id: unique_id(),
                entries,
            });
        }
        let slots = groups.iter().map(|g| g.index + 1).max().unwrap_or(0);
        let layouts: Vec<Option<&wgpu::BindGroupLayout>> = (0..slots)
            .map(|slot| groups.iter().find(|g| g.index == slot).map(|g| &g.layout))
            .collect();
        let layout = device
            .raw
            .create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(entry),
                bind_group_layouts: &layouts,
                immediate_size: immediate_bytes(&compiled.interface),
            });
        let module = match shader {
            Shader::Naga(module) => shader_module(device, compiled, *module),
            Shader::SpirV(words) => super::precompiled::shader_module(device, compiled, words),
        };
        let pipeline = device
            .raw
            .create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(entry),
                layout: Some(&layout),
                module: &module,
                entry_point: Some(entry),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: device.pipeline_cache.as_ref().map(|cache| &cache.cache),
            });
        Built { pipeline, groups }
    });
    match error {
        None => Ok(built),
        Some(error) => Err(KernelError::Pipeline {
            program: compiled.program.to_string(),
            entry: entry.clone(),
            message: error.to_string(),
        }),
    }
}

/// Hands the module to wgpu, which counts the passes of loops unless all are known to end.
fn shader_module(
    device: &DeviceShared,
    compiled: &Compiled,
    mut module: naga::Module,
) -> wgpu::ShaderModule {
    if device.capabilities.backend == wgpu::Backend::Vulkan {
        super::passes::part_arguments::copy(&mut module);
    }
    #[cfg(shading_languages)]
    super::languages::note(&module, &compiled.program);
    let checks = wgpu::ShaderRuntimeChecks {
        force_loop_bounding: !every_loop_ends(&module),
        ..wgpu::ShaderRuntimeChecks::checked()
    };
    let descriptor = wgpu::ShaderModuleDescriptor {
        label: Some(&compiled.program),
        source: wgpu::ShaderSource::Naga(std::borrow::Cow::Owned(module)),
    };
    // SAFETY: the only check possibly left out bounds loops, against loops without an end, and is left out only where
    // every loop of this very module has a constant number of passes.
    #[allow(unsafe_code)]
    unsafe {
        device.raw.create_shader_module_trusted(descriptor, checks)
    }
}

/// Bytes of immediate data that the pipeline layout reserves: whole words.
pub(crate) fn immediate_bytes(interface: &Interface) -> u32 {
    interface
        .immediates
        .as_ref()
        .map_or(0, |layout| layout.size.next_multiple_of(4))
}

impl Kernel {
    /// The entry point's demands on a launch.
    pub fn interface(&self) -> &Interface {
        &self.shared.compiled.interface
    }

    /// Invocations in a work-group, in x, y and z.
    pub fn workgroup_size(&self) -> [u32; 3] {
        self.interface().workgroup_size
    }

    /// The specialization constants of this kernel, with their values.
    pub fn constants(&self) -> &[(ConstantInfo, ConstantValue)] {
        &self.shared.compiled.constants
    }

    /// The arrays in function and private space whose length a specialization constant gives.
    pub fn private_arrays(&self) -> &[PrivateArrayInfo] {
        &self.shared.compiled.private_arrays
    }

    /// Bytes of scratch memory for an invocation's spilled arrays; 0 where none is spilled.
    pub fn scratch_bytes(&self) -> u64 {
        let spill = self.shared.compiled.spill.as_ref();
        spill.map_or(0, |spill| spill.bytes)
    }

    /// True when the kernel carries checks for loops that the adapter might cut short.
    pub fn is_loop_guarded(&self) -> bool {
        self.shared.compiled.guarded
    }

    /// The wgpu pipeline, for the program's own commands.
    pub fn raw(&self) -> &wgpu::ComputePipeline {
        &self.shared.plain.pipeline
    }

    /// The kernel's device.
    pub fn device(&self) -> Device {
        Device {
            shared: Arc::clone(&self.device),
        }
    }
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel")
            .field("entry", &self.shared.name)
            .field("workgroup_size", &self.workgroup_size())
            .finish_non_exhaustive()
    }
}
