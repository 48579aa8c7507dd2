//! From lane programs to Cranelift's IR, and from there to machine code.
//!
//! One function runs one work-group: a loop over its invocations, cut into regions at barriers ([`region`]), or a loop
//! for each stretch between barriers ([`stretches`]). Values of a program become values of Cranelift, variables become
//! variables of Cranelift.

mod atomic;
mod call;
mod flow;
mod lanes;
mod memory;
mod region;
mod scalar;
mod stretches;
mod subgroup;

use std::collections::HashMap;

use cranelift_codegen::{
    entity::{EntityRef, SecondaryMap, packed_option::PackedOption},
    ir::{
        self, AbiParam, Block as ClifBlock, Function, InstBuilder, MemFlagsData, SigRef, Signature,
        UserFuncName, types,
    },
    isa::{CallConv, TargetIsa},
};
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable as ClifVariable};

use super::{
    abi::{BoundResource, Group},
    error::{Result, internal},
    ir::{
        BindingAt, Block, Def, Op, Program, Scope, Statement, Table, Type, Value, Variable, visit,
    },
    passes::{live, trips},
};
use crate::sanitizer::Instruments;

/// How code is emitted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Options {
    /// Whether indices are limited to the elements present
    pub(crate) checks_bounds: bool,
    /// The most invocations side by side
    pub(crate) lanes: u32,
    /// Code emitted beside the kernel's own work
    pub(crate) instruments: Instruments,
    /// A seed for the order of invocations
    pub(crate) schedule: Option<u64>,
}

impl Options {
    /// The options with their consequences: an observed invocation runs alone, and never out of bounds.
    fn consistent(mut self) -> Self {
        self.checks_bounds |= self.instruments.checks.is_some();
        if self.instruments.any() || self.schedule.is_some() {
            self.lanes = 1;
        }
        self
    }
}

/// A function ready to be compiled, and the needs to be met by its caller.
pub(crate) struct Emitted {
    pub(crate) function: Function,
    /// Bytes of [`Group::frames`]
    pub(crate) frame_bytes: u64,
    /// The target of [`Group::tables`]
    pub(crate) tables: Vec<u8>,
    /// Whether a loop asks whether the kernel is to stop: the kernel may run long
    pub(crate) polls: bool,
    /// Whether a loop may wait for other work-groups
    pub(crate) waits: bool,
    /// Invocations side by side
    pub(crate) lanes: u32,
}

/// Where `Exit` and `Continue` go.
struct Target {
    end: ClifBlock,
    continuing: Option<ClifBlock>,
}

struct Emitter<'a> {
    b: FunctionBuilder<'a>,
    program: &'a Program,
    options: Options,
    /// Calling convention of the machine
    convention: CallConv,
    /// Whether the machine can multiply and add in one instruction
    fuses: bool,
    /// Whether the machine keeps stores in order, and behind the loads before them
    orders_stores: bool,
    values: SecondaryMap<Value, PackedOption<ir::Value>>,
    variables: SecondaryMap<Variable, Option<ClifVariable>>,
    targets: HashMap<Scope, Target>,
    polling: HashMap<Scope, trips::Poll>,
    live: HashMap<u32, live::Live>,
    group: ir::Value,
    region: region::Region,
    /// Set where invocations come to barriers together
    stretches: Option<stretches::Stretches>,
    /// Where a kernel goes to stop
    stopped: ClifBlock,
    lanes: lanes::Lanes,
    table_offsets: SecondaryMap<Table, u32>,
    poll_signature: Option<SigRef>,
    host_signature: Option<SigRef>,
    areas: call::Areas,
}

/// Emits a program for a machine.
pub(crate) fn emit(program: &Program, options: Options, isa: &dyn TargetIsa) -> Result<Emitted> {
    let options = options.consistent();
    let convention = isa.default_call_conv();
    let mut signature = Signature::new(convention);
    signature.params.push(AbiParam::new(types::I64));
    signature.returns.push(AbiParam::new(types::I32));
    let mut function = Function::with_name_signature(UserFuncName::user(0, 0), signature);
    let mut context = FunctionBuilderContext::new();
    let mut b = FunctionBuilder::new(&mut function, &mut context);
    let entry = b.create_block();
    b.append_block_params_for_function_params(entry);
    b.switch_to_block(entry);
    let group = b.block_params(entry)[0];
    let lives = live::lives(program);
    let lanes = lanes::choose(program, &lives, options.lanes, isa);
    let width = lanes.width;
    let stretches = match waits(program, width) {
        true => stretches::Stretches::plan(program, &lives, options, &lanes),
        false => None,
    };
    let live = lives.barriers;
    let crossing = match &stretches {
        Some(stretches) => stretches.framed(),
        None => live.values().flat_map(live::Live::iter).collect(),
    };
    let region = region::Region::new(&mut b, program, crossing, (width, options.schedule))?;
    let stopped = b.create_block();
    b.set_cold_block(stopped);
    let mut emitter = Emitter {
        b,
        program,
        options,
        convention,
        fuses: fuses(isa),
        orders_stores: isa.name() == "x64",
        values: SecondaryMap::new(),
        variables: SecondaryMap::new(),
        targets: HashMap::new(),
        polling: trips::polling(program),
        live,
        group,
        region,
        stretches,
        stopped,
        lanes,
        table_offsets: SecondaryMap::new(),
        poll_signature: None,
        host_signature: None,
        areas: call::Areas::default(),
    };
    let mut tables = Vec::new();
    for (table, bytes) in &program.tables {
        emitter.table_offsets[table] = tables.len() as u32;
        tables.extend_from_slice(bytes);
        tables.resize(tables.len().next_multiple_of(16), 0);
    }
    let frame_bytes = emitter.work_group()?;
    let polls = !emitter.polling.is_empty();
    let waits = emitter
        .polling
        .values()
        .any(|&poll| poll != trips::Poll::Stop);
    emitter.b.seal_all_blocks();
    emitter.b.finalize(isa.frontend_config());
    Ok(Emitted {
        function,
        frame_bytes,
        tables,
        polls,
        waits,
        lanes: width,
    })
}

/// Whether a machine can multiply and add in one instruction. Without one, Cranelift would call a library.
fn fuses(isa: &dyn TargetIsa) -> bool {
    let mut flags = isa.isa_flags().into_iter();
    let fma = flags.find(|flag| flag.name == "has_fma");
    fma.is_none_or(|flag| flag.as_bool() == Some(true))
}

/// The type of a scalar in a register.
fn register(ty: Type) -> ir::Type {
    match ty {
        Type::Bool => types::I8,
        Type::I32 => types::I32,
        Type::I64 => types::I64,
        Type::F16 | Type::F32 => types::F32,
        Type::F64 => types::F64,
    }
}

impl Emitter<'_> {
    fn block(&mut self, block: &Block) -> Result<()> {
        if self.is_common() {
            return self.common_block(block);
        }
        for statement in block {
            self.statement(statement)?;
            if leaves(statement) {
                break;
            }
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement) -> Result<()> {
        match statement {
            Statement::Let(value) if self.varies(*value) => {
                let parts = self.vector_definition(*value)?;
                self.set_vector(*value, parts);
                Ok(())
            }
            Statement::Let(value) => {
                let emitted = self.definition(*value)?;
                self.values[*value] = emitted.into();
                Ok(())
            }
            Statement::Set(variable, value) if self.variable_varies(*variable) => {
                let parts = self.vector(*value)?;
                let blended = self.lanes.uniformity.is_blended(statement);
                self.set_varying(*variable, parts, blended);
                Ok(())
            }
            Statement::Set(variable, value) => {
                let value = self.value(*value)?;
                let variable = self.variable(*variable);
                self.b.def_var(variable, value);
                Ok(())
            }
            Statement::Load {
                place,
                leaves,
                access,
            } => self.load(place, leaves, *access),
            Statement::Store {
                place,
                leaves,
                access,
            } => self.store(place, leaves, *access),
            Statement::Atomic(atomic) => self.atomic(atomic),
            Statement::Call(call) => self.call(call),
            Statement::If {
                condition,
                accept,
                reject,
            } => self.branch(*condition, accept, reject),
            Statement::Loop {
                scope,
                body,
                continuing,
                ..
            } => self.repeat(*scope, body, continuing),
            Statement::Scope { scope, body } => self.scope(*scope, body),
            Statement::Switch {
                selector,
                cases,
                default,
            } => self.switch(*selector, cases, default),
            Statement::Exit(scope) => self.exit(*scope),
            Statement::Continue(scope) => self.go_on(*scope),
            Statement::Barrier(barrier) => self.barrier(barrier),
            Statement::Subgroup(operation) => self.subgroup(operation),
        }
    }

    fn variable(&mut self, variable: Variable) -> ClifVariable {
        if let Some(known) = self.variables[variable] {
            return known;
        }
        let ty = register(self.program.variables[variable]);
        let new = self.b.declare_var(ty);
        self.variables[variable] = Some(new);
        new
    }

    /// A value in a register. Constants and built-in values are made here.
    fn value(&mut self, value: Value) -> Result<ir::Value> {
        let Def { ty, op } = self.program.values[value];
        match op {
            Op::Const(bits) => Ok(self.constant(ty, bits)),
            Op::Builtin(builtin) => Ok(self.builtin(builtin)),
            _ => self.values[value]
                .expand()
                .ok_or_else(|| internal(format!("{value} is used before it is computed"))),
        }
    }

    fn definition(&mut self, value: Value) -> Result<ir::Value> {
        let Def { ty, op } = self.program.values[value];
        match op {
            Op::Get(variable) => {
                let variable = self.variable(variable);
                Ok(self.b.use_var(variable))
            }
            Op::Length(at) => {
                let entry = self.buffer(at)?;
                Ok(self.buffer_field(
                    entry,
                    types::I32,
                    std::mem::offset_of!(BoundResource, length),
                ))
            }
            _ => self.operation(ty, op),
        }
    }

    /// Loads a field of the group.
    fn group_field(&mut self, ty: ir::Type, offset: usize) -> ir::Value {
        self.b.ins().load(ty, fixed(), self.group, offset as i32)
    }

    /// The address of the entry of a binding.
    fn buffer(&mut self, at: BindingAt) -> Result<ir::Value> {
        let size = size_of::<BoundResource>() as i64;
        let table = self.group_field(types::I64, std::mem::offset_of!(Group, resources));
        let first = at.first.index() as i64 * size;
        let first = self.b.ins().iadd_imm_s(table, first);
        let Some((index, count)) = at.index else {
            return Ok(first);
        };
        let mut index = self.value(index)?;
        if self.options.checks_bounds {
            let last = self.b.ins().iconst(types::I32, i64::from(count - 1));
            index = self.b.ins().umin(index, last);
        }
        let index = self.b.ins().uextend(types::I64, index);
        let offset = self.b.ins().imul_imm_s(index, size);
        Ok(self.b.ins().iadd(first, offset))
    }

    fn buffer_field(&mut self, entry: ir::Value, ty: ir::Type, offset: usize) -> ir::Value {
        self.b.ins().load(ty, fixed(), entry, offset as i32)
    }
}

/// Flags for memory that no kernel writes: a value loaded once needs not be loaded again.
fn fixed() -> MemFlagsData {
    MemFlagsData::trusted().with_readonly().with_can_move()
}

/// Whether the code behind a statement cannot be reached.
fn leaves(statement: &Statement) -> bool {
    matches!(statement, Statement::Exit(_) | Statement::Continue(_))
}

/// Whether invocations of a kernel with so many lanes side by side wait for one another. Invocations side by side are
/// together where a subgroup is.
fn waits(program: &Program, width: u32) -> bool {
    visit::has_barrier(&program.body) && program.invocations() > 1
        || width == 1 && visit::has_subgroups(&program.body)
}
