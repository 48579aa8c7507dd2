//! The picture of the latencies: over time above, how many there are of each below.

use std::time::Duration;

use image::{Rgb, RgbImage};

/// Size of the picture, and of one of its charts, in pixels.
const SIZE: [u32; 2] = [960, 640];
const CHART: [u32; 2] = [860, 250];
/// Where the charts begin.
const LEFT: u32 = 70;
const TOPS: [u32; 2] = [30, 340];

const PAPER: Rgb<u8> = Rgb([252, 251, 247]);
const GRID: Rgb<u8> = Rgb([222, 220, 212]);
const INK: Rgb<u8> = Rgb([40, 44, 52]);
const RANGE: Rgb<u8> = Rgb([150, 190, 224]);
const MIDDLE: Rgb<u8> = Rgb([24, 92, 158]);
const LATE: Rgb<u8> = Rgb([208, 52, 44]);

/// Digits, the point and `ms`, three pixels wide and five high, a row in each number.
const GLYPHS: [(char, [u8; 5]); 13] = [
    ('0', [7, 5, 5, 5, 7]),
    ('1', [2, 6, 2, 2, 7]),
    ('2', [7, 1, 7, 4, 7]),
    ('3', [7, 1, 7, 1, 7]),
    ('4', [5, 5, 7, 1, 1]),
    ('5', [7, 4, 7, 1, 7]),
    ('6', [7, 4, 7, 5, 7]),
    ('7', [7, 1, 2, 2, 2]),
    ('8', [7, 5, 7, 5, 7]),
    ('9', [7, 5, 7, 1, 7]),
    ('.', [0, 0, 0, 0, 2]),
    ('m', [0, 7, 7, 5, 5]),
    ('s', [0, 3, 6, 3, 6]),
];

/// Draws the latencies of blocks that follow each other at a distance of `period`, which is the red line. Latencies
/// beyond the top of the chart are drawn at its top.
pub fn draw(latencies: &[Duration], period: Duration) -> RgbImage {
    let mut picture = RgbImage::from_pixel(SIZE[0], SIZE[1], PAPER);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut sorted: Vec<f64> = latencies.iter().copied().map(ms).collect();
    sorted.sort_by(f64::total_cmp);
    let usual = sorted.get(sorted.len() * 99 / 100).copied().unwrap_or(0.0);
    let top = (usual * 1.3).clamp(ms(period) * 1.2, ms(period) * 4.0);
    let all: Vec<f64> = latencies.iter().copied().map(ms).collect();
    let seconds = all.len() as f64 * period.as_secs_f64();
    over_time(&mut picture, &all, seconds, top, ms(period));
    histogram(&mut picture, &all, top, ms(period));
    picture
}

/// A column for the blocks of each moment: from their shortest latency to their longest, and the one in the middle.
fn over_time(picture: &mut RgbImage, all: &[f64], seconds: f64, top: f64, period: f64) {
    let y = |value: f64| {
        let up = (value / top).min(1.0) * f64::from(CHART[1] - 1);
        TOPS[0] + CHART[1] - 1 - up as u32
    };
    for mark in ticks(top) {
        line(picture, [LEFT, y(mark)], [CHART[0], 1], GRID);
        right_text(
            picture,
            LEFT - 6,
            y(mark) - 5,
            &format!("{}ms", label(mark)),
        );
    }
    for mark in ticks(seconds) {
        let x = LEFT + (mark / seconds * f64::from(CHART[0] - 1)) as u32;
        line(picture, [x, TOPS[0]], [1, CHART[1]], GRID);
        text(
            picture,
            x.saturating_sub(6),
            TOPS[0] + CHART[1] + 6,
            &format!("{}s", label(mark)),
        );
    }
    for column in 0..CHART[0] {
        let at = |column: u32| all.len() * column as usize / CHART[0] as usize;
        let mut here = all[at(column)..at(column + 1)].to_vec();
        if here.is_empty() {
            // Fewer blocks than columns: each is as wide as it takes.
            here.extend(all.get(at(column)));
        }
        here.sort_by(f64::total_cmp);
        let (Some(&first), Some(&last)) = (here.first(), here.last()) else {
            continue;
        };
        let x = LEFT + column;
        line(picture, [x, y(last)], [1, y(first) - y(last) + 1], RANGE);
        line(picture, [x, y(here[here.len() / 2]) - 1], [1, 2], MIDDLE);
        if last > period {
            line(picture, [x, y(last)], [1, 3], LATE);
        }
    }
    line(picture, [LEFT, y(period)], [CHART[0], 1], LATE);
    frame(picture, TOPS[0]);
}

/// A bar for each hundredth of the scale; heights grow with the logarithm, so that a single late block is seen.
fn histogram(picture: &mut RgbImage, all: &[f64], top: f64, period: f64) {
    const BARS: usize = 86;
    let mut counts = [0u32; BARS];
    for value in all {
        let bar = (value / top * BARS as f64) as usize;
        counts[bar.min(BARS - 1)] += 1;
    }
    let most = counts.iter().copied().max().unwrap_or(1).max(10);
    let height = |count: u32| {
        let part = f64::from(count).max(0.5).log10() - 0.5f64.log10();
        let whole = f64::from(most).log10() - 0.5f64.log10();
        (part / whole * f64::from(CHART[1] - 10)) as u32
    };
    let bottom = TOPS[1] + CHART[1];
    for power in 0..=most.ilog10() {
        let count = 10u32.pow(power);
        line(picture, [LEFT, bottom - height(count)], [CHART[0], 1], GRID);
        right_text(
            picture,
            LEFT - 6,
            bottom - height(count) - 5,
            &count.to_string(),
        );
    }
    let x = |value: f64| LEFT + (value / top * f64::from(CHART[0] - 1)) as u32;
    for mark in ticks(top) {
        line(picture, [x(mark), TOPS[1]], [1, CHART[1]], GRID);
        text(
            picture,
            x(mark).saturating_sub(12),
            bottom + 6,
            &format!("{}ms", label(mark)),
        );
    }
    let width = CHART[0] / BARS as u32;
    for (bar, &count) in (0..).zip(&counts) {
        if count > 0 {
            let begins = f64::from(bar) * top / BARS as f64;
            let colour = if begins >= period { LATE } else { MIDDLE };
            let high = height(count);
            line(
                picture,
                [LEFT + bar * width, bottom - high],
                [width - 1, high],
                colour,
            );
        }
    }
    line(picture, [x(period), TOPS[1]], [1, CHART[1]], LATE);
    frame(picture, TOPS[1]);
}

/// Round numbers from 0 to `top`, four to nine of them.
fn ticks(top: f64) -> Vec<f64> {
    let coarse = 10f64.powf((top / 4.0).log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|factor| factor * coarse);
    let step = steps.into_iter().find(|step| top / step >= 4.0);
    let step = step.unwrap_or(coarse);
    (0..=(top / step) as u32)
        .map(|n| f64::from(n) * step)
        .collect()
}

fn label(value: f64) -> String {
    // Two digits behind the point, and none without a meaning.
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Fills a rectangle, as far as it is in the picture.
fn line(picture: &mut RgbImage, [left, top]: [u32; 2], [width, height]: [u32; 2], colour: Rgb<u8>) {
    for y in top..(top + height).min(SIZE[1]) {
        for x in left..(left + width).min(SIZE[0]) {
            picture.put_pixel(x, y, colour);
        }
    }
}

fn frame(picture: &mut RgbImage, top: u32) {
    line(picture, [LEFT, top], [1, CHART[1]], INK);
    line(picture, [LEFT, top + CHART[1]], [CHART[0], 1], INK);
}

/// Pixels of a glyph's pixel, and from one glyph to the next.
const DOT: u32 = 2;
const ADVANCE: u32 = 8;

fn text(picture: &mut RgbImage, left: u32, top: u32, text: &str) {
    for (place, letter) in (0..).zip(text.chars()) {
        let Some((_, rows)) = GLYPHS.iter().find(|(known, _)| *known == letter) else {
            continue;
        };
        for (row, bits) in (0..).zip(rows) {
            for column in (0..3).filter(|column| bits & (4 >> column) != 0) {
                let x = left + place * ADVANCE + column * DOT;
                line(picture, [x, top + row * DOT], [DOT, DOT], INK);
            }
        }
    }
}

fn right_text(picture: &mut RgbImage, right: u32, top: u32, letters: &str) {
    let width = letters.len() as u32 * ADVANCE;
    text(picture, right.saturating_sub(width), top, letters);
}
