//! Cube maps by geometry: texels that touch in space are neighbours.

use super::super::cube::{across_edge, project, project_gradient};
use super::unit;

/// The middle of a texel on a cube of half-width 1, by the table of the Vulkan specification.
fn position(face: u32, [x, y]: [u32; 2], size: u32) -> [f64; 3] {
    let s = (2.0 * f64::from(x) + 1.0) / f64::from(size) - 1.0;
    let t = (2.0 * f64::from(y) + 1.0) / f64::from(size) - 1.0;
    match face {
        0 => [1.0, -t, -s],
        1 => [-1.0, -t, s],
        2 => [s, 1.0, t],
        3 => [s, -1.0, -t],
        4 => [s, -t, 1.0],
        _ => [-s, -t, -1.0],
    }
}

#[test]
fn directions_hit_the_texel_they_point_at() {
    for size in [1, 2, 5] {
        for (face, x, y) in
            (0..6 * size * size).map(|n| (n / size / size, n / size % size, n % size))
        {
            let middle = position(face, [x, y], size);
            for length in [1e-3, 1.0, 70.0] {
                let point = project(middle.map(|part| (part * length) as f32));
                assert_eq!(point.face, face);
                let texel = point
                    .coordinate
                    .map(|part| (part * size as f32).floor() as u32);
                assert_eq!(texel, [x, y], "face {face} of {size}");
            }
        }
    }
    assert_eq!(project([0.0; 3]).coordinate, [0.5; 2]);
}

#[test]
fn texels_across_an_edge_touch_in_space_and_lead_back() {
    for size in [1, 2, 3, 8] {
        let last = i64::from(size) - 1;
        for face in 0..6 {
            for along in 0..i64::from(size) {
                for (inside, outside) in [
                    ([0, along], [-1, along]),
                    ([last, along], [last + 1, along]),
                    ([along, 0], [along, -1]),
                    ([along, last], [along, last + 1]),
                ] {
                    let (next, texel) = across_edge(face, outside, size).unwrap();
                    assert!(next != face && texel.iter().all(|&n| n < size));
                    let here = position(face, inside.map(|n| n as u32), size);
                    let there = position(next, texel, size);
                    // Both are half a texel from the edge, on faces at a right angle.
                    let squares = (0..3).map(|n| (here[n] - there[n]).powi(2)).sum::<f64>();
                    let expected = 2.0 / f64::from(size).powi(2);
                    assert!(
                        (squares - expected).abs() < 1e-9,
                        "{face} {outside:?} of {size}"
                    );
                }
            }
            for corner in [
                [-1, -1],
                [-1, last + 1],
                [last + 1, -1],
                [last + 1, last + 1],
            ] {
                assert_eq!(across_edge(face, corner, size), None);
            }
            let inside = [last / 2, last];
            assert_eq!(
                across_edge(face, inside, size),
                Some((face, inside.map(|n| n as u32)))
            );
        }
    }
}

#[test]
fn gradients_match_differences_of_projections() {
    for index in 0..3000 {
        let direction: [f32; 3] =
            std::array::from_fn(|n| (unit(6 * index + n as u64) * 4.0 - 2.0) as f32);
        let change: [f32; 3] =
            std::array::from_fn(|n| (unit(6 * index + 3 + n as u64) - 0.5) as f32);
        let step = 1e-3;
        let moved = |sign: f32| std::array::from_fn(|n| direction[n] + sign * step * change[n]);
        let (one, other) = (project(moved(1.0)), project(moved(-1.0)));
        let longest = direction
            .into_iter()
            .fold(0f32, |longest, part| longest.max(part.abs()));
        if one.face != other.face || longest < 0.3 {
            continue;
        }
        let slope = project_gradient(direction, change);
        for part in 0..2 {
            let measured = (one.coordinate[part] - other.coordinate[part]) / (2.0 * step);
            assert!(
                (measured - slope[part]).abs() < 2e-3,
                "{direction:?} {change:?}"
            );
        }
    }
}
