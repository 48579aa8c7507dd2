use super::*;

fn read(text: &str, arguments: usize) -> Result<Template, FormatError> {
    parse(&unescape(text, 0)?, arguments)
}

fn spec(text: &str) -> Spec {
    match read(&format!("\"{{:{text}}}\""), 1)
        .unwrap()
        .pieces
        .as_slice()
    {
        [Piece::Value { spec, .. }] => *spec,
        other => panic!("{other:?}"),
    }
}

/// The bytes of the error, and a part of its message.
fn refused(text: &str, arguments: usize, place: &str, message: &str) {
    let error = read(text, arguments).unwrap_err();
    assert_eq!(&text[error.place.clone()], place, "{}", error.message);
    assert!(error.message.contains(message), "{}", error.message);
}

#[test]
fn text_and_placeholders_alternate() {
    let template = read(r#""a {} {{b}} {1}{0:?}\n""#, 2).unwrap();
    let shown: Vec<String> = (template.pieces.iter())
        .map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Value { argument, spec, .. } => format!("<{argument}{}>", spec.kind.text()),
        })
        .collect();
    assert_eq!(shown, ["a ", "<0>", " {b} ", "<1>", "<0?>", "\n"]);
}

#[test]
fn every_part_of_a_specification_is_read() {
    let all = spec("*^+#012.3x?");
    assert_eq!(
        all,
        Spec {
            fill: '*',
            align: Some(Align::Center),
            sign: true,
            alternate: true,
            zero: true,
            width: Some(12),
            precision: Some(3),
            kind: Kind::DebugLowerHex,
        }
    );
    assert_eq!((spec("<").fill, spec("<").align), (' ', Some(Align::Left)));
    assert_eq!((spec("é>5").fill, spec("é>5").width), ('é', Some(5)));
    assert_eq!((spec("<<5").fill, spec("05").zero), ('<', true));
    assert_eq!((spec("-5").sign, spec("-5").width), (false, Some(5)));
    for (text, kind) in Kind::ALL {
        assert_eq!(spec(text).kind, kind);
    }
}

#[test]
fn escapes_are_those_of_rust() {
    let text: String = unescape(r#""\n\r\t\0\\\"\'\x41\u{1F41A}\u{4_1}é""#, 0)
        .unwrap()
        .into_iter()
        .map(|(c, _)| c)
        .collect();
    assert_eq!(text, "\n\r\t\0\\\"\'\x41\u{1F41A}\u{4_1}é");
    let joined: String = unescape("\"a\\\n    b\"", 0)
        .unwrap()
        .into_iter()
        .map(|(c, _)| c)
        .collect();
    assert_eq!(joined, "ab");
    for bad in [
        r#""\q""#,
        r#""\x4""#,
        r#""\xff""#,
        r#""\u{d800}""#,
        r#""\u41""#,
        r#""\u{""#,
    ] {
        assert!(unescape(bad, 0).is_err(), "{bad}");
    }
    assert!(unescape("\"open", 0).is_err());
    assert!(unescape("\"", 0).is_err());
}

#[test]
fn what_cannot_be_is_refused_at_its_place() {
    refused(r#""a {} {}""#, 1, "{}", "only one is given");
    refused(r#""a {2} {}""#, 2, "{2}", "only 2 are given");
    refused(r#""{}""#, 0, "{}", "no argument");
    refused(r#""\u{41} { x""#, 0, "{", "does not end");
    refused(r#""a } b""#, 0, "}", "belongs to no placeholder");
    refused(r#""{x}""#, 1, "{x}", "give `x` as an argument");
    refused(r#""{:q}""#, 1, "{:q}", "`q` is no format");
    refused(r#""{:.}""#, 1, "{:.}", "a precision is a number");
    refused(r#""{:1$}""#, 1, "{:1$}", "not taken from arguments");
    refused(r#""{:.*}""#, 1, "{:.*}", "not taken from arguments");
    refused(r#""{:70000}""#, 1, "{:70000}", "65535");
    refused(
        r#""{99999999999999999999}""#,
        1,
        "{99999999999999999999}",
        "no index",
    );
}

#[test]
fn no_text_makes_it_panic() {
    use proptest::prelude::*;
    proptest!(|(text in "\"[{}:a-z0-9<^>+#?.*$\\\\ ué\n]{0,24}\"?", arguments in 0usize..3)| {
        let _ = read(&text, arguments);
    });
}
