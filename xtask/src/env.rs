//! The environment that makes the Vulkan loader offer certain drivers and no others.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Error;
use crate::workspace::Workspace;

/// Variables, in the order of printing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterEnv {
    vars: Vec<(&'static str, String)>,
}

impl AdapterEnv {
    /// The environment that selects the drivers of `manifests`; creates a runtime directory where there is none.
    pub fn selecting(workspace: &Workspace, manifests: &[PathBuf]) -> Result<Self, Error> {
        let unset = env::var_os("XDG_RUNTIME_DIR").is_none_or(|dir| dir.is_empty());
        let runtime = unset.then(|| workspace.adapters_dir().join("xdg-runtime"));
        if let Some(dir) = &runtime {
            create_private(dir)?;
        }
        Self::new(manifests, runtime.as_deref())
    }

    fn new(manifests: &[PathBuf], runtime: Option<&Path>) -> Result<Self, Error> {
        let mut list = String::new();
        for path in manifests {
            let text = path.to_string_lossy();
            if text.contains(':') {
                return Err(Error::ColonInPath { path: path.clone() });
            }
            if !list.is_empty() {
                list.push(':');
            }
            list.push_str(&text);
        }
        // Loaders older than 1.3.207 know only the second name.
        let mut vars = vec![
            ("VK_DRIVER_FILES", list.clone()),
            ("VK_ICD_FILENAMES", list),
        ];
        // Unset, the variable makes Mesa print a line that looks like a failure.
        vars.extend(runtime.map(|dir| ("XDG_RUNTIME_DIR", dir.to_string_lossy().into_owned())));
        Ok(Self { vars })
    }

    /// Adds a variable.
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.vars.push((name, value.into()));
        self
    }

    /// The variables.
    pub fn vars(&self) -> &[(&'static str, String)] {
        &self.vars
    }

    /// Gives the environment to a command.
    pub fn apply(&self, command: &mut Command) {
        command.envs(self.vars.iter().map(|(name, value)| (name, value)));
    }

    /// Lines for a POSIX shell.
    pub fn shell(&self) -> String {
        let line = |(name, value): &(&str, String)| format!("export {name}={}\n", quote(value));
        self.vars.iter().map(line).collect()
    }
}

/// A word of a POSIX shell.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:+,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

fn create_private(dir: &Path) -> Result<(), Error> {
    let parent = dir.parent().unwrap_or(dir);
    fs::create_dir_all(parent).map_err(Error::io("create", parent))?;
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    // Mesa and Wayland distrust a runtime directory that others can enter.
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir).map_err(Error::io("create", dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_lines() {
        let env = AdapterEnv::new(
            &["/a/lvp.json".into(), "/b/ss.json".into()],
            Some(Path::new("/t/x dir")),
        );
        assert_eq!(
            env.unwrap().with("WGPU_ADAPTER_NAME", "it's").shell(),
            "export VK_DRIVER_FILES=/a/lvp.json:/b/ss.json\n\
             export VK_ICD_FILENAMES=/a/lvp.json:/b/ss.json\n\
             export XDG_RUNTIME_DIR='/t/x dir'\n\
             export WGPU_ADAPTER_NAME='it'\\''s'\n"
        );
    }

    #[test]
    fn runtime_dir_of_the_user_is_left_alone() {
        let env = AdapterEnv::new(&["/a.json".into()], None).unwrap();
        assert!(
            env.vars()
                .iter()
                .all(|(name, _)| *name != "XDG_RUNTIME_DIR")
        );
    }

    #[test]
    fn separators_cannot_be_part_of_a_path() {
        let error = AdapterEnv::new(&["/a:b/lvp.json".into()], None).unwrap_err();
        assert!(matches!(error, Error::ColonInPath { .. }));
        assert!(error.to_string().contains("CARGO_TARGET_DIR"));
    }
}
