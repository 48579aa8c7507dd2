//! Handlers as a program declares them.

use std::sync::Arc;

use crate::kernel::calls::wgsl::spelled;
use crate::kernel::calls::{Signature, opcode};
use crate::kernel::layout::{Shape, TypeLayout};
use crate::kernel::program::Program;
use crate::kernel::token::TokenStream;

/// The structure whose members are the parameters and the result of a handler, for naga to lay out.
const TYPES: &str = "tombolo_server_types";
const RESULT: &str = "tombolo_result";

/// A function of a program that can be called from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HandlerDeclaration {
    pub signature: Signature,
    /// All lanes of a work-group serve each call together; the first parameter is the number of the lane.
    pub cooperative: bool,
    /// How the parameters lie in memory that callers give.
    pub parameters: Vec<TypeLayout>,
    /// How the result does.
    pub result: Option<TypeLayout>,
}

impl HandlerDeclaration {
    /// The number that stands for the handler in a port.
    pub fn opcode(&self) -> u32 {
        opcode(&self.signature.name)
    }

    /// The parameters that callers give.
    pub fn given(&self) -> &[(String, String)] {
        let first = usize::from(self.cooperative);
        (self.signature.parameters.get(first..)).unwrap_or_default()
    }

    /// The signature for callers.
    pub fn as_called(&self) -> Signature {
        Signature {
            parameters: self.given().to_vec(),
            ..self.signature.clone()
        }
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
    names: &[(String, bool)],
) -> Result<Vec<Arc<HandlerDeclaration>>, HandlerFault> {
    let stream = TokenStream::new(program.source());
    let mut found: Vec<Arc<HandlerDeclaration>> = Vec::new();
    for (name, cooperative) in names {
        let fault = |why: String| HandlerFault {
            handler: name.clone(),
            why,
        };
        let mut declaration = declaration(program, &stream, name).map_err(fault)?;
        if *cooperative {
            let first = declaration.signature.parameters.first();
            if first.is_none_or(|(_, ty)| ty != "u32") {
                return Err(fault(
                    "the first parameter of a handler for whole work-groups is the number of the lane, a `u32`".to_owned(),
                ));
            }
            declaration.parameters.remove(0);
            declaration.cooperative = true;
        }
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
        cooperative: false,
        parameters: layouts,
        result,
    })
}
