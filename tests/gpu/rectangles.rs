//! Rectangles of buffers: copies, reads and writes beside loops over every element on the host. Elements of all sizes, so
//! that rows begin and end inside words; few rows and many, short rows and long.

use crate::byte_copies::same;
use crate::cases;
use crate::harness::Fixture;
use bytemuck::Pod;
use tombolo::{
    Constants, Context, DeviceBuffer, DeviceOptions, Program,
    buffers::{MemoryError, ReadError, Rect, RectError},
    device::ExecutionError,
};

cases![
    copies_between_buffers,
    copies_within_a_buffer,
    reads_and_writes,
    whole_rows_are_one_range,
    long_rows,
    many_rows,
    small_bindings,
    rectangles_are_ordered_with_launches,
    failures_belong_to_their_rows,
    rectangles_that_do_not_fit_are_refused,
    imported_buffers_need_what_the_commands_do,
];

/// What memory holds, different for each buffer.
fn noise<T: Pod>(seed: usize, len: usize) -> Vec<T> {
    let mut bytes = vec![0u8; len * size_of::<T>()];
    for (i, bytes) in bytes.chunks_mut(8).enumerate() {
        let word = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = (word ^ (word >> 29)).wrapping_mul(seed as u64 * 2 + 0xbf58_476d_1ce4_e5b9);
        bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
    }
    bytemuck::pod_collect_to_vec(&bytes)
}

/// The numbers of a rectangle's elements, by its definition.
fn elements(rect: &Rect) -> Vec<usize> {
    let ([x0, y0, z0], [nx, ny, nz]) = (rect.origin(), rect.extent());
    let mut all = Vec::new();
    for z in z0..z0 + nz {
        for y in y0..y0 + ny {
            let row = x0 + y * rect.row_pitch() + z * rect.slice_pitch();
            all.extend((row..row + nx).map(|element| element as usize));
        }
    }
    all
}

/// The copy on the host.
fn copy<T: Pod>(from: (&[T], &Rect), to: (&mut [T], &Rect)) {
    let pairs = elements(from.1).into_iter().zip(elements(to.1));
    pairs.for_each(|(source, goal)| to.0[goal] = from.0[source]);
}

fn agree<T: Pod>(seen: &[T], wanted: &[T], what: &str) {
    same(
        bytemuck::cast_slice(seen),
        bytemuck::cast_slice(wanted),
        what,
    );
}

/// Pairs of rectangles of one extent: of one to three dimensions, odd sizes, with gaps and without, few rows and many.
fn pairs() -> Vec<(Rect, Rect)> {
    let rect = |origin, extent, row, slice| Rect::new(origin, extent, row, slice).unwrap();
    let mut all = Vec::new();
    for extent in [
        [1, 1, 1],
        [5, 1, 1],
        [1, 7, 1],
        [4, 4, 1],
        [7, 5, 3],
        [3, 41, 1],
        [8, 9, 4],
        [1, 3, 19],
        [13, 1, 11],
        [16, 17, 2],
    ] {
        let [nx, ny, _] = extent;
        let packed = Rect::packed(extent).unwrap();
        let wide = rect([3, 2, 1], extent, nx + 5, (nx + 5) * (ny + 3));
        let even = rect([4, 0, 0], extent, (nx + 7) / 4 * 4, (nx + 7) / 4 * 4 * ny);
        let skewed = rect([1, 0, 2], extent, nx, nx * ny + 3);
        for pair in [
            (wide, packed),
            (packed, wide),
            (even, even),
            (skewed, wide),
            (wide, skewed),
        ] {
            all.push(pair);
        }
    }
    all
}

fn copies_between_buffers(f: &Fixture) {
    fn of<T: Pod>(f: &Fixture) {
        for (case, (from, to)) in pairs().into_iter().enumerate() {
            // Ends behind the rectangles, or with them.
            let beyond = case % 3;
            let values = noise::<T>(case, from.end() as usize + beyond);
            let mut wanted = noise::<T>(case + 1000, to.end() as usize + beyond);
            let source = f.device.buffer(&values).unwrap();
            let target = f.device.buffer(&wanted).unwrap();
            source.copy_rect_to(&from, &target, &to).unwrap();
            copy((&values, &from), (&mut wanted, &to));
            let what = format!("{}, {from:?} to {to:?}", std::any::type_name::<T>());
            agree(&target.read().unwrap(), &wanted, &what);
            agree(&source.read().unwrap(), &values, &what);
        }
    }
    of::<u8>(f);
    of::<u16>(f);
    of::<[u8; 3]>(f);
    of::<u32>(f);
    of::<[u8; 13]>(f);
    of::<[f32; 4]>(f);
}

fn copies_within_a_buffer(f: &Fixture) {
    fn of<T: Pod>(f: &Fixture) {
        // Side by side in one array, with rows between each other's, and in turns of slices.
        let rect = |origin, extent| Rect::new(origin, extent, 37, 37 * 23).unwrap();
        let cases = [
            (rect([0, 0, 0], [9, 20, 2]), rect([9, 0, 0], [9, 20, 2])),
            (rect([20, 3, 0], [17, 20, 1]), rect([2, 1, 1], [17, 20, 1])),
            (rect([1, 0, 0], [3, 3, 3]), rect([1, 3, 0], [3, 3, 3])),
            (
                Rect::new([0; 3], [37, 11, 1], 74, 2000).unwrap(),
                Rect::new([37, 0, 0], [37, 11, 1], 74, 2000).unwrap(),
            ),
        ];
        for (case, (from, to)) in cases.into_iter().enumerate() {
            let mut wanted = noise::<T>(case, 37 * 23 * 3);
            let buffer = f.device.buffer(&wanted).unwrap();
            buffer.copy_rect_to(&from, &buffer.clone(), &to).unwrap();
            copy((&wanted.clone(), &from), (&mut wanted, &to));
            let what = format!("{}, {from:?} to {to:?}", std::any::type_name::<T>());
            agree(&buffer.read().unwrap(), &wanted, &what);
        }
    }
    of::<u8>(f);
    of::<u16>(f);
    of::<[u8; 3]>(f);
    of::<u32>(f);
}

fn reads_and_writes(f: &Fixture) {
    fn of<T: Pod>(f: &Fixture) {
        for (case, (from, to)) in pairs().into_iter().enumerate() {
            let what = format!("{}, {from:?}, {to:?}", std::any::type_name::<T>());
            let values = noise::<T>(case, from.end() as usize + case % 3);
            let buffer = f.device.buffer(&values).unwrap();
            let packed: Vec<T> = elements(&from).into_iter().map(|i| values[i]).collect();
            agree(&buffer.read_rect(&from).unwrap(), &packed, &what);
            // The host's memory has values of its own around the rectangle.
            let mut wanted = noise::<T>(case + 1000, to.end() as usize + 2);
            let mut seen = wanted.clone();
            buffer.read_rect_into(&from, &mut seen, &to).unwrap();
            copy((&values, &from), (&mut wanted, &to));
            agree(&seen, &wanted, &what);
            // And so has the device's.
            let mut wanted = noise::<T>(case + 2000, to.end() as usize + case % 2);
            let target = f.device.buffer(&wanted).unwrap();
            target.write_rect(&to, &values, &from).unwrap();
            copy((&values, &from), (&mut wanted, &to));
            agree(&target.read().unwrap(), &wanted, &what);
        }
    }
    of::<u8>(f);
    of::<u16>(f);
    of::<[u8; 3]>(f);
    of::<u32>(f);
    of::<[f32; 4]>(f);
}

fn whole_rows_are_one_range(f: &Fixture) {
    let values = noise::<u32>(1, 40 * 30);
    let buffer = f.device.buffer(&values).unwrap();
    let rows = Rect::plane([0, 7], [40, 12], 40).unwrap();
    assert_eq!(buffer.read_rect(&rows).unwrap(), values[7 * 40..19 * 40]);
    let target = f.device.zeroed::<u32>(40 * 12).unwrap();
    let packed = Rect::packed([40, 12, 1]).unwrap();
    buffer.copy_rect_to(&rows, &target, &packed).unwrap();
    assert_eq!(target.read().unwrap(), values[7 * 40..19 * 40]);
    target.write_rect(&packed, &values, &rows).unwrap();
    assert_eq!(target.read().unwrap(), values[7 * 40..19 * 40]);
}

/// All commands with one pair of rectangles.
fn all_commands<T: Pod>(f: &Fixture, from: &Rect, to: &Rect) {
    let what = format!("{}, {from:?}, {to:?}", std::any::type_name::<T>());
    let values = noise::<T>(3, from.end() as usize);
    let source = f.device.buffer(&values).unwrap();
    let mut wanted = noise::<T>(4, to.end() as usize);
    let target = f.device.buffer(&wanted).unwrap();
    source.copy_rect_to(from, &target, to).unwrap();
    copy((&values, from), (&mut wanted, to));
    agree(&target.read().unwrap(), &wanted, &what);
    let mut seen = noise::<T>(4, to.end() as usize);
    source.read_rect_into(from, &mut seen, to).unwrap();
    agree(&seen, &wanted, &what);
    let target = f.device.buffer(&noise::<T>(4, to.end() as usize)).unwrap();
    target.write_rect(to, &values, from).unwrap();
    agree(&target.read().unwrap(), &wanted, &what);
}

fn long_rows(f: &Fixture) {
    let from = Rect::plane([1, 1], [2115, 20], 2121).unwrap();
    let to = Rect::plane([2, 0], [2115, 20], 2118).unwrap();
    all_commands::<[u8; 31]>(f, &from, &to);
    // Longer than a group of rows.
    let from = Rect::plane([3, 0], [300_001, 2], 300_003).unwrap();
    let to = Rect::plane([0, 0], [300_001, 2], 300_002).unwrap();
    all_commands::<[u8; 31]>(f, &from, &to);
}

fn many_rows(f: &Fixture) {
    // More than a group: columns of a large array, of one byte and of a few.
    let from = Rect::plane([5, 1], [1, 300_000], 7).unwrap();
    let to = Rect::plane([0, 0], [1, 300_000], 2).unwrap();
    all_commands::<u8>(f, &from, &to);
    let from = Rect::new([0, 0, 1], [100, 300, 10], 101, 101 * 303).unwrap();
    all_commands::<[u8; 31]>(f, &from, &Rect::packed([100, 300, 10]).unwrap());
}

fn small_bindings(f: &Fixture) {
    let mut options = DeviceOptions::default();
    options.storage_binding_bytes = Some(64 << 10);
    let context = Context::new().unwrap();
    let device = context.device_named_with(f.device.name(), options).unwrap();
    // A row is a larger part of a binding than of a group, and pitches are longer than a binding.
    let from = Rect::plane([1, 0], [700, 40], 66_001).unwrap();
    let to = Rect::plane([2, 0], [700, 40], 1_003).unwrap();
    let values = noise::<u8>(5, from.end() as usize);
    let mut wanted = noise::<u8>(6, to.end() as usize);
    let source = device.buffer(&values).unwrap();
    let target = device.buffer(&wanted).unwrap();
    source.copy_rect_to(&from, &target, &to).unwrap();
    copy((&values, &from), (&mut wanted, &to));
    agree(&target.read().unwrap(), &wanted, "small bindings");
    let packed: Vec<u8> = elements(&from).into_iter().map(|i| values[i]).collect();
    agree(&source.read_rect(&from).unwrap(), &packed, "small bindings");
    let mut wanted = values.clone();
    source.write_rect(&from, &wanted[7..], &to).unwrap();
    copy((&values[7..], &to), (&mut wanted, &from));
    agree(&source.read().unwrap(), &wanted, "small bindings");
}

/// Adds one to each word.
const INCREMENT: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&data) { data[id.x] += 1u; }
}";

fn increment(f: &Fixture, data: &DeviceBuffer<u32>) {
    let program = Program::new("rectangles.wgsl", INCREMENT).unwrap();
    let kernel = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let launch = kernel.launch().buffer("data", data);
    launch.invocations(data.len() as u32).submit().unwrap();
}

fn rectangles_are_ordered_with_launches(f: &Fixture) {
    let mut wanted = noise::<u32>(7, 50 * 40);
    let data = f.device.buffer(&wanted).unwrap();
    let log = f.device.zeroed::<u32>(6 * 30 * 8).unwrap();
    let mut logged = vec![0u32; 6 * 30 * 8];
    for round in 0..8u64 {
        increment(f, &data);
        wanted
            .iter_mut()
            .for_each(|word| *word = word.wrapping_add(1));
        let from = Rect::plane([round * 5, 3], [6, 30], 50).unwrap();
        let to = Rect::new([0, 0, round], [6, 30, 1], 6, 180).unwrap();
        data.copy_rect_to(&from, &log, &to).unwrap();
        copy((&wanted, &from), (&mut logged, &to));
        // A word of each row comes from the host.
        let column = Rect::plane([round, 0], [1, 40], 50).unwrap();
        let words = noise::<u32>(round as usize, 40);
        let packed = Rect::packed([1, 40, 1]).unwrap();
        data.write_rect(&column, &words, &packed).unwrap();
        copy((&words, &packed), (&mut wanted, &column));
        agree(&data.read_rect(&column).unwrap(), &words, "a column");
    }
    agree(&log.read().unwrap(), &logged, "the log");
    agree(&data.read().unwrap(), &wanted, "the data");
}

/// Fails behind its writes.
const FAILS: &str = "
@group(0) @binding(0) var<storage, read_write> data: array<u32>;
@compute @workgroup_size(1) fn main() {
    data[0] = 1u;
    assert(data[0] == 2u, \"wrong\");
}";

fn failures_belong_to_their_rows(f: &Fixture) {
    const WIDTH: u64 = 12;
    let program = Program::new("fails.wgsl", FAILS).unwrap();
    let kernel = f
        .device
        .kernel(&program, "main", &Constants::new())
        .unwrap();
    let data = f.device.buffer(&noise::<u32>(8, 12 * 24)).unwrap();
    let good = noise::<u32>(9, 12 * 24);
    // The launch may have written all of row 3.
    let row = data.slice(3 * WIDTH..4 * WIDTH);
    let failed = kernel.launch().buffer("data", &row).workgroups(1).submit();
    let failed = failed.unwrap().wait().unwrap_err();
    let is_failure = |error: &ReadError| matches!(error, ReadError::Execution(error) if matches!(**error, ExecutionError::Assertion { .. }));
    let left = Rect::plane([0, 0], [5, 24], WIDTH).unwrap();
    let above = Rect::plane([0, 0], [5, 3], WIDTH).unwrap();
    let below = Rect::plane([0, 4], [5, 20], WIDTH).unwrap();
    let error = data.read_rect(&left).unwrap_err();
    assert!(is_failure(&error), "{error}, {failed}");
    data.read_rect(&above).unwrap();
    data.read_rect(&below).unwrap();
    // The failure goes along with the rows, and with none of the bytes between them.
    let other = f.device.buffer(&good).unwrap();
    data.copy_rect_to(&left, &other, &left).unwrap();
    assert!(is_failure(&other.read_range(36..37).unwrap_err()));
    other.read_range(41..48).unwrap();
    other.read_range(5..12).unwrap();
    let right = Rect::plane([5, 0], [7, 24], WIDTH).unwrap();
    other.read_rect(&right).unwrap();
    // What is written anew is good again.
    other.write_rect(&left, &good, &left).unwrap();
    agree(&other.read().unwrap(), &good, "written anew");
}

fn rectangles_that_do_not_fit_are_refused(f: &Fixture) {
    let values = noise::<u16>(10, 100);
    let buffer = f.device.buffer(&values).unwrap();
    let other = f.device.buffer(&values).unwrap();
    let fits = Rect::plane([0, 0], [4, 10], 10).unwrap();
    let beyond = Rect::plane([7, 0], [4, 10], 10).unwrap();
    let fewer = Rect::plane([0, 0], [4, 9], 10).unwrap();
    let is_beyond = |error: &MemoryError, place: &str| {
        matches!(
            error,
            MemoryError::Rect(RectError::OutOfRange { argument, last: 100, len: 100, .. }) if *argument == place
        )
    };
    let error = buffer.copy_rect_to(&beyond, &other, &fits).unwrap_err();
    assert!(is_beyond(&error, "the source"), "{error}");
    let error = buffer.copy_rect_to(&fits, &other, &beyond).unwrap_err();
    assert!(is_beyond(&error, "the target"), "{error}");
    let error = buffer.write_rect(&beyond, &values, &fits).unwrap_err();
    assert!(is_beyond(&error, "the target"), "{error}");
    let error = buffer.write_rect(&fits, &values, &beyond).unwrap_err();
    assert!(is_beyond(&error, "the source"), "{error}");
    let mut seen = values.clone();
    for (from, to, place) in [(beyond, fits, "the source"), (fits, beyond, "the target")] {
        match buffer.read_rect_into(&from, &mut seen, &to).unwrap_err() {
            ReadError::Memory(error) => assert!(is_beyond(&error, place), "{error}"),
            error => panic!("{error}"),
        }
    }
    for refused in [
        buffer.copy_rect_to(&fits, &other, &fewer),
        buffer.write_rect(&fits, &values, &fewer),
    ] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, MemoryError::Rect(RectError::Extents { .. })),
            "{refused}"
        );
    }
    // The last column of one is the first of the other; and one behind that they lie side by side.
    let right = Rect::plane([3, 0], [4, 10], 10).unwrap();
    let refused = buffer.copy_rect_to(&fits, &buffer, &right).unwrap_err();
    assert!(
        matches!(
            refused,
            MemoryError::Rect(RectError::Overlap { element: 3 })
        ),
        "{refused}"
    );
    let foreign = Context::new()
        .unwrap()
        .device_named(f.device.name())
        .unwrap();
    let foreign = foreign.buffer(&values).unwrap();
    let refused = buffer.copy_rect_to(&fits, &foreign, &fits).unwrap_err();
    assert!(
        matches!(refused, MemoryError::OtherDevice { .. }),
        "{refused}"
    );
    // Without elements there is nothing to refuse, and nothing to do.
    let empty = Rect::plane([1000, 1000], [0, 5], 10).unwrap();
    buffer.copy_rect_to(&empty, &other, &empty).unwrap();
    buffer.write_rect(&empty, &[], &empty).unwrap();
    assert!(buffer.read_rect(&empty).unwrap().is_empty());
    assert_eq!(
        (seen, buffer.read().unwrap()),
        (values.clone(), values.clone())
    );
    assert_eq!(other.read().unwrap(), values);
}

fn imported_buffers_need_what_the_commands_do(f: &Fixture) {
    let imported = |size, usage| {
        let raw = f.device.raw().create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size,
            usage,
            mapped_at_creation: false,
        });
        f.device.import::<u16>(raw).unwrap()
    };
    let copies = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    let plain = imported(400, copies);
    let values = noise::<u16>(11, 200);
    plain.write(0, &values).unwrap();
    let own = f.device.zeroed::<u16>(200).unwrap();
    let is_refused = |error: &MemoryError| {
        matches!(error, MemoryError::MissingUsage { needed, .. }
            if needed.contains(wgpu::BufferUsages::STORAGE))
    };
    // Few rows of whole words are copied by wgpu; others take the kernel.
    let few = Rect::plane([2, 0], [4, 10], 20).unwrap();
    let many = Rect::plane([2, 0], [4, 20], 10).unwrap();
    let odd = Rect::plane([3, 0], [4, 10], 20).unwrap();
    plain.copy_rect_to(&few, &own, &few).unwrap();
    own.copy_rect_to(&few, &plain, &few).unwrap();
    plain.write_rect(&few, &values, &few).unwrap();
    for rect in [many, odd] {
        for refused in [
            plain.copy_rect_to(&rect, &own, &rect),
            own.copy_rect_to(&rect, &plain, &rect),
            plain.write_rect(&rect, &values, &rect),
        ] {
            let refused = refused.unwrap_err();
            assert!(is_refused(&refused), "{refused}");
        }
    }
    // What surrounds few rows is left out by the host.
    let packed: Vec<u16> = elements(&odd).into_iter().map(|i| values[i]).collect();
    assert_eq!(plain.read_rect(&odd).unwrap(), packed);
    let refused = plain.read_rect(&many).unwrap_err();
    assert!(
        matches!(&refused, ReadError::Memory(error) if is_refused(error)),
        "{refused}"
    );
    assert_eq!(plain.read().unwrap(), values);
    // Nobody can copy the part of a word that the buffer ends with.
    let short = imported(398, copies | wgpu::BufferUsages::STORAGE);
    let last = Rect::plane([1, 0], [2, 66], 3).unwrap();
    assert_eq!(last.end(), 198);
    short.write_rect(&last, &values, &last).unwrap();
    let beyond = Rect::plane([2, 0], [2, 66], 3).unwrap();
    let refused = short.write_rect(&beyond, &values, &beyond).unwrap_err();
    assert!(
        matches!(refused, MemoryError::Misaligned { .. }),
        "{refused}"
    );
}
