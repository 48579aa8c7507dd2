//! Statistics of many series of measurements at once: sum, least and largest of each, however long, and the running totals.
//!
//! `cargo run -p tombolo-kernels --example segments`

use tombolo::Context;
use tombolo_kernels::{Max, Min, SegmentedReduce, SegmentedScan, Sum};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = Context::new()?.device()?;
    // Four series one behind the other: a long one, one without a value, a short one, a single value.
    let lengths = [50_000u32, 0, 7, 1];
    let mut offsets = vec![0];
    for length in lengths {
        offsets.push(offsets[offsets.len() - 1] + length);
    }
    let len = offsets[lengths.len()];
    let measured: Vec<f32> = (0..len).map(|i| (i * 37 % 101) as f32 * 0.5).collect();

    let (values, cuts) = (device.buffer(&measured)?, device.buffer(&offsets)?);
    let count = lengths.len();
    let sums = device.zeroed(count)?;
    let (least, largest) = (device.zeroed(count)?, device.zeroed(count)?);
    let totals = device.zeroed(measured.len())?;
    SegmentedReduce::<f32, Sum>::new(&device)?.run(&values, &cuts, &sums)?;
    SegmentedReduce::<f32, Min>::new(&device)?.run(&values, &cuts, &least)?;
    SegmentedReduce::<f32, Max>::new(&device)?.run(&values, &cuts, &largest)?;
    SegmentedScan::<f32, Sum>::inclusive(&device)?.run(&values, &cuts, &totals)?;

    let (sums, least, largest) = (sums.read()?, least.read()?, largest.read()?);
    for (i, length) in lengths.iter().enumerate() {
        match length {
            0 => println!("series {i}: no values"),
            _ => println!(
                "series {i}: {length} values from {} to {}, {:.3} on average",
                least[i],
                largest[i],
                sums[i] / *length as f32
            ),
        }
    }
    let start = u64::from(offsets[2]);
    let totals = totals.read_range(start..start + 7)?;
    println!("running totals of series 2: {totals:?}");
    // The last one is the sum: all values are halves, and added without rounding.
    assert_eq!(totals.last(), Some(&sums[2]));
    Ok(())
}
