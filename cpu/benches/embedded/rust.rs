//! The peers in Rust: what a kernel does for an invocation, in a loop over all of them on the threads of rayon.
//!
//! Peers named `rayon` are what one would write in scalar Rust; atomic operations are atomic there, too. Where another way
//! suits the processor better, there is one more peer for it, by which nothing is judged: vectors of the compiler's over a
//! whole work-group, or bins that are not shared, which no compiler of the kernel could make of it.

use std::sync::atomic::{AtomicU32, Ordering};

use rayon::prelude::*;

/// What one piece of work is at least, so that handing it over costs little.
const PIECE: usize = 1 << 10;

/// What a function gives for each index.
fn each<T: bytemuck::Pod + Send>(out: &mut [u8], f: impl Fn(usize) -> T + Sync) {
    let out = bytemuck::cast_slice_mut::<u8, T>(out);
    out.par_chunks_mut(PIECE)
        .enumerate()
        .for_each(|(piece, out)| {
            for (i, out) in out.iter_mut().enumerate() {
                *out = f(piece * PIECE + i);
            }
        });
}

pub fn saxpy(buffers: &mut [Vec<u8>]) {
    let [x, y] = buffers else { return };
    let x: &[f32] = bytemuck::cast_slice(x);
    let y: &mut [f32] = bytemuck::cast_slice_mut(y);
    let pieces = y.par_chunks_mut(16 * PIECE).zip(x.par_chunks(16 * PIECE));
    pieces.for_each(|(y, x)| {
        for (y, x) in y.iter_mut().zip(x) {
            *y += 1.5 * x;
        }
    });
}

pub fn matmul(buffers: &mut [Vec<u8>]) {
    let [a, b, c] = buffers else { return };
    let (a, b): (&[f32], &[f32]) = (bytemuck::cast_slice(a), bytemuck::cast_slice(b));
    each(c, |i| {
        let (row, column) = (i / 256, i % 256);
        (0..256)
            .map(|k| a[row * 256 + k] * b[k * 256 + column])
            .sum::<f32>()
    });
}

/// By halves, as the kernel, which Rust's compiler makes vectors of.
pub fn reduce_by_halves(buffers: &mut [Vec<u8>]) {
    let [x, sums] = buffers else { return };
    let x: &[f32] = bytemuck::cast_slice(x);
    each(sums, |i| {
        let mut part = [0.0f32; 256];
        part.copy_from_slice(&x[i * 256..(i + 1) * 256]);
        let mut half = 128;
        while half > 0 {
            let (low, high) = part.split_at_mut(half);
            for (low, high) in low.iter_mut().zip(high) {
                *low += *high;
            }
            half /= 2;
        }
        part[0]
    });
}

/// One after the other, as Rust is asked to by `sum`.
pub fn reduce(buffers: &mut [Vec<u8>]) {
    let [x, sums] = buffers else { return };
    let x: &[f32] = bytemuck::cast_slice(x);
    each(sums, |i| x[i * 256..(i + 1) * 256].iter().sum::<f32>());
}

/// Bins that all threads count in.
pub fn histogram(buffers: &mut [Vec<u8>]) {
    let [x, bins] = buffers else { return };
    let mut counts: Vec<AtomicU32> = Vec::new();
    counts.resize_with(256, AtomicU32::default);
    let x: &[u32] = bytemuck::cast_slice(x);
    x.par_chunks(PIECE).for_each(|x| {
        for x in x {
            counts[(x & 255) as usize].fetch_add(1, Ordering::Relaxed);
        }
    });
    let bins: &mut [u32] = bytemuck::cast_slice_mut(bins);
    for (bin, count) in bins.iter_mut().zip(counts) {
        *bin += count.into_inner();
    }
}

/// Bins of each piece of work, which are added up.
pub fn histogram_of_own_bins(buffers: &mut [Vec<u8>]) {
    let [x, bins] = buffers else { return };
    let x: &[u32] = bytemuck::cast_slice(x);
    let counts = x.par_chunks(64 * PIECE).map(|x| {
        let mut counts = [0u32; 256];
        for x in x {
            counts[(x & 255) as usize] += 1;
        }
        counts
    });
    let counts = counts.reduce(
        || [0; 256],
        |mut sum, counts| {
            sum.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
            sum
        },
    );
    let bins: &mut [u32] = bytemuck::cast_slice_mut(bins);
    for (bin, count) in bins.iter_mut().zip(counts) {
        *bin += count;
    }
}

pub fn median(buffers: &mut [Vec<u8>]) {
    let [picture, out] = buffers else { return };
    let picture: &[f32] = bytemuck::cast_slice(picture);
    each(out, |i| {
        let (column, row) = ((i % 256) as i32, (i / 256) as i32);
        let mut window = [0.0f32; 49];
        let mut count = 0;
        for dy in -3..=3 {
            for dx in -3..=3 {
                let (x, y) = ((column + dx).clamp(0, 255), (row + dy).clamp(0, 255));
                window[count] = picture[(y * 256 + x) as usize];
                count += 1;
            }
        }
        for i in 0..=24 {
            for j in i + 1..49 {
                let (a, b) = (window[i], window[j]);
                (window[i], window[j]) = (a.min(b), a.max(b));
            }
        }
        window[24]
    });
}

pub fn mandelbrot(buffers: &mut [Vec<u8>]) {
    each(&mut buffers[0], |i| {
        let (x, y) = ((i % 512) as f32, (i / 512) as f32);
        let c = (x / 512.0 * 3.0 - 2.0, y / 512.0 * 2.0 - 1.0);
        let (mut z, mut k) = ((0.0f32, 0.0f32), 0u32);
        while k < 256 && z.0 * z.0 + z.1 * z.1 <= 4.0 {
            z = (z.0 * z.0 - z.1 * z.1 + c.0, 2.0 * z.0 * z.1 + c.1);
            k += 1;
        }
        k
    });
}

pub fn chase(buffers: &mut [Vec<u8>]) {
    let [next, out] = buffers else { return };
    let next: &[u32] = bytemuck::cast_slice(next);
    each(out, |i| (0..2000).fold(i as u32, |at, _| next[at as usize]));
}
