//! All kinds of work at once on each adapter, and on each without memory in common with the host: launches and
//! read-backs, futures, pointers, lines that kernels print, calls to a server on the device, and a program that
//! submits, polls and has callbacks of its own beside it all.
//!
//! Every value is checked. Run it as a program that a panic would end, caught or not:
//! `cargo run --profile abort --example stress`.

mod work;

use std::time::Instant;

use clap::Parser;
use tombolo::{Context, DeviceOptions};

#[derive(Parser)]
struct Args {
    /// How often each thread does its work.
    #[arg(long, default_value_t = 200)]
    rounds: u32,
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    env_logger::init();
    let args = Args::parse();
    let context = Context::new()?;
    for adapter in context.adapters() {
        for with_copies in [false, true] {
            let options = DeviceOptions::default()
                .live_memory(!with_copies)
                .import_host_memory(!with_copies);
            // A context of its own, so that the heap lies where this device has it.
            let context = Context::new()?;
            let device = context.device_at_with(adapter.index, options)?;
            let begun = Instant::now();
            work::run(&device, args.rounds)?;
            let with = if with_copies { ", with copies" } else { "" };
            let seconds = begun.elapsed().as_secs_f64();
            println!(
                "{}{with}: {} rounds in {seconds:.1} s",
                adapter.name, args.rounds
            );
        }
    }
    Ok(())
}
