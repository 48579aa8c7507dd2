//! Arguments of servers: buffers, values, textures and samplers by name, in leases, in slices, in batches and for calls of
//! kernels.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::{MINUTE, builder, start, start_with_pointers, untimed};
use tombolo::{
    Constants, DeviceBuffer, Launch, Program, Ptr,
    launch::LaunchError,
    server::{CallError, PersistentKernelBuilder, ServerError},
};

cases![
    handlers_use_buffers_and_values,
    what_is_written_before_a_call_is_seen_by_the_call,
    what_is_written_before_a_call_is_seen_while_others_call,
    buffers_of_the_context_come_to_the_server,
    handlers_sample_textures,
    a_work_group_serves_with_arguments,
    batches_have_the_arguments_of_their_function,
    kernels_call_handlers_with_arguments,
    a_failed_call_leaves_its_arguments_usable,
    a_failed_call_leaves_device_globals_usable,
    a_failed_call_leaves_the_heap_usable,
    arguments_are_checked_when_the_server_starts,
];

const POISON: u32 = 0xDEAD_BEEF;

const TABLE: &str = "
    struct Scale { factor: u32, offset: u32 }
    @group(0) @binding(0) var<storage, read> source: array<u32>;
    @group(0) @binding(1) var<storage, read_write> log: array<u32>;
    @group(1) @binding(3) var<uniform> scale: Scale;
    fn scaled(x: u32) -> u32 {
        let value = source[x] * scale.factor + scale.offset;
        log[x] = value;
        return value;
    }
    fn logged(x: u32) -> u32 { return log[x]; }";

/// What the table has before anything is changed.
fn values(len: u32) -> Vec<u32> {
    (0..len).map(|i| i * i + 7).collect()
}

fn with_table(f: &Fixture, len: u32) -> (PersistentKernelBuilder, [DeviceBuffer<u32>; 2]) {
    let source = f.device.buffer(&values(len)).unwrap();
    let log = f.device.buffer(&vec![POISON; len as usize]).unwrap();
    let builder = (builder(&f.device, TABLE)
        .handler("scaled")
        .handler("logged"))
    .buffer("source", &source)
    .buffer("log", &log)
    .value("scale", &[3u32, 11]);
    (builder, [source, log])
}

fn handlers_use_buffers_and_values(f: &Fixture) {
    const LEN: u32 = 100;
    let (builder, [_source, log]) = with_table(f, LEN);
    let server = start(builder);
    let scaled = server.function::<(u32,), u32>("scaled").unwrap();
    let logged = server.function::<(u32,), u32>("logged").unwrap();
    let expected: Vec<u32> = values(LEN).iter().map(|value| value * 3 + 11).collect();
    for i in (0..LEN).filter(|i| i % 3 != 0) {
        let found = scaled.call_timeout(&(i,), MINUTE).unwrap();
        assert_eq!(found, expected[i as usize], "call {i}");
        assert_eq!(logged.call_timeout(&(i,), MINUTE).unwrap(), found);
    }
    let left = log.read().unwrap();
    for (i, (found, expected)) in left.iter().zip(expected).enumerate() {
        let expected = if i % 3 == 0 { POISON } else { expected };
        assert_eq!(*found, expected, "word {i}");
    }
}

/// A launch that adds 1 to each word.
fn addition(f: &Fixture, words: &DeviceBuffer<u32>, len: u32) -> Launch {
    let program = Program::new(
        "ordinary.wgsl",
        "@group(0) @binding(0) var<storage, read_write> words: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) { words[id.x] += 1u; }",
    )
    .unwrap();
    let kernel = f.device.kernel(&program, "main", &Constants::new());
    let launch = kernel.unwrap().launch();
    launch.buffer("words", words).invocations(len)
}

/// Writes, copies and launches on the same memory take turns with the server, again and again.
fn what_is_written_before_a_call_is_seen_by_the_call(f: &Fixture) {
    const LEN: u32 = 64;
    let (builder, [source, log]) = with_table(f, LEN);
    let server = start(builder);
    let scaled = server.function::<(u32,), u32>("scaled").unwrap();
    let mut add = addition(f, &source, LEN);
    let mut model = values(LEN);
    for round in 0..20u32 {
        let at = (round * 13) % LEN;
        match round % 2 {
            0 => {
                source.write(u64::from(at), &[round * 1000]).unwrap();
                model[at as usize] = round * 1000;
            }
            _ => {
                add.submit().unwrap().wait_timeout(MINUTE).unwrap();
                model.iter_mut().for_each(|word| *word += 1);
            }
        }
        let expected = model[at as usize] * 3 + 11;
        let found = scaled.call_timeout(&(at,), MINUTE).unwrap();
        assert_eq!(found, expected, "round {round}");
        let read = log.read_range(u64::from(at)..u64::from(at) + 1).unwrap();
        assert_eq!(read, [expected], "round {round}");
    }
    assert_eq!(source.read().unwrap(), model);
}

/// The same while another thread has the server stay on the device: the lease that runs has not seen what is written.
fn what_is_written_before_a_call_is_seen_while_others_call(f: &Fixture) {
    const LEN: u32 = 64;
    let (builder, [source, _log]) = with_table(f, LEN);
    let server = start(builder);
    let scaled = server.function::<(u32,), u32>("scaled").unwrap();
    let logged = server.function::<(u32,), u32>("logged").unwrap();
    let mut add = addition(f, &source, LEN);
    let mut model = values(LEN);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                logged.call_timeout(&(0,), MINUTE).unwrap();
            }
        });
        let seen = (0..60u32).try_for_each(|round| {
            let at = (round * 13) % LEN;
            match round % 3 {
                0 => {
                    source.write(u64::from(at), &[round * 1000]).unwrap();
                    model[at as usize] = round * 1000;
                }
                // Waited for, and not.
                1 => add.submit().unwrap().wait_timeout(MINUTE).unwrap(),
                _ => drop(add.submit().unwrap()),
            }
            if round % 3 > 0 {
                model.iter_mut().for_each(|word| *word += 1);
            }
            let expected = model[at as usize] * 3 + 11;
            let found = scaled.call_timeout(&(at,), MINUTE).unwrap();
            if found == expected {
                Ok(())
            } else {
                Err(format!("round {round}: {found}, not {expected}"))
            }
        });
        done.store(true, Ordering::Relaxed);
        seen.unwrap();
    });
    assert_eq!(source.read().unwrap(), model);
}

fn buffers_of_the_context_come_to_the_server(f: &Fixture) {
    const LEN: u32 = 32;
    let source = f.context.buffer_from(&values(LEN)).unwrap();
    let poison = vec![POISON; LEN as usize];
    let log = f.context.buffer_from(&poison).unwrap();
    let server = start(
        (builder(&f.device, TABLE).handler("scaled"))
            .buffer("source", &source)
            .buffer("log", &log)
            .value("scale", &[1u32, 0])
            .leases(untimed(&f.device)),
    );
    let scaled = server.function::<(u32,), u32>("scaled").unwrap();
    let mut model = vec![POISON; LEN as usize];
    for i in 0..LEN {
        // The host has the latest bytes, and then the server, whose lease the read below has ended.
        let value = 5000 + i;
        source.write(u64::from(i), &[value]).unwrap();
        assert_eq!(scaled.call_timeout(&(i,), MINUTE).unwrap(), value);
        model[i as usize] = value;
        assert_eq!(log.read().unwrap(), model, "call {i}");
    }
}

fn handlers_sample_textures(f: &Fixture) {
    let device = f.device.raw();
    let image = device.create_texture(&wgpu::TextureDescriptor {
        label: None,
        size: wgpu::Extent3d {
            width: 2,
            height: 2,
            depth_or_array_layers: 1,
        },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: wgpu::TextureFormat::Rgba8Unorm,
        usage: wgpu::TextureUsages::TEXTURE_BINDING | wgpu::TextureUsages::COPY_DST,
        view_formats: &[],
    });
    let pixels: [u8; 16] = [
        255, 0, 0, 255, 0, 255, 0, 255, 0, 0, 255, 255, 51, 102, 153, 0,
    ];
    f.device.raw_queue().write_texture(
        image.as_image_copy(),
        &pixels,
        wgpu::TexelCopyBufferLayout {
            offset: 0,
            bytes_per_row: Some(8),
            rows_per_image: None,
        },
        image.size(),
    );
    let view = image.create_view(&wgpu::TextureViewDescriptor::default());
    let sampler = device.create_sampler(&wgpu::SamplerDescriptor::default());
    let source = "
        @group(0) @binding(0) var image: texture_2d<f32>;
        @group(0) @binding(1) var nearest: sampler;
        fn texel(x: u32, y: u32) -> vec4<f32> {
            return textureSampleLevel(image, nearest, (vec2(f32(x), f32(y)) + 0.5) / 2.0, 0.0);
        }";
    let server = start(
        (builder(&f.device, source).handler("texel"))
            .texture("image", &view)
            .sampler("nearest", &sampler),
    );
    let texel = server.function::<(u32, u32), [f32; 4]>("texel").unwrap();
    for (at, pixel) in pixels.chunks(4).enumerate() {
        let found = texel
            .call_timeout(&(at as u32 % 2, at as u32 / 2), MINUTE)
            .unwrap();
        for (found, byte) in found.iter().zip(pixel) {
            approx::assert_abs_diff_eq!(*found, f32::from(*byte) / 255.0, epsilon = 1e-3);
        }
    }
}

fn a_work_group_serves_with_arguments(f: &Fixture) {
    const LEN: u32 = 500;
    let source = "
        @group(0) @binding(0) var<storage, read> numbers: array<u32>;
        var<workgroup> sums: array<u32, 64>;
        fn total(lane: u32, from_: u32, to: u32) -> u32 {
            var sum = 0u;
            for (var i = from_ + lane; i < to; i += 64u) { sum += numbers[i]; }
            sums[lane] = sum;
            workgroupBarrier();
            for (var i = 1u; i < 64u; i++) { sum += sums[i]; }
            return sum;
        }";
    let numbers = f.device.buffer(&values(LEN)).unwrap();
    let server =
        start((builder(&f.device, source).group_handler("total")).buffer("numbers", &numbers));
    let total = server.function::<(u32, u32), u32>("total").unwrap();
    for (from, to) in [(0, LEN), (3, 4), (17, 300), (100, 100)] {
        let expected: u32 = values(LEN)[from as usize..to as usize].iter().sum();
        let found = total.call_timeout(&(from, to), MINUTE).unwrap();
        assert_eq!(found, expected, "{from}..{to}");
    }
}

/// In slices a batch has a kernel of its own, which knows the variables of one function.
fn batches_have_the_arguments_of_their_function(f: &Fixture) {
    const LEN: u32 = 300;
    let (builder, [_source, log]) = with_table(f, LEN);
    let server = start(builder);
    let scaled = server.function::<(u32,), u32>("scaled").unwrap();
    let logged = server.function::<(u32,), u32>("logged").unwrap();
    let expected: Vec<u32> = values(LEN).iter().map(|value| value * 3 + 11).collect();
    let calls: Vec<(u32,)> = (0..LEN).map(|i| (i,)).collect();
    assert_eq!(scaled.call_all(&calls).unwrap(), expected);
    // Uses one of the three arguments.
    assert_eq!(logged.call_all(&calls).unwrap(), expected);
    assert_eq!(log.read().unwrap(), expected);
}

fn kernels_call_handlers_with_arguments(f: &Fixture) {
    const LEN: u32 = 128;
    let (builder, [_source, log]) = with_table(f, LEN);
    let server = start(builder);
    let kernel = |source| {
        let program = Program::builder().source("caller.wgsl", source);
        let program = program.server(&server).build().unwrap();
        (f.device)
            .kernel(&program, "main", &Constants::new())
            .unwrap()
    };
    let begin = kernel(
        "@group(0) @binding(0) var<storage, read_write> tickets: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            tickets[id.x] = scaled_begin(id.x);
         }",
    );
    let collect = kernel(
        "@group(0) @binding(0) var<storage, read_write> tickets: array<u32>;
         @group(0) @binding(1) var<storage, read_write> results: array<u32>;
         @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let reply = scaled_collect(tickets[id.x]);
            results[id.x] = select(reply.status, reply.value, reply.status == CALL_DONE);
         }",
    );
    let tickets = f.device.buffer(&vec![POISON; LEN as usize]).unwrap();
    let results = f.device.buffer(&vec![POISON; LEN as usize]).unwrap();
    let begin = begin.launch().buffer("tickets", &tickets);
    begin.server(&server).invocations(LEN).submit().unwrap();
    let collect = (collect.launch().buffer("tickets", &tickets)).buffer("results", &results);
    let event = collect.server(&server).invocations(LEN).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    let expected: Vec<u32> = values(LEN).iter().map(|value| value * 3 + 11).collect();
    assert_eq!(results.read().unwrap(), expected);
    assert_eq!(log.read().unwrap(), expected);
}

/// A failure is the call's: neither the buffer nor later calls have anything to do with it.
fn a_failed_call_leaves_its_arguments_usable(f: &Fixture) {
    const LEN: u32 = 16;
    let source = "
        @group(0) @binding(0) var<storage, read_write> words: array<u32>;
        fn put(at: u32, word: u32) -> u32 {
            words[at] = word;
            assert(word != 13u);
            return word;
        }";
    let of_context = f.context.buffer_from(&[0u32; LEN as usize]).unwrap();
    let of_device = f.device.zeroed::<u32>(LEN as usize).unwrap();
    let arguments: [(&str, tombolo::buffers::BufferArgument); 2] = [
        ("of the context", (&of_context).into()),
        ("of the device", (&of_device).into()),
    ];
    for (which, argument) in arguments {
        let server = start((builder(&f.device, source).handler("put")).buffer("words", argument));
        let put = server.function::<(u32, u32), u32>("put").unwrap();
        let mut model = vec![0; LEN as usize];
        for at in 0..LEN {
            let word = if at % 5 == 2 { 13 } else { at + 100 };
            let result = put.call_timeout(&(at, word), MINUTE);
            match word {
                13 => assert!(
                    matches!(&result, Err(CallError::Failed { .. })),
                    "{which}, {at}: {result:?}"
                ),
                word => assert_eq!(result.unwrap(), word, "{which}, {at}"),
            }
            model[at as usize] = word;
            let words = match which {
                "of the context" => of_context.read().unwrap(),
                _ => of_device.read().unwrap(),
            };
            assert_eq!(words, model, "{which}, {at}");
        }
    }
}

/// Those that the handler has written, and those of others; read by the host, and by a kernel that is launched.
fn a_failed_call_leaves_device_globals_usable(f: &Fixture) {
    let globals = "
        var<storage, read_write> sum_of_puts: u32;
        var<storage, read_write> number_of_marks: u32;";
    let source = format!(
        "{globals}
        fn put(word: u32) -> u32 {{ sum_of_puts += word; assert(word != 13u); return sum_of_puts; }}
        fn mark() -> u32 {{ number_of_marks += 1u; return number_of_marks; }}"
    );
    let launched = format!(
        "{globals} @compute @workgroup_size(1) fn main() {{ sum_of_puts += 1000u * number_of_marks; }}"
    );
    let device = f.open_alone(|_| ());
    let server = (builder(&device, &source).handler("put").handler("mark")).lanes(1);
    let server = start(server);
    let put = server.function::<(u32,), u32>("put").unwrap();
    let mark = server.function::<(), u32>("mark").unwrap();
    assert_eq!(put.call_timeout(&(2,), MINUTE).unwrap(), 2);
    let failed = put.call_timeout(&(13,), MINUTE);
    assert!(
        matches!(&failed, Err(CallError::Failed { .. })),
        "{failed:?}"
    );
    assert_eq!(mark.call_timeout(&(), MINUTE).unwrap(), 1);
    device.finish().unwrap();
    let read = |name: &str| device.global(name).unwrap().read::<u32>();
    assert_eq!(read("sum_of_puts").unwrap(), 15);
    assert_eq!(read("number_of_marks").unwrap(), 1);
    let program = Program::new("launched.wgsl", launched).unwrap();
    let kernel = device.kernel(&program, "main", &Constants::new()).unwrap();
    let event = kernel.launch().workgroups(1).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    assert_eq!(read("sum_of_puts").unwrap(), 1015);
}

/// The failure is told to the caller, and not to whoever looks into the heap next.
fn a_failed_call_leaves_the_heap_usable(f: &Fixture) {
    let source = "
        fn put(at: usm_ptr, word: u32) -> u32 {
            let place = usm_u32(at);
            *place = word;
            assert(word != 13u);
            return *place;
        }";
    let heap = f.device.heap().unwrap();
    let at = heap.alloc(POISON).unwrap();
    let server = start_with_pointers(builder(&f.device, source).handler("put"));
    let put = server.function::<(Ptr<u32>, u32), u32>("put").unwrap();
    for word in [2, 13, 5, 13] {
        let result = put.call_timeout(&(at, word), MINUTE);
        match word {
            13 => assert!(
                matches!(&result, Err(CallError::Failed { .. })),
                "{result:?}"
            ),
            word => assert_eq!(result.unwrap(), word),
        }
        assert_eq!(*heap.host().unwrap().get(at).unwrap(), word);
    }
    drop(server);
    heap.free(at).unwrap();
}

fn arguments_are_checked_when_the_server_starts(f: &Fixture) {
    let refused = |builder: PersistentKernelBuilder| match builder.start() {
        Err(ServerError::Launch(error)) => error,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("the server has started"),
    };
    let (builder_, [source, log]) = with_table(f, 8);
    let error = refused(builder_.buffer("sorce", &source));
    assert!(
        matches!(&error, LaunchError::UnknownArgument { argument, .. } if argument == "sorce"),
        "{error}"
    );
    let plain = || builder(&f.device, TABLE).handler("scaled");
    let error = refused(plain().buffer("source", &source).buffer("log", &log));
    assert!(
        matches!(&error, LaunchError::MissingArguments { missing, .. } if missing.contains("scale")),
        "{error}"
    );
    let scale = [3u32, 11];
    let with_log = || plain().buffer("log", &log);
    let error = refused(with_log().value("scale", &scale).value("source", &1u32));
    assert!(
        matches!(&error, LaunchError::WrongKind { argument, .. } if argument == "source"),
        "{error}"
    );
    let error = refused(with_log().buffer("source", &source).value("scale", &3u32));
    assert!(
        matches!(&error, LaunchError::UniformSize { argument, .. } if argument == "scale"),
        "{error}"
    );
    let twice = with_log().buffer("source", &source).value("scale", &scale);
    let error = refused(twice.buffer("source", &source));
    assert!(
        matches!(&error, LaunchError::DuplicateArgument { argument, .. } if argument == "source"),
        "{error}"
    );
}
