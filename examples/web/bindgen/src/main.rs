//! Writes the JavaScript around a module of WebAssembly: `tombolo-web-bindgen MODULE FOLDER`.
//!
//! wasm-bindgen wants its command line in the very version of the library that a module was built with. Both are of one
//! lock file here.

use std::env;
use std::process::ExitCode;

use wasm_bindgen_cli_support::Bindgen;

fn main() -> ExitCode {
    let mut args = env::args_os().skip(1);
    let (Some(module), Some(folder), None) = (args.next(), args.next(), args.next()) else {
        eprintln!("usage: tombolo-web-bindgen MODULE FOLDER");
        return ExitCode::FAILURE;
    };
    let mut bindgen = Bindgen::new();
    let made = bindgen
        .input_path(module)
        .web(true)
        .map(|bindgen| bindgen.typescript(false).omit_default_module_path(false))
        .and_then(|bindgen| bindgen.generate(folder));
    match made {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tombolo-web-bindgen: {error:#}");
            ExitCode::FAILURE
        }
    }
}
