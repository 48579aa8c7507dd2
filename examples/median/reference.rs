//! The same filter on the host, by another algorithm than the kernel's, to check the kernel against.

use image::RgbaImage;

/// The median of the `n` x `n` window around each pixel, for each channel but alpha. A histogram of the
/// window slides along each row; the rows are shared out among the processor's threads.
pub fn median(image: &RgbaImage, n: u32) -> RgbaImage {
    let (width, height) = image.dimensions();
    let mut result = image.clone();
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let rows = (height as usize).div_ceil(threads).max(1);
    let row_bytes = width as usize * 4;
    std::thread::scope(|scope| {
        for (index, part) in result.chunks_mut((rows * row_bytes).max(1)).enumerate() {
            scope.spawn(move || {
                for (row, out) in part.chunks_mut(row_bytes).enumerate() {
                    let y = (index * rows + row) as u32;
                    for channel in 0..3 {
                        filter_row(image, n, y, channel, out);
                    }
                }
            });
        }
    });
    result
}

fn filter_row(image: &RgbaImage, n: u32, y: u32, channel: usize, out: &mut [u8]) {
    let (width, height) = image.dimensions();
    let radius = i64::from(n / 2);
    let rank = n * n / 2;
    let mut histogram = [0u32; 256];
    // Adds or removes one column of the window, clamped to the image.
    let column = |histogram: &mut [u32; 256], x: i64, add: bool| {
        let x = x.clamp(0, i64::from(width) - 1) as u32;
        for dy in -radius..=radius {
            let y = (i64::from(y) + dy).clamp(0, i64::from(height) - 1) as u32;
            let count = &mut histogram[usize::from(image.get_pixel(x, y)[channel])];
            *count = if add { *count + 1 } else { *count - 1 };
        }
    };
    for x in -radius..radius {
        column(&mut histogram, x, true);
    }
    for (x, pixel) in (0i64..).zip(out.chunks_exact_mut(4)) {
        column(&mut histogram, x + radius, true);
        let mut seen = 0;
        let median = histogram.iter().position(|&count| {
            seen += count;
            seen > rank
        });
        // The window holds more values than `rank`, so that there is always a position.
        pixel[channel] = median.unwrap_or(255) as u8;
        column(&mut histogram, x - radius, false);
    }
}
