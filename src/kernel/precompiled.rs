//! Kernels that were compiled elsewhere: SPIR-V for the driver, unchanged.
//!
//! Nothing can be specialized any more, private arrays included: a request is refused, as the specification of
//! `sycl_ext_oneapi_private_alloca` does for ahead-of-time code.

use std::sync::Arc;

use super::bindings::RuntimeBindings;
use super::compile::{Code, Compiled};
use super::constants::Constants;
use super::error::KernelError;
use super::pipeline::{Kernel, KernelShared};
use super::reflect::Interface;
use crate::device::{Aspect, Device, DeviceShared, unique_id};

/// A SPIR-V module and the interface of an entry point.
#[derive(Debug, Clone)]
pub struct Precompiled {
    name: String,
    words: Vec<u32>,
    interface: Interface,
}

impl Precompiled {
    /// Takes a SPIR-V module whose entry point has the given interface; a WGSL
    /// [`Program`](crate::Program) with the same variables gives an interface through
    /// [`Program::interface`](crate::Program::interface).
    ///
    /// # Safety
    /// The module goes to the driver unchecked: its SPIR-V must be valid for the device, its bindings must be those of
    /// `interface`, and its accesses must stay inside them.
    #[allow(unsafe_code)]
    pub unsafe fn spirv(
        name: impl Into<String>,
        words: Vec<u32>,
        interface: Interface,
    ) -> Precompiled {
        Precompiled {
            name: name.into(),
            words,
            interface,
        }
    }
}

impl Device {
    /// Makes a kernel of a precompiled module.
    ///
    /// # Errors
    /// [`KernelError::FeatureNotSupported`] when `constants` asks for any specialization, the interface has device
    /// globals (whose bindings the interface does not tell), or the device lacks [`Aspect::PassthroughShaders`];
    /// [`KernelError::Limit`] for an interface beyond a limit of the device; [`KernelError::Pipeline`] when the driver
    /// refuses.
    pub fn precompiled_kernel(
        &self,
        module: &Precompiled,
        constants: &Constants,
    ) -> Result<Kernel, KernelError> {
        let refuse = |what: String, why: String| KernelError::FeatureNotSupported {
            program: module.name.clone(),
            what,
            why,
        };
        if let Some((key, _)) = constants.iter().next() {
            return Err(refuse(
                format!("the specialization constant {key}"),
                "a precompiled module has its constants and private arrays fixed; build the kernel \
                 from WGSL instead"
                    .into(),
            ));
        }
        if let Some(global) = module.interface.globals.first() {
            return Err(refuse(
                format!("the device global `{}`", global.name),
                "a precompiled module has no place where the runtime could bind it; build the kernel from WGSL, or \
                 give the variable a `@group` and a `@binding` and bind `Device::global` there"
                    .into(),
            ));
        }
        if !self.has(Aspect::PassthroughShaders) {
            return Err(refuse(
                "a precompiled module".into(),
                self.capabilities().explain(Aspect::PassthroughShaders),
            ));
        }
        let compiled = Compiled {
            id: unique_id(),
            program: module.name.as_str().into(),
            interface: module.interface.clone(),
            code: Code::SpirV(module.words.clone()),
            constants: Vec::new(),
            private_arrays: Vec::new(),
            spill: None,
            guarded: false,
            report: None,
            #[cfg(embedded)]
            places: None,
            prints: None,
            heap: None,
            system: false,
            system_bindings: 0,
            table: Vec::new(),
            globals: None,
            calls: None,
            waits: false,
            packs: false,
            counts_turns: false,
            splits_ports: false,
            backs_off: false,
            // The runtime can add nothing: a launch refuses a grid that needs additions.
            bindings: RuntimeBindings::none(),
        };
        Ok(Kernel {
            device: Arc::clone(&self.shared),
            shared: Arc::new(KernelShared::build(&self.shared, Arc::new(compiled), None)?),
        })
    }
}

/// Hands the words to wgpu.
pub(crate) fn shader_module(
    device: &DeviceShared,
    compiled: &Compiled,
    words: &[u32],
) -> wgpu::ShaderModule {
    let [x, y, z] = compiled.interface.workgroup_size;
    let points = [wgpu::PassthroughShaderEntryPoint {
        name: compiled.interface.entry.as_str().into(),
        workgroup_size: (x, y, z),
    }];
    // SAFETY: whoever made the `Precompiled` has promised that the module is valid for the device and
    // keeps to its interface.
    #[allow(unsafe_code)]
    unsafe {
        device
            .raw
            .create_shader_module_passthrough(wgpu::ShaderModuleDescriptorPassthrough {
                label: Some(&compiled.program),
                entry_points: points.as_slice().into(),
                spirv: Some(words.into()),
                ..Default::default()
            })
    }
}
