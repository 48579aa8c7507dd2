//! Format strings that kernels print into files, streams and texts. What is expected is what Rust's own `format!` makes of the
//! same values.

use std::fs;
use std::io::Write;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tombolo::{
    HostServices, Kernel, Program,
    calls::{FileAccess, FileStatus},
    device::Aspect,
    kernel::KernelError,
};

use crate::cases;
use crate::harness::Fixture;
use crate::persistent::until;
use crate::services::{MINUTE, POISON, kernels, run};

cases![
    values_of_every_type_are_printed_into_a_file,
    invocations_append_whole_lines,
    calls_of_every_form_print,
    names_are_printed_into_texts,
    texts_that_would_be_too_long_stay_as_they_are,
    a_stream_takes_lines_in_the_order_of_the_calls,
    files_that_take_no_line_are_statuses,
    formats_that_do_not_fit_are_refused_when_the_program_is_read,
];

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn read_write(folder: &TempDir) -> FileAccess {
    FileAccess::new().read_write(folder.path()).unwrap()
}

fn serve(access: FileAccess) -> HostServices {
    HostServices::builder().files(access).start().unwrap()
}

const OK: u32 = FileStatus::Ok.code();

fn values_of_every_type_are_printed_into_a_file(f: &Fixture) {
    let folder = folder();
    let services = serve(read_write(&folder));
    let wide = f.device.has(Aspect::Int64);
    let more = match wide {
        true => r#"sum += file_print(file, "{:>22}|{}\n", u64(i) << 40u, i64(i) - 3).bytes;"#,
        false => "",
    };
    let source = format!(
        r#"@compute @workgroup_size(1) fn main() {{
            let file = file_open("values.txt", FILE_WRITE | FILE_CREATE | FILE_TRUNCATE).file;
            var sum = file_print(file, "no value; {{{{}}}}\n").bytes;
            for (var i = 0u; i < 9u; i++) {{
                let x = f32(i);
                sum += file_print(file, "{{:>4}}|{{:<+5}}|{{:.3}}|{{2:e}}|{{}}|{{0:#06x}}\n", i, i32(i) - 4, x * 0.25 - 1.0, i % 2u == 0u).bytes;
                sum += file_print(file, "{{:?}} {{}} {{:.1}}\n", vec3(i, i + 1u, i * i), vec2<bool>(true, i > 4u), mat2x2(x, x + 0.5, -x, 0.0),).bytes;
                {more}
            }}
            out[0] = sum;
            out[1] = file_close(file);
        }}"#
    );
    let found = run(f, &services, &source, 1, 3);
    let mut expected = "no value; {}\n".to_owned();
    for i in 0..9u32 {
        let x = i as f32;
        let (signed, part, even) = (i as i32 - 4, x * 0.25 - 1.0, i % 2 == 0);
        expected += &format!("{i:>4}|{signed:<+5}|{part:.3}|{part:e}|{even}|{i:#06x}\n");
        let (vector, matrix) = ([i, i + 1, i * i], [[x, x + 0.5], [-x, 0.0]]);
        expected += &format!("{vector:?} {:?} {matrix:.1?}\n", [true, i > 4]);
        if wide {
            expected += &format!("{:>22}|{}\n", u64::from(i) << 40, i64::from(i) - 3);
        }
    }
    let printed = fs::read_to_string(folder.path().join("values.txt")).unwrap();
    assert_eq!(printed, expected);
    assert_eq!(found, [expected.len() as u32, OK, POISON]);
}

fn invocations_append_whole_lines(f: &Fixture) {
    let folder = folder();
    let services = serve(read_write(&folder));
    fs::write(folder.path().join("log.txt"), "the first line\n").unwrap();
    let source = r#"
        var<workgroup> log: u32;
        @compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
            if lane == 0u { log = file_open("log.txt", FILE_APPEND).file; }
            let file = workgroupUniformLoad(&log);
            let reply = file_print(file, "{} of {}: {:.2}\n", id.x, 192u, f32(id.x) * 0.5);
            out[id.x] = reply.status * 1000u + reply.bytes;
        }"#;
    let found = run(f, &services, source, 192, 192);
    let line = |i: u32| format!("{i} of 192: {:.2}\n", i as f32 * 0.5);
    let expected: Vec<u32> = (0..192).map(|i| OK * 1000 + line(i).len() as u32).collect();
    assert_eq!(found, expected);
    let printed = fs::read_to_string(folder.path().join("log.txt")).unwrap();
    let mut lines: Vec<&str> = printed.split_inclusive('\n').collect();
    assert_eq!(lines.remove(0), "the first line\n");
    lines.sort_unstable();
    let mut expected: Vec<String> = (0..192).map(line).collect();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

fn calls_of_every_form_print(f: &Fixture) {
    let folder = folder();
    let path = folder.path().join("forms.txt");
    let services = serve(read_write(&folder));
    let source = r#"@group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1) fn begin() {
            let file = file_open("forms.txt", FILE_WRITE | FILE_CREATE).file;
            let tried = file_print_try(file, "{} tried\n", 1u);
            out[0] = tried.status;
            out[1] = tried.value.bytes;
            out[2] = file_print_begin(file, "{:03} begun\n", 2i);
            out[3] = file;
        }
        @compute @workgroup_size(32) fn collect(@builtin(local_invocation_index) lane: u32) {
            let file = out[3];
            let told = file_print_group(lane == 0u, file, "{} of the group\n", lane);
            if lane == 0u {
                let reply = file_print_collect(out[2]);
                out[2] = reply.status;
                out[3] = reply.value.bytes;
                out[4] = told.status;
                file_print_post(file, "{:?} posted\n", vec2(3.0, 4.0));
            }
        }"#;
    let [begin, collect] = kernels(&f.device, &services, source, ["begin", "collect"]);
    let out = f.device.buffer(&[POISON; 6]).unwrap();
    let launch = |kernel: &Kernel| {
        let launch = kernel.launch().services(&services).buffer("out", &out);
        let event = launch.workgroups(1).submit().unwrap();
        event.wait_timeout(MINUTE).unwrap();
    };
    let printed = || fs::read_to_string(&path).unwrap();
    launch(&begin);
    until("the call is served", || printed() == "1 tried\n002 begun\n");
    launch(&collect);
    let all = "1 tried\n002 begun\n0 of the group\n[3.0, 4.0] posted\n";
    until("the posted call is served", || printed() == all);
    const DONE: u32 = 1;
    assert_eq!(out.read().unwrap(), [DONE, 8, DONE, 10, OK, POISON]);
}

/// The bytes of a block's words.
fn bytes_of(words: &[u32], len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

fn names_are_printed_into_texts(f: &Fixture) {
    let folder = folder();
    let services = serve(read_write(&folder));
    for i in [3, 4] {
        fs::write(
            folder.path().join(format!("part-{i:04}.txt")),
            "x".repeat(i),
        )
        .unwrap();
    }
    let source = r#"@compute @workgroup_size(1) fn main() {
        for (var i = 3u; i < 6u; i++) {
            let whole = text_new().text;
            out[i - 3u] = text_print(whole, "part-{:04}", i) * 10u + text_print(whole, ".txt") * 100u;
            let opened = file_open(whole, FILE_READ);
            out[i] = opened.status;
            if opened.status == FILE_OK { out[i + 3u] = file_size(opened.file).position.x; }
            let block = text_block(whole, 0u);
            out[9] = block.bytes;
            for (var word = 0u; word < 4u; word++) { out[10u + word] = block.words[word]; }
            _ = text_drop(whole);
        }
    }"#;
    let found = run(f, &services, source, 1, 15);
    let missing = FileStatus::NotFound.code();
    assert_eq!(found[..3], [OK * 110; 3]);
    assert_eq!(found[3..9], [OK, OK, missing, 3, 4, POISON]);
    assert_eq!((found[9], found[14]), (13, POISON));
    assert_eq!(bytes_of(&found[10..14], 13), b"part-0005.txt");
}

fn texts_that_would_be_too_long_stay_as_they_are(f: &Fixture) {
    let services = HostServices::builder().texts().start().unwrap();
    let source = r#"@compute @workgroup_size(1) fn main() {
        let text = text_new().text;
        out[0] = text_print(text, "{:4090}|", 1u);
        out[1] = text_print(text, "{:>6}", 1u);
        out[2] = text_size(text).bytes;
        out[3] = text_print(text, "{:5}", 1u);
        out[4] = text_size(text).bytes;
        out[5] = text_print("a literal", "{}", 1u);
        _ = text_drop(text);
        out[6] = text_print(text, "{}", 1u);
    }"#;
    let unknown = FileStatus::UnknownText.code();
    let long = FileStatus::BadLength.code();
    let expected = [OK, long, 4091, OK, 4096, unknown, unknown, POISON];
    assert_eq!(run(f, &services, source, 1, 8), expected);
}

/// Keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn a_stream_takes_lines_in_the_order_of_the_calls(f: &Fixture) {
    let kept = Kept::default();
    let services = serve(FileAccess::new().stdout(kept.clone()));
    let source = r#"
        fn told(i: u32) -> FileReply { return file_print(FILE_STDOUT, "{:02}: {}\n", i, i * i); }
        @compute @workgroup_size(1) fn main() {
            // The result of a call may be the value of another.
            for (var i = 0u; i < 20u; i++) { out[i] = file_print(FILE_STDOUT, "{} bytes\n", told(i).bytes).status; }
        }"#;
    let found = run(f, &services, source, 1, 21);
    assert_eq!(found[..20], [OK; 20]);
    assert_eq!(found[20], POISON);
    let mut expected = String::new();
    for i in 0..20 {
        let line = format!("{i:02}: {}\n", i * i);
        expected += &format!("{line}{} bytes\n", line.len());
    }
    let kept = kept.0.lock().unwrap();
    assert_eq!(String::from_utf8_lossy(&kept), expected);
}

fn files_that_take_no_line_are_statuses(f: &Fixture) {
    let folder = folder();
    fs::write(folder.path().join("old.txt"), "old").unwrap();
    let services = serve(read_write(&folder).quota(10));
    let source = r#"@compute @workgroup_size(1) fn main() {
        out[0] = file_print(77u, "{}", 1u).status;
        out[1] = file_print(FILE_STDOUT, "{}", 1u).status;
        let old = file_open("old.txt", FILE_READ).file;
        out[2] = file_print(old, "{}", 1u).status;
        let fresh = file_open("new.txt", FILE_WRITE | FILE_CREATE).file;
        out[3] = file_print(fresh, "{:>6}\n", 1u).status;
        let full = file_print(fresh, "{:>6}\n", 2u);
        out[4] = full.status;
        out[5] = full.bytes;
        out[6] = file_close(fresh) + file_close(old);
    }"#;
    let found = run(f, &services, source, 1, 8);
    let [unknown, mode, full] = [
        FileStatus::UnknownHandle,
        FileStatus::BadMode,
        FileStatus::Full,
    ]
    .map(FileStatus::code);
    let expected = [unknown, unknown, mode, OK, full, 3, 2 * OK, POISON];
    assert_eq!(found, expected);
    let printed = fs::read_to_string(folder.path().join("new.txt")).unwrap();
    assert_eq!(printed, "     1\n   ");
    assert_eq!(
        fs::read_to_string(folder.path().join("old.txt")).unwrap(),
        "old"
    );
}

fn formats_that_do_not_fit_are_refused_when_the_program_is_read(f: &Fixture) {
    let services = HostServices::builder().files(FileAccess::new());
    let services = services.start().unwrap();
    let long = format!("{}1u", "mat4x4<f32>(), ".repeat(4));
    for (call, says) in [
        (
            r#"file_print(1u, "{} {}", 1u)"#.to_owned(),
            "there is no argument 1",
        ),
        (
            r#"file_print(1u, "{}", 1u, 2u)"#.to_owned(),
            "this argument is never shown",
        ),
        (
            r#"file_print(1u, "{:x}", 1.5)"#.to_owned(),
            "shows integers",
        ),
        (
            "file_print(1u, 5u, 6u)".to_owned(),
            "`file_print` needs a format string here, in quotes",
        ),
        (
            "file_print(1u)".to_owned(),
            "`file_print` needs a format string, in quotes",
        ),
        (
            r#"text_print(1u, "{")"#.to_owned(),
            "`{` begins a placeholder that does not end",
        ),
        (
            format!(r#"text_print(1u, "{{}}{{}}{{}}{{}}{{}}", {long})"#),
            "the arguments have 70 words",
        ),
    ] {
        let source = format!("@compute @workgroup_size(1) fn main() {{ _ = {call}; }}");
        let program = Program::builder().source("formats.wgsl", source);
        let error = program.services(&services).build().unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, KernelError::Print(_)), "{call}: {text}");
        assert!(text.contains(says), "{call}: {text}");
    }
    // Programs without these services may have functions of the names.
    let own = r#"fn file_print(a: u32, b: u32) -> u32 { return a + b; }
        @compute @workgroup_size(1) fn main() { out[0] = file_print(3u, 4u); }"#;
    let none = HostServices::builder().start().unwrap();
    assert_eq!(run(f, &none, own, 1, 2), [7, POISON]);
    assert_eq!(run(f, &services, own, 1, 2), [7, POISON]);
}
