//! Constants and structures of the runtime's functions: the numbers of [`service_numbers`] and the parts of
//! `shaders/services.wgsl` that a program mentions without a declaration of its own are appended to the program.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::{Signature, service_numbers};
use crate::kernel::token::TokenStream;
use crate::template::Template;

/// All declarations, in WGSL.
pub(crate) static TEXT: LazyLock<String> = LazyLock::new(|| {
    let constants =
        service_numbers::all().map(|(name, number)| format!("const {name} = {number}u;\n"));
    let structures = Template::new(include_str!("../../../shaders/services.wgsl"))
        .set("block_words", service_numbers::FILE_BLOCK_BYTES / 4);
    constants.chain([structures.fill()]).collect()
});

/// A declaration of the prelude.
struct Item<'a> {
    name: &'a str,
    text: &'a str,
}

fn items<'a>(stream: &TokenStream<'a>) -> Vec<Item<'a>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        let end = match stream.text(at) {
            "const" => (at..stream.len()).find(|&i| stream.text(i) == ";"),
            "struct" => stream.partner(at + 2),
            _ => None,
        };
        let Some(end) = end else {
            at += 1;
            continue;
        };
        found.push(Item {
            name: stream.text(at + 1),
            text: stream.slice(at..end + 1),
        });
        at = end + 1;
    }
    found
}

/// Whether a program declares `name` itself.
pub(super) fn declares(stream: &TokenStream<'_>, name: &str) -> bool {
    let declares =
        |before: &str| matches!(before, "const" | "struct" | "alias" | "override" | "fn");
    (0..stream.len()).any(|at| declares(stream.text(at)) && stream.text(at + 1) == name)
}

/// The declarations needed by a program that calls functions of these signatures.
pub(crate) fn needed<'s>(
    program: &TokenStream<'_>,
    called: impl Iterator<Item = &'s Signature>,
) -> String {
    let mut mentioned: BTreeSet<String> = (0..program.len())
        .filter(|&at| program.is_identifier(at))
        .map(|at| program.text(at).to_owned())
        .collect();
    for signature in called {
        let types = signature.parameters.iter().map(|(_, ty)| ty);
        for ty in types.chain(&signature.result) {
            let stream = TokenStream::new(ty);
            mentioned.extend((0..stream.len()).map(|at| stream.text(at).to_owned()));
        }
    }
    let prelude = TokenStream::new(&TEXT);
    let mut text = String::new();
    for item in items(&prelude) {
        if mentioned.contains(item.name) && !declares(program, item.name) {
            text.push_str(item.text);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(program: &str, called: &[&str]) -> String {
        let called: Vec<_> = called
            .iter()
            .map(|s| Signature::parse(s).unwrap())
            .collect();
        needed(&TokenStream::new(program), called.iter())
    }

    #[test]
    fn what_is_mentioned_is_appended() {
        assert_eq!(text("fn f() { FILE_OK; }", &[]), "const FILE_OK = 1u;\n");
        assert_eq!(text("// FILE_OK", &[]), "");
        assert_eq!(text("const FILE_OK = 7u; fn f() { FILE_OK; }", &[]), "");
        let reply = "struct FileReply { status: u32, bytes: u32 }\n";
        assert_eq!(text("", &["fn f(x: u32) -> FileReply"]), reply);
        assert_eq!(text("fn f(r: FileReply) {}", &[]), reply);
        assert_eq!(
            text("struct FileReply { x: u32 }", &["fn f() -> FileReply"]),
            ""
        );
    }

    #[test]
    fn all_of_it_is_wgsl() {
        let stream = TokenStream::new(&TEXT);
        let items = items(&stream);
        assert_eq!(items.len(), 49);
        let all: String = items
            .iter()
            .map(|item| format!("{}\n", item.text))
            .collect();
        naga::front::wgsl::parse_str(&all).unwrap();
    }
}
