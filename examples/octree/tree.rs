//! The octree: ordinary values in shared memory, linked by their own addresses.
//!
//! The bodies are sorted along a space-filling curve, so that those of a cell lie beside each other.
//! A cell of `m` bodies takes at most `2 m - 1` nodes, since chains of cells with one child are left
//! out; every subtree therefore has its own part of the node memory before it is built, threads build
//! subtrees side by side, and all pointers are known when a node is written.

use std::thread;

use bytemuck::{Pod, Zeroable};
use tombolo::Ptr;

/// Levels of cells below the whole cube: what 64-bit keys have room for.
const LEVELS: u32 = 21;

/// Below so many bodies a subtree is not worth a thread.
const WORTH_A_THREAD: usize = 2048;

/// A body. Its place in memory never changes, so that pointers to it stay valid for the whole run.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Body {
    pub position: [f32; 3],
    pub mass: f32,
    pub velocity: [f32; 3],
    /// Of all other bodies, for a body of mass 1; written by the kernel, as all that follows.
    pub potential: f32,
    pub acceleration: [f32; 3],
    /// Bodies that the kernel has accounted for on its way through the tree.
    pub seen: u32,
    /// The leaf in which the kernel has met this body.
    pub leaf: Ptr<Node>,
    /// WGSL rounds the size of a structure up to its alignment.
    pub padding: [u32; 2],
}

/// A cell of the octree. A leaf holds one body.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub struct Node {
    /// Centre of mass.
    pub centre: [f32; 3],
    pub mass: f32,
    /// The square of the distance below which the cell has to be opened; 0 for leaves.
    pub reach: f32,
    /// Bodies in the cell.
    pub bodies: u32,
    /// The first child; null for leaves.
    pub first: Ptr<Node>,
    /// What follows when this cell is done with: the next sibling, or that of the nearest ancestor that
    /// has one. Null at the end of the walk.
    pub next: Ptr<Node>,
    /// The body of a leaf; null for other cells.
    pub body: Ptr<Body>,
}

/// What a tree is about to be built of: one body, with its place on the curve.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    key: u64,
    body: Ptr<Body>,
    position: [f32; 3],
    mass: f32,
}

/// The bodies in the order of the curve.
pub struct Sorted {
    items: Vec<Item>,
}

/// A tree that was built.
#[derive(Debug, Clone, Copy)]
pub struct Tree {
    pub root: Ptr<Node>,
    pub nodes: usize,
    /// Nodes on the longest way from the root to a leaf.
    pub depth: usize,
}

/// Nodes that a tree of so many bodies may need.
pub fn capacity(bodies: usize) -> usize {
    (2 * bodies).saturating_sub(1)
}

impl Sorted {
    /// Sorts the bodies that lie from `at` on. `None` if there are none, or if one is nowhere: a
    /// coordinate is infinite or not a number.
    pub fn new(bodies: &[Body], at: Ptr<Body>) -> Option<Self> {
        let mut low = [f32::INFINITY; 3];
        let mut high = [f32::NEG_INFINITY; 3];
        for body in bodies {
            for axis in 0..3 {
                if !body.position[axis].is_finite() {
                    return None;
                }
                low[axis] = low[axis].min(body.position[axis]);
                high[axis] = high[axis].max(body.position[axis]);
            }
        }
        let sides = [0, 1, 2].map(|axis| f64::from(high[axis]) - f64::from(low[axis]));
        let edge = sides.into_iter().fold(f64::MIN_POSITIVE, f64::max);
        let key = |position: [f32; 3]| {
            (0..3).fold(0, |key, axis| {
                let along = (f64::from(position[axis]) - f64::from(low[axis])) / edge;
                // The conversion saturates, and the body at the far end belongs to the last cell.
                let cell = (along * f64::from(1 << LEVELS)) as u64;
                key | spread(cell.min((1 << LEVELS) - 1)) << axis
            })
        };
        let mut items: Vec<Item> = bodies
            .iter()
            .zip(0..)
            .map(|(body, index)| Item {
                key: key(body.position),
                body: at.add(index),
                position: body.position,
                mass: body.mass,
            })
            .collect();
        items.sort_unstable_by_key(|item| (item.key, item.body.address()));
        (!items.is_empty()).then_some(Self { items })
    }

    /// Pointers to the bodies, neighbours in space being neighbours in the list.
    pub fn pointers(&self) -> impl Iterator<Item = Ptr<Body>> {
        self.items.iter().map(|item| item.body)
    }

    /// Builds the tree into `nodes`, which lie at `at` and are at least [`capacity`] many. A cell of
    /// side `s`, seen from a distance `d`, is opened if `s / d` is more than `theta`.
    pub fn build(&self, nodes: &mut [Node], at: Ptr<Node>, theta: f64) -> Tree {
        let threads = thread::available_parallelism().map_or(1, |n| n.get());
        let root = Part {
            items: &self.items,
            nodes,
            at,
            next: Ptr::null(),
        };
        let all = root.build(theta, threads);
        Tree {
            root: at,
            nodes: all.nodes,
            depth: all.depth,
        }
    }
}

/// Puts two zeros between any two of the low 21 bits.
fn spread(cell: u64) -> u64 {
    [
        (32, 0x001f_0000_0000_ffff),
        (16, 0x001f_0000_ff00_00ff),
        (8, 0x100f_00f0_0f00_f00f),
        (4, 0x10c3_0c30_c30c_30c3),
        (2, 0x1249_2492_4924_9249),
    ]
    .into_iter()
    .fold(cell, |bits, (shift, mask)| (bits | bits << shift) & mask)
}

/// A subtree to be built: its bodies, its part of the node memory, and what follows behind it.
struct Part<'a> {
    items: &'a [Item],
    nodes: &'a mut [Node],
    at: Ptr<Node>,
    next: Ptr<Node>,
}

/// What a cell has to know of those below it.
struct Sum {
    mass: f64,
    moment: [f64; 3],
    /// Corners of the smallest box around the bodies.
    low: [f32; 3],
    high: [f32; 3],
    nodes: usize,
    depth: usize,
}

impl Sum {
    const EMPTY: Self = Self {
        mass: 0.0,
        moment: [0.0; 3],
        low: [f32::INFINITY; 3],
        high: [f32::NEG_INFINITY; 3],
        nodes: 0,
        depth: 0,
    };

    fn and(self, other: &Self) -> Self {
        let axes = [0, 1, 2];
        Self {
            mass: self.mass + other.mass,
            moment: axes.map(|axis| self.moment[axis] + other.moment[axis]),
            low: axes.map(|axis| self.low[axis].min(other.low[axis])),
            high: axes.map(|axis| self.high[axis].max(other.high[axis])),
            nodes: self.nodes + other.nodes,
            depth: self.depth.max(other.depth),
        }
    }

    fn centre(&self) -> [f32; 3] {
        self.moment.map(|moment| (moment / self.mass) as f32)
    }

    /// The distance from the centre of mass below which the cell has to be opened: the box's side over
    /// `theta`, and as much as the centre of mass is off the box's middle. For `theta` up to 1 this is
    /// more than the distance of any body of the cell, so that no body is ever pulled by itself.
    fn reach(&self, theta: f64) -> f64 {
        let mut side: f64 = 0.0;
        let mut off = 0.0;
        for ((low, high), centre) in self.low.iter().zip(self.high).zip(self.centre()) {
            let (low, high) = (f64::from(*low), f64::from(high));
            side = side.max(high - low);
            off += (f64::from(centre) - 0.5 * (low + high)).powi(2);
        }
        side / theta + off.sqrt()
    }
}

impl Part<'_> {
    fn build(self, theta: f64, threads: usize) -> Sum {
        let Some((node, rest)) = self.nodes.split_first_mut() else {
            return Sum::EMPTY;
        };
        if let [item] = self.items {
            *node = Node {
                centre: item.position,
                mass: item.mass,
                reach: 0.0,
                bodies: 1,
                first: Ptr::null(),
                next: self.next,
                body: item.body,
            };
            let mass = f64::from(item.mass);
            return Sum {
                mass,
                moment: item.position.map(|x| mass * f64::from(x)),
                low: item.position,
                high: item.position,
                nodes: 1,
                depth: 1,
            };
        }
        let first = self.at.add(1);
        let below = build_all(children(self.items, rest, first, self.next), theta, threads);
        *node = Node {
            centre: below.centre(),
            mass: below.mass as f32,
            // Bodies at one and the same place are told apart by opening their cell, too.
            reach: (below.reach(theta).powi(2) as f32).max(f32::MIN_POSITIVE),
            bodies: self.items.len() as u32,
            first,
            next: self.next,
            body: Ptr::null(),
        };
        Sum {
            nodes: below.nodes + 1,
            depth: below.depth + 1,
            ..below
        }
    }
}

/// Divides a cell of several bodies among its children. Levels on which they all share one cell are
/// skipped, so that there are two children at least; bodies that no level tells apart become children
/// of one cell, however many they are.
fn children<'a>(
    items: &'a [Item],
    nodes: &'a mut [Node],
    at: Ptr<Node>,
    next: Ptr<Node>,
) -> Vec<Part<'a>> {
    let differ = match items {
        [first, .., last] => first.key ^ last.key,
        _ => 0,
    };
    // Keys have three bits a level: the highest that differs says on which level they part.
    let shift = differ.checked_ilog2().map(|bit| bit / 3 * 3);
    let octant = |item: &Item| shift.map(|shift| item.key >> shift);
    let (mut items, mut nodes, mut at) = (items, nodes, at);
    let mut parts = Vec::with_capacity(8);
    while let Some(first) = items.first() {
        let count = match octant(first) {
            Some(here) => items.partition_point(|item| octant(item) == Some(here)),
            None => 1,
        };
        let (its_items, other_items) = items.split_at(count);
        let (its_nodes, other_nodes) = nodes.split_at_mut(capacity(count).min(nodes.len()));
        let behind = at.add(its_nodes.len() as u64);
        parts.push(Part {
            items: its_items,
            nodes: its_nodes,
            at,
            next: if other_items.is_empty() { next } else { behind },
        });
        (items, nodes, at) = (other_items, other_nodes, behind);
    }
    parts
}

/// Builds subtrees side by side, as far as there are threads for it.
fn build_all(mut parts: Vec<Part<'_>>, theta: f64, threads: usize) -> Sum {
    let bodies: usize = parts.iter().map(|part| part.items.len()).sum();
    if threads < 2 || bodies < WORTH_A_THREAD {
        return parts
            .into_iter()
            .fold(Sum::EMPTY, |sum, part| sum.and(&part.build(theta, 1)));
    }
    if parts.len() == 1 {
        return match parts.pop() {
            Some(part) => part.build(theta, threads),
            None => Sum::EMPTY,
        };
    }
    // About half of the bodies go to another thread, and at least one part to each side.
    let mut half = 0;
    let mut given = 0;
    while half + 1 < parts.len() && (half == 0 || 2 * given < bodies) {
        given += parts[half].items.len();
        half += 1;
    }
    let others = parts.split_off(half);
    thread::scope(|scope| {
        let other = scope.spawn(|| build_all(others, theta, threads - threads / 2));
        let one = build_all(parts, theta, threads / 2);
        match other.join() {
            Ok(other) => one.and(&other),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
