//! The one file that belongs to an issue: versions, the system, the environment, and all that the doctor has found.

use std::fs;

use crate::report::Report;
use crate::table;

/// Crates whose versions matter for what adapters do.
const CRATES: [&str; 5] = ["naga", "tombolo-cpu", "wgpu", "wgpu-core", "wgpu-hal"];

/// Beginnings of the names of environment variables that change what adapters there are, and what they do.
const VARIABLES: [&str; 17] = [
    "CUDA_VISIBLE_DEVICES",
    "D3D",
    "DRI_PRIME",
    "GALLIUM_",
    "LIBGL_",
    "LP_",
    "MESA_",
    "METAL_",
    "MTL_",
    "RUST_BACKTRACE",
    "RUST_LOG",
    "TOMBOLO_",
    "VK_",
    "WGPU_",
    "XDG_RUNTIME_DIR",
    "__GL",
    "__NV",
];

/// The file's text.
///
/// # Errors
/// Those of the JSON writer.
pub fn text(
    report: &Report,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<String, serde_json::Error> {
    let mut out = format!(
        "# Report of the doctor\n\n## Versions\n\n- tombolo {}",
        report.tombolo
    );
    out.push_str(if cfg!(debug_assertions) {
        ", debug build"
    } else {
        ", release build"
    });
    out.push_str(&format!(", features: {}\n", features().join(", ")));
    for (name, version) in locked(include_str!("../../Cargo.lock")) {
        out.push_str(&format!("- {name} {version}\n"));
    }
    out.push_str("\n## System\n\n");
    for line in system() {
        out.push_str(&format!("- {line}\n"));
    }
    out.push_str("\n## Environment\n\n");
    let variables = matter(environment);
    if variables.is_empty() {
        out.push_str("No variable that matters is set.\n");
    }
    for (name, value) in variables {
        out.push_str(&format!("- `{name}={value}`\n"));
    }
    let page = match &report.error {
        Some(error) => format!("error: {error}\n"),
        None => table::page(report),
    };
    out.push_str(&format!("\n## Adapters\n\n```text\n{page}```\n"));
    let json = serde_json::to_string_pretty(report)?;
    out.push_str(&format!(
        "\n## The same for tools\n\n```json\n{json}\n```\n"
    ));
    Ok(out)
}

/// The variables that matter, by name.
fn matter(environment: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let known = |name: &str| VARIABLES.iter().any(|start| name.starts_with(start));
    let mut found: Vec<_> = environment.filter(|(name, _)| known(name)).collect();
    found.sort();
    found
}

/// Names and versions of [`CRATES`] in the text of a lock file, in which a package's version follows its name.
fn locked(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(name) = quoted(line, "name = ")
            && CRATES.contains(&name)
            && let Some(version) = lines.next().and_then(|next| quoted(next, "version = "))
        {
            found.push((name, version));
        }
    }
    found
}

/// What stands in quotes behind `key`.
fn quoted<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.strip_prefix(key)?.strip_prefix('"')?.strip_suffix('"')
}

/// The crate's features in this build.
fn features() -> Vec<&'static str> {
    let all = [
        ("vulkan", cfg!(feature = "vulkan")),
        ("metal", cfg!(feature = "metal")),
        ("dx12", cfg!(feature = "dx12")),
        ("gles", cfg!(feature = "gles")),
        ("webgpu", cfg!(feature = "webgpu")),
        ("embedded", cfg!(feature = "embedded")),
    ];
    let on = all.into_iter().filter(|(_, on)| *on);
    on.map(|(name, _)| name).collect()
}

/// What is known of the machine, in lines.
fn system() -> Vec<String> {
    let mut lines = vec![format!(
        "{} on {}",
        std::env::consts::OS,
        std::env::consts::ARCH
    )];
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let release = read("/etc/os-release");
    let name = release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    lines.extend(name.map(|name| name.trim_matches('"').to_owned()));
    let kernel = read("/proc/sys/kernel/osrelease");
    if !kernel.is_empty() {
        lines.push(format!("kernel {}", kernel.trim()));
    }
    let processor = read("/proc/cpuinfo");
    let model = processor
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    lines.extend(model.map(|(_, model)| model.to_owned()));
    if let Ok(cores) = std::thread::available_parallelism() {
        lines.push(format!("{cores} processors for this process"));
    }
    let memory = read("/proc/meminfo");
    let total = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"));
    lines.extend(total.map(|total| format!("memory: {}", total.trim())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Adapter;

    fn report() -> Report {
        Report {
            tombolo: "1.2.3",
            backends: vec!["vulkan".to_owned()],
            error: None,
            adapters: vec![Adapter {
                index: 0,
                name: "Some GPU".to_owned(),
                driver: "its driver 4.5".to_owned(),
                backend: "vulkan".to_owned(),
                device_type: "DiscreteGpu".to_owned(),
                pci_address: Some("0000:01:00.0".to_owned()),
                named_by_environment: false,
                error: Some("it is out of order".to_owned()),
                details: None,
            }],
        }
    }

    fn with(environment: &[(&str, &str)]) -> String {
        let pairs = environment.iter();
        let pairs = pairs.map(|&(name, value)| (name.to_owned(), value.to_owned()));
        text(&report(), pairs).unwrap()
    }

    #[test]
    fn versions_of_the_runtime_and_of_wgpu_are_in_it() {
        let text = with(&[]);
        assert!(text.contains("- tombolo 1.2.3, "), "{text}");
        let lock = include_str!("../../Cargo.lock");
        for name in CRATES {
            let of_crate = format!("name = \"{name}\"\nversion = \"");
            let start = lock.find(&of_crate).unwrap() + of_crate.len();
            let version = lock[start..].split('"').next().unwrap();
            assert!(text.contains(&format!("- {name} {version}\n")), "{text}");
        }
    }

    #[test]
    fn the_system_is_in_it() {
        let text = with(&[]);
        let system = format!("- {} on {}\n", std::env::consts::OS, std::env::consts::ARCH);
        assert!(text.contains(&system), "{text}");
    }

    #[test]
    fn variables_that_matter_are_in_it_and_no_others() {
        let text = with(&[
            ("WGPU_BACKEND", "vulkan"),
            ("SECRET", "token"),
            ("VK_DRIVER_FILES", "/a.json"),
        ]);
        let lines = "- `VK_DRIVER_FILES=/a.json`\n- `WGPU_BACKEND=vulkan`\n";
        assert!(text.contains(lines), "{text}");
        assert!(
            !text.contains("SECRET") && !text.contains("token"),
            "{text}"
        );
        assert!(with(&[]).contains("No variable that matters is set.\n"));
    }

    #[test]
    fn a_machine_without_adapters_has_a_report() {
        let error = std::io::Error::other("there is no driver");
        let report = Report::without_adapters(&error);
        assert!(!report.holds());
        let text = text(&report, std::iter::empty()).unwrap();
        assert!(
            text.contains("```text\nerror: there is no driver\n```\n"),
            "{text}"
        );
        assert!(text.contains("\"error\": \"there is no driver\""), "{text}");
    }

    #[test]
    fn the_adapters_are_in_it_for_people_and_for_tools() {
        let text = with(&[]);
        assert!(text.contains(&table::page(&report())), "{text}");
        let (_, json) = text.split_once("```json\n").unwrap();
        let (json, _) = json.split_once("\n```").unwrap();
        let found: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(found, serde_json::to_value(report()).unwrap());
        assert_eq!(found["adapters"][0]["error"], "it is out of order");
    }
}
