//! Pipelines of the runtime's own kernels that fill and copy memory.

/// The pipeline of entry point `main` of `source`, with the layout that wgpu derives.
pub(super) fn own_pipeline(
    device: &wgpu::Device,
    label: &'static str,
    source: &'static str,
) -> wgpu::ComputePipeline {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: Some(label),
        source: wgpu::ShaderSource::Wgsl(source.into()),
    });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(label),
        layout: None,
        module: &module,
        entry_point: Some("main"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    })
}
