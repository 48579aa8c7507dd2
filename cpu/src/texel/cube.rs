//! Cube maps: from directions to faces, and across the edges of faces.
//!
//! Each face has its own coordinates s and t in [−1, 1], and the axis leading to the face. The table of axes is from the Vulkan
//! and Direct3D specifications; layers are +x, −x, +y, −y, +z, −z.

/// A signed axis of space: the index, and whether the axis points the other way.
type Signed = (usize, bool);

/// For each face: the axes of s and t, and the axis to the face.
const FACES: [[Signed; 3]; 6] = [
    [(2, true), (1, true), (0, false)],
    [(2, false), (1, true), (0, true)],
    [(0, false), (2, false), (1, false)],
    [(0, false), (2, true), (1, true)],
    [(0, false), (1, true), (2, false)],
    [(0, true), (1, true), (2, true)],
];

/// A point on a face.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FacePoint {
    /// The face: 0 to 5.
    pub face: u32,
    /// Coordinates in [0, 1].
    pub coordinate: [f32; 2],
}

fn component((axis, negative): Signed, vector: [f32; 3]) -> f32 {
    if negative {
        -vector[axis]
    } else {
        vector[axis]
    }
}

/// The face hit by a direction: the face of the longest axis; z before y before x.
fn face_of(direction: [f32; 3]) -> usize {
    let [x, y, z] = direction.map(f32::abs);
    let axis = if z >= x && z >= y {
        2
    } else if y >= x {
        1
    } else {
        0
    };
    2 * axis + usize::from(direction[axis] < 0.0)
}

/// Where a direction hits the cube.
pub(super) fn project(direction: [f32; 3]) -> FacePoint {
    let face = face_of(direction);
    let [s, t, major] = FACES[face].map(|axis| component(axis, direction));
    let coordinate = [s, t].map(|part| {
        let on_face = 0.5 * part / major + 0.5;
        // The null vector hits nothing; the middle is as good as any.
        if on_face.is_nan() { 0.5 } else { on_face }
    });
    FacePoint {
        face: face as u32,
        coordinate,
    }
}

/// How the coordinates on the face of `direction` change along `change`.
pub(super) fn project_gradient(direction: [f32; 3], change: [f32; 3]) -> [f32; 2] {
    let axes = FACES[face_of(direction)];
    let [s, t, major] = axes.map(|axis| component(axis, direction));
    let [ds, dt, dmajor] = axes.map(|axis| component(axis, change));
    let slope = |part: f32, dpart: f32| 0.5 * (major * dpart - part * dmajor) / (major * major);
    [slope(s, ds), slope(t, dt)]
}

/// The face and texel continuing a face of `size` × `size` texels at `index`, at most one texel outside; none beyond a corner,
/// where three faces meet and no texel is.
pub(super) fn across_edge(face: u32, index: [i64; 2], size: u32) -> Option<(u32, [u32; 2])> {
    let size = i64::from(size.max(1));
    let outside = index.map(|i| !(0..size).contains(&i));
    match outside {
        [false, false] => return Some((face, index.map(|i| i as u32))),
        [true, true] => return None,
        _ => {}
    }
    // Coordinates in half texels from the face's middle, the axis to the face having `size` of them.
    let mut point = index.map(|i| (2 * i + 1 - size).clamp(-size - 1, size + 1));
    // The part sticking out is folded back by a right angle: the coordinate on the axis to the face shrinks by the part.
    let over = usize::from(outside[1]);
    point[over] = size * point[over].signum();
    let mut space = [0; 3];
    let parts = [point[0], point[1], size - 1];
    for ((axis, negative), part) in FACES[face as usize].into_iter().zip(parts) {
        space[axis] = if negative { -part } else { part };
    }
    let (axis, _) = FACES[face as usize][over];
    let next = 2 * axis + usize::from(space[axis] < 0);
    let on_face = [0, 1].map(|part| {
        let (axis, negative) = FACES[next][part];
        let coordinate = if negative { -space[axis] } else { space[axis] };
        ((coordinate + size - 1) / 2) as u32
    });
    Some((next as u32, on_face))
}
