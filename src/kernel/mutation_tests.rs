//! Texts of no author, made from real texts: the compiler takes each, or names the fault.
//!
//! `TOMBOLO_FUZZ_INPUTS` says how many inputs are tried, `TOMBOLO_FUZZ_SEED` the seed of the first.
//! `fuzz/fuzz_targets/programs.rs` does the same with a learning fuzzer.

use std::panic::catch_unwind;
use std::path::Path;
use std::time::{Duration, Instant};

use super::deep_stack::{STACK_BYTES, on_stack};
use super::error::KernelError;
use super::text_limits::tests::{GROWING, text, through};
use super::token::TokenStream;

/// Inputs of an ordinary run.
const INPUTS: u64 = 300;
/// The most for a single input, in runs of several.
const MOST: Duration = Duration::from_secs(10);

/// Sebastiano Vigna's SplitMix64.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }
}

const WORDS: &[&str] = &[
    "0",
    "1u",
    "-1",
    "4294967295",
    "4294967296u",
    "2147483648",
    "0x1p127",
    "1e999f",
    "1e-50h",
    "fn",
    "let",
    "var",
    "override",
    "const",
    "alias",
    "struct",
    "if",
    "else",
    "loop",
    "for",
    "while",
    "switch",
    "case",
    "default",
    "break",
    "continue",
    "return",
    "discard",
    "const_assert",
    "enable f16;",
    "@group(0)",
    "@binding(7)",
    "@align(16)",
    "@size(64)",
    "@compute",
    "@workgroup_size(4)",
    "@id(3)",
    "var<storage, read_write>",
    "var<workgroup>",
    "var<uniform>",
    "array<u32, N>",
    "array<f32>",
    "vec3<f32>",
    "mat4x4<f32>",
    "atomic<u32>",
    "ptr<function, u32>",
    "usm_ptr",
    "usm_u32(p)",
    "usm_null()",
    "usm_add(p, 4u)",
    "usm_address(&data)",
    "usm_Node(p).next",
    "print(\"{}\", x);",
    "assert(x < 1u, \"{}\");",
    "panic(\"no\");",
    "workgroupBarrier();",
    "arrayLength(&data)",
    "&",
    "*",
    "!",
    "~",
    "=",
    "==",
    "<",
    ">",
    ">>",
    "->",
    "+=",
    "++",
    ";",
    ",",
    ".",
    ":",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "/*",
    "*/",
    "//",
    "\"",
    "\n",
    "\u{0}",
    "\u{feff}",
    "é",
    "𝒳",
];

/// The shaders of the repository, tests and examples included, and small texts of all shapes.
fn corpus() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts: Vec<String> = GROWING.iter().map(|(what, _)| text(what, 3)).collect();
    for folder in ["shaders", "tests/gpu", "examples", "src/kernel"] {
        let files = std::fs::read_dir(root.join(folder)).unwrap();
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        for path in paths {
            let Ok(content) = std::fs::read_to_string(&path) else {
                continue;
            };
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("wgsl") => texts.push(content),
                // The text between quotes, braces of format strings included.
                Some("rs") => {
                    let quoted = content.split('"').filter(|part| part.contains("@compute"));
                    texts.extend(quoted.map(|part| part.replace("{{", "{").replace("}}", "}")));
                }
                _ => {}
            }
        }
    }
    assert!(texts.len() > 150, "{}", texts.len());
    texts
}

/// `source`, changed in a few places.
fn mutated(source: &str, other: &str, numbers: &mut Numbers) -> String {
    let mut pieces: Vec<String> = pieces(source);
    let others = self::pieces(other);
    for _ in 0..1 + numbers.below(4) {
        let at = numbers.below(pieces.len());
        let end = pieces.len().min(at + 1 + numbers.below(12));
        match numbers.below(9) {
            0 => drop(pieces.drain(at..end)),
            1 => {
                let copy = pieces[at..end].to_vec();
                let to = numbers.below(pieces.len());
                pieces.splice(to..to, copy);
            }
            2 => pieces.insert(at, numbers.one(WORDS).to_owned()),
            3 if at < pieces.len() => pieces[at] = numbers.one(WORDS).to_owned(),
            4 if at < pieces.len() => {
                let to = numbers.below(pieces.len());
                pieces.swap(at, to);
            }
            5 => {
                let from = numbers.below(others.len());
                let until = others.len().min(from + 1 + numbers.below(40));
                pieces.splice(at..at, others[from..until].to_vec());
            }
            6 => {
                let times = 1 << numbers.below(11);
                let copy = pieces[at..end].concat().repeat(times);
                pieces.insert(at, copy);
            }
            7 => {
                let times = 1 << numbers.below(8);
                let (open, close) =
                    [("(", ")"), ("{", "}"), ("[", "]"), ("array<", ">")][numbers.below(4)];
                pieces.insert(end, close.repeat(times));
                pieces.insert(at, open.repeat(times));
            }
            _ => {
                // A byte, wherever it is.
                let mut bytes = pieces.concat().into_bytes();
                let at = numbers.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = numbers.next() as u8;
                }
                pieces = self::pieces(&String::from_utf8_lossy(&bytes));
            }
        }
        if pieces.is_empty() {
            pieces.push(" ".to_owned());
        }
    }
    pieces.concat()
}

/// A text's tokens, each with the blanks in front of it.
fn pieces(source: &str) -> Vec<String> {
    let stream = TokenStream::new(source);
    let mut start = 0;
    let mut pieces: Vec<String> = (0..stream.len())
        .map(|at| {
            let end = stream.span(at..at + 1).end;
            let piece = source[start..end].to_owned();
            start = end;
            piece
        })
        .collect();
    pieces.push(source[start..].to_owned());
    pieces
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The input of `seed`.
fn input(corpus: &[String], seed: u64) -> String {
    let mut numbers = Numbers(seed);
    let source = corpus[numbers.below(corpus.len())].as_str();
    let other = corpus[numbers.below(corpus.len())].as_str();
    mutated(source, other, &mut numbers)
}

/// The fault in the answer to an input, by any failure: with the seed, the message and the text's beginning.
fn verdict(
    seed: u64,
    input: &str,
    answer: impl FnOnce() -> Result<(), KernelError> + Send,
) -> Result<(), String> {
    let shown = |message: &str| {
        let beginning: String = input.chars().take(2000).collect();
        let bytes = input.len();
        Err(format!(
            "seed {seed}, a text of {bytes} bytes: {message}\n{beginning}"
        ))
    };
    match on_stack("mutated", STACK_BYTES, answer) {
        Err(error @ KernelError::Internal { .. }) => shown(&error.to_string()),
        Err(error) if (error.diagnostic()).is_some_and(|it| it.message.is_empty()) => {
            shown(&format!("a diagnostic without a message: {error:?}"))
        }
        _ => Ok(()),
    }
}

#[test]
fn any_text_is_a_kernel_or_an_error() {
    let corpus = corpus();
    let asked = number("TOMBOLO_FUZZ_INPUTS");
    let first = number("TOMBOLO_FUZZ_SEED").unwrap_or(1);
    let mut slowest = (Duration::ZERO, 0);
    for seed in first..first + asked.unwrap_or(INPUTS) {
        let input = match catch_unwind(|| input(&corpus, seed)) {
            Ok(input) => input,
            Err(_) => panic!("seed {seed}: no text could be made, as the panic above says"),
        };
        let begin = Instant::now();
        let verdict = verdict(seed, &input, || through(&input));
        let took = begin.elapsed();
        slowest = slowest.max((took, seed));
        if let Err(message) = verdict {
            panic!("{message}");
        }
        if asked.is_some() {
            let bytes = input.len();
            assert!(
                took < MOST,
                "seed {seed}, a text of {bytes} bytes: took {took:?}"
            );
        }
    }
    if asked.is_some() {
        println!("the slowest took {:?}: seed {}", slowest.0, slowest.1);
    }
}

#[test]
fn what_fails_is_reported_with_its_seed_and_message() {
    let internal = || KernelError::Internal {
        program: "a".into(),
        message: "out of luck".into(),
    };
    let said = verdict(41, "fn f() {}", || Err(internal())).unwrap_err();
    for part in ["seed 41", "9 bytes", "out of luck", "fn f() {}"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let said = verdict(42, "", || panic!("on purpose")).unwrap_err();
    for part in ["seed 42", "on purpose"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(verdict(43, "", || Ok(())), Ok(()));
    assert_eq!(verdict(44, "x", || through("x")), Ok(()));
}
