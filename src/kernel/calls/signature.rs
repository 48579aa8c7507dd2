//! Signatures of host functions: the text of a WGSL function head, taken apart.

use crate::kernel::token::TokenStream;

/// A WGSL function head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Signature {
    /// The function's name.
    pub name: String,
    /// Names and types of the parameters.
    pub parameters: Vec<(String, String)>,
    /// The type of the result.
    pub result: Option<String>,
}

impl Signature {
    /// Takes `fn name(a: T, …) -> R` apart.
    ///
    /// # Errors
    /// The fault, as the end of a sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let stream = TokenStream::new(text);
        if stream.text(0) != "fn" {
            return Err("it does not begin with `fn`".to_owned());
        }
        let name = stream.text(1);
        if !stream.is_identifier(1) {
            return Err(format!("`{name}` is no name"));
        }
        let open = 2;
        let close = match (stream.text(open), stream.partner(open)) {
            ("(", Some(close)) => close,
            _ => return Err(format!("`(…)` is missing behind `{name}`")),
        };
        let mut parameters = Vec::new();
        let mut at = open + 1;
        while at < close {
            let end = comma(&stream, at, close);
            if !stream.is_identifier(at) || stream.text(at + 1) != ":" || at + 2 >= end {
                let text = stream.slice(at..end);
                return Err(format!("`{text}` is no parameter: write `name: type`"));
            }
            let ty = stream.slice(at + 2..end);
            parameters.push((stream.text(at).to_owned(), ty.to_owned()));
            at = end + 1;
        }
        let rest = close + 1;
        let result = if rest == stream.len() {
            None
        } else if stream.text(rest) == "->" && rest + 1 < stream.len() {
            Some(stream.slice(rest + 1..stream.len()).to_owned())
        } else {
            let text = stream.slice(rest..stream.len());
            return Err(format!("`{text}` behind `)` is no result: write `-> type`"));
        };
        let signature = Self {
            name: name.to_owned(),
            parameters,
            result,
        };
        signature.check()?;
        Ok(signature)
    }

    /// Otherwise errors would be about text not written by the user. Types may be any names.
    fn check(&self) -> Result<(), String> {
        for reserved in ["usm_", "tombolo_"] {
            if self.name.starts_with(reserved) {
                return Err(format!(
                    "names that begin with `{reserved}` are the runtime's"
                ));
            }
        }
        for (index, (name, _)) in self.parameters.iter().enumerate() {
            if self.parameters[..index]
                .iter()
                .any(|(other, _)| other == name)
            {
                return Err(format!("there are two parameters `{name}`"));
            }
        }
        Ok(())
    }

    /// The parameters, in the text between parentheses.
    pub fn parameter_list(&self) -> String {
        let parameters = self.parameters.iter();
        let parameters: Vec<String> = parameters
            .map(|(name, ty)| format!("{name}: {ty}"))
            .collect();
        parameters.join(", ")
    }

    /// The whole head, in a normal form.
    pub fn text(&self) -> String {
        let list = self.parameter_list();
        match &self.result {
            Some(result) => format!("fn {}({list}) -> {result}", self.name),
            None => format!("fn {}({list})", self.name),
        }
    }
}

/// The first token at or behind `at` that is a comma outside brackets, or `close`.
fn comma(stream: &TokenStream<'_>, at: usize, close: usize) -> usize {
    let mut depth = 0usize;
    for index in at..close {
        match stream.text(index) {
            "<" | "(" | "[" => depth += 1,
            ">" | ")" | "]" => depth = depth.saturating_sub(1),
            ">>" => depth = depth.saturating_sub(2),
            "," if depth == 0 => return index,
            _ => {}
        }
    }
    close
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_taken_apart() {
        let signature =
            Signature::parse("fn f(a: u32, b: array<vec2<f32>, 4>, c: usm_ptr) -> mat2x2<f32>")
                .unwrap();
        assert_eq!(signature.name, "f");
        let names: Vec<_> = signature
            .parameters
            .iter()
            .map(|(n, t)| (n.as_str(), t.as_str()))
            .collect();
        assert_eq!(
            names,
            [("a", "u32"), ("b", "array<vec2<f32>, 4>"), ("c", "usm_ptr")]
        );
        assert_eq!(signature.result.as_deref(), Some("mat2x2<f32>"));
        let plain = Signature::parse(" fn  g ( ) ").unwrap();
        assert_eq!((plain.parameters.len(), plain.result.clone()), (0, None));
        assert_eq!(plain.text(), "fn g()");
        assert_eq!(Signature::parse(&signature.text()).unwrap(), signature);
        assert_eq!(
            Signature::parse("fn h(a: u32,)").unwrap().parameters.len(),
            1
        );
    }

    #[test]
    fn what_is_no_head_is_told() {
        for (text, says) in [
            ("", "fn"),
            ("lookup(a: u32)", "fn"),
            ("fn 1(a: u32)", "no name"),
            ("fn f", "(…)"),
            ("fn f(a: u32", "(…)"),
            ("fn f(u32)", "no parameter"),
            ("fn f(a:)", "no parameter"),
            ("fn f(a: u32) u32", "no result"),
            ("fn f() ->", "no result"),
            ("fn f(a: u32, a: u32)", "two parameters"),
            ("fn usm_f()", "usm_"),
            ("fn tombolo_f()", "tombolo_"),
        ] {
            let error = Signature::parse(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
