//! Services that come with the runtime, called by kernels: files, streams, texts, memory, the clock, the exit status.

use std::fs;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;
use tombolo::{
    Constants, Device, DeviceBuffer, HostServices, Kernel, Program,
    calls::{FileAccess, FileStatus, RootMode},
};

use crate::cases;
use crate::harness::Fixture;

cases![
    many_invocations_read_a_file_by_blocks,
    pieces_of_a_file_arrive_in_the_heap_while_the_kernel_runs,
    files_are_written_by_blocks_and_by_pointers,
    names_that_lead_out_are_statuses,
    kernels_put_names_together,
    a_kernel_lists_renames_and_removes,
    a_main_has_arguments_a_clock_seeds_and_an_exit_status,
    a_kernel_reads_stdin_and_writes_stdout,
    copies_and_memory_of_the_devices_own_are_told,
    names_of_the_program_come_first,
    a_single_invocation_keeps_its_loops,
];

pub const MINUTE: Duration = Duration::from_secs(60);
pub const POISON: u32 = 0xDEAD_BEEF;

fn noise(len: usize) -> Vec<u8> {
    let mut x = 4711u32;
    let next = |_| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    (0..len).map(next).collect()
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn read_write(folder: &TempDir) -> FileAccess {
    FileAccess::new().read_write(folder.path()).unwrap()
}

pub fn kernels<const N: usize>(
    device: &Device,
    services: &HostServices,
    source: &str,
    entries: [&str; N],
) -> [Kernel; N] {
    let program = Program::builder()
        .source("services.wgsl", source)
        .services(services)
        .build()
        .unwrap();
    entries.map(|entry| device.kernel(&program, entry, &Constants::new()).unwrap())
}

/// Runs `main` of `source` with `out` bound, poisoned before; what it left there.
pub fn run(
    f: &Fixture,
    services: &HostServices,
    source: &str,
    invocations: u32,
    len: usize,
) -> Vec<u32> {
    let source =
        format!("@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n{source}");
    let [kernel] = kernels(&f.device, services, &source, ["main"]);
    let out = f.device.buffer(&vec![POISON; len]).unwrap();
    let launch = kernel.launch().services(services).buffer("out", &out);
    let event = launch.invocations(invocations).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    out.read().unwrap()
}

fn codes<const N: usize>(statuses: [FileStatus; N]) -> [u32; N] {
    statuses.map(FileStatus::code)
}

fn many_invocations_read_a_file_by_blocks(f: &Fixture) {
    let folder = folder();
    let content = noise(100_001);
    fs::write(folder.path().join("data.bin"), &content).unwrap();
    let access = FileAccess::new().read_only(folder.path()).unwrap();
    let services = HostServices::builder().files(access).start().unwrap();
    let source = r#"
        @group(0) @binding(0) var<storage, read_write> state: array<u32>;
        @group(0) @binding(1) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn open() {
            let opened = file_open("data.bin", FILE_READ);
            state[0] = opened.status;
            state[1] = opened.file;
            state[2] = file_size(opened.file).position.x;
        }
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let block = file_read_block(state[1], vec2(id.x * FILE_BLOCK_BYTES, 0u));
            for (var i = 0u; i < 64u; i++) { out[id.x * 66u + i] = block.words[i]; }
            out[id.x * 66u + 64u] = block.status;
            out[id.x * 66u + 65u] = block.bytes;
        }
        @compute @workgroup_size(1) fn close() {
            state[0] = file_close(state[1]);
            state[1] = file_close(state[1]);
        }"#;
    let [open, main, close] = kernels(&f.device, &services, source, ["open", "main", "close"]);
    let state = f.device.buffer(&[POISON; 3]).unwrap();
    let blocks = 448;
    let out = f.device.buffer(&vec![POISON; blocks * 66]).unwrap();
    let submit = |kernel: &Kernel, out: Option<&DeviceBuffer<u32>>, invocations: u32| {
        let mut launch = kernel.launch().services(&services).buffer("state", &state);
        if let Some(out) = out {
            launch = launch.buffer("out", out);
        }
        launch.invocations(invocations).submit().unwrap()
    };
    submit(&open, None, 1).wait_timeout(MINUTE).unwrap();
    let opened = state.read().unwrap();
    assert_eq!((opened[0], opened[2]), (FileStatus::Ok.code(), 100_001));
    submit(&main, Some(&out), blocks as u32)
        .wait_timeout(MINUTE)
        .unwrap();
    let out = out.read().unwrap();
    for (index, block) in out.chunks(66).enumerate() {
        let rest = content.get(index * 256..).unwrap_or_default();
        let expected = &rest[..rest.len().min(256)];
        assert_eq!(block[64..], [FileStatus::Ok.code(), expected.len() as u32]);
        let bytes: &[u8] = bytemuck::cast_slice(&block[..64]);
        assert_eq!(&bytes[..expected.len()], expected, "block {index}");
        assert!(bytes[expected.len()..].iter().all(|&byte| byte == 0));
    }
    submit(&close, None, 1).wait_timeout(MINUTE).unwrap();
    let closed = codes([FileStatus::Ok, FileStatus::UnknownHandle]);
    assert_eq!(state.read().unwrap()[..2], closed);
}

fn pieces_of_a_file_arrive_in_the_heap_while_the_kernel_runs(f: &Fixture) {
    const PIECE: usize = 48 << 10;
    const GROUPS: usize = 16;
    let folder = folder();
    let content = noise(PIECE * GROUPS - 1001);
    fs::write(folder.path().join("data.bin"), &content).unwrap();
    let heap = f.context.heap().unwrap();
    let room = heap.alloc_slice(&vec![0xEEu8; PIECE * GROUPS]).unwrap();
    let access = FileAccess::new().read_only(folder.path()).unwrap();
    let services = HostServices::builder()
        .files(access)
        .heap(&heap)
        .start()
        .unwrap();
    // Each group has one lane that reads, and all of them add up what has arrived.
    let source = r#"
        alias Words = array<u32>;
        @group(0) @binding(0) var<storage, read_write> out: array<atomic<u32>>;
        @group(0) @binding(1) var<uniform> room: usm_ptr;
        @compute @workgroup_size(32)
        fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
            let bytes = 49152u;
            let piece = usm_add(room, group.x * bytes);
            if lane == 0u {
                let opened = file_open("data.bin", FILE_READ);
                let reply = file_read_at(opened.file, vec2(group.x * bytes, 0u), piece, bytes);
                atomicStore(&out[group.x * 4u], reply.status);
                atomicStore(&out[group.x * 4u + 1u], reply.bytes);
                atomicStore(&out[group.x * 4u + 2u], file_close(opened.file));
            }
            storageBarrier();
            let words = usm_Words(piece);
            var sum = 0u;
            for (var i = lane; i < bytes / 4u; i += 32u) { sum += words[i] * (i + 1u); }
            atomicAdd(&out[group.x * 4u + 3u], sum);
        }"#;
    let [kernel] = kernels(&f.device, &services, source, ["main"]);
    let out = f.device.buffer(&vec![0u32; GROUPS * 4]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &out);
    let mut launch = launch.value("room", &room).workgroups(GROUPS as u32);
    launch.submit().unwrap();
    // The host already waits for its turn with the heap while the calls are served.
    let arrived = heap.read(room, PIECE * GROUPS).unwrap();
    if !f.device.capabilities().unified_memory {
        // Running kernels do not see there what the host writes.
        let refused = FileStatus::NoPointers.code();
        assert!(arrived.iter().all(|&byte| byte == 0xEE));
        for found in out.read().unwrap().chunks(4) {
            assert_eq!(found[..3], [refused, 0, 1]);
        }
        return;
    }
    assert!(arrived[..content.len()] == content);
    assert!(arrived[content.len()..].iter().all(|&byte| byte == 0xEE));
    let out = out.read().unwrap();
    for (group, (found, piece)) in out.chunks(4).zip(arrived.chunks(PIECE)).enumerate() {
        let bytes = (content.len() - group * PIECE).min(PIECE) as u32;
        let words = piece
            .chunks(4)
            .map(|b| u32::from_le_bytes(b.try_into().unwrap()));
        let sum = (1u32..).zip(words).fold(0u32, |sum, (i, word)| {
            sum.wrapping_add(word.wrapping_mul(i))
        });
        assert_eq!(found, [1, bytes, 1, sum], "group {group}");
    }
    heap.free(room).unwrap();
}

fn files_are_written_by_blocks_and_by_pointers(f: &Fixture) {
    let folder = folder();
    fs::write(folder.path().join("log.txt"), "begun\n").unwrap();
    let heap = f.context.heap().unwrap();
    let content = noise(100_003);
    let from = heap.alloc_slice(&content).unwrap();
    let services = HostServices::builder();
    let services = services
        .files(read_write(&folder))
        .heap(&heap)
        .start()
        .unwrap();
    let source = r#"
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @group(0) @binding(1) var<uniform> data: usm_ptr;
        @compute @workgroup_size(1) fn whole() {
            let opened = file_open("copy.bin", FILE_WRITE | FILE_NEW);
            let written = file_write(opened.file, data, 100003u);
            out[0] = written.status;
            out[1] = written.bytes;
            out[2] = file_close(opened.file);
            let log = file_open("log.txt", FILE_APPEND);
            var line: FileBlock;
            line.words[0] = 0x656e696cu; // "line"
            line.words[1] = 0x0au;
            line.bytes = 5u;
            for (var i = 0u; i < 3u; i++) { out[3] = file_put_block(log.file, line).status; }
            out[4] = file_close(log.file);
            out[5] = file_open("blocks.bin", FILE_WRITE | FILE_CREATE | FILE_READ).file;
        }
        @compute @workgroup_size(64) fn blocks(@builtin(global_invocation_id) id: vec3<u32>) {
            var block: FileBlock;
            for (var i = 0u; i < 64u; i++) { block.words[i] = id.x * 64u + i; }
            block.bytes = 256u;
            let reply = file_write_block(out[5], vec2(id.x * 256u, 0u), block);
            out[6u + id.x] = reply.status * 1000u + reply.bytes;
        }"#;
    let [whole, blocks] = kernels(&f.device, &services, source, ["whole", "blocks"]);
    let out = f.device.buffer(&[POISON; 6 + 192]).unwrap();
    let launch = whole.launch().services(&services).buffer("out", &out);
    let event = launch.value("data", &from).invocations(1).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    assert_eq!(out.read().unwrap()[..5], [1, 100_003, 1, 1, 1]);
    assert!(fs::read(folder.path().join("copy.bin")).unwrap() == content);
    let log = fs::read_to_string(folder.path().join("log.txt")).unwrap();
    assert_eq!(log, "begun\nline\nline\nline\n");
    let launch = blocks.launch().services(&services).buffer("out", &out);
    let event = launch.invocations(192).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    assert_eq!(out.read().unwrap()[6..], [1256; 192]);
    let expected: Vec<u8> = (0..192 * 64u32).flat_map(u32::to_le_bytes).collect();
    assert!(fs::read(folder.path().join("blocks.bin")).unwrap() == expected);
    heap.free(from).unwrap();
}

fn names_that_lead_out_are_statuses(f: &Fixture) {
    let (folder, outside) = (folder(), folder());
    fs::write(folder.path().join("a"), "a").unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(outside.path(), folder.path().join("link")).unwrap();
    let access = FileAccess::new();
    let access = access
        .root("data", folder.path(), RootMode::ReadOnly)
        .unwrap();
    let services = HostServices::builder().files(access).start().unwrap();
    let source = r#"
        @compute @workgroup_size(1) fn main() {
            // One call site for all: drivers compile each one anew.
            var names = array<u32, 10>("data/../secret", "data//etc/passwd", "data/link/secret", "/etc/passwd", "data/a",
                "data/b", "data/b", "", "data/a", 12345u);
            var modes = array<u32, 10>(FILE_READ, FILE_READ, FILE_READ, FILE_READ, FILE_WRITE,
                FILE_WRITE | FILE_CREATE, FILE_READ, FILE_READ, 0u, FILE_READ);
            for (var i = 0u; i < 10u; i++) { out[i] = file_open(names[i], modes[i]).status; }
            let opened = file_open("data/a", FILE_READ);
            out[10] = opened.status;
            out[11] = file_read_block(opened.file + 4096u, vec2(0u)).status;
            out[12] = file_read(opened.file, vec2(16u, 0u), 4u).status;
            var block: FileBlock;
            out[13] = file_put_block(opened.file, block).status;
            out[14] = file_seek(opened.file, vec2(0xffffffffu), FILE_START).status;
            out[15] = file_close(opened.file);
            out[16] = file_size(opened.file).status;
        }"#;
    let found = run(f, &services, source, 1, 17);
    let mut expected = codes([
        FileStatus::Outside,
        FileStatus::Outside,
        FileStatus::Outside,
        FileStatus::NotGranted,
        FileStatus::NotGranted,
        FileStatus::NotGranted,
        FileStatus::NotFound,
        FileStatus::BadName,
        FileStatus::BadMode,
        FileStatus::UnknownText,
        FileStatus::Ok,
        FileStatus::UnknownHandle,
        FileStatus::NoPointers,
        FileStatus::BadMode,
        FileStatus::BadPosition,
        FileStatus::Ok,
        FileStatus::UnknownHandle,
    ]);
    if cfg!(not(unix)) {
        expected[2] = FileStatus::NotFound.code();
    }
    assert_eq!(found, expected);
    assert!(!folder.path().join("b").exists());
}

/// A kernel counts the names of a folder and their bytes, renames one file, removes another, and reads a variable.
fn a_kernel_lists_renames_and_removes(f: &Fixture) {
    let folder = folder();
    for name in ["a", "bcd", "ef"] {
        fs::write(folder.path().join(name), name).unwrap();
    }
    let access = FileAccess::new().manage(folder.path()).unwrap();
    let services = HostServices::builder()
        .files(access)
        .environment(["CARGO_MANIFEST_DIR"])
        .start()
        .unwrap();
    let source = r#"
        @compute @workgroup_size(1) fn main() {
            let listed = folder_names(".", 0u);
            let block = text_block(listed.text, 0u);
            var names = 0u;
            for (var i = 0u; i < block.bytes; i++) {
                names += u32(extractBits(block.words[i / 4u], 8u * (i % 4u), 8u) == 0u);
            }
            out[0] = names;
            out[1] = block.bytes;
            out[2] = file_rename("bcd", "new name");
            out[3] = file_remove("ef");
            let found = file_metadata("new name");
            out[4] = found.kind;
            out[5] = found.bytes.x;
            out[6] = environment("PATH").status;
        }"#;
    let found = run(f, &services, source, 1, 7);
    let ok = FileStatus::Ok.code();
    let refused = FileStatus::NotGranted.code();
    // Three names of six bytes, each with a zero behind.
    assert_eq!(found, [3, 9, ok, ok, 1, 3, refused]);
    let names = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "new name"]);
}

fn kernels_put_names_together(f: &Fixture) {
    let folder = folder();
    let services = HostServices::builder();
    let services = services
        .files(read_write(&folder))
        .ports(64)
        .start()
        .unwrap();
    // Each invocation makes a file of its own: part-00, part-01, …
    let source = r#"
        @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {
            let name = text_new().text;
            out[id.x] = text_join(name, "part-");
            let digits = (0x30u + id.x / 10u) | (0x30u + id.x % 10u) << 8u;
            out[id.x] += text_push(name, digits, 2u) * 10u;
            let opened = file_open(name, FILE_WRITE | FILE_NEW);
            out[id.x] += opened.status * 100u;
            var block: FileBlock;
            block.words[0] = id.x;
            block.bytes = 4u;
            out[id.x] += file_put_block(opened.file, block).status * 1000u;
            out[id.x] += file_close(opened.file) * 10000u;
            out[id.x] += text_drop(name) * 100000u;
        }"#;
    assert_eq!(run(f, &services, source, 32, 32), [111_111; 32]);
    for id in 0..32u32 {
        let path = folder.path().join(format!("part-{id:02}"));
        assert_eq!(fs::read(path).unwrap(), id.to_le_bytes());
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 32);
}

fn a_main_has_arguments_a_clock_seeds_and_an_exit_status(f: &Fixture) {
    let services = HostServices::builder()
        .arguments(["program", "-n", "7"])
        .clock()
        .random()
        .exit()
        .start()
        .unwrap();
    let source = "
        @compute @workgroup_size(1) fn main() {
            let begun = clock_monotonic();
            out[0] = arg_count();
            let number = text_block(arg(2u), 0u);
            out[1] = number.bytes;
            out[2] = number.words[0];
            out[3] = arg(3u);
            let seed = random_seed();
            let other = random_seed();
            out[4] = u32(any(seed != other));
            let now = clock_wall();
            out[5] = now.x;
            out[6] = now.y;
            let ended = clock_monotonic();
            out[7] = u32(ended.y > begun.y || (ended.y == begun.y && ended.x > begun.x));
            exit(40u + number.words[0] - 0x30u);
            exit(1u);
        }";
    let wall = || SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let before = wall();
    assert_eq!(services.exit_status(), None);
    let out = run(f, &services, source, 1, 8);
    assert_eq!(out[..5], [3, 1, u32::from(b'7'), 0, 1]);
    let seen = u64::from(out[5]) | u64::from(out[6]) << 32;
    assert!((before..=wall()).contains(&seen));
    assert_eq!(out[7], 1);
    assert_eq!(services.exit_status(), Some(47));
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn a_kernel_reads_stdin_and_writes_stdout(f: &Fixture) {
    let typed: Vec<u8> = noise(1000).iter().map(|byte| b'a' + byte % 26).collect();
    let (shown, complained) = (Sink::default(), Sink::default());
    let access = FileAccess::new().stdin(std::io::Cursor::new(typed.clone()));
    let access = access.stdout(shown.clone()).stderr(complained.clone());
    let services = HostServices::builder().files(access).start().unwrap();
    // Shouts, until nothing comes any more.
    let source = "
        @compute @workgroup_size(1) fn main() {
            out[0] = 0u;
            for (var turn = 0u; turn < 100u; turn++) {
                var block = file_next_block(FILE_STDIN);
                out[1] = block.status;
                if block.bytes == 0u { break; }
                for (var i = 0u; i < 64u; i++) { block.words[i] -= 0x20202020u; }
                out[0] += file_put_block(FILE_STDOUT, block).bytes;
            }
            var last: FileBlock;
            last.words[0] = 0x0a646e65u;
            last.bytes = 4u;
            out[2] = file_put_block(FILE_STDERR, last).status;
        }";
    assert_eq!(run(f, &services, source, 1, 3), [1000, 1, 1]);
    let shouted = typed.to_ascii_uppercase();
    assert!(*shown.0.lock().unwrap() == shouted);
    assert_eq!(complained.0.lock().unwrap().as_slice(), b"end\n");
}

fn copies_and_memory_of_the_devices_own_are_told(f: &Fixture) {
    refuses_pointers(&f.open(|options| options.import_host_memory = false));
    refuses_pointers(&f.open(|options| options.unified_memory = Some(false)));
}

fn refuses_pointers(device: &Device) {
    let folder = folder();
    fs::write(folder.path().join("a"), "12345678").unwrap();
    let heap = device.heap().unwrap();
    let room = heap.alloc_slice(&[7u32; 4]).unwrap();
    let services = HostServices::builder();
    let services = services
        .files(read_write(&folder))
        .heap(&heap)
        .start()
        .unwrap();
    let source = r#"
        alias Words = array<u32>;
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @group(0) @binding(1) var<uniform> room: usm_ptr;
        @compute @workgroup_size(1) fn main() {
            let opened = file_open("a", FILE_READ);
            let reply = file_read(opened.file, room, 8u);
            out[0] = reply.status;
            out[1] = reply.bytes;
            out[2] = usm_Words(room)[0];
            let block = file_next_block(opened.file);
            out[3] = block.bytes;
            out[4] = block.words[0];
        }"#;
    let [kernel] = kernels(device, &services, source, ["main"]);
    let out = device.buffer(&[POISON; 5]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &out);
    let event = launch.value("room", &room).invocations(1).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    let start = u32::from_le_bytes(*b"1234");
    let expected = [FileStatus::NoPointers.code(), 0, 7, 8, start];
    assert_eq!(out.read().unwrap(), expected);
    assert_eq!(heap.read(room, 4).unwrap(), [7; 4]);
    heap.free(room).unwrap();
}

fn names_of_the_program_come_first(f: &Fixture) {
    let folder = folder();
    fs::write(folder.path().join("a"), "a").unwrap();
    let services = HostServices::builder();
    let services = services.files(read_write(&folder)).exit().start().unwrap();
    // Its own constant, its own function, a name without a call; and what it prints is no text of the host.
    let source = r#"
        const FILE_OK = 77u;
        fn exit(code: u32) -> u32 { return code + 1u; }
        @compute @workgroup_size(1) fn main() {
            let malloc = FILE_OK;
            print("file {}", file_open("a", FILE_READ).status);
            out[0] = malloc;
            out[1] = exit(1u);
        }"#;
    assert_eq!(run(f, &services, source, 1, 2), [77, 2]);
    assert_eq!(services.exit_status(), None);
}

fn a_single_invocation_keeps_its_loops(f: &Fixture) {
    // Drivers run more lanes than that, some with a ration of turns for all of them: those must not wait for answers.
    let services = HostServices::builder().exit().start().unwrap();
    let source = "
        @compute @workgroup_size(1) fn main() {
            exit(0u);
            let turns = out[0];
            out[0] = 0u;
            for (var i = 0u; i < turns; i++) { out[0] += out[1] ^ i; }
        }";
    let source =
        format!("@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n{source}");
    let [kernel] = kernels(&f.device, &services, &source, ["main"]);
    let out = f.device.buffer(&[20_000u32, 77]).unwrap();
    let launch = kernel.launch().services(&services).buffer("out", &out);
    let event = launch.invocations(1).submit().unwrap();
    event.wait_timeout(MINUTE).unwrap();
    let sum = (0..20_000u32).fold(0u32, |sum, i| sum.wrapping_add(77 ^ i));
    assert_eq!(out.read().unwrap()[0], sum);
}
