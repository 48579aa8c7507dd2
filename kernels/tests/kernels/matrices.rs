//! Products of matrices, against sums in double precision and wrapping integers.

use tombolo_kernels::{Error, Gemm, GemmSize, Gemv, Values};

use crate::data::{POISON, assert_same, integers, numbers, poisoned};
use crate::harness::Fixture;

crate::cases![
    products_at_awkward_sizes,
    an_infinity_stays_in_its_column,
    products_of_integers,
    products_are_added,
    depths_of_several_launches,
    matrices_without_rows_columns_or_depth,
    vectors_at_awkward_sizes,
    vectors_of_integers_are_added,
    rows_of_several_launches,
    arguments_that_do_not_fit_the_extents,
    nothing_beside_the_product_is_written,
];

fn size(rows: u32, columns: u32, depth: u32) -> GemmSize {
    GemmSize {
        rows,
        columns,
        depth,
    }
}

/// The product, with the sum of the sizes of all terms for each value.
fn product(size: GemmSize, left: &[f32], right: &[f32]) -> Vec<(f64, f64)> {
    let (columns, depth) = (size.columns as usize, size.depth as usize);
    let value = |index: usize| {
        let (row, column) = (index / columns, index % columns);
        let terms = (0..depth)
            .map(|d| f64::from(left[row * depth + d]) * f64::from(right[d * columns + column]));
        terms.fold((0.0, 0.0), |(sum, sizes), term| {
            (sum + term, sizes + term.abs())
        })
    };
    (0..size.rows as usize * columns).map(value).collect()
}

/// Each term is rounded when it is multiplied, and once in each addition.
fn assert_near(found: &[f32], expected: &[(f64, f64)], depth: u32, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let unit = f64::from(f32::EPSILON) / 2.0 * f64::from(depth + 2);
    for (i, (&found, &(exact, sizes))) in found.iter().zip(expected).enumerate() {
        assert!(
            (f64::from(found) - exact).abs() <= sizes * unit,
            "{what} at {i}: {found} {exact}"
        );
    }
}

fn products_at_awkward_sizes(fixture: &Fixture) {
    let mut gemm = Gemm::<f32>::new(&fixture.device).unwrap();
    let sizes = [
        (1, 1, 1),
        (1, 1, 17),
        (3, 5, 2),
        (64, 64, 16),
        (65, 63, 15),
        (63, 65, 33),
        (128, 1, 100),
        (1, 130, 100),
        (70, 200, 129),
    ];
    for (rows, columns, depth) in sizes {
        let size = size(rows, columns, depth);
        let left = numbers((rows * depth) as usize, 1);
        let right = numbers((depth * columns) as usize, 2);
        let sink = poisoned::<f32>(fixture, (rows * columns) as usize);
        let (a, b) = (
            fixture.device.buffer(&left).unwrap(),
            fixture.device.buffer(&right).unwrap(),
        );
        gemm.run(size, &a, &b, &sink).unwrap();
        let found = sink.read().unwrap();
        assert_near(
            &found,
            &product(size, &left, &right),
            depth,
            &format!("{size:?}"),
        );
    }
}

/// Steps behind the depth count as zero on both sides: zero times what lies behind the matrix need not be zero.
fn an_infinity_stays_in_its_column(fixture: &Fixture) {
    let left = fixture.device.buffer(&[1.0f32; 3]).unwrap();
    let right = [1.0, 2.0, 3.0, 4.0, 5.0, f32::INFINITY];
    let right = fixture.device.buffer(&right).unwrap();
    let sink = poisoned::<f32>(fixture, 2);
    let mut gemm = Gemm::<f32>::new(&fixture.device).unwrap();
    gemm.run(size(1, 2, 3), &left, &right, &sink).unwrap();
    assert_eq!(sink.read().unwrap(), [9.0, f32::INFINITY]);
}

fn wrapping(size: GemmSize, left: &[i32], right: &[i32]) -> Vec<i32> {
    let (columns, depth) = (size.columns as usize, size.depth as usize);
    let value = |index: usize| {
        let (row, column) = (index / columns, index % columns);
        (0..depth).fold(0i32, |sum, d| {
            sum.wrapping_add(left[row * depth + d].wrapping_mul(right[d * columns + column]))
        })
    };
    (0..size.rows as usize * columns).map(value).collect()
}

fn products_of_integers(fixture: &Fixture) {
    let size = size(67, 71, 73);
    let (left, right) = (integers(67 * 73, 3), integers(73 * 71, 4));
    let (a, b) = (
        fixture.device.buffer(&left).unwrap(),
        fixture.device.buffer(&right).unwrap(),
    );
    let sink = poisoned::<i32>(fixture, 67 * 71);
    Gemm::<i32>::new(&fixture.device)
        .unwrap()
        .run(size, &a, &b, &sink)
        .unwrap();
    assert_same(&sink.read().unwrap(), &wrapping(size, &left, &right), "i32");
    let words = |values: &[i32]| values.iter().map(|&x| x as u32).collect::<Vec<u32>>();
    let a = fixture.device.buffer(&words(&left)).unwrap();
    let b = fixture.device.buffer(&words(&right)).unwrap();
    let sink = poisoned::<u32>(fixture, 67 * 71);
    Gemm::<u32>::new(&fixture.device)
        .unwrap()
        .run(size, &a, &b, &sink)
        .unwrap();
    assert_same(
        &sink.read().unwrap(),
        &words(&wrapping(size, &left, &right)),
        "u32",
    );
}

fn products_are_added(fixture: &Fixture) {
    let size = size(30, 70, 20);
    let (left, right) = (integers(600, 5), integers(1_400, 6));
    let before = integers(2_100, 7);
    let (a, b) = (
        fixture.device.buffer(&left).unwrap(),
        fixture.device.buffer(&right).unwrap(),
    );
    let sink = fixture.device.buffer(&before).unwrap();
    let mut gemm = Gemm::<i32>::new(&fixture.device).unwrap();
    gemm.add(size, &a, &b, &sink).unwrap();
    let added = wrapping(size, &left, &right);
    let expected: Vec<i32> = before
        .iter()
        .zip(&added)
        .map(|(x, y)| x.wrapping_add(*y))
        .collect();
    assert_same(&sink.read().unwrap(), &expected, "added");
    gemm.run(size, &a, &b, &sink).unwrap();
    assert_same(&sink.read().unwrap(), &added, "written again");
}

fn depths_of_several_launches(fixture: &Fixture) {
    // 32,768 steps are a launch.
    for depth in [32_768, 32_769, 70_001] {
        let size = size(2, 3, depth);
        let (left, right) = (
            integers(2 * depth as usize, 8),
            integers(3 * depth as usize, 9),
        );
        let a = fixture.device.buffer(&left).unwrap();
        let b = fixture.device.buffer(&right).unwrap();
        let sink = poisoned::<i32>(fixture, 6);
        let event = Gemm::<i32>::new(&fixture.device)
            .unwrap()
            .run(size, &a, &b, &sink)
            .unwrap();
        event.wait().unwrap();
        assert_same(
            &sink.read().unwrap(),
            &wrapping(size, &left, &right),
            &format!("{depth}"),
        );
    }
}

fn matrices_without_rows_columns_or_depth(fixture: &Fixture) {
    let mut gemm = Gemm::<f32>::new(&fixture.device).unwrap();
    let some = fixture.device.buffer(&numbers(12, 10)).unwrap();
    let none = Values::from(&some).slice(..0).unwrap();
    let sink = poisoned::<f32>(fixture, 12);
    gemm.run(size(0, 4, 3), &none, &some, &none)
        .unwrap()
        .wait()
        .unwrap();
    gemm.run(size(4, 0, 3), &some, &none, &none)
        .unwrap()
        .wait()
        .unwrap();
    gemm.add(size(3, 4, 0), &none, &none, &sink)
        .unwrap()
        .wait()
        .unwrap();
    assert!(sink.read().unwrap().iter().all(|x| x.to_bits() == POISON));
    gemm.run(size(3, 4, 0), &none, &none, &sink)
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(sink.read().unwrap(), [0.0; 12]);
    let mut gemv = Gemv::<f32>::new(&fixture.device).unwrap();
    gemv.run([0, 4], &none, &some, &none)
        .unwrap()
        .wait()
        .unwrap();
    let sink = poisoned::<f32>(fixture, 5);
    gemv.run([5, 0], &none, &none, &sink).unwrap();
    assert_eq!(sink.read().unwrap(), [0.0; 5]);
}

fn vectors_at_awkward_sizes(fixture: &Fixture) {
    let mut gemv = Gemv::<f32>::new(&fixture.device).unwrap();
    let sizes = [
        (1, 1),
        (1, 1_000),
        (4, 64),
        (5, 63),
        (3, 65),
        (1_001, 7),
        (130, 257),
    ];
    for (rows, columns) in sizes {
        let matrix = numbers((rows * columns) as usize, 11);
        let vector = numbers(columns as usize, 12);
        let (a, b) = (
            fixture.device.buffer(&matrix).unwrap(),
            fixture.device.buffer(&vector).unwrap(),
        );
        let sink = poisoned::<f32>(fixture, rows as usize);
        gemv.run([rows, columns], &a, &b, &sink).unwrap();
        let expected = product(size(rows, 1, columns), &matrix, &vector);
        assert_near(
            &sink.read().unwrap(),
            &expected,
            columns,
            &format!("{rows} {columns}"),
        );
    }
}

fn vectors_of_integers_are_added(fixture: &Fixture) {
    let (matrix, vector, before) = (integers(90 * 70, 13), integers(70, 14), integers(90, 15));
    let (a, b) = (
        fixture.device.buffer(&matrix).unwrap(),
        fixture.device.buffer(&vector).unwrap(),
    );
    let sink = fixture.device.buffer(&before).unwrap();
    let mut gemv = Gemv::<i32>::new(&fixture.device).unwrap();
    gemv.add([90, 70], &a, &b, &sink).unwrap();
    let added = wrapping(size(90, 1, 70), &matrix, &vector);
    let expected: Vec<i32> = before
        .iter()
        .zip(&added)
        .map(|(x, y)| x.wrapping_add(*y))
        .collect();
    assert_same(&sink.read().unwrap(), &expected, "added");
}

fn rows_of_several_launches(fixture: &Fixture) {
    // 1,048,576 columns are a launch.
    let columns = (1 << 20) + 5;
    let (matrix, vector) = (integers(columns, 16), integers(columns, 17));
    let (a, b) = (
        fixture.device.buffer(&matrix).unwrap(),
        fixture.device.buffer(&vector).unwrap(),
    );
    let sink = poisoned::<i32>(fixture, 1);
    let mut gemv = Gemv::<i32>::new(&fixture.device).unwrap();
    gemv.run([1, columns as u32], &a, &b, &sink)
        .unwrap()
        .wait()
        .unwrap();
    let expected = wrapping(size(1, 1, columns as u32), &matrix, &vector);
    assert_same(&sink.read().unwrap(), &expected, "columns");
}

fn arguments_that_do_not_fit_the_extents(fixture: &Fixture) {
    let (a, b, c) = (
        poisoned::<f32>(fixture, 6),
        poisoned::<f32>(fixture, 6),
        poisoned::<f32>(fixture, 6),
    );
    let mut gemm = Gemm::<f32>::new(&fixture.device).unwrap();
    let refusals = [
        (gemm.run(size(7, 1, 1), &a, &b, &c), "left", 7),
        (gemm.run(size(1, 2, 4), &a, &b, &c), "right", 8),
        (gemm.run(size(3, 3, 2), &a, &b, &c), "sink", 9),
        // What does not even fit 32 bits.
        (
            gemm.run(size(u32::MAX, 1, u32::MAX), &a, &b, &c),
            "left",
            0xFFFF_FFFE_0000_0001,
        ),
    ];
    for (refused, name, least) in refusals {
        let refused = refused.unwrap_err();
        let Error::TooShort {
            argument,
            needed,
            len: 6,
        } = &refused
        else {
            panic!("{refused}");
        };
        assert_eq!((*argument, *needed), (name, least));
    }
    let mut gemv = Gemv::<f32>::new(&fixture.device).unwrap();
    let refused = gemv.run([1, 7], &a, &b, &c).unwrap_err();
    assert!(
        matches!(
            refused,
            Error::TooShort {
                argument: "matrix",
                ..
            }
        ),
        "{refused}"
    );
}

fn nothing_beside_the_product_is_written(fixture: &Fixture) {
    let (left, right) = (integers(70 * 9, 18), integers(9 * 66, 19));
    let (a, b) = (
        fixture.device.buffer(&left).unwrap(),
        fixture.device.buffer(&right).unwrap(),
    );
    let memory = poisoned::<i32>(fixture, 70 * 66 + 200);
    let sink = Values::from(&memory).slice(64..).unwrap();
    let mut gemm = Gemm::<i32>::new(&fixture.device).unwrap();
    gemm.run(size(70, 66, 9), &a, &b, sink).unwrap();
    let mut expected = vec![POISON as i32; 70 * 66 + 200];
    expected[64..][..70 * 66].copy_from_slice(&wrapping(size(70, 66, 9), &left, &right));
    assert_same(&memory.read().unwrap(), &expected, "beside");
}
