//! The parts that tasks need besides cargo, each a few Debian packages.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Something that tasks need, provided as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// rustc, cargo and clippy with the sources of the standard library.
    Rust,
    /// `dlltool`: without the program rustc compiles nothing for `windows-gnu`, not even for a check.
    WindowsImports,
    /// The linker and the C runtime of `windows-gnu`.
    WindowsLinker,
    /// The linker and the C library of 64-bit ARM Linux.
    ArmLinker,
    /// Runs programs for Windows.
    Wine,
    /// Runs programs for ARM.
    Qemu,
    /// The run-time libraries of LLVM's sanitizers.
    Sanitizers,
    /// The linker of WebAssembly.
    WasmLinker,
    /// A browser with WebGPU.
    Chromium,
    /// The judge of SPIR-V.
    SpirvTools,
    /// The compiler of GLSL by which OpenGL's drivers are measured.
    Glslang,
}

impl Part {
    /// The part's name in the store.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rust => "rust",
            Self::WindowsImports => "windows-imports",
            Self::WindowsLinker => "windows-linker",
            Self::ArmLinker => "arm-linker",
            Self::Wine => "wine",
            Self::Qemu => "qemu",
            Self::Sanitizers => "sanitizers",
            Self::WasmLinker => "wasm-linker",
            Self::Chromium => "chromium",
            Self::SpirvTools => "spirv-tools",
            Self::Glslang => "glslang",
        }
    }

    /// The Debian packages, whose dependencies come along. `llvm` is the version of LLVM in rustc.
    pub fn packages(self, llvm: u32) -> Vec<String> {
        let names: &[&str] = match self {
            Self::Rust => &["rustc-web", "cargo-web", "rust-web-clippy", "rust-web-src"],
            Self::WindowsImports => &["binutils-mingw-w64-x86-64"],
            Self::WindowsLinker => &["gcc-mingw-w64-x86-64-posix"],
            Self::ArmLinker => &["gcc-12-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
            Self::Wine => &["wine64"],
            Self::Qemu => &["qemu-user-static"],
            Self::Sanitizers => return vec![format!("libclang-rt-{llvm}-dev")],
            Self::WasmLinker => return vec![format!("lld-{llvm}")],
            Self::Chromium => &["chromium"],
            Self::SpirvTools => &["spirv-tools"],
            Self::Glslang => &["glslang-tools"],
        };
        names.iter().map(|&name| name.to_owned()).collect()
    }

    /// A program of the part, and the program's package: where the program is in `PATH`, the part is not needed.
    pub fn program(self) -> Option<(&'static str, &'static str)> {
        match self {
            // A toolchain without the sources is in nearly every PATH.
            Self::Rust | Self::Sanitizers | Self::WasmLinker => None,
            Self::Chromium => Some(("chromium", "chromium")),
            Self::SpirvTools => Some(("spirv-val", "spirv-tools")),
            Self::Glslang => Some(("glslangValidator", "glslang-tools")),
            Self::WindowsImports => {
                Some(("x86_64-w64-mingw32-dlltool", "binutils-mingw-w64-x86-64"))
            }
            Self::WindowsLinker => Some(("x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64")),
            Self::ArmLinker => Some(("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu")),
            Self::Wine => Some(("wine", "wine64")),
            Self::Qemu => Some(("qemu-aarch64-static", "qemu-user-static")),
        }
    }

    /// The work of the packages' own scripts on a system with the packages installed.
    pub fn finish(self, root: &Path, llvm: u32) -> Result<(), Error> {
        let bin = root.join("usr/bin");
        match self {
            Self::WindowsLinker => link(
                "x86_64-w64-mingw32-gcc-posix",
                bin.join("x86_64-w64-mingw32-gcc"),
            ),
            Self::ArmLinker => link(
                "aarch64-linux-gnu-gcc-12",
                bin.join("aarch64-linux-gnu-gcc"),
            ),
            Self::Wine => {
                let wine = root.join("usr/lib/wine");
                link("wineserver64", wine.join("wineserver"))?;
                let library = root.join("usr/x86_64-w64-mingw32/lib/zlib1.dll");
                let wines = root.join("usr/lib/x86_64-linux-gnu/wine/x86_64-windows/zlib1.dll");
                let bytes = fs::read(&library).map_err(Error::io("read", &library))?;
                fs::write(&wines, as_builtin(bytes)).map_err(Error::io("write", &wines))
            }
            Self::Sanitizers => {
                // rustc looks for its own copies of LLVM's libraries beside the standard library, as in rustup's toolchains.
                let own = root.join("usr/lib/rustlib/x86_64-unknown-linux-gnu/lib");
                let clang = format!("../../../llvm-{llvm}/lib/clang/{llvm}/lib/linux");
                for name in ["asan", "tsan"] {
                    let library = format!("{clang}/libclang_rt.{name}-x86_64.a");
                    link(&library, own.join(format!("librustc-stable_rt.{name}.a")))?;
                }
                Ok(())
            }
            Self::Rust
            | Self::WindowsImports
            | Self::Qemu
            | Self::WasmLinker
            | Self::Chromium
            | Self::SpirvTools
            | Self::Glslang => Ok(()),
        }
    }
}

/// A library made to pass as Wine's own: with a mark behind the header that nobody but DOS reads.
fn as_builtin(mut library: Vec<u8>) -> Vec<u8> {
    const AT: usize = 64;
    let mut mark = [0; 32];
    mark[..16].copy_from_slice(b"Wine builtin DLL");
    if let Some(place) = library.get_mut(AT..AT + mark.len()) {
        place.copy_from_slice(&mark);
    }
    library
}

/// Makes `at` a symbolic link, in place of anything there.
fn link(to: &str, at: PathBuf) -> Result<(), Error> {
    match fs::remove_file(&at) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::io("replace", at)(error));
        }
        _ => {}
    }
    symlink(to, &at).map_err(Error::io("link", at))
}

#[cfg(unix)]
fn symlink(to: &str, at: &Path) -> std::io::Result<()> {
    std::os::unix::fs::symlink(to, at)
}

/// Debian's packages are unpacked on Debian alone.
#[cfg(not(unix))]
fn symlink(_to: &str, _at: &Path) -> std::io::Result<()> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sanitizers_are_of_the_compilers_llvm() {
        assert_eq!(Part::Sanitizers.packages(22), ["libclang-rt-22-dev"]);
        assert_eq!(Part::WasmLinker.packages(22), ["lld-22"]);
        assert!(Part::Rust.packages(22).contains(&"rust-web-src".to_owned()));
    }

    #[test]
    fn libraries_are_marked_as_wines_own() {
        let marked = as_builtin(vec![7; 200]);
        assert_eq!(&marked[64..80], b"Wine builtin DLL");
        assert!(marked[80..96].iter().all(|&byte| byte == 0));
        assert!(
            marked[..64]
                .iter()
                .chain(&marked[96..])
                .all(|&byte| byte == 7)
        );
        assert_eq!(as_builtin(vec![7; 20]), [7; 20]);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_replaced() {
        let dir = std::env::temp_dir().join(format!("xtask-links-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let at = dir.join("link");
        link("a", at.clone()).unwrap();
        link("b", at.clone()).unwrap();
        assert_eq!(fs::read_link(&at).unwrap(), Path::new("b"));
        assert!(link("b", dir.join("no/such")).is_err());
        fs::remove_dir_all(&dir).unwrap();
    }
}
