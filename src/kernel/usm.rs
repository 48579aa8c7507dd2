//! The text side of pointers: finds the functions `usm_…` called but not declared by a program, and appends the
//! declarations naga needs.
//!
//! - `usm_<Type>(p)` gets a function without a body returning `ptr<storage, <Type>, read_write>`. naga parses such a
//!   function, and only its validator refuses it; the pass `passes::pointers` replaces the calls before.
//! - `usm_address(&place)` gets a function with a pointer of any type as its parameter, for naga's parser does not
//!   compare.
//! - Helpers (`shaders/usm.wgsl`) are appended unchanged, with the helpers they call.
//! - `usm_ptr` is an alias of `vec2<u32>`.
//!
//! Everything stands behind the user's text, whose lines and spans stay the same.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::token::TokenStream;

const HELPERS: &str = include_str!("../../shaders/usm.wgsl");

const PREFIX: &str = "usm_";
const POINTER: &str = "usm_ptr";
const ADDRESS: &str = "usm_address";

/// The appendix of a program's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Appendix {
    /// The text, to stand behind the user's.
    pub text: String,
    /// For each appended declaration with possible faults for naga: its bytes in `text`, and the user's bytes that
    /// caused it.
    pub origins: Vec<(Range<usize>, Range<usize>)>,
    /// Some pointer is dereferenced, or an address taken: the module does not validate before the pass has run.
    pub has_stubs: bool,
}

impl Appendix {
    /// The user's bytes behind the bytes `at` of the text with the appendix, where they lie in the appendix, beginning
    /// at `start`.
    #[cfg(test)]
    pub fn origin(&self, start: usize, at: Range<usize>) -> Option<Range<usize>> {
        let within = at.start.checked_sub(start)?;
        let (_, origin) = (self.origins.iter()).find(|(bytes, _)| bytes.contains(&within))?;
        Some(origin.clone())
    }
}

/// A helper: name, text, and called helpers.
struct Helper {
    name: &'static str,
    text: &'static str,
}

/// The helpers, in the order of their declaration.
fn helpers() -> Vec<Helper> {
    let stream = TokenStream::new(HELPERS);
    let mut found = Vec::new();
    for at in 0..stream.len() {
        if stream.text(at) != "fn" {
            continue;
        }
        let body = (at..stream.len()).find(|&i| stream.text(i) == "{");
        if let Some(end) = body.and_then(|open| stream.partner(open)) {
            found.push(Helper {
                name: stream.text(at + 1),
                text: stream.slice(at..end + 1),
            });
        }
    }
    found
}

/// The identifiers with the prefix called in `stream` (or, for `usm_ptr`, mentioned), each with its first place.
/// Members (`x.usm_y`) and declarations do not count.
fn mentions<'a>(stream: &TokenStream<'a>) -> BTreeMap<&'a str, Range<usize>> {
    let mut found = BTreeMap::new();
    for at in 0..stream.len() {
        let name = stream.text(at);
        let before = match at {
            0 => "",
            at => stream.text(at - 1),
        };
        let declares = matches!(
            before,
            "fn" | "struct" | "alias" | "const" | "override" | "let" | "." | "@"
        );
        let called = stream.text(at + 1) == "(";
        if name.starts_with(PREFIX) && !declares && (called || name == POINTER) {
            found.entry(name).or_insert(stream.span(at..at + 1));
        }
    }
    found
}

/// The names that the text declares at module scope.
fn declared<'a>(stream: &TokenStream<'a>) -> HashSet<&'a str> {
    let mut names = HashSet::new();
    let mut depth = 0usize;
    for at in 0..stream.len() {
        match stream.text(at) {
            "{" | "(" | "[" => depth += 1,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            "fn" | "alias" | "struct" | "const" | "override" if depth == 0 => {
                names.insert(stream.text(at + 1));
            }
            _ => {}
        }
    }
    names
}

/// The appendix for `source`; `None` without pointers.
pub(crate) fn appendix(source: &str) -> Option<Appendix> {
    if !source.contains(PREFIX) {
        return None;
    }
    let stream = TokenStream::new(source);
    let mut wanted = mentions(&stream);
    let declared = declared(&stream);
    wanted.retain(|name, _| !declared.contains(name));
    if wanted.is_empty() {
        return None;
    }
    let known = helpers();
    let mut appendix = Appendix {
        text: "\n".to_owned(),
        origins: Vec::new(),
        has_stubs: false,
    };
    let any = wanted.values().next().cloned().unwrap_or(0..0);
    if !declared.contains(POINTER) {
        let origin = wanted.get(POINTER).unwrap_or(&any).clone();
        appendix.add("alias usm_ptr = vec2<u32>;", origin);
    }
    for (name, origin) in &wanted {
        if *name == POINTER {
            continue;
        }
        if let Some(helper) = known.iter().find(|helper| helper.name == *name) {
            appendix.add(helper.text, origin.clone());
        } else if *name == ADDRESS {
            appendix.has_stubs = true;
            let text = "fn usm_address(place: ptr<storage, u32, read_write>) -> usm_ptr {}";
            appendix.add(text, origin.clone());
        } else {
            appendix.has_stubs = true;
            let pointee = name.strip_prefix(PREFIX).unwrap_or(name);
            let text =
                format!("fn {name}(pointer: usm_ptr) -> ptr<storage, {pointee}, read_write> {{}}");
            appendix.add(&text, origin.clone());
        }
    }
    Some(appendix)
}

/// A text's notions of pointers without words in WGSL.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// The user's bytes.
    pub place: Range<usize>,
    pub message: &'static str,
    pub instead: String,
}

/// The first such mistake, for which naga's message would be no help.
pub(crate) fn mistake(source: &str) -> Option<Mistake> {
    if !source.contains(PREFIX) {
        return None;
    }
    let stream = TokenStream::new(source);
    (0..stream.len()).find_map(|at| {
        if !stream.is_identifier(at) || !stream.text(at).starts_with(PREFIX) {
            return None;
        }
        let pointee = stream.text(at).strip_prefix(PREFIX).unwrap_or_default();
        match stream.text(at + 1) {
            "<" => {
                let end = stream.partner(at + 1)?;
                let ty = format!("{pointee}{}", stream.slice(at + 1..end + 1));
                Some(Mistake {
                    place: stream.span(at..end + 1),
                    message: "a pointer is followed by the name of a type, without `<…>`",
                    instead: format!(
                        "give the type a name, `alias Name = {ty};`, and write `usm_Name(…)`"
                    ),
                })
            }
            "(" if begins_statement(&stream, at) => {
                let end = assigned(&stream, stream.partner(at + 1)? + 1)?;
                let call = stream.slice(at..stream.partner(at + 1)? + 1);
                Some(Mistake {
                    place: stream.span(at..end + 1),
                    message: "a call cannot stand left of `=` in WGSL",
                    instead: format!(
                        "give it a name first, `let place = {call};`, and assign to `*place`, `place.member` or `place[i]`"
                    ),
                })
            }
            _ => None,
        }
    })
}

/// Whether only `*` and `(` stand between the start of the statement and token `at`.
fn begins_statement(stream: &TokenStream<'_>, at: usize) -> bool {
    let before = (0..at).rev().map(|at| stream.text(at));
    let mut before = before.skip_while(|text| matches!(*text, "*" | "("));
    matches!(before.next(), Some(";" | "{" | "}"))
}

/// The last token of an assignment operator, behind a call ending in front of token `at`, with its members and indices.
fn assigned(stream: &TokenStream<'_>, mut at: usize) -> Option<usize> {
    loop {
        match stream.text(at) {
            ")" => at += 1,
            "." => at += 2,
            "[" => at = stream.partner(at)? + 1,
            "=" => return Some(at),
            "+" | "-" if stream.text(at + 1) == stream.text(at) => return Some(at + 1),
            "+" | "-" | "*" | "/" | "%" | "&" | "|" | "^" if stream.text(at + 1) == "=" => {
                return Some(at + 1);
            }
            _ => return None,
        }
    }
}

impl Appendix {
    fn add(&mut self, text: &str, origin: Range<usize>) {
        let start = self.text.len();
        self.text.push_str(text);
        self.text.push('\n');
        self.origins.push((start..self.text.len(), origin));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(source: &str) -> Vec<String> {
        let Some(appendix) = appendix(source) else {
            return Vec::new();
        };
        let stream = TokenStream::new(&appendix.text);
        (0..stream.len())
            .filter(|&i| i > 0 && matches!(stream.text(i - 1), "fn" | "alias"))
            .map(|i| stream.text(i).to_owned())
            .collect()
    }

    #[test]
    fn only_what_is_called_is_appended() {
        assert_eq!(names("fn f() { let usm = 1; }"), Vec::<String>::new());
        assert_eq!(names("// usm_Node(p)\nfn f() {}"), Vec::<String>::new());
        assert_eq!(
            names("struct Node { next: usm_ptr } fn f(p: usm_ptr) { let n = usm_Node(p); }"),
            ["usm_ptr", "usm_Node"]
        );
        assert_eq!(names("struct Node { next: usm_ptr }"), ["usm_ptr"]);
        assert_eq!(
            names("fn f(p: usm_ptr) -> bool { return usm_is_null(p); }"),
            ["usm_ptr", "usm_is_null"]
        );
    }

    #[test]
    fn usual_mistakes_are_told_with_what_to_write() {
        let of = |body: &str| {
            let source = format!("fn f(p: usm_ptr) {{ {body} }}");
            mistake(&source).map(|found| (source[found.place].to_owned(), found.instead))
        };
        for (body, place, instead) in [
            (
                "*usm_u32(p) = 1u;",
                "usm_u32(p) =",
                "`let place = usm_u32(p);`",
            ),
            (
                "x = 1; usm_Node(p).next = p;",
                "usm_Node(p).next =",
                "`let place = usm_Node(p);`",
            ),
            (
                "(*usm_u32(p)) += 1u;",
                "usm_u32(p)) +=",
                "`let place = usm_u32(p);`",
            ),
            (
                "usm_List(q(p))[i[0]].x++;",
                "usm_List(q(p))[i[0]].x++",
                "`let place = usm_List(q(p));`",
            ),
            (
                "let x = usm_array<u32>(p);",
                "usm_array<u32>",
                "`alias Name = array<u32>;`",
            ),
            (
                "atomicAdd(usm_atomic<i32>(p), 1);",
                "usm_atomic<i32>",
                "`alias Name = atomic<i32>;`",
            ),
        ] {
            let (found, says) = of(body).expect(body);
            assert_eq!(found, place, "{body}");
            assert!(says.contains(instead), "{body}: {says}");
        }
        for body in [
            "usm_touch(p); x = 1;",
            "let n = usm_Node(p); n.x = 1u;",
            "if usm_eq(p, p) { x = 1; }",
            "let b = usm_Node(p).x == 1u;",
            "if usm_count < x { y = 2; }",
            "x[usm_index(p)] = 1;",
        ] {
            assert_eq!(of(body), None, "{body}");
        }
    }

    #[test]
    fn what_the_user_declares_is_his() {
        assert_eq!(
            names(
                "alias usm_ptr = vec2u; fn usm_eq(a: usm_ptr) {} fn f(p: usm_ptr) { usm_eq(p); usm_f32(p); }"
            ),
            ["usm_f32"]
        );
    }

    #[test]
    fn every_helper_parses_and_validates() {
        let calls = helpers();
        assert_eq!(calls.len(), 11);
        let mut source = "alias usm_ptr = vec2<u32>;\n".to_owned();
        for helper in calls {
            source.push_str(helper.text);
            source.push('\n');
        }
        let module = naga::front::wgsl::parse_str(&source).unwrap();
        naga::valid::Validator::new(
            naga::valid::ValidationFlags::all(),
            naga::valid::Capabilities::SHADER_INT64,
        )
        .validate(&module)
        .unwrap();
    }

    #[test]
    fn errors_in_the_appendix_lead_to_the_call() {
        let source = "fn f(p: usm_ptr) { let n = usm_Missing(p); }";
        let appendix = appendix(source).unwrap();
        let text = format!("{source}{}", appendix.text);
        let error = naga::front::wgsl::parse_str(&text).unwrap_err();
        let span = error.labels().next().unwrap().0.to_range().unwrap();
        assert!(span.start >= source.len());
        let origin = appendix.origin(source.len(), span).unwrap();
        assert_eq!(&source[origin], "usm_Missing");
    }
}
