//! Calls made by instrumented kernels: see [`sanitizer`](crate::sanitizer).
//!
//! Accesses are checked as written in the text: additions of lowering (copies, zeros) are right by construction.
//! Without instruments nothing here does anything.

use std::{collections::HashMap, ops::Range, sync::Arc};

use naga::{Expression, Handle, Span, Statement as S};
use smallvec::SmallVec;

use super::{Front, Node, Pointer};
use crate::{
    compile::{
        error::Result,
        host::HostFunction,
        ir::{self, Base, Builtin, Call, Count, Statement, Value},
        layout::{MAX_SCALARS, Space as Layout},
    },
    sanitizer::{Access, Accessed, Instruments, Memory, Site, Space, What},
};

/// Knowledge of the text for the calls.
pub(super) struct Inspector {
    instruments: Instruments,
    sites: Vec<Site>,
    /// The text lowered now
    span: Option<Range<u32>>,
    bindings: HashMap<ir::Binding, Arc<str>>,
    slots: HashMap<ir::Slot, Arc<str>>,
    /// Where variables of work-groups begin, in order
    workgroup: Vec<(u32, Arc<str>)>,
    immediates: Option<Arc<str>>,
}

impl Inspector {
    pub(super) fn new(instruments: Instruments) -> Self {
        Self {
            instruments,
            sites: Vec::new(),
            span: None,
            bindings: HashMap::new(),
            slots: HashMap::new(),
            workgroup: Vec::new(),
            immediates: None,
        }
    }

    /// Whether accesses are checked.
    pub(super) fn checks(&self) -> bool {
        self.instruments.checks.is_some()
    }

    /// Whether indices are asked about their origin.
    pub(super) fn checks_overflow(&self) -> bool {
        self.instruments
            .checks
            .is_some_and(|checks| checks.index_overflow)
    }

    fn is_strict(&self) -> bool {
        self.instruments
            .checks
            .is_some_and(|checks| checks.unwritten)
    }

    pub(super) fn sites(&mut self) -> Arc<[Site]> {
        std::mem::take(&mut self.sites).into()
    }

    /// The name of the variable at the start of a place, and where the variable begins.
    fn variable(&self, place: &ir::Place) -> (Option<Arc<str>>, u32) {
        match place.base {
            Base::Binding(at) => (self.bindings.get(&at.first).cloned(), 0),
            Base::Slot(slot) => (self.slots.get(&slot).cloned(), 0),
            Base::Immediates => (self.immediates.clone(), 0),
            Base::Table(_) => (None, 0),
            Base::WorkGroup => {
                let behind = self
                    .workgroup
                    .partition_point(|&(start, _)| start <= place.offset);
                let found = behind.checked_sub(1).and_then(|at| self.workgroup.get(at));
                found.map_or((None, 0), |(start, name)| (Some(name.clone()), *start))
            }
        }
    }
}

fn range(span: Span) -> Option<Range<u32>> {
    span.to_range()
        .map(|range| range.start as u32..range.end as u32)
}

impl Front<'_> {
    /// Notes the name of a variable of the module.
    pub(super) fn name_global(&mut self, variable: &naga::GlobalVariable, node: &Node) {
        if !self.inspector.instruments.any() {
            return;
        }
        let Some(name) = variable.name.as_deref().map(Arc::from) else {
            return;
        };
        match node {
            Node::Pointer(pointer) => match pointer.place.base {
                Base::Binding(at) => _ = self.inspector.bindings.insert(at.first, name),
                Base::WorkGroup => self.inspector.workgroup.push((pointer.place.offset, name)),
                Base::Slot(slot) => _ = self.inspector.slots.insert(slot, name),
                Base::Immediates => self.inspector.immediates = Some(name),
                Base::Table(_) => {}
            },
            Node::Bindings { first, .. } => _ = self.inspector.bindings.insert(*first, name),
            _ => {}
        }
    }

    /// Notes the name of a variable of a function.
    pub(super) fn name_local(&mut self, pointer: &Pointer, name: Option<&str>) {
        if let (true, Some(name), Base::Slot(slot)) =
            (self.inspector.checks(), name, pointer.place.base)
        {
            self.inspector.slots.insert(slot, name.into());
        }
    }

    /// From here on, a statement of the text is lowered.
    pub(super) fn enter_statement(&mut self, statement: &S, span: Span) {
        if !self.inspector.instruments.any() {
            return;
        }
        // Blocks have statements of their own; naga emits expressions before the statement using them.
        if matches!(statement, S::Block(_)) {
            return;
        }
        let span = match statement {
            S::Emit(expressions) => {
                let function = self.frames.last().map(|frame| frame.function);
                let first = function.zip(expressions.clone().next());
                first.map_or(span, |(function, first)| {
                    function.expressions.get_span(first)
                })
            }
            _ => span,
        };
        self.inspector.span = range(span).or(self.inspector.span.take());
        if self.inspector.instruments.coverage && range(span).is_some() {
            // A statement inlined twice is a single statement.
            let number = std::ptr::from_ref(statement).addr();
            self.call_check(What::Statement(number), [], []);
        }
    }

    /// From here on, an expression of the text is lowered.
    pub(super) fn enter_expression(&mut self, expression: Handle<Expression>) {
        if self.inspector.instruments.any()
            && let Some(frame) = self.frames.last()
            && let Some(span) = range(frame.function.expressions.get_span(expression))
        {
            self.inspector.span = Some(span);
        }
    }

    /// Tells of an access of the text, before the access.
    pub(super) fn check_access(&mut self, pointer: &Pointer, access: Access) -> Result<()> {
        if !self.inspector.checks() {
            return Ok(());
        }
        let place = &pointer.place;
        let (space, memory) = self.memory(place.base);
        let plain = matches!(memory, Memory::Constant) && place.steps.is_empty();
        let private = matches!(memory, Memory::Slot(_)) && place.steps.is_empty();
        let (bindings, mut words) = match place.base {
            Base::Binding(at) => (at.index.map(|(_, count)| count), at.index),
            _ => (None, None),
        };
        if plain && bindings.is_none() || private && !self.inspector.is_strict() {
            return Ok(());
        }
        let access = match access {
            Access::Read if pointer.access == ir::Access::Atomic => Access::AtomicRead,
            Access::Write if pointer.access == ir::Access::Atomic => Access::AtomicWrite,
            access => access,
        };
        let (variable, start) = self.inspector.variable(place);
        let steps = place.steps.iter().map(|step| match step.count {
            Count::Fixed(count) => (step.stride, Some(count)),
            Count::Bound(_) => (step.stride, None),
        });
        let accessed = Accessed {
            access,
            space,
            variable,
            memory,
            bindings,
            offset: place.offset,
            start,
            steps: steps.collect(),
            runs: self.runs(pointer)?,
        };
        let operands: SmallVec<[Value; 4]> = words
            .take()
            .map(|(index, _)| index)
            .into_iter()
            .chain(place.steps.iter().map(|step| step.index))
            .collect();
        let resource = match place.base {
            Base::Binding(at) => Some(at),
            _ => None,
        };
        self.call_check(What::Access(accessed), resource, operands);
        Ok(())
    }

    fn memory(&self, base: Base) -> (Space, Memory) {
        match base {
            Base::Binding(at) => {
                let used = self.b.program.bindings[at.first];
                let memory = match used.constant {
                    true => Memory::Constant,
                    false => Memory::Shared,
                };
                match used.uniform {
                    true => (Space::Uniform, memory),
                    false => (Space::Storage, memory),
                }
            }
            Base::WorkGroup => (Space::WorkGroup, Memory::WorkGroup),
            Base::Slot(slot) => (Space::Private, Memory::Slot(slot.as_u32())),
            Base::Immediates => (Space::Immediate, Memory::Constant),
            Base::Table(_) => (Space::Value, Memory::Constant),
        }
    }

    /// The bytes touched by an access of a whole value: offsets and lengths, without padding.
    fn runs(&self, pointer: &Pointer) -> Result<Vec<(u32, u32)>> {
        let layout = pointer.space();
        if self.layouts.scalars(pointer.ty)? > MAX_SCALARS {
            return Ok(vec![(0, self.layouts.bytes(pointer.ty, layout)?)]);
        }
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for (offset, ty) in self.layouts.leaves(pointer.ty, layout)? {
            let bytes = match layout {
                Layout::Host => ty.host_bytes(),
                Layout::Own => ty.own_bytes(),
            };
            match runs.last_mut() {
                Some((start, length)) if *start + *length == offset => *length += bytes,
                _ => runs.push((offset, bytes)),
            }
        }
        Ok(runs)
    }

    /// Tells of the index of an element of a value.
    pub(super) fn check_index(&mut self, index: Value, length: u32) {
        let constant = self.b.program.constant(index);
        let fits = constant.is_some_and(|bits| (bits as u32) < length);
        if self.inspector.checks() && !fits {
            self.call_check(What::Index { length }, None, [index]);
        }
    }

    /// How many elements there are behind a pointer to a value.
    pub(super) fn elements_of(&self, pointer: &Pointer) -> Result<u32> {
        let elements = self.layouts.elements(pointer.ty, pointer.space())?;
        Ok(elements.count.unwrap_or(u32::MAX))
    }

    /// Tells of a waiting invocation.
    pub(super) fn check_barrier(&mut self, barrier: naga::Barrier) {
        if self.inspector.checks() {
            let what = What::Barrier {
                workgroup: barrier.contains(naga::Barrier::WORK_GROUP),
                storage: barrier.contains(naga::Barrier::STORAGE),
            };
            self.call_check(what, None, []);
        }
    }

    /// Tells of an invocation going on behind a barrier of its subgroup.
    pub(super) fn check_subgroup_barrier(&mut self) {
        if self.inspector.checks() {
            self.call_check(What::SubgroupBarrier, None, []);
        }
    }

    /// Tells of a variable beginning to exist.
    pub(super) fn check_declaration(&mut self, pointer: &Pointer, written: bool) {
        if let (true, Base::Slot(slot)) = (self.inspector.is_strict(), pointer.place.base) {
            let slot = slot.as_u32();
            self.call_check(What::Declare { slot, written }, None, []);
        }
    }

    /// Tells of the end of the invocation.
    pub(super) fn check_end(&mut self) {
        if self.inspector.checks() {
            self.call_check(What::End, None, []);
        }
    }

    pub(super) fn call_check(
        &mut self,
        what: What,
        resource: impl IntoIterator<Item = ir::BindingAt>,
        words: impl IntoIterator<Item = Value>,
    ) {
        let site = self.inspector.sites.len() as u32;
        let function = match self.frames.last() {
            Some(frame) => frame.name.clone(),
            None => self.b.program.name.as_str().into(),
        };
        self.inspector.sites.push(Site {
            function,
            span: self.inspector.span.clone(),
            what,
        });
        let caller = [
            Builtin::GroupId(0),
            Builtin::GroupId(1),
            Builtin::GroupId(2),
            Builtin::LocalIndex,
        ];
        let caller = caller.map(|builtin| self.b.builtin(builtin));
        self.b.push(Statement::Call(Box::new(Call {
            function: HostFunction::Check(site),
            resources: resource.into_iter().collect(),
            operands: caller.into_iter().chain(words).collect(),
            results: SmallVec::new(),
        })));
    }
}
