//! Runs the table on adapters and prints what deviates. Fails if something deviates that is not known.

use std::process::ExitCode;

use clap::Parser;
use tombolo_cpu_reference::adapters::{Opened, RunError, Verdict, all_adapters, judge, open};
use tombolo_cpu_reference::conformance::deviations::known;
use tombolo_cpu_reference::conformance::{Row, Strictness, rows};

/// What WGSL requires of compute kernels, on the adapters of this machine.
#[derive(Parser)]
struct Arguments {
    /// Only adapters whose name contains this, in any case.
    #[arg(long)]
    adapter: Option<String>,
    /// Only rows whose name contains this.
    #[arg(long)]
    row: Option<String>,
    /// Ask for IEEE 754's results where WGSL asks for less.
    #[arg(long)]
    ieee: bool,
    /// Mismatches to print of each row.
    #[arg(long, default_value_t = 3)]
    show: usize,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut rows = rows::all();
    if let Some(wanted) = &arguments.row {
        rows.retain(|row| row.name.contains(wanted));
    }
    let adapters: Vec<_> = all_adapters()
        .into_iter()
        .filter(|adapter| {
            let name = adapter.get_info().name.to_lowercase();
            arguments
                .adapter
                .as_ref()
                .is_none_or(|wanted| name.contains(&wanted.to_lowercase()))
        })
        .collect();
    if adapters.is_empty() {
        eprintln!("no adapter");
        return ExitCode::FAILURE;
    }
    let mut as_known = true;
    for adapter in adapters {
        let judged = open(&adapter)
            .map_err(|error| error.to_string())
            .and_then(|opened| {
                report(&opened, &rows, &arguments).map_err(|error| error.to_string())
            });
        match judged {
            Ok(known) => as_known &= known,
            Err(error) => {
                eprintln!("{error}");
                as_known = false;
            }
        }
    }
    // Of some rows alone nobody can tell which known deviations are gone.
    if as_known || arguments.row.is_some() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn report(opened: &Opened, rows: &[Row], arguments: &Arguments) -> Result<bool, RunError> {
    let strictness = if arguments.ieee {
        Strictness::Ieee
    } else {
        Strictness::Wgsl
    };
    println!("{} {}", opened.info.name, opened.info.driver_info);
    let judgement = judge(opened, rows, strictness)?;
    for (row, verdict) in &judgement.verdicts {
        let known = known(&opened.traits(), &row.name).map(|deviation| deviation.reason);
        match verdict {
            Verdict::Right | Verdict::NotProvided => continue,
            Verdict::Refused(error) => println!("  {}: {error}", row.name),
            Verdict::Wrong(mismatches) => {
                println!("  {}: {} results are wrong", row.name, mismatches.len());
                mismatches
                    .iter()
                    .take(arguments.show)
                    .for_each(|mismatch| println!("      {mismatch}"));
            }
        }
        match known {
            Some(reason) => println!("      known: {reason}"),
            None => println!("      NOT KNOWN"),
        }
    }
    let [right, wrong, refused, not_provided] = judgement.counts();
    println!(
        "  {right} rows right, {wrong} wrong, {refused} refused, {not_provided} left out for want of a feature"
    );
    Ok(judgement.surprises().is_empty())
}
