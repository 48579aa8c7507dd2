//! A dispatch: what it is given, how it is run, and what came of it.

use std::collections::HashMap;

use naga::proc::{BoundsCheckPolicies, BoundsCheckPolicy};
use naga::{AddressSpace, Handle, ResourceBinding};

use super::access::Variable;
use super::image::Textures;
use super::invocation::Invocation;
use super::prepare::Prepared;
use super::shadow::Shadow;
use crate::fault::Fault;
use crate::memory::Pointee;
use crate::report::{Finding, FindingKind, Site};

/// What a dispatch is given. Buffers hold its results afterwards.
#[derive(Default)]
pub struct Bindings<'t> {
    /// The contents of buffers, in bytes.
    pub buffers: Vec<Vec<u8>>,
    /// Which range of which buffer is bound where: group, binding and element of a binding array.
    pub bound: HashMap<(ResourceBinding, u32), BoundRange>,
    /// Immediate data, in bytes.
    pub immediates: Vec<u8>,
    /// Textures and samplers, for kernels that have any.
    pub textures: Option<&'t mut dyn Textures>,
}

/// A range of a buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BoundRange {
    /// Index into [`Bindings::buffers`].
    pub buffer: usize,
    pub offset: u64,
    pub size: u64,
}

impl Bindings<'_> {
    /// Adds a buffer, and binds the whole of it. Returns its index.
    pub fn bind(&mut self, group: u32, binding: u32, contents: Vec<u8>) -> usize {
        let buffer = self.buffers.len();
        let size = contents.len() as u64;
        self.buffers.push(contents);
        self.bound.insert(
            (ResourceBinding { group, binding }, 0),
            BoundRange {
                buffer,
                offset: 0,
                size,
            },
        );
        buffer
    }
}

/// What is looked for while a kernel runs. Everything costs time but out-of-range accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Detect {
    /// Accesses whose index is no element, before the policy changes it.
    pub out_of_range: bool,
    /// Reads of private, function and work-group memory that nobody has written.
    pub uninitialized: bool,
    /// Accesses of storage and work-group memory that race.
    pub races: bool,
    /// `workgroupUniformLoad` of different places.
    pub uniform_loads: bool,
    /// Values of lanes that take no part in a subgroup operation.
    pub inactive_lanes: bool,
}

impl Detect {
    /// Everything.
    pub const ALL: Detect = Detect {
        out_of_range: true,
        uninitialized: true,
        races: true,
        uniform_loads: true,
        inactive_lanes: true,
    };
}

/// In which order work-groups run, and invocations of a work-group between the places where they wait
/// for each other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    #[default]
    Ascending,
    Descending,
    /// Another order at every turn, by a seed.
    Shuffled(u64),
}

/// How to run a dispatch.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What out-of-range accesses do.
    pub policies: BoundsCheckPolicies,
    /// Invocations of a subgroup: a power of two up to 128. Subgroups are consecutive invocations.
    pub subgroup_size: u32,
    pub detect: Detect,
    pub order: Order,
    /// Statements and ends of blocks, over all invocations, after which the run ends in a fault.
    pub step_limit: u64,
    /// Findings that are kept; further ones are counted.
    pub finding_limit: usize,
}

impl Default for Options {
    /// Out-of-range accesses restricted, subgroups of 4, nothing looked for, ascending order, 100
    /// million steps, 100 findings.
    fn default() -> Options {
        Options {
            policies: BoundsCheckPolicies {
                index: BoundsCheckPolicy::Restrict,
                buffer: BoundsCheckPolicy::Restrict,
                image_load: BoundsCheckPolicy::ReadZeroSkipWrite,
                binding_array: BoundsCheckPolicy::Unchecked,
            },
            subgroup_size: 4,
            detect: Detect::default(),
            order: Order::Ascending,
            step_limit: 100_000_000,
            finding_limit: 100,
        }
    }
}

/// What came of a dispatch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// What was found, in the order of the run; of equal places the first.
    pub findings: Vec<Finding>,
    /// Findings beyond [`Options::finding_limit`].
    pub findings_dropped: u64,
    /// Statements and ends of blocks.
    pub steps: u64,
}

/// A bound range and the variable it is bound to.
pub(super) struct Range {
    pub buffer: usize,
    pub offset: u64,
    pub size: u64,
    pub name: Option<String>,
}

/// Barriers that the running work-group has passed, by the memory that they order.
#[derive(Clone, Copy, Default)]
pub(super) struct Intervals {
    pub storage: u32,
    pub workgroup: u32,
}

/// All that the running invocations share.
pub(super) struct World<'r, 'm> {
    pub prepared: &'r Prepared<'m>,
    pub options: &'r Options,
    pub workgroups: [u32; 3],
    pub buffers: &'r mut [Vec<u8>],
    pub buffer_shadows: Vec<Shadow>,
    pub ranges: Vec<Range>,
    range_of: HashMap<(ResourceBinding, u32), usize>,
    pub immediates: &'r [u8],
    pub textures: Option<&'r mut dyn Textures>,
    /// Private variables, in the order in which invocations have them.
    pub privates: Vec<Handle<naga::GlobalVariable>>,
    pub workgroup: HashMap<Handle<naga::GlobalVariable>, Variable>,
    pub intervals: Intervals,
    pub steps: u64,
    findings: Vec<Finding>,
    findings_dropped: u64,
}

/// A prepared entry point and a number of work-groups.
pub struct Dispatch<'r, 'm> {
    prepared: &'r Prepared<'m>,
    workgroups: [u32; 3],
    options: Options,
}

impl<'r, 'm> Dispatch<'r, 'm> {
    /// A dispatch of `workgroups` along each dimension.
    pub fn new(prepared: &'r Prepared<'m>, workgroups: [u32; 3]) -> Dispatch<'r, 'm> {
        Dispatch {
            prepared,
            workgroups,
            options: Options::default(),
        }
    }

    /// Runs with other options.
    pub fn options(mut self, options: Options) -> Dispatch<'r, 'm> {
        self.options = options;
        self
    }

    /// Runs the dispatch to its end. Buffers and textures of `bindings` change as the kernel says; after
    /// a fault they hold what had been written until then.
    ///
    /// # Errors
    /// If a resource is missing or too small, the kernel does something that nothing defines, or it
    /// does not end within the options' number of steps.
    pub fn run(&self, bindings: &mut Bindings<'_>) -> Result<Outcome, Fault> {
        let size = self.options.subgroup_size;
        if !size.is_power_of_two() || size > 128 {
            return Err(Fault::Unsupported(
                "subgroups of other sizes than powers of two up to 128",
            ));
        }
        let mut world = World::new(self, bindings)?;
        let [width, height, depth] = self.workgroups.map(u64::from);
        let count = width * height * depth;
        for index in self.options.order.permutation(count as usize, u64::MAX) {
            let index = index as u64;
            let workgroup = [
                index % width,
                index / width % height,
                index / width / height,
            ];
            world.run_workgroup(workgroup.map(|axis| axis as u32), index)?;
        }
        Ok(Outcome {
            findings: world.findings,
            findings_dropped: world.findings_dropped,
            steps: world.steps,
        })
    }
}

impl<'r, 'm> World<'r, 'm> {
    fn new(
        dispatch: &'r Dispatch<'r, 'm>,
        bindings: &'r mut Bindings<'_>,
    ) -> Result<World<'r, 'm>, Fault> {
        let prepared = dispatch.prepared;
        let module = prepared.module;
        let shadows = bindings.buffers.iter().map(|_| Shadow::default()).collect();
        let textures: Option<&'r mut dyn Textures> = match &mut bindings.textures {
            Some(textures) => Some(&mut **textures),
            None => None,
        };
        let mut world = World {
            prepared,
            options: &dispatch.options,
            workgroups: dispatch.workgroups,
            buffers: &mut bindings.buffers,
            buffer_shadows: shadows,
            ranges: Vec::new(),
            range_of: HashMap::new(),
            immediates: &bindings.immediates,
            textures,
            privates: Vec::new(),
            workgroup: HashMap::new(),
            intervals: Intervals::default(),
            steps: 0,
            findings: Vec::new(),
            findings_dropped: 0,
        };
        for &handle in &prepared.used {
            let variable = &module.global_variables[handle];
            let needed = prepared.layouts[variable.ty].size;
            match variable.space {
                AddressSpace::Private => world.privates.push(handle),
                AddressSpace::Immediate if needed > world.immediates.len() as u64 => {
                    return Err(Fault::ImmediatesTooSmall {
                        given: world.immediates.len() as u64,
                        needed,
                    });
                }
                AddressSpace::Storage { .. } | AddressSpace::Uniform => {
                    world.bind(variable, &bindings.bound)?
                }
                _ => {}
            }
        }
        Ok(world)
    }

    /// Checks and enters what is bound to a variable.
    fn bind(
        &mut self,
        variable: &naga::GlobalVariable,
        bound: &HashMap<(ResourceBinding, u32), BoundRange>,
    ) -> Result<(), Fault> {
        let binding = variable
            .binding
            .ok_or(Fault::Malformed("a buffer's variable has no binding"))?;
        let base = match self.prepared.module.types[variable.ty].inner {
            naga::TypeInner::BindingArray { base, .. } => base,
            _ => variable.ty,
        };
        let needed = self.prepared.layouts[base].size;
        let mut found = bound
            .iter()
            .filter(|((at, _), _)| *at == binding)
            .peekable();
        found.peek().ok_or(Fault::Unbound(binding))?;
        for (key, range) in found {
            let length = self
                .buffers
                .get(range.buffer)
                .map_or(0, |buffer| buffer.len() as u64);
            if range.size < needed || range.offset + range.size > length {
                return Err(Fault::TooSmall {
                    binding,
                    bound: range.size.min(length),
                    needed,
                });
            }
            self.range_of.insert(*key, self.ranges.len());
            let BoundRange {
                buffer,
                offset,
                size,
            } = *range;
            self.ranges.push(Range {
                buffer,
                offset,
                size,
                name: variable.name.clone(),
            });
        }
        Ok(())
    }

    /// The bound range of a binding.
    pub fn range(&self, binding: ResourceBinding, element: u32) -> Result<usize, Fault> {
        self.range_of
            .get(&(binding, element))
            .copied()
            .ok_or(Fault::Unbound(binding))
    }

    /// What the elements of a binding array of buffers are.
    pub fn binding_array_base(&self, pointee: Pointee) -> Result<Pointee, Fault> {
        if let Pointee::Type(ty) = pointee
            && let naga::TypeInner::BindingArray { base, .. } = self.prepared.module.types[ty].inner
        {
            return Ok(Pointee::Type(base));
        }
        Err(Fault::Malformed("a binding array has another type"))
    }

    /// Keeps a finding, unless one of the same kind was found at the same place.
    pub fn report(
        &mut self,
        kind: FindingKind,
        variable: Option<String>,
        invocation: &Invocation<'_>,
        site: Site,
    ) {
        let known = |finding: &Finding| {
            finding.site == site
                && core::mem::discriminant(&finding.kind) == core::mem::discriminant(&kind)
        };
        if self.findings.iter().any(known) {
            return;
        }
        if self.findings.len() >= self.options.finding_limit {
            self.findings_dropped += 1;
            return;
        }
        self.findings.push(Finding {
            kind,
            variable,
            invocation: invocation.id,
            site,
        });
    }
}
