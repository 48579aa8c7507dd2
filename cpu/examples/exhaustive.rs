//! Measures the functions of `math` for every argument: the tables at the heads of the files there.
//!
//! Functions of one argument run over all 2^32 floats (or every n-th with `--stride n`), those of two
//! over a grid of edge values and as many random pairs. Build it with `--release`; a function takes some
//! minutes on one core.
//!
//! ```sh
//! cargo run --release -p tombolo-cpu --example exhaustive -- sin exp2 --stride 17 --threads 2
//! ```

#[path = "../tests/support/random.rs"]
mod random;

use random::{unit, word};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use tombolo_cpu::math::catalogue::{
    self, BINARY, UNARY, binary, binary_reference, error_in_ulp, unary, unary_reference,
};
use tombolo_cpu::math::{Cost, F, Scalar32};

/// The largest error so far and where it is.
#[derive(Clone, Copy, Default)]
struct Worst {
    error: f64,
    at: (f32, f32),
    value: f32,
    exact: f64,
    /// Arguments for which one of value and reference is NaN alone.
    wrong: u64,
}

impl Worst {
    fn see(&mut self, at: (f32, f32), value: f32, exact: f64) {
        let error = error_in_ulp(value, exact);
        if error == f64::INFINITY {
            if self.wrong == 0 {
                println!(
                    "  wrong: f({:e}, {:e}) = {value:e}, not {exact:e}",
                    at.0, at.1
                );
            }
            self.wrong += 1;
        } else if error > self.error {
            *self = Self {
                error,
                at,
                value,
                exact,
                wrong: self.wrong,
            };
        }
    }
    fn join(&mut self, other: &Self) {
        let wrong = self.wrong + other.wrong;
        if other.error > self.error {
            *self = *other;
        }
        self.wrong = wrong;
    }
}

/// Runs `each` on numbers `0..count` in blocks, on all threads.
fn spread(count: u64, threads: usize, each: impl Fn(u64, &mut Worst) + Sync) -> Worst {
    const BLOCK: u64 = 1 << 16;
    let next = AtomicU64::new(0);
    let total = Mutex::new(Worst::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut worst = Worst::default();
                loop {
                    let start = next.fetch_add(BLOCK, Ordering::Relaxed);
                    if start >= count {
                        break;
                    }
                    (start..count.min(start + BLOCK)).for_each(|index| each(index, &mut worst));
                }
                // The lock is poisoned only where another thread panicked; that ends the program.
                if let Ok(mut total) = total.lock() {
                    total.join(&worst);
                }
            });
        }
    });
    total.into_inner().unwrap_or_default()
}

/// A pair of arguments; every other pair is one whose power neither overflows nor vanishes.
fn pair(name: &str, index: u64) -> (f32, f32) {
    let (one, two) = (word(2 * index), word(2 * index + 1));
    let x = f32::from_bits(one as u32);
    if index.is_multiple_of(2) {
        return (x, f32::from_bits(two as u32));
    }
    let unit = unit(2 * index + 1);
    match name {
        "pow" => {
            let x = x.abs();
            (x, ((unit * 280.0 - 150.0) / f64::from(x).log2()) as f32)
        }
        _ => (x, (f64::from(x) * (unit * 16.0 - 8.0).exp2()) as f32),
    }
}

fn main() {
    let mut names = Vec::new();
    let (mut stride, mut threads) = (
        1,
        std::thread::available_parallelism().map_or(1, usize::from),
    );
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|n| n.parse().ok());
        match argument.as_str() {
            "--stride" => stride = number().unwrap_or(1),
            "--threads" => threads = number().map_or(1, |n| n as usize),
            name if UNARY.contains(&name) || BINARY.contains(&name) => names.push(argument),
            other => {
                eprintln!("unknown function {other}; there are {UNARY:?} and {BINARY:?}");
                std::process::exit(2);
            }
        }
    }
    if names.is_empty() {
        names = UNARY
            .iter()
            .chain(BINARY)
            .map(|name| (*name).to_owned())
            .collect();
    }
    let stride = stride.max(1);
    let count = (1u64 << 32).div_ceil(stride);
    println!("{count} arguments a function, {threads} threads");
    println!("| function | operations | wide | largest error, ULP | at | value | exact |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for name in &names {
        let cost = Cost::default();
        let worst = if let (Some(f), Some(exact)) = (unary(name), unary_reference(name)) {
            if let Some(count) = unary(name) {
                let _ = count(F::new(&cost, ()));
            }
            let parity = catalogue::parity(name);
            let value = |x: f32| f(F::new(&Scalar32, x)).raw();
            let count = if parity.is_some() {
                count.div_ceil(2)
            } else {
                count
            };
            spread(count, threads, |index, worst| {
                let x = f32::from_bits((index * stride) as u32);
                let there = value(x);
                worst.see((x, 0.0), there, exact(f64::from(x)));
                let mirrored = parity.map(|factor| (value(-x), there * factor));
                if let Some((other, expected)) = mirrored
                    && other.to_bits() != expected.to_bits()
                {
                    worst.see((-x, 0.0), other, exact(f64::from(-x)));
                }
            })
        } else if let (Some(f), Some(exact)) = (catalogue::binary(name), binary_reference(name)) {
            if let Some(count) = binary(name) {
                let _ = count(F::new(&cost, ()), F::new(&cost, ()));
            }
            spread(count, threads, |index, worst| {
                let (x, y) = pair(name, index);
                let value = f(F::new(&Scalar32, x), F::new(&Scalar32, y)).raw();
                worst.see((x, y), value, exact(f64::from(x), f64::from(y)));
            })
        } else {
            continue;
        };
        let Worst {
            error,
            at,
            value,
            exact,
            wrong,
        } = worst;
        println!(
            "| `{name}` | {} | {} | {error:.3} | {:e}, {:e} | {value:e} | {exact:e} |{}",
            cost.operations(),
            cost.wide_operations(),
            at.0,
            at.1,
            if wrong > 0 {
                format!(" WRONG: {wrong}")
            } else {
                String::new()
            },
        );
    }
}
