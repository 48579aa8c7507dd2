use super::super::work;
use super::*;

/// Line and column, both from 1, of byte `at`, found by reading the text.
fn line_and_column(source: &str, at: usize) -> (u32, u32) {
    let before = source
        .get(..source.floor_char_boundary(at))
        .unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |i| i + 1);
    let line = before.bytes().filter(|&b| b == b'\n').count() + 1;
    let column = before.get(line_start..).map_or(0, |l| l.chars().count()) + 1;
    (
        u32::try_from(line).unwrap_or(u32::MAX),
        u32::try_from(column).unwrap_or(u32::MAX),
    )
}

#[test]
fn columns_count_characters_and_lines_count_from_one() {
    assert_eq!(line_and_column("é\nüx", 5), (2, 2));
    assert_eq!(line_and_column("", 0), (1, 1));
    assert_eq!(line_and_column("a\n", 2), (2, 1));
    assert_eq!(line_and_column("é", 1), (1, 1));
    assert_eq!(line_and_column("a", 99), (1, 2));
}

#[test]
fn lines_find_what_reading_the_text_finds() {
    let long = "ü".repeat(3000) + "x\r\n" + &"abc\n".repeat(2000) + "é\n\nlast";
    for source in ["", "\n", "a", "é\nüx", "a\n", long.as_str()] {
        let lines = File::new("", source.into());
        for at in 0..source.len() + 3 {
            assert_eq!(lines.place(at), line_and_column(source, at), "{at}");
            assert_eq!(lines.line(at), lines.place(at).0, "{at}");
        }
    }
    let lines = File::new("", "ab\ncd é;\r\nx".into());
    assert_eq!(lines.excerpt(8), "    2 | cd é;\n      |     ^");
    let lines = File::new("", long.as_str().into());
    let excerpt = lines.excerpt(3000);
    let (text, marker) = excerpt.split_once('\n').unwrap();
    assert!(excerpt.len() < 700, "{excerpt}");
    assert_eq!(
        text.chars().nth(marker.chars().count() - 1),
        Some('ü'),
        "{excerpt}"
    );
}

fn sources(all: &[(&str, &str)]) -> Vec<(String, Arc<str>)> {
    let own = |(name, source): &(&str, &str)| ((*name).to_owned(), (*source).into());
    all.iter().map(own).collect()
}

const MAIN: &str = "enable f16;\n// é\nconst _seed = 1u;\nfn main() { let x = _seed; other(); }\n";
const OTHER: &str =
    "requires a;enable f16;\nstruct S { _seed: u32, y: u32 }\nvar<private> _seed: S;
fn other() { _seed._seed = 2u; let _y = _seed.y; }";

#[test]
fn sources_stand_behind_each_other_with_their_own_names() {
    let (text, _) = Files::join(&sources(&[("a.wgsl", MAIN), ("lib/b-c.wgsl", OTHER)]));
    let expected = "enable f16;\nrequires a;\nenable f16;\n\n// é\nconst _seed_a = 1u;\nfn main() { let x = _seed_a; other(); }\n\n
struct S { _seed: u32, y: u32 }\nvar<private> _seed_lib_b_c: S;\nfn other() { _seed_lib_b_c._seed = 2u; let _y = _seed_lib_b_c.y; }\n";
    assert_eq!(*text, *expected);
}

#[test]
fn every_byte_leads_back_to_its_file() {
    let all = sources(&[
        ("a.wgsl", MAIN),
        ("b.wgsl", OTHER),
        ("c.wgsl", "const c = 3;"),
    ]);
    let (text, files) = Files::join(&all);
    let mut seen = [MAIN.len(), OTHER.len(), 12].map(|len| vec![false; len]);
    for (at, byte) in text.bytes().enumerate() {
        let (file, place) = files.find(at);
        let number = all.iter().position(|(name, _)| *name == file.name).unwrap();
        match file.source.as_bytes().get(place) {
            Some(own) if *own == byte => seen[number][place] = true,
            // Behind a directive or a source; or in the end of a new name.
            _ => assert!(
                byte == b'\n'
                    || text[..at]
                        .rsplit(|c: char| c != '_' && !c.is_alphanumeric())
                        .next()
                        .unwrap()
                        .starts_with("_seed"),
                "{at}"
            ),
        }
    }
    assert!(seen.iter().flatten().all(|seen| *seen));
    assert_eq!(files.name(), "a.wgsl");
    let at = text.find("const c").unwrap();
    assert_eq!(
        (files.find(at).0.name.as_str(), files.line(at)),
        ("c.wgsl", 1)
    );
    let at = text.find("fn other").unwrap();
    assert_eq!(
        (files.find(at).0.name.as_str(), files.line(at)),
        ("b.wgsl", 4)
    );
}

#[test]
fn a_new_name_is_new() {
    let clash = "const _x = 1; const _x_a = 2; fn f() -> i32 { return _x + _x_a; }";
    let (text, _) = Files::join(&sources(&[
        ("a.wgsl", clash),
        ("b.wgsl", "const y = _x_a0;"),
    ]));
    assert!(
        text.contains("const _x_a00 = 1; const _x_a_a = 2;"),
        "{text}"
    );
    assert!(text.contains("return _x_a00 + _x_a_a;"), "{text}");
}

#[test]
fn files_whose_names_look_alike_keep_apart() {
    let all = sources(&[
        ("lib/a.wgsl", "const _seed = 1;"),
        ("lib_a.wgsl", "const _seed = 2;"),
        ("c.wgsl", "const _b_c = 3;"),
        ("b_c.wgsl", "const _b = 4; const _b_c = 5;"),
    ]);
    let (text, _) = Files::join(&all);
    crate::Program::new("all.wgsl", text).unwrap();
}

#[test]
fn work_grows_with_the_names_of_a_file() {
    let work = |n: usize| {
        let own: String = (0..n).map(|i| format!("const _a{i} = {i};\n")).collect();
        let all = sources(&[("a.wgsl", &own), ("b.wgsl", OTHER)]);
        work::of(|| Files::join(&all)).0
    };
    let [once, twice] = [100, 200].map(work);
    assert!(twice < 3 * once, "{once} and {twice}");
}

#[test]
fn what_the_host_asks_for_keeps_its_name() {
    let source = "override _n = 1u; var<private> _p: u32;
        @compute @workgroup_size(1) fn _main() { _p = _n; }";
    let program = crate::Program::builder()
        .source("a.wgsl", "const a = 1;")
        .source("b.wgsl", source);
    let program = program.build().unwrap();
    assert_eq!(program.entry_points(), ["_main"]);
    assert_eq!(program.constants()[0].name, "_n");
    assert!(
        program.source().contains("_p_b = _n"),
        "{}",
        program.source()
    );
}

#[test]
fn pointers_lead_to_structures_of_a_file() {
    let source = "struct _Node { value: u32, padding: u32, next: usm_ptr }
        @group(0) @binding(0) var<uniform> list: usm_ptr;
        @compute @workgroup_size(1) fn main() { let n = usm__Node(list); n.value += 1u; }";
    let program = crate::Program::builder()
        .source("a.wgsl", "struct _Node { value: f32 }")
        .source("b.wgsl", source)
        .build();
    program.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn the_first_source_names_the_program() {
    let program = crate::Program::builder()
        .source("a.wgsl", "const a = 1;")
        .source("b.wgsl", "enable f16; const b = 1h;");
    assert_eq!(program.build().unwrap().name(), "a.wgsl");
}

#[test]
fn a_source_does_not_run_on_into_the_next() {
    for (open, column) in [
        ("fn f() { let x = 1;", 8),
        ("const x = (1;", 11),
        ("const x = 1; /* and so on", 14),
        ("/* a */ /* b /* c */", 14),
        ("const x = 1; @compute @workgroup_size(4) // g", 14),
        ("@must_use", 1),
        ("what @is @this(1)", 6),
    ] {
        let builder = crate::Program::builder().source("open.wgsl", open);
        let fault = fault(builder.source("next.wgsl", "fn g() {}"));
        let place = (fault.file.as_str(), fault.line, fault.column);
        assert_eq!(place, ("open.wgsl", 1, column), "{fault}");
    }
    assert_eq!(unclosed("/* { */ @must_use fn f() { /* } */ } // {"), None);
    // Not in the square of their number.
    let many = "@a ".repeat(1 << 18) + "x";
    assert_eq!(unclosed(&many), None);
}

#[test]
fn one_source_is_left_alone() {
    let (text, files) = Files::join(&sources(&[("b.wgsl", OTHER)]));
    assert_eq!(*text, *OTHER);
    for at in 0..OTHER.len() + 5 {
        assert_eq!(files.find(at).1, at);
    }
}

fn fault(builder: crate::kernel::ProgramBuilder) -> Box<crate::kernel::Diagnostic> {
    let error = builder.build().unwrap_err();
    Box::new(
        error
            .diagnostic()
            .unwrap_or_else(|| panic!("{error}"))
            .clone(),
    )
}

#[test]
fn faults_are_reported_in_their_files() {
    let good = "fn good() -> u32 { return 1u; }";
    let builder = || crate::Program::builder().source("good.wgsl", good);
    for (bad, line, column, part) in [
        ("\n\nfn bad() { let x = ; }", 3, 20, "expected"),
        ("fn bad() {\n  let x: i32 = good(); }", 2, 7, "type"),
        ("\n  var<private> x: missing;", 2, 19, "missing"),
        ("fn bad() {\n\n  print(\"{}\"); }", 3, 10, ""),
    ] {
        let fault = fault(builder().source("bad.wgsl", bad));
        assert_eq!(
            (fault.file.as_str(), fault.line, fault.column),
            ("bad.wgsl", line, column),
            "{fault}"
        );
        assert!(fault.message.contains(part), "{fault}");
        assert!(
            fault
                .rendered
                .contains(&format!("bad.wgsl:{line}:{column}")),
            "{fault}"
        );
    }
    // Both places of a name that two sources declare.
    let fault = fault(builder().source("again.wgsl", "\nconst good = 1;"));
    let places: Vec<_> = fault
        .labels
        .iter()
        .map(|label| (label.file.as_str(), label.line))
        .collect();
    assert!(
        places.contains(&("good.wgsl", 1)) && places.contains(&("again.wgsl", 2)),
        "{fault}"
    );
}

#[test]
fn constants_have_the_lines_of_their_files() {
    let program = crate::Program::builder()
        .source("a.wgsl", "\noverride a = 1u;")
        .source("b.wgsl", "enable f16;\n\n\noverride b = 1h;")
        .build();
    let lines: Vec<_> = program
        .unwrap()
        .constants()
        .iter()
        .map(|one| (one.name.clone(), one.line))
        .collect();
    assert_eq!(lines, [("a".to_owned(), 2), ("b".to_owned(), 4)]);
}

#[test]
fn what_contradicts_itself_is_refused() {
    use crate::kernel::{KernelError, ProgramMistake};
    let mistake = |builder: crate::kernel::ProgramBuilder| match builder.build() {
        Err(KernelError::Builder { mistake, .. }) => mistake,
        other => panic!("{other:?}"),
    };
    let program = crate::Program::builder;
    assert_eq!(mistake(program()), ProgramMistake::NoSource);
    let name = "a".to_owned();
    let two = program()
        .source("a", "const a = 1;")
        .source("a", "const b = 1;");
    assert_eq!(mistake(two), ProgramMistake::TwoSources { name });
    program()
        .source("a", "const a = 1;")
        .source("a", "const a = 1;")
        .build()
        .unwrap();
    let services = crate::HostServices::builder()
        .call("fn f()", || {})
        .start()
        .unwrap();
    let both = program()
        .source("a", "")
        .services(&services)
        .services(&services);
    let (first, second) = ("services", "services");
    assert_eq!(mistake(both), ProgramMistake::TwoCallees { first, second });
}

/// Files of libraries, each asked for twice, that use the same private names.
#[test]
fn files_are_imported_once_and_keep_their_names() {
    use crate::Program;
    use crate::kernel::{KernelError, ProgramMistake};
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let noise = file(
        "noise.wgsl",
        "const _seed = 3u; fn noise(x: u32) -> u32 { return x * _seed; }",
    );
    let hash = file(
        "hash.wgsl",
        "const _seed = 5u; fn hash(x: u32) -> u32 { return noise(x) ^ _seed; }",
    );
    let main = "@group(0) @binding(0) var<storage, read_write> o: array<u32>;
        @compute @workgroup_size(1) fn main() { o[0] = hash(noise(o[0])); }";
    let program = Program::builder()
        .source("main.wgsl", main)
        .import(&noise)
        .import(&hash)
        .import(&noise)
        .build()
        .unwrap();
    assert_eq!(program.source().matches("fn noise").count(), 1);
    assert_eq!(program.name(), "main.wgsl");
    // A fault is told with the path and the line.
    let broken = file("broken.wgsl", "\nfn broken() -> u32 { return missing; }");
    let error = Program::builder()
        .source("main.wgsl", main)
        .import(&noise)
        .import(&hash)
        .import(&broken)
        .build()
        .unwrap_err();
    let told = error.to_string();
    assert!(told.contains("broken.wgsl:2"), "{told}");
    let gone = folder.path().join("gone.wgsl");
    match Program::builder()
        .source("main.wgsl", main)
        .import(&gone)
        .build()
    {
        Err(KernelError::Builder {
            mistake: ProgramMistake::Unreadable { name, .. },
            ..
        }) => assert_eq!(name, gone.display().to_string()),
        other => panic!("{other:?}"),
    }
}
