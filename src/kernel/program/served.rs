//! The interface for kernels put behind a program: servers around its functions.

use std::sync::Arc;

use naga::Module;

use super::{Program, free_group};
use crate::kernel::declarations::DeclarationKind;
use crate::kernel::error::KernelError;
use crate::kernel::evaluate::parse;
use crate::kernel::private_array::Analysis;
use crate::kernel::server::CANCELLED;
use crate::kernel::text_limits::check_types;
use crate::kernel::token::TokenStream;

impl Program {
    /// Whether kernels of the program may follow pointers.
    pub(crate) fn follows_pointers(&self) -> bool {
        self.inner.has_stubs()
    }

    /// The program with `text` behind its own. Device globals see the same program.
    pub(crate) fn extended(&self, text: &str) -> Result<Self, KernelError> {
        let inner = &self.inner;
        let source: Arc<str> = format!("{}\n{text}", inner.source).into();
        let files = inner.files.extended(&source, text);
        let called = inner.calls.as_ref().map(|calls| calls.called.clone());
        let prefix = Arc::clone(&inner.global_prefix);
        let called = called.unwrap_or_default();
        let mut program = Self::assembled((source, files), prefix, &called)?;
        if let Some(own) = Arc::get_mut(&mut program.inner) {
            own.extends = Some(self.source_text());
        }
        Ok(program)
    }

    /// Whether an invocation may give up.
    pub(crate) fn may_fail(&self) -> bool {
        let sites = self.inner.prints.iter().flat_map(|prints| &prints.sites);
        sites.into_iter().any(|site| site.kind.fails())
    }

    /// Whether the program asks whether calls of its functions are withdrawn.
    pub(crate) fn asks_cancelled(&self) -> bool {
        self.inner.cancelled.is_some()
    }

    /// Whether the program mentions functions of the host.
    pub(crate) fn calls_host(&self) -> bool {
        self.inner.calls.is_some()
    }

    /// The first bind group that the program does not mention.
    pub(crate) fn free_group(&self) -> u32 {
        free_group(&self.inner.source)
    }

    /// The program's types, with `text` behind them.
    pub(crate) fn types_with(&self, text: &str) -> Result<Module, String> {
        parse_types(&self.inner.source, &self.inner.analysis, text)
    }
}

/// The text that a program needs that asks whether calls of its functions are withdrawn: the answer where no call can be. The
/// polling kernel of a server declares the function itself.
pub(super) fn cancelled(source: &str) -> Option<String> {
    let stream = TokenStream::new(source);
    let mut mentions = (0..stream.len())
        .filter(|&at| stream.text(at) == CANCELLED)
        .peekable();
    mentions.peek()?;
    let is_declared = mentions.any(|at| at > 0 && stream.text(at - 1) == "fn");
    (!is_declared).then(|| format!("\nfn {CANCELLED}() -> bool {{ return false; }}\n"))
}

/// The types of a program, with `text` behind them.
pub(super) fn parse_types(
    source: &Arc<str>,
    analysis: &Analysis,
    text: &str,
) -> Result<Module, String> {
    let is_type = |kind| matches!(kind, DeclarationKind::Struct | DeclarationKind::Alias);
    let types = analysis.declarations.iter().enumerate();
    let types = types.filter(|(_, d)| is_type(d.kind)).map(|(i, _)| i);
    let mut kept = analysis.reach(types, |_| false);
    for (mark, declaration) in kept.iter_mut().zip(&analysis.declarations) {
        *mark |= declaration.kind == DeclarationKind::Directive;
    }
    let own = analysis.assemble(source, |i| kept.get(i) == Some(&true), |_| None, |_| None);
    let declares = |name: &str| analysis.declarations.iter().any(|one| one.name == name);
    let pointer = match declares("usm_ptr") {
        true => "",
        false => "alias usm_ptr = vec2<u32>;\n",
    };
    let text = format!("{}\n{pointer}{text}", own.text());
    let module = parse(&text).map_err(|error| error.message().to_owned())?;
    check_types(&module).map_err(|excess| {
        format!(
            "{} {}, and {} are the most",
            excess.found, excess.what, excess.limit
        )
    })?;
    Ok(module)
}
