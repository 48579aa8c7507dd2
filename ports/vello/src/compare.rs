//! Whether two devices, or a device and the processor, have left the same in the buffers of the stages.
//!
//! Numbers that follow from the scene alone have to be equal. Others hang on how a processor rounds: ends of lines, the boxes
//! around them, and so how many lines a curve becomes, and which tiles a line that runs along their edge meets. And the order
//! of what stages append by atomic operations is nobody's: lines are compared by path, and segments by tile and command.

use std::collections::BTreeMap;

use bytemuck::NoUninit;
use vello_encoding::LineSoup;

use crate::host::PTCL_INITIAL_ALLOC;
use crate::stages::Stages;

/// What was compared, and how much of it differs.
pub struct Comparison {
    /// What was compared.
    pub what: &'static str,
    /// How many.
    pub count: usize,
    /// How many differ.
    pub differ: usize,
    /// The share that may differ, by rounding.
    allowed: f64,
}

impl Comparison {
    fn new(what: &'static str, allowed: f64, equal: impl IntoIterator<Item = bool>) -> Self {
        let (mut count, mut differ) = (0, 0);
        for is_equal in equal {
            count += 1;
            differ += usize::from(!is_equal);
        }
        Self {
            what,
            count,
            differ,
            allowed,
        }
    }

    /// Of the first so many values of two buffers.
    fn each<T>(
        what: &'static str,
        allowed: f64,
        count: u32,
        [a, b]: [&[T]; 2],
        equal: impl Fn(&T, &T) -> bool,
    ) -> Self {
        let count = count as usize;
        let pairs = a[..count].iter().zip(&b[..count]);
        Self::new(what, allowed, pairs.map(|(p, q)| equal(p, q)))
    }

    /// Whether no more differs than may.
    pub fn holds(&self) -> bool {
        self.count > 0 && self.differ as f64 <= self.allowed * self.count as f64
    }
}

/// Nothing that hangs on rounding.
const EXACT: f64 = 0.0;
/// One of a thousand: of what is on an edge.
const ROUNDED: f64 = 0.001;
/// One of a hundred: of tiles, which curves meet in their corners.
const CORNERS: f64 = 0.01;
/// Seven words in some thousand: `vello_shaders::cpu` has the line of a circular gradient, which nothing in the picture hangs
/// on, in another direction than the shader.
const CIRCULAR: f64 = 0.005;

/// Compares all stages but the fine one.
pub fn stages(a: &Stages, b: &Stages) -> Vec<Comparison> {
    let layout = &a.config.layout;
    let tags = [&a.tag_monoids[..], &b.tag_monoids];
    let paths = [&a.path_bboxes[..], &b.path_bboxes];
    let objects = [&a.draw_monoids[..], &b.draw_monoids];
    let brushes = [&a.info_bin_data[..], &b.info_bin_data];
    let clips = [&a.clip_inps[..], &b.clip_inps];
    let clip_boxes = [&a.clip_bboxes[..], &b.clip_bboxes];
    let object_boxes = [&a.draw_bboxes[..], &b.draw_bboxes];
    let object_tiles = [&a.paths[..], &b.paths];
    let words = layout.path_tags_size() / 4;
    let (n_objects, n_clips) = (layout.n_draw_objects, layout.n_clips);
    vec![
        Comparison::each("scanned path tags", EXACT, words, tags, is_same_value),
        Comparison::each("boxes of paths", ROUNDED, layout.n_paths, paths, |p, q| {
            let corners = [(p.x0, q.x0), (p.y0, q.y0), (p.x1, q.x1), (p.y1, q.y1)];
            (p.draw_flags, p.trans_ix) == (q.draw_flags, q.trans_ix)
                && corners.iter().all(|(p, q)| p.abs_diff(*q) <= 1)
        }),
        lines(a, b),
        Comparison::each(
            "scanned draw objects",
            EXACT,
            n_objects,
            objects,
            PartialEq::eq,
        ),
        Comparison::each(
            "brushes",
            CIRCULAR,
            layout.bin_data_start,
            brushes,
            is_same_word,
        ),
        Comparison::each("clips", EXACT, n_clips, clips, is_same_value),
        Comparison::each("boxes of clips", ROUNDED, n_clips, clip_boxes, |p, q| {
            is_near_box(p.bbox, q.bbox)
        }),
        Comparison::each(
            "boxes of draw objects",
            ROUNDED,
            n_objects,
            object_boxes,
            |p, q| is_near_box(p.bbox, q.bbox),
        ),
        bins(a, b),
        Comparison::each(
            "tiles of draw objects",
            ROUNDED,
            n_objects,
            object_tiles,
            |p, q| p.bbox == q.bbox,
        ),
        tiles(a, b),
    ]
}

fn is_same_value<T: NoUninit>(a: &T, b: &T) -> bool {
    bytemuck::bytes_of(a) == bytemuck::bytes_of(b)
}

/// Whether the edges of two boxes are no further than a pixel apart.
fn is_near_box(a: [f32; 4], b: [f32; 4]) -> bool {
    a.iter().zip(b).all(|(p, q)| (p - q).abs() <= 1.0)
}

/// Whether two words are the same number, of whichever type.
fn is_same_word(a: &u32, b: &u32) -> bool {
    let [x, y] = [a, b].map(|word| f32::from_bits(*word));
    a == b || (x - y).abs() <= 1e-4 * x.abs().max(y.abs()).max(1.0)
}

fn near(a: f64, b: f64, by: f64) -> bool {
    (a - b).abs() <= by
}

/// What does not hang on the order of lines: twice the area to the left of them, their ends, and their number.
#[derive(Default, Clone, Copy)]
struct Sum {
    area: f64,
    ends: [f64; 2],
    length: f64,
    count: u32,
}

impl Sum {
    fn add(&mut self, from: [f32; 2], to: [f32; 2]) {
        let [[x0, y0], [x1, y1]] = [from, to].map(|point| point.map(f64::from));
        self.area += x0 * y1 - x1 * y0;
        self.ends = [self.ends[0] + x1 - x0, self.ends[1] + y1 - y0];
        self.length += (x1 - x0).hypot(y1 - y0);
        self.count += 1;
    }
}

/// Compares the lines of each path, of which a device that rounds in another way has more for small curves.
fn lines(a: &Stages, b: &Stages) -> Comparison {
    let sums = |stages: &Stages| {
        let mut sums = BTreeMap::<u32, Sum>::new();
        // A device may have counted more than there are.
        let count = stages.lines.len().min(stages.bump.lines as usize);
        for LineSoup {
            path_ix, p0, p1, ..
        } in &stages.lines[..count]
        {
            sums.entry(*path_ix).or_default().add(*p0, *p1);
        }
        sums
    };
    let (a, b) = (sums(a), sums(b));
    let paths: std::collections::BTreeSet<u32> = a.keys().chain(b.keys()).copied().collect();
    let is_same = |path: &u32| {
        let (Some(p), Some(q)) = (a.get(path), b.get(path)) else {
            return false;
        };
        near(p.area, q.area, 0.1 + 0.02 * p.length)
            && near(p.length, q.length, 0.01 + 0.03 * p.length)
            && near(p.ends[0], q.ends[0], 0.02)
            && near(p.ends[1], q.ends[1], 0.02)
            && p.count.max(q.count) <= 2 * p.count.min(q.count) + 1
    };
    Comparison::new("lines of paths", ROUNDED, paths.iter().map(is_same))
}

/// Compares which draw objects each bin has.
fn bins(a: &Stages, b: &Stages) -> Comparison {
    let config = &a.config;
    let bins = config.width_in_tiles.div_ceil(16) * config.height_in_tiles.div_ceil(16);
    let parts = config.layout.n_draw_objects.div_ceil(256);
    let elements = |stages: &'_ Stages, part: u32, bin: u32| -> Option<Vec<u32>> {
        let header = stages.bin_headers[(part * bins.next_multiple_of(256) + bin) as usize];
        let start = config.layout.bin_data_start as usize + header.chunk_offset as usize;
        let all = start..start + header.element_count as usize;
        stages.info_bin_data.get(all).map(<[u32]>::to_vec)
    };
    let all = (0..parts).flat_map(|part| (0..bins).map(move |bin| (part, bin)));
    let is_same = |(part, bin)| {
        let (p, q) = (elements(a, part, bin), elements(b, part, bin));
        p.is_some() && p == q
    };
    Comparison::new("draw objects of bins", CORNERS, all.map(is_same))
}

/// Compares the commands of each tile, and the segments that they fill.
fn tiles(a: &Stages, b: &Stages) -> Comparison {
    let all = 0..a.config.width_in_tiles * a.config.height_in_tiles;
    let is_same = |tile| {
        let (p, q) = (commands(a, tile), commands(b, tile));
        p.len() == q.len() && p.iter().zip(&q).all(|(p, q)| p.is_same(q))
    };
    Comparison::new("commands and segments of tiles", CORNERS, all.map(is_same))
}

/// A command of a tile's list.
struct Command {
    /// Its words, but for places in buffers.
    words: Vec<u32>,
    /// The segments it fills.
    segments: Sum,
    /// How far they cover the tile's left edge.
    edges: f64,
}

impl Command {
    fn is_same(&self, other: &Self) -> bool {
        let (p, q) = (&self.segments, &other.segments);
        self.words == other.words
            && near(p.area, q.area, 0.2 + 0.05 * p.length)
            && near(p.ends[0], q.ends[0], 0.25)
            && near(p.ends[1], q.ends[1], 0.25)
            && near(self.edges, other.edges, 0.25)
    }
}

/// How many words follow the tag of a command (`shared/ptcl.wgsl`); `None` for one that ends the list or leads elsewhere.
fn operands(tag: u32) -> Option<usize> {
    match tag {
        1 => Some(3),
        3 | 10 => Some(0),
        5 | 9 => Some(1),
        6 | 7 | 8 | 11 | 13 => Some(2),
        _ => None,
    }
}

const END: u32 = 0;
const FILL: u32 = 1;
const JUMP: u32 = 12;

/// The commands of a tile, up to what is no command.
fn commands(stages: &Stages, tile: u32) -> Vec<Command> {
    let mut commands = Vec::new();
    // The first word is the place of the tile's part of the blend stack.
    let mut at = (tile * PTCL_INITIAL_ALLOC + 1) as usize;
    // A list that leads back to itself has no end.
    for _ in 0..stages.ptcl.len() {
        let rest = stages.ptcl.get(at..).unwrap_or_default();
        match *rest {
            [END, ..] => return commands,
            [JUMP, to, ..] => {
                at = to as usize;
                continue;
            }
            _ => {}
        }
        let words = (rest.first()).and_then(|tag| rest.get(..1 + operands(*tag)?));
        match words {
            Some(words @ &[FILL, ..]) => commands.push(fill(stages, words)),
            Some(words) => commands.push(Command {
                words: words.to_vec(),
                segments: Sum::default(),
                edges: 0.0,
            }),
            None => break,
        }
        at += words.map_or(0, <[u32]>::len);
    }
    // What is no list differs from every list.
    commands.push(Command {
        words: Vec::new(),
        segments: Sum::default(),
        edges: f64::NAN,
    });
    commands
}

/// A fill: its rule, its backdrop, and its segments in place of where they lie and how many there are, since a curve may
/// become a line more or less.
fn fill(stages: &Stages, words: &[u32]) -> Command {
    let (first, count, rule) = (words[2] as usize, (words[1] >> 1) as usize, words[1] & 1);
    let mut segments = Sum::default();
    let mut edges = 0.0;
    let all = stages.segments.get(first..first.saturating_add(count));
    for segment in all.unwrap_or_default() {
        segments.add(segment.point0, segment.point1);
        // 1e9 where the segment does not meet the edge.
        let rises = (segment.point1[0] - segment.point0[0]).signum();
        edges += f64::from(rises * (16.0 - segment.y_edge.min(16.0)));
    }
    Command {
        words: vec![words[0], rule, words[3]],
        segments,
        edges,
    }
}
