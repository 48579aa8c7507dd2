//! Private arrays: which `override` declarations decide the length of an array outside work-group memory, and
//! which arrays and variables these are.
//!
//! WGSL lets an `override` size an array in `var<workgroup>` only. Here an override may size any other array too, in
//! function and private space above all: such an override is compiled as `const`, with its value in that
//! specialization, so all of WGSL works. Overrides that size nothing, or work-group arrays only, stay overrides.
//!
//! An override sizes an array if the array's length mentions it directly, through module-scope or local constants,
//! or through other overrides. `@align(A)` in front of a variable asks for the array to be aligned to `A` bytes.
//! Shaders address function and private memory logically, never by address, so nothing in a kernel can observe
//! the alignment; it is checked, reported, and counted in the array's bytes.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use super::declarations::{Context, Declaration, DeclarationKind, entry_point, heads, names};
use super::edit::{EditedText, Replacement, blank};
use super::text_limits::Excess;
use super::token::TokenStream;
use super::walk::{AlignAttribute, ArrayUse, MOST_MENTIONS, Variable, walk};

/// An array in function or private space whose length is chosen at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrivateArrayInfo {
    /// Name of the variable.
    pub name: String,
    /// The declaring function; none for a variable in private space.
    pub function: Option<String>,
    /// Number of elements; for a struct that contains such an array, 1.
    pub length: u32,
    /// Bytes per invocation, rounded up to `align`.
    pub bytes: u64,
    /// Alignment in bytes: of `@align`, or else of the type.
    pub align: u32,
    /// Line of its declaration, counted from 1.
    pub line: u32,
    /// The array lies in scratch memory ([`SpillPolicy`](super::SpillPolicy)).
    pub spilled: bool,
}

/// The known properties of a program's text before parsing.
#[derive(Debug)]
pub(crate) struct Analysis {
    pub declarations: Vec<Declaration>,
    /// Arrays whose length depends on an override and is not left to WGSL's own rules.
    pub arrays: Vec<ArrayUse>,
    /// Variables sized by such an array, or aligned.
    pub variables: Vec<Variable>,
    /// Per declaration: whether a constant or override sizes such an array.
    pub sizing: Vec<bool>,
    /// Per declaration: whether its value depends on an override.
    pub overridden: Vec<bool>,
    /// Replacements that other conventions ask for.
    pub others: Vec<Replacement>,
    /// The first local constant with too many dependencies: its bytes, and their number.
    pub excess: Option<(Range<usize>, usize)>,
}

impl Analysis {
    pub fn new(source: &str) -> Self {
        let stream = TokenStream::new(source);
        let heads = heads(&stream);
        let names = names(&stream, &heads);
        let mut declarations = Vec::with_capacity(heads.len());
        let (mut arrays, mut variables) = (Vec::new(), Vec::new());
        let mut excess = None;
        for (index, head) in heads.iter().enumerate() {
            let contents = walk(&stream, &names, head, index);
            excess = excess.or(contents.excess);
            declarations.push(Declaration {
                kind: head.kind,
                name: head.name.map_or("", |n| stream.text(n)).to_owned(),
                span: stream.span(head.tokens.clone()),
                tokens: head.tokens.len(),
                keyword: stream.span(head.keyword..head.keyword + 1),
                name_span: head.name.map_or(0..0, |n| stream.span(n..n + 1)),
                references: contents.references,
                result: contents.result,
                entry: entry_point(&stream, head, &names),
                initialized: head.tokens.clone().any(|i| stream.text(i) == "="),
            });
            let base = arrays.len();
            arrays.extend(contents.arrays);
            variables.extend(contents.variables.into_iter().map(|v| Variable {
                arrays: v.arrays.start + base..v.arrays.end + base,
                ..v
            }));
        }
        let mut analysis = Self {
            sizing: vec![false; declarations.len()],
            overridden: vec![false; declarations.len()],
            declarations,
            arrays: Vec::new(),
            variables: Vec::new(),
            others: Vec::new(),
            excess,
        };
        analysis.overridden = analysis.depends_on(|i| {
            analysis
                .get(i)
                .is_some_and(|d| d.kind == DeclarationKind::Override)
        });
        analysis.select(arrays, variables);
        analysis
    }

    /// Whether the text uses a convention with a rewriting: if not, naga gets the text unchanged.
    pub fn uses_conventions(&self) -> bool {
        !self.others.is_empty()
            || !self.arrays.is_empty()
            || self.variables.iter().any(|v| v.align.is_some())
    }

    /// The excess found by the scan of the text.
    pub fn excess(&self) -> Option<Excess> {
        let (place, found) = self.excess.clone()?;
        Some(Excess {
            what: "declarations that one local constant depends on",
            found: found as u64,
            limit: MOST_MENTIONS as u64,
            place: Some(place),
            instead: "declare it at module scope",
        })
    }

    pub fn get(&self, index: usize) -> Option<&Declaration> {
        self.declarations.get(index)
    }

    pub fn is_sizing(&self, index: usize) -> bool {
        self.sizing.get(index).copied().unwrap_or(false)
    }

    /// Marks `start` and all its mentions, direct or not, without looking into declarations selected by `cut`.
    pub fn reach(
        &self,
        start: impl IntoIterator<Item = usize>,
        cut: impl Fn(usize) -> bool,
    ) -> Vec<bool> {
        let mut reached = vec![false; self.declarations.len()];
        let mut open = start.into_iter().collect::<Vec<_>>();
        while let Some(index) = open.pop() {
            let Some(mark) = reached.get_mut(index) else {
                continue;
            };
            if !std::mem::replace(mark, true) && !cut(index) {
                open.extend(
                    self.declarations
                        .get(index)
                        .into_iter()
                        .flat_map(|d| d.references.iter())
                        .map(|r| r.target),
                );
            }
        }
        reached
    }

    /// Marks declarations that mention, directly or not, a declaration selected by `root`.
    pub fn depends_on(&self, root: impl Fn(usize) -> bool) -> Vec<bool> {
        self.leads_to(root, |_| false)
    }

    /// Marks declarations selected by `root`, and all that mention them, direct or not, without going through
    /// declarations selected by `cut`.
    pub fn leads_to(&self, root: impl Fn(usize) -> bool, cut: impl Fn(usize) -> bool) -> Vec<bool> {
        let roots = (0..self.declarations.len()).filter(|&i| root(i));
        self.reached_from(roots.collect::<Vec<_>>(), |index, declaration| {
            let targets = declaration.references.iter().map(|r| r.target);
            match cut(index) {
                true => Vec::new(),
                false => targets.collect(),
            }
        })
    }

    /// Marks `roots` and all declarations leading to a root, direct or not, where a declaration leads to `targets`.
    fn reached_from(
        &self,
        roots: impl IntoIterator<Item = usize>,
        targets: impl Fn(usize, &Declaration) -> Vec<usize>,
    ) -> Vec<bool> {
        let mut sources: Vec<Vec<usize>> = vec![Vec::new(); self.declarations.len()];
        for (index, declaration) in self.declarations.iter().enumerate() {
            for target in targets(index, declaration) {
                if let Some(known) = sources.get_mut(target) {
                    known.push(index);
                }
            }
        }
        let mut marked = vec![false; self.declarations.len()];
        let mut open = roots.into_iter().collect::<Vec<_>>();
        while let Some(index) = open.pop() {
            let Some(mark) = marked.get_mut(index) else {
                continue;
            };
            if !std::mem::replace(mark, true) {
                open.extend(sources.get(index).into_iter().flatten());
                super::work::count(1);
            }
        }
        marked
    }

    /// Picks the arrays and variables whose size is chosen at run time.
    fn select(&mut self, arrays: Vec<ArrayUse>, variables: Vec<Variable>) {
        let plain = self.plain_aliases();
        let mut kept = vec![false; arrays.len()];
        let mut roots = Vec::new();
        for (array, keep) in arrays.iter().zip(&mut kept) {
            let outside = match array.context {
                Context::Plain => true,
                Context::Workgroup => false,
                Context::Inherited => plain.get(array.declaration) == Some(&true),
            };
            *keep = outside
                && array
                    .mentions
                    .iter()
                    .any(|&m| self.overridden.get(m) == Some(&true));
            if *keep {
                roots.extend(array.mentions.iter().copied());
            }
        }
        self.sizing = self.reach(roots, |_| false);
        for (index, declaration) in self.declarations.iter().enumerate() {
            if !matches!(
                declaration.kind,
                DeclarationKind::Const | DeclarationKind::Override
            ) && let Some(mark) = self.sizing.get_mut(index)
            {
                *mark = false;
            }
        }
        let sized = self.sized_declarations(&arrays, &kept);
        let mut sized_names: HashSet<(usize, String)> = HashSet::new();
        for variable in variables {
            let kind = self.get(variable.declaration).map(|d| d.kind);
            if !matches!(
                kind,
                Some(DeclarationKind::Function | DeclarationKind::Private)
            ) {
                continue;
            }
            let by_array = kept
                .get(variable.arrays.clone())
                .is_some_and(|k| k.contains(&true));
            let by_type = variable
                .mentions
                .iter()
                .any(|&m| sized.get(m) == Some(&true));
            let mut locals = variable.locals.iter();
            let by_local = locals.any(|l| sized_names.contains(&(variable.declaration, l.clone())));
            let is_sized = by_array || by_type || by_local;
            if is_sized {
                sized_names.insert((variable.declaration, variable.name.clone()));
            }
            if variable.stored && (is_sized || variable.align.is_some()) {
                self.variables.push(variable);
            }
        }
        self.arrays = arrays
            .into_iter()
            .zip(kept)
            .filter_map(|(a, keep)| keep.then_some(a))
            .collect();
    }

    /// Aliases that are used outside work-group memory, or where work-group memory takes no override either.
    fn plain_aliases(&self) -> Vec<bool> {
        let is_alias = |i: usize| {
            self.get(i)
                .is_some_and(|d| d.kind == DeclarationKind::Alias)
        };
        let plain =
            |r: &&super::declarations::Reference| r.context == Context::Plain && is_alias(r.target);
        let roots = self
            .declarations
            .iter()
            .flat_map(|d| d.references.iter().filter(plain))
            .map(|r| r.target);
        self.reach(roots.collect::<Vec<_>>(), |i| !is_alias(i))
    }

    /// Types containing such an array, functions returning such a type, and private variables of such a type.
    fn sized_declarations(&self, arrays: &[ArrayUse], kept: &[bool]) -> Vec<bool> {
        let is_type = |d: &Declaration| {
            matches!(
                d.kind,
                DeclarationKind::Alias | DeclarationKind::Struct | DeclarationKind::Private
            )
        };
        let roots = arrays.iter().zip(kept).filter(|(array, keep)| {
            let declared = self.get(array.declaration);
            **keep && (array.in_result || declared.is_some_and(is_type))
        });
        let roots = roots.map(|(array, _)| array.declaration);
        self.reached_from(
            roots.collect::<Vec<_>>(),
            |_, declaration| match declaration.kind {
                DeclarationKind::Function => declaration.result.clone(),
                _ if is_type(declaration) => {
                    declaration.references.iter().map(|r| r.target).collect()
                }
                _ => Vec::new(),
            },
        )
    }

    /// The text for naga: declarations not selected by `keep` are blanked, `constant` gives the replacement of an
    /// override, and `length` the replacement of a bare name as an array's length.
    pub fn assemble(
        &self,
        source: &Arc<str>,
        keep: impl Fn(usize) -> bool,
        constant: impl Fn(usize) -> Option<String>,
        length: impl Fn(usize) -> Option<String>,
    ) -> EditedText {
        let mut edits = Vec::new();
        let mut put = |range: Range<usize>, text: String| edits.push(Replacement { range, text });
        for (index, declaration) in self.declarations.iter().enumerate() {
            let text = source.get(declaration.span.clone()).unwrap_or("");
            match constant(index) {
                _ if !keep(index) => put(declaration.span.clone(), blank(text)),
                Some(constant) => put(declaration.span.clone(), constant),
                None => {}
            }
        }
        for (span, target) in self
            .arrays
            .iter()
            .filter_map(|a| a.bare.clone())
            .map(|(target, span)| (span, target))
        {
            if let Some(text) = length(target) {
                put(span, text);
            }
        }
        for align in self.aligned().map(|(_, align)| align) {
            put(
                align.span.clone(),
                blank(source.get(align.span.clone()).unwrap_or("")),
            );
        }
        edits.extend(self.others.iter().cloned());
        EditedText::new(Arc::clone(source), edits)
    }

    /// Variables with `@align`.
    pub fn aligned(&self) -> impl Iterator<Item = (&Variable, &AlignAttribute)> {
        self.variables
            .iter()
            .filter_map(|v| Some((v, v.align.as_ref()?)))
    }

    /// The function that declaration `index` is, by name.
    pub fn function(&self, index: usize) -> Option<String> {
        self.get(index)
            .filter(|d| d.kind == DeclarationKind::Function)
            .map(|d| d.name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizing(source: &str) -> Vec<String> {
        let analysis = Analysis::new(source);
        let declared = analysis.declarations.iter().enumerate();
        declared
            .filter(|&(i, d)| d.kind == DeclarationKind::Override && analysis.is_sizing(i))
            .map(|(_, d)| d.name.clone())
            .collect()
    }

    fn variables(source: &str) -> Vec<String> {
        Analysis::new(source)
            .variables
            .iter()
            .map(|v| v.name.clone())
            .collect()
    }

    #[test]
    fn overrides_are_found_however_they_size_an_array() {
        for source in [
            "override N: u32; fn f() { var t: array<f32, N>; }",
            "override N: u32; fn f() { var t = array<f32, N>(); }",
            "override N: u32; fn f() { var t: array<f32, N * 2u + 1u,>; }",
            "override N: u32; var<private> t: array<vec4<f32>, N>;",
            "override N: u32; alias A = array<f32, N>; fn f() { var t: A; }",
            "override N: u32; alias A = array<f32, N>; alias B = A; fn f() { var t: B; }",
            "override N: u32; struct S { a: array<f32, N>, } fn f() { var t: S; }",
            "override N: u32; const M = N * 2u; fn f() { var t: array<f32, M>; }",
            "override N: u32; fn f() { const M = N * 2u; const K = M; var t: array<f32, K>; }",
            "override N: u32; fn f(p: ptr<function, array<f32, N>>) {}",
            "override N: u32; fn f() -> array<f32, N> { return array<f32, N>(); }",
            "override N: u32; var<workgroup> t: array<array<f32, N>, 4>;",
            "override N: u32; alias A = array<f32, N>; var<workgroup> t: array<A, 4>;",
            "fn f() { var t: array<f32, N>; } override N: u32;",
        ] {
            assert_eq!(sizing(source), ["N"], "{source}");
        }
        assert_eq!(
            sizing("override N: u32; override M = N; var<private> t: array<f32, M>;"),
            ["N", "M"]
        );
        assert_eq!(
            sizing("override A: u32; override B: u32; fn f() { var t: array<array<f32, A>, B>; }"),
            ["A", "B"]
        );
    }

    #[test]
    fn other_overrides_are_left_alone() {
        for source in [
            "override N: u32; var<workgroup> t: array<f32, N>;",
            "override N: u32; alias A = array<f32, N>; var<workgroup> t: A;",
            "override N: u32; fn f(p: ptr<workgroup, array<f32, N>>) {}",
            "override N: u32; @compute @workgroup_size(N) fn f() { let x = N; var t: array<u32, 4>; t[0] = N; }",
            "override N: u32; fn f() { const N = 4u; var t: array<f32, N>; }",
            "override N: u32; struct S { N: u32 } fn f(s: S) { if s.N < 3u && 4u > s.N { } }",
        ] {
            assert_eq!(sizing(source), [""; 0], "{source}");
            assert!(!Analysis::new(source).uses_conventions());
        }
    }

    #[test]
    fn shadowing_ends_with_its_block() {
        let source = "override N: u32; fn f() { { const N = 4u; } var t: array<f32, N>; }";
        assert_eq!(sizing(source), ["N"]);
        let source =
            "override N: u32; fn f() { for (var N = 0; N < 2; N++) { } var t: array<f32, N>; }";
        assert_eq!(sizing(source), ["N"]);
    }

    #[test]
    fn variables_of_run_time_size_are_found() {
        let source = "override N: u32; struct S { a: array<f32, N> } alias A = S;
            var<private> p: S; var<private> q: array<f32, 4>;
            fn make() -> array<f32, N> { var r: array<f32, N>; return r; }
            fn f() { var a: A; var b = make(); var c = b; var d: f32 = b[0]; var e = array<f32, N>(); var g = p;
                     @align(64) var h: array<f32, 4>; var i = 1; let j = a; var k = fixed(); let l = b; var m = l; }
            fn h(q: array<f32, N>, r: u32) { var n = q; var o = r; }
            fn fixed() -> array<f32, 2> { g(array<f32, N>()); return array<f32, 2>(); }";
        assert_eq!(
            variables(source),
            ["p", "r", "a", "b", "c", "e", "g", "h", "m", "n"]
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_upsets_the_analysis(
            words in proptest::collection::vec("override|N|:|;|fn|var|<|>|array|,|\\(|\\)|\\{|\\}|@|align|=|const|struct|alias|let|1|\\.|ptr|workgroup", 0..40)
        ) {
            let source = words.join(" ");
            let analysis = Analysis::new(&source);
            analysis.assemble(&source.as_str().into(), |_| false, |_| None, |_| Some("1".into()));
        }
    }
}
