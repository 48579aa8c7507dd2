//! Textures and samplers, which the interpreter leaves to whoever provides them.
//!
//! The interpreter evaluates operands, applies the policy for out-of-range texels, and gives results
//! the type that the kernel expects. What a texel holds, and how samplers filter, is the provider's:
//! [`crate::texture`] has a plain one.

use naga::proc::BoundsCheckPolicy;
use naga::{
    AtomicFunction, Expression, Handle, ImageClass, ImageDimension, ImageQuery, SampleLevel,
    ScalarKind,
};

use super::atomic::updated;
use super::dispatch::World;
use super::invocation::Invocation;
use crate::fault::Fault;
use crate::value::{Opaque, Scalar, Value, Vector};

/// The four components of a texel, in the type that a kernel sees.
pub type Texel = [Scalar; 4];

/// Texels of one mip level of a texture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageSize {
    pub width: u32,
    /// 1 for one-dimensional textures.
    pub height: u32,
    /// 1 for textures of fewer dimensions.
    pub depth: u32,
}

/// Which texel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TexelAt {
    /// Unused coordinates are 0.
    pub coordinate: [i64; 3],
    /// 0 for textures without layers.
    pub layer: i64,
    pub level: i64,
    pub sample: i64,
}

/// Which mip level a sampling operation looks at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LevelAt {
    Zero,
    Exact(f32),
    /// Derivatives of the coordinate.
    Gradient {
        x: [f32; 3],
        y: [f32; 3],
    },
}

/// A sampling operation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleAt {
    /// Normalized; unused coordinates are 0. For cubes a direction.
    pub coordinate: [f32; 3],
    /// 0 for textures without layers; out-of-range layers are clamped.
    pub layer: i64,
    pub level: LevelAt,
    /// In texels.
    pub offset: [i32; 3],
    /// What depths are compared with.
    pub compare: Option<f32>,
    /// Gather this component of the four texels that linear filtering would look at.
    pub gather: Option<usize>,
    /// Keep half a texel's distance from the edge, whatever the sampler says.
    pub clamp_to_edge: bool,
}

/// Textures and samplers by their bindings.
pub trait Textures {
    /// The size of a mip level; `None` where there is no such texture or level.
    fn size(&self, texture: Opaque, level: u32) -> Option<ImageSize>;
    /// The number of mip levels, layers and samples.
    fn counts(&self, texture: Opaque) -> Option<[u32; 3]>;
    /// A texel; `None` where there is none.
    fn load(&self, texture: Opaque, at: TexelAt) -> Option<Texel>;
    /// Stores a texel; texels that are not there are ignored.
    fn store(&mut self, texture: Opaque, at: TexelAt, texel: Texel);
    /// Samples a texture; `None` where there is no such texture or sampler.
    fn sample(&self, texture: Opaque, sampler: Opaque, at: &SampleAt) -> Option<Texel>;
}

/// What a texture is declared as.
#[derive(Clone, Copy)]
struct Declared {
    which: Opaque,
    dimension: ImageDimension,
    arrayed: bool,
    class: ImageClass,
}

const NONE: Fault = Fault::Unsupported("textures, of which none were given");

impl World<'_, '_> {
    fn textures(&self) -> Result<&dyn Textures, Fault> {
        self.textures.as_deref().ok_or(NONE)
    }

    fn declared(
        &self,
        invocation: &Invocation<'_>,
        image: Handle<Expression>,
    ) -> Result<Declared, Fault> {
        let Value::Image(which) = *invocation.value(image)? else {
            return Err(Fault::Malformed("an image operation on something else"));
        };
        let module = self.prepared.module;
        let mut variables = self
            .prepared
            .used
            .iter()
            .map(|handle| &module.global_variables[*handle]);
        let variable = variables.find(|variable| variable.binding == Some(which.binding));
        let mut inner = &module.types[variable.ok_or(Fault::Unbound(which.binding))?.ty].inner;
        if let naga::TypeInner::BindingArray { base, .. } = *inner {
            inner = &module.types[base].inner;
        }
        match *inner {
            naga::TypeInner::Image {
                dim,
                arrayed,
                class,
            } => Ok(Declared {
                which,
                dimension: dim,
                arrayed,
                class,
            }),
            _ => Err(Fault::WrongResource {
                binding: which.binding,
                expected: "texture",
            }),
        }
    }

    fn integers(
        &self,
        invocation: &Invocation<'_>,
        handle: Handle<Expression>,
    ) -> Result<[i64; 3], Fault> {
        let mut values = [0; 3];
        let components = invocation.value(handle)?.components().ok_or(COORDINATE)?;
        for (value, component) in values.iter_mut().zip(components) {
            *value = component.index().ok_or(COORDINATE)?;
        }
        Ok(values)
    }

    fn floats(
        &self,
        invocation: &Invocation<'_>,
        handle: Handle<Expression>,
    ) -> Result<[f32; 3], Fault> {
        let mut values = [0.0; 3];
        let components = invocation.value(handle)?.components().ok_or(COORDINATE)?;
        for (value, component) in values.iter_mut().zip(components) {
            *value = component.float().ok_or(COORDINATE)? as f32;
        }
        Ok(values)
    }

    fn optional_integer(
        &self,
        invocation: &Invocation<'_>,
        handle: Option<Handle<Expression>>,
    ) -> Result<i64, Fault> {
        handle.map_or(Ok(0), |handle| {
            self.integers(invocation, handle).map(|values| values[0])
        })
    }

    /// Evaluates a load, a sampling operation or a query.
    pub fn image_expression(
        &self,
        invocation: &Invocation<'_>,
        expression: &Expression,
    ) -> Result<Value, Fault> {
        match *expression {
            Expression::ImageLoad {
                image,
                coordinate,
                array_index,
                sample,
                level,
            } => {
                let declared = self.declared(invocation, image)?;
                let at = TexelAt {
                    coordinate: self.integers(invocation, coordinate)?,
                    layer: self.optional_integer(invocation, array_index)?,
                    level: self.optional_integer(invocation, level)?,
                    sample: self.optional_integer(invocation, sample)?,
                };
                let texel = self.load_texel(declared, at, invocation.statement_site())?;
                result(declared.class, texel)
            }
            Expression::ImageQuery { image, query } => {
                self.query(invocation, self.declared(invocation, image)?, query)
            }
            Expression::ImageSample {
                image,
                sampler,
                gather,
                coordinate,
                array_index,
                offset,
                level,
                depth_ref,
                clamp_to_edge,
            } => {
                let declared = self.declared(invocation, image)?;
                let Value::Sampler(sampler) = *invocation.value(sampler)? else {
                    return Err(Fault::Malformed("sampling without a sampler"));
                };
                let compare = depth_ref
                    .map(|reference| self.floats(invocation, reference))
                    .transpose()?;
                let offset = offset
                    .map(|offset| self.integers(invocation, offset))
                    .transpose()?
                    .unwrap_or_default();
                let at = SampleAt {
                    coordinate: self.floats(invocation, coordinate)?,
                    layer: self.optional_integer(invocation, array_index)?,
                    level: self.level(invocation, level)?,
                    offset: offset.map(|component| component as i32),
                    compare: compare.map(|values| values[0]),
                    gather: gather.map(|component| component as usize),
                    clamp_to_edge,
                };
                let texel = self.textures()?.sample(declared.which, sampler, &at);
                let texel = texel.ok_or(Fault::Unbound(declared.which.binding))?;
                match (gather, compare) {
                    (None, Some(_)) => Ok(texel[0].into()),
                    (Some(_), _) => vector(texel),
                    (None, None) => result(declared.class, texel),
                }
            }
            _ => Err(Fault::Malformed("an expression is no image operation")),
        }
    }

    fn level(&self, invocation: &Invocation<'_>, level: SampleLevel) -> Result<LevelAt, Fault> {
        Ok(match level {
            SampleLevel::Zero => LevelAt::Zero,
            SampleLevel::Exact(level) => match invocation.value(level)?.scalar() {
                // Depth textures take an integer.
                Some(scalar) => match (scalar.index(), scalar.float()) {
                    (Some(level), _) => LevelAt::Exact(level as f32),
                    (_, Some(level)) => LevelAt::Exact(level as f32),
                    _ => return Err(COORDINATE),
                },
                None => return Err(COORDINATE),
            },
            SampleLevel::Gradient { x, y } => LevelAt::Gradient {
                x: self.floats(invocation, x)?,
                y: self.floats(invocation, y)?,
            },
            SampleLevel::Auto | SampleLevel::Bias(_) => {
                return Err(Fault::Unsupported(
                    "sampling by derivatives, which compute shaders do not have",
                ));
            }
        })
    }

    fn query(
        &self,
        invocation: &Invocation<'_>,
        declared: Declared,
        query: ImageQuery,
    ) -> Result<Value, Fault> {
        let textures = self.textures()?;
        let missing = Fault::Unbound(declared.which.binding);
        let [levels, layers, samples] = textures.counts(declared.which).ok_or(missing.clone())?;
        let count = |count: u32| Ok(Scalar::U32(count).into());
        match query {
            ImageQuery::NumLevels => count(levels),
            ImageQuery::NumLayers => count(layers),
            ImageQuery::NumSamples => count(samples),
            ImageQuery::Size { level } => {
                let level = self.optional_integer(invocation, level)?;
                // WGSL leaves the size of a level open that is not there.
                let level = level.clamp(0, i64::from(levels) - 1) as u32;
                let ImageSize {
                    width,
                    height,
                    depth,
                } = textures.size(declared.which, level).ok_or(missing)?;
                let all = [width, height, depth].map(Scalar::U32);
                match declared.dimension {
                    ImageDimension::D1 => count(width),
                    ImageDimension::D2 | ImageDimension::Cube => {
                        Vector::new(&all[..2]).map(Value::Vector).ok_or(COORDINATE)
                    }
                    ImageDimension::D3 => Vector::new(&all).map(Value::Vector).ok_or(COORDINATE),
                }
            }
        }
    }

    fn load_texel(
        &self,
        declared: Declared,
        at: TexelAt,
        site: Option<crate::report::Site>,
    ) -> Result<Texel, Fault> {
        let textures = self.textures()?;
        if let Some(texel) = textures.load(declared.which, at) {
            return Ok(texel);
        }
        match self.options.policies.image_load {
            BoundsCheckPolicy::ReadZeroSkipWrite => Ok([zero(declared.class)?; 4]),
            BoundsCheckPolicy::Restrict => {
                let inside = self.restrict(declared, at)?;
                textures
                    .load(declared.which, inside)
                    .ok_or(Fault::Unbound(declared.which.binding))
            }
            BoundsCheckPolicy::Unchecked => Err(Fault::OutOfRange {
                index: at.coordinate[0],
                length: 0,
                site: site.ok_or(Fault::Malformed("a load is in no statement"))?,
            }),
        }
    }

    /// The texel that naga's code takes for one that is not there: each number as unsigned, at most
    /// the last.
    fn restrict(&self, declared: Declared, at: TexelAt) -> Result<TexelAt, Fault> {
        let missing = Fault::Unbound(declared.which.binding);
        let textures = self.textures()?;
        let [levels, layers, samples] = textures.counts(declared.which).ok_or(missing.clone())?;
        let limit = |value: i64, count: u32| i64::from((value as u32).min(count.saturating_sub(1)));
        let level = limit(at.level, levels);
        let size = textures.size(declared.which, level as u32).ok_or(missing)?;
        let [x, y, z] = at.coordinate;
        Ok(TexelAt {
            coordinate: [
                limit(x, size.width),
                limit(y, size.height),
                limit(z, size.depth),
            ],
            layer: limit(at.layer, layers),
            level,
            sample: limit(at.sample, samples),
        })
    }

    fn texel_at(
        &self,
        invocation: &Invocation<'_>,
        coordinate: Handle<Expression>,
        array_index: Option<Handle<Expression>>,
    ) -> Result<TexelAt, Fault> {
        let coordinate = self.integers(invocation, coordinate)?;
        let layer = self.optional_integer(invocation, array_index)?;
        Ok(TexelAt {
            coordinate,
            layer,
            level: 0,
            sample: 0,
        })
    }

    pub fn image_store(
        &mut self,
        invocation: &Invocation<'_>,
        image: Handle<Expression>,
        coordinate: Handle<Expression>,
        array_index: Option<Handle<Expression>>,
        value: Handle<Expression>,
    ) -> Result<(), Fault> {
        let declared = self.declared(invocation, image)?;
        let at = self.texel_at(invocation, coordinate, array_index)?;
        let &[x, y, z, w] = invocation.value(value)?.components().ok_or(COORDINATE)? else {
            return Err(Fault::Malformed("a stored texel has not four components"));
        };
        let at = if declared.arrayed {
            at
        } else {
            TexelAt { layer: 0, ..at }
        };
        self.textures
            .as_deref_mut()
            .ok_or(NONE)?
            .store(declared.which, at, [x, y, z, w]);
        Ok(())
    }

    pub fn image_atomic(
        &mut self,
        invocation: &Invocation<'_>,
        image: Handle<Expression>,
        coordinate: Handle<Expression>,
        array_index: Option<Handle<Expression>>,
        function: AtomicFunction,
        value: Handle<Expression>,
    ) -> Result<(), Fault> {
        let declared = self.declared(invocation, image)?;
        let at = self.texel_at(invocation, coordinate, array_index)?;
        let operand = invocation.value(value)?.clone();
        let Some(mut texel) = self.textures()?.load(declared.which, at) else {
            return Ok(());
        };
        let after =
            updated(function, &texel[0].into(), &operand, None).and_then(|after| after.scalar());
        texel[0] = after.ok_or(Fault::Malformed(
            "an atomic function does not take this texel",
        ))?;
        self.textures
            .as_deref_mut()
            .ok_or(NONE)?
            .store(declared.which, at, texel);
        Ok(())
    }
}

const COORDINATE: Fault = Fault::Malformed("an operand of an image operation has another type");

fn vector(texel: Texel) -> Result<Value, Fault> {
    Vector::new(&texel)
        .map(Value::Vector)
        .ok_or(Fault::Malformed("a texel's components have several types"))
}

/// Depths are scalars, everything else has four components.
fn result(class: ImageClass, texel: Texel) -> Result<Value, Fault> {
    match class {
        ImageClass::Depth { .. } => Ok(texel[0].into()),
        _ => vector(texel),
    }
}

fn zero(class: ImageClass) -> Result<Scalar, Fault> {
    let scalar = match class {
        ImageClass::Sampled { kind, .. } => naga::Scalar { kind, width: 4 },
        ImageClass::Depth { .. } => naga::Scalar::F32,
        ImageClass::Storage { format, .. } => format.into(),
        ImageClass::External => naga::Scalar {
            kind: ScalarKind::Float,
            width: 4,
        },
    };
    Scalar::zero(scalar).ok_or(COORDINATE)
}
