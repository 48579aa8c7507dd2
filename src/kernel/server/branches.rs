//! The branches of a call-serving kernel: arguments out of their place, the handler, and the result to the result's
//! place.

use std::fmt::Write;
use std::sync::Arc;

use super::{HandlerDeclaration, HandlerFault, HandlerForm};
use crate::device::CallStatus;
use crate::device::call_words::PREFIX;
use crate::kernel::calls::leaves::{leaves, loads_of, words_of};
use crate::kernel::calls::wgsl::spelled;

/// The branches of the handlers.
pub(super) fn cases(
    handlers: &[Arc<HandlerDeclaration>],
    access: &impl Access,
    together: bool,
) -> Result<String, HandlerFault> {
    let case = |handler: &Arc<HandlerDeclaration>| {
        case(handler, access, together).map_err(|why| HandlerFault {
            handler: handler.signature.name.clone(),
            why,
        })
    };
    handlers.iter().map(case).collect()
}

/// The words of the longest call.
pub(super) fn most_words(handlers: &[Arc<HandlerDeclaration>]) -> usize {
    let words = handlers.iter().map(|handler| handler.argument_words());
    words.max().unwrap_or(0)
}

/// A kernel's way to the words of a call: arguments and results.
pub(super) trait Access {
    /// An argument's word.
    fn load(&self, word: usize) -> String;
    /// The statement writing a word of the result.
    fn store(&self, word: usize, value: &str) -> String;
    /// Whether calls of handlers for batches are gathered; else each call is a batch of its own.
    fn gathers(&self) -> bool {
        false
    }
    /// Whether empty words of results are written, too.
    fn pads(&self) -> bool {
        false
    }
}

/// Arguments and results in ports.
pub(super) struct Ports<'n> {
    /// The memory of the results.
    pub out: &'n str,
    /// The words are sealed, and so is their padding.
    pub sealed: bool,
    /// Calls are gathered in batches, for batch handlers.
    pub gathers: bool,
    /// Words of arguments read with the head of the call, before the handler is known.
    pub ahead: usize,
}

/// An argument's word, read at the use.
pub(super) fn load_argument(word: usize) -> String {
    format!(
        "atomicLoad(&tombolo_server[arguments + {}u])",
        word + PREFIX
    )
}

impl Access for Ports<'_> {
    fn load(&self, word: usize) -> String {
        match word < self.ahead {
            true => format!("tombolo_argument{word}"),
            false => load_argument(word),
        }
    }

    fn store(&self, word: usize, value: &str) -> String {
        let (out, at) = (self.out, word + PREFIX);
        match self.sealed {
            true => format!("tombolo_server_store(results + {at}u, {value});"),
            false => format!("atomicStore(&{out}[results + {at}u], {value});"),
        }
    }

    fn pads(&self) -> bool {
        self.sealed
    }

    fn gathers(&self) -> bool {
        self.gathers
    }
}

/// The branch of a handler: the arguments out of the port, the call, and the result into the port. `together`: all
/// lanes come here, with the arguments in `call`.
fn case(
    handler: &HandlerDeclaration,
    access: &impl Access,
    together: bool,
) -> Result<String, String> {
    let signature = &handler.signature;
    let (mut loads, mut names) = (String::new(), Vec::new());
    let mut word = 0;
    let gathers = access.gathers() && matches!(handler.form, HandlerForm::Batch(_));
    match handler.form {
        HandlerForm::Alone => {}
        HandlerForm::Together => names.push("lane".to_owned()),
        // A call not gathered is a batch of its own.
        HandlerForm::Batch(_) => {
            names.extend(["lane", if gathers { "calls" } else { "1u" }].map(str::to_owned));
        }
    }
    let types = handler.given().iter().map(|(_, ty)| ty);
    for (index, (ty, layout)) in types.zip(&handler.parameters).enumerate() {
        let name = format!("tombolo_a{index}");
        let _ = writeln!(loads, "var {name}: {};", spelled(ty));
        let mut scalars = Vec::new();
        leaves(layout, &name, 0, &mut scalars)?;
        let load = |at: usize| match together && !gathers {
            true => format!("call[{}]", word + at + 5),
            false => access.load(word + at),
        };
        loads.push_str(&loads_of(&scalars, load));
        word += layout.size.div_ceil(4) as usize;
        names.push(name);
    }
    let call = format!("{}({})", signature.name, names.join(", "));
    let mut stores = String::new();
    if let Some(layout) = &handler.result {
        let mut scalars = Vec::new();
        leaves(layout, "tombolo_r", 0, &mut scalars)?;
        let mut next = 0;
        let mut pad = |until: usize, stores: &mut String| {
            for gap in (next..until).filter(|_| access.pads()) {
                let _ = writeln!(stores, "{}", access.store(gap, "0u"));
            }
            next = until + 1;
        };
        for (at, bits) in words_of(&scalars) {
            pad(at, &mut stores);
            let _ = writeln!(stores, "{}", access.store(at, &bits));
        }
        pad(layout.size.div_ceil(4) as usize, &mut stores);
    }
    let call = match handler.result {
        Some(_) => format!("let tombolo_r = {call};"),
        None => format!("{call};"),
    };
    let body = match (together, handler.form.is_cooperative()) {
        (true, true) if gathers => format!("{loads}{call}\nif lane < calls {{\n{stores}}}\n"),
        (true, true) => format!("{loads}{call}\nif lane == 0u {{\n{stores}}}\n"),
        (true, false) => format!("if lane == 0u {{\n{loads}{call}\n{stores}}}\n"),
        (false, _) => format!("{loads}{call}\n{stores}"),
    };
    Ok(format!(
        "case {}u: {{ if length == {}u {{\n{body}status = {}u;\n}} else {{ status = {}u; }} }}\n",
        handler.opcode(),
        handler.argument_words(),
        CallStatus::Done.code(),
        CallStatus::Malformed.code(),
    ))
}
