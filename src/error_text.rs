//! `Debug` of the errors. Rust prints the error that `main` returns, and the error of an `unwrap`, by `Debug`: derived,
//! that is the names of fields, and the sentence with the remedy stays unseen. So `Debug` of every public error is the
//! text of `Display`, and behind it the variant to match on, in parentheses:
//!
//! ```text
//! Error: no adapter's name contains `Radeon`; there are: llvmpipe (LLVM 15.0.6, 256 bits) (DeviceError::UnknownAdapter)
//! ```
//!
//! Errors of `config` and `anyhow` print themselves the same way. A text of several lines, as programs have that do not
//! compile, keeps its lines, and the variant has one of its own.

use std::fmt;

/// Writes `text`, and the `name` of its variant.
pub(crate) fn write(
    f: &mut fmt::Formatter<'_>,
    text: &dyn fmt::Display,
    name: &str,
) -> fmt::Result {
    let text = text.to_string();
    let gap = if text.contains('\n') { '\n' } else { ' ' };
    write!(f, "{text}{gap}({name})")
}

/// Implements `Debug` for an error by its text and its variants, all of which are given.
macro_rules! debug_by_text {
    ($error:ident { $($variant:ident),+ $(,)? }) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let name = match self {
                    $(Self::$variant { .. } => concat!(stringify!($error), "::", stringify!($variant)),)+
                };
                $crate::error_text::write(f, self, name)
            }
        }
    };
}

pub(crate) use debug_by_text;

#[cfg(test)]
mod tests {
    use std::error::Error;

    use crate::{
        Program,
        device::{DeviceError, WaitError},
        kernel::KernelError,
        launch::LaunchError,
    };

    #[test]
    fn what_main_prints_says_what_to_do() {
        let error = DeviceError::UnknownAdapter {
            wanted: "Radeon".to_owned(),
            available: vec!["llvmpipe".to_owned()],
        };
        let text = "no adapter's name contains `Radeon`; there are: llvmpipe (DeviceError::UnknownAdapter)";
        let boxed: Box<dyn Error> = error.into();
        assert_eq!(format!("{boxed:?}"), text);
        assert_eq!(format!("{boxed:#?}"), text);
        let error = format!("{:?}", WaitError::Deadline);
        assert!(error.ends_with(" (WaitError::Deadline)"), "{error}");
    }

    #[test]
    fn programs_that_do_not_compile_keep_their_lines() {
        let error = Program::new("broken.wgsl", "fn f() {\n    let x = y;\n}").unwrap_err();
        let (text, lines) = (error.to_string(), format!("{error:?}"));
        assert!(
            text.contains("broken.wgsl:2") && text.lines().count() > 2,
            "{text}"
        );
        assert_eq!(lines, format!("{text}\n(KernelError::Type)"));
        let error = KernelError::UnknownEntryPoint {
            program: "none.wgsl".to_owned(),
            wanted: "main".to_owned(),
            available: Vec::new(),
        };
        // An error that is only passed on is called by the name of what passes it on.
        let error = LaunchError::from(Box::new(error));
        assert!(
            format!("{error:?}").ends_with("(LaunchError::Kernel)"),
            "{error:?}"
        );
    }
}
