//! `cargo xtask adapters`: the software adapters, and the environment that selects the adapters.

use serde_json::{Map, Value, json};

use crate::env::AdapterEnv;
use crate::error::Error;
use crate::provide::{self, Provided, Switches};
use crate::workspace::Workspace;

/// Arguments of the command.
#[derive(clap::Args)]
pub struct Args {
    /// Print JSON instead of lines for a shell
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    switches: Switches,
}

/// Runs the command.
pub fn run(workspace: &Workspace, args: &Args) -> Result<(), Error> {
    let (provided, env) = if provide::system_has_adapters() {
        provide::say_system_has_adapters();
        (Provided::default(), AdapterEnv::default())
    } else {
        let provided = provide::provide(workspace, &args.switches)?;
        provided.report();
        if provided.software.is_empty() {
            return Err(Error::NoAdapter);
        }
        let env = provided.software_env(workspace)?;
        (provided, env)
    };
    if args.json {
        println!("{:#}", report(&provided, &env));
    } else {
        print!("{}", env.shell());
    }
    Ok(())
}

fn report(provided: &Provided, env: &AdapterEnv) -> Value {
    let vars: Map<String, Value> = env
        .vars()
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect();
    let adapters: Vec<Value> = provided
        .software
        .iter()
        .map(|(software, manifest)| {
            json!({
                "driver": software.driver_name(),
                "adapter_name": software.adapter_name(),
                "manifest": manifest.to_string_lossy(),
            })
        })
        .collect();
    let absent: Vec<Value> = provided
        .absent
        .iter()
        .map(|(software, reason)| json!({ "driver": software.driver_name(), "reason": reason }))
        .collect();
    json!({ "env": vars, "adapters": adapters, "absent": absent })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icd::Software;

    #[test]
    fn json_names_adapters_and_environment() {
        let provided = Provided {
            software: vec![(Software::Lavapipe, "/l.json".into())],
            absent: vec![(Software::SwiftShader, "a snap".into())],
            ..Provided::default()
        };
        let report = report(
            &provided,
            &AdapterEnv::default().with("VK_DRIVER_FILES", "/l.json"),
        );
        assert_eq!(report["env"]["VK_DRIVER_FILES"], "/l.json");
        assert_eq!(report["adapters"][0]["adapter_name"], "llvmpipe");
        assert_eq!(report["absent"][0]["reason"], "a snap");
    }
}
