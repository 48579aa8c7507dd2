//! The programs of the README and of the guide, which are compiled and run as the doc tests of this module: one structure for
//! each page, so that a test that fails names its page. `xtask/src/documents` checks that no page with a program is missing.

macro_rules! pages {
    ($($name:ident: $page:literal,)*) => {
        $(#[doc = include_str!($page)] pub struct $name;)*
    };
}

pages! {
    Readme: "../README.md",
    Browser: "../docs/guide/browser.md",
    Buffers: "../docs/guide/buffers.md",
    Calls: "../docs/guide/calls.md",
    Ci: "../docs/guide/ci.md",
    Errors: "../docs/guide/errors.md",
    FirstKernel: "../docs/guide/first-kernel.md",
    Globals: "../docs/guide/globals.md",
    Performance: "../docs/guide/performance.md",
    Pointers: "../docs/guide/pointers.md",
    PortingCubecl: "../docs/guide/porting/cubecl.md",
    PortingCuda: "../docs/guide/porting/cuda.md",
    PortingOpencl: "../docs/guide/porting/opencl.md",
    PortingSycl: "../docs/guide/porting/sycl.md",
    PortingWgpu: "../docs/guide/porting/wgpu.md",
    Sanitizer: "../docs/guide/sanitizer.md",
    Servers: "../docs/guide/servers.md",
    Textures: "../docs/guide/textures.md",
}
