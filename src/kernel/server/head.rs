//! Handlers as a program declares them.

use std::sync::Arc;

use naga::valid::Capabilities;

use crate::kernel::calls::leaves::LeafScalar;
use crate::kernel::calls::wgsl::spelled;
use crate::kernel::calls::{Signature, opcode};
use crate::kernel::layout::{Shape, TypeLayout};
use crate::kernel::program::Program;
use crate::kernel::token::TokenStream;

/// The structure whose members are the parameters and the result of a handler, for naga to lay out.
const TYPES: &str = "tombolo_server_types";
const RESULT: &str = "tombolo_result";

/// Who serves a call of a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HandlerForm {
    /// One invocation.
    Alone,
    /// All lanes of a work-group together; the first parameter is the number of the lane.
    Together,
    /// All lanes of a work-group serve so many calls at most, one each; the first parameters are the number of the lane and
    /// the number of calls.
    Batch(u32),
}

/// A function of a program that can be called from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandlerDeclaration {
    pub signature: Signature,
    pub form: HandlerForm,
    /// How the parameters lie in memory that callers give.
    pub parameters: Vec<TypeLayout>,
    /// How the result does.
    pub result: Option<TypeLayout>,
}

impl HandlerForm {
    /// Whether all lanes of a work-group come to the handler.
    pub fn is_cooperative(self) -> bool {
        self != Self::Alone
    }

    /// What the parameters mean that callers do not give.
    fn own_parameters(self) -> &'static [&'static str] {
        match self {
            Self::Alone => &[],
            Self::Together => &["the number of the lane"],
            Self::Batch(_) => &["the number of the lane", "the number of calls"],
        }
    }
}

impl HandlerDeclaration {
    /// The number that stands for the handler in a port.
    pub fn opcode(&self) -> u32 {
        opcode(&self.signature.name)
    }

    /// The parameters that callers give.
    pub fn given(&self) -> &[(String, String)] {
        let first = self.form.own_parameters().len();
        (self.signature.parameters.get(first..)).unwrap_or_default()
    }

    /// The signature for callers.
    pub fn as_called(&self) -> Signature {
        Signature {
            parameters: self.given().to_vec(),
            ..self.signature.clone()
        }
    }

    /// Why a device with these capabilities cannot serve the handler, for want of a scalar of the signature.
    pub fn refusal(&self, capabilities: Capabilities) -> Option<String> {
        let parameters = self.given().iter().zip(&self.parameters);
        let mut refusals = parameters.filter_map(|((name, _), layout)| {
            LeafScalar::refusal(&format!("`{name}`"), layout, capabilities)
        });
        let result = || {
            let layout = self.result.as_ref()?;
            LeafScalar::refusal("the result", layout, capabilities)
        };
        refusals.next().or_else(result)
    }

    /// Words of all arguments: each begins a word.
    pub fn argument_words(&self) -> usize {
        let words = |layout: &TypeLayout| layout.size.div_ceil(4) as usize;
        self.parameters.iter().map(words).sum()
    }

    /// Words of the result.
    pub fn result_words(&self) -> usize {
        (self.result.as_ref()).map_or(0, |layout| layout.size.div_ceil(4) as usize)
    }
}

/// Why a function of a program cannot be called from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandlerFault {
    /// The function.
    pub handler: String,
    /// The fault, as the end of a sentence.
    pub why: String,
}

/// The handlers of those names, as declared by `program`.
pub(crate) fn declarations(
    program: &Program,
    names: &[(String, HandlerForm)],
) -> Result<Vec<Arc<HandlerDeclaration>>, HandlerFault> {
    let stream = TokenStream::new(program.source());
    let mut found: Vec<Arc<HandlerDeclaration>> = Vec::new();
    for (name, form) in names {
        let fault = |why: String| HandlerFault {
            handler: name.clone(),
            why,
        };
        let mut declaration = declaration(program, &stream, name).map_err(fault)?;
        let own = form.own_parameters();
        let parameters = &declaration.signature.parameters;
        let are_numbers = parameters.iter().take(own.len()).all(|(_, ty)| ty == "u32");
        if parameters.len() < own.len() || !are_numbers {
            let (what, ty) = match own {
                [one] => (
                    format!("the first parameter of a handler for whole work-groups is {one}"),
                    "a `u32`",
                ),
                _ => (
                    format!(
                        "the first parameters of a handler for batches are {}",
                        own.join(" and ")
                    ),
                    "each a `u32`",
                ),
            };
            return Err(fault(format!("{what}, {ty}")));
        }
        declaration.parameters.drain(..own.len());
        declaration.form = *form;
        let declaration = Arc::new(declaration);
        let known = found
            .iter()
            .find(|known| known.opcode() == declaration.opcode());
        if let Some(known) = known {
            let other = &known.signature.name;
            return Err(fault(format!(
                "it cannot be told from the handler `{other}`: give it another name"
            )));
        }
        found.push(declaration);
    }
    Ok(found)
}

fn declaration(
    program: &Program,
    stream: &TokenStream<'_>,
    name: &str,
) -> Result<HandlerDeclaration, String> {
    let at = (0..stream.len())
        .find(|&at| stream.text(at) == "fn" && stream.text(at + 1) == name)
        .ok_or_else(|| "the program has no such function".to_owned())?;
    if at > 0 && matches!(stream.text(at - 1), "compute" | ")") {
        return Err("it has attributes: a handler is an ordinary function".to_owned());
    }
    let end = (at..stream.len())
        .find(|&at| stream.text(at) == "{")
        .ok_or_else(|| "it has no body".to_owned())?;
    declared_as(program, stream.slice(at..end))
}

/// A handler with this head, and the types of `program`.
pub(crate) fn declared_as(program: &Program, head: &str) -> Result<HandlerDeclaration, String> {
    let signature = Signature::parse(head)?;
    let mut members: Vec<String> = (signature.parameters.iter())
        .map(|(name, ty)| format!("{name}: {}", spelled(ty)))
        .collect();
    if let Some(result) = &signature.result {
        members.push(format!("{RESULT}: {}", spelled(result)));
    }
    let mut layouts = Vec::new();
    if !members.is_empty() {
        let text = format!("\nstruct {TYPES} {{ {} }}\n", members.join(", "));
        let module = program.types_with(&text)?;
        let found = module
            .types
            .iter()
            .find(|(_, ty)| ty.name.as_deref() == Some(TYPES));
        if let Some(Shape::Struct { members }) =
            found.map(|(handle, _)| TypeLayout::of(&module, handle).shape)
        {
            layouts = members.into_iter().map(|member| member.layout).collect();
        }
    }
    let result = match signature.result {
        Some(_) => layouts.pop(),
        None => None,
    };
    Ok(HandlerDeclaration {
        signature,
        form: HandlerForm::Alone,
        parameters: layouts,
        result,
    })
}
