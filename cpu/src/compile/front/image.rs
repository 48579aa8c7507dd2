//! Textures and samplers: their built-in functions become calls of [`image`](crate::compile::image).

use naga::{
    Expression as E, Handle, ImageClass, ImageDimension, ImageQuery as Q, SampleLevel, TypeInner,
};
use smallvec::SmallVec;

use super::{Front, Node, scalars};
use crate::compile::{
    error::{Result, internal, unsupported},
    host::HostFunction,
    image::{ImageAtomic, ImageQuery, Sampled},
    ir::{Access, BindingAt, BindingUse, Call, Conversion, Statement, Type, Value},
    layout,
};

/// A texture variable's type.
#[derive(Clone, Copy)]
struct Kind {
    axes: usize,
    class: ImageClass,
    cube: bool,
}

impl Front<'_> {
    /// A texture or sampler of the module, or an array of them.
    pub(super) fn handle(&mut self, variable: &naga::GlobalVariable) -> Result<Node> {
        let at = variable
            .binding
            .ok_or_else(|| internal("a texture or sampler without a binding"))?;
        let (ty, count) = self.bound_type(variable)?;
        match self.module.types[ty].inner {
            TypeInner::Image {
                class: ImageClass::External,
                ..
            } => return Err(unsupported("an external texture")),
            TypeInner::Image {
                class:
                    ImageClass::Sampled { multi: true, .. } | ImageClass::Depth { multi: true, .. },
                ..
            } => return Err(unsupported("a multisampled texture")),
            TypeInner::Image { .. } | TypeInner::Sampler { .. } => {}
            ref other => return Err(unsupported(format!("a resource of {other:?}"))),
        }
        let resource = BindingUse {
            group: at.group,
            binding: at.binding,
            element: 0,
            array: None,
            least: 0,
            uniform: false,
            constant: false,
            shared: false,
            reduction: None,
        };
        let first = self.enter_bindings(resource, count)?;
        Ok(match count {
            Some(count) => Node::Bindings {
                first,
                count,
                ty,
                access: Access::Plain,
            },
            None => Node::Resource(BindingAt { first, index: None }),
        })
    }

    /// Whether bindings of a type are no memory.
    pub(super) fn is_resource(&self, ty: Handle<naga::Type>) -> bool {
        matches!(
            self.module.types[ty].inner,
            TypeInner::Image { .. } | TypeInner::Sampler { .. }
        )
    }

    fn resource(&mut self, expression: Handle<E>) -> Result<BindingAt> {
        match self.node(expression)? {
            Node::Resource(at) => Ok(at),
            other => Err(internal(format!(
                "a texture or sampler was expected, not {other:?}"
            ))),
        }
    }

    fn image_kind(&self, image: Handle<E>) -> Result<Kind> {
        let ty = &self.frame()?.info[image].ty;
        let TypeInner::Image { dim, class, .. } = *ty.inner_with(&self.module.types) else {
            return Err(internal("a texture was expected"));
        };
        let axes = match dim {
            ImageDimension::D1 => 1,
            ImageDimension::D2 => 2,
            ImageDimension::D3 | ImageDimension::Cube => 3,
        };
        Ok(Kind {
            axes,
            class,
            cube: dim == ImageDimension::Cube,
        })
    }

    fn call_image(
        &mut self,
        function: HostFunction,
        resources: &[BindingAt],
        operands: Vec<Value>,
        results: &[Type],
    ) -> Vec<Value> {
        let results: Vec<_> = results.iter().map(|&ty| self.b.result(ty)).collect();
        self.b.push(Statement::Call(Box::new(Call {
            function,
            resources: resources.iter().copied().collect(),
            operands: operands.into_iter().collect(),
            results: results.iter().copied().collect::<SmallVec<_>>(),
        })));
        results
    }

    /// x, y, z and layer of a texel.
    fn texel(
        &mut self,
        coordinate: Handle<E>,
        array_index: Option<Handle<E>>,
    ) -> Result<Vec<Value>> {
        let zero = self.b.u32(0);
        let mut at = self.values(coordinate)?.to_vec();
        at.resize(3, zero);
        at.push(match array_index {
            Some(index) => self.scalar(index)?,
            None => zero,
        });
        Ok(at)
    }

    pub(super) fn image_load(
        &mut self,
        image: Handle<E>,
        coordinate: Handle<E>,
        array_index: Option<Handle<E>>,
        level: Option<Handle<E>>,
    ) -> Result<Node> {
        let texture = self.resource(image)?;
        let kind = self.image_kind(image)?;
        let mut operands = self.texel(coordinate, array_index)?;
        operands.push(match level {
            Some(level) => self.scalar(level)?,
            None => self.b.u32(0),
        });
        let ty = channel_type(kind.class)?;
        let channels = self.call_image(HostFunction::ImageLoad, &[texture], operands, &[ty; 4]);
        Ok(by_class(kind.class, channels))
    }

    pub(super) fn image_store(
        &mut self,
        image: Handle<E>,
        coordinate: Handle<E>,
        array_index: Option<Handle<E>>,
        value: Handle<E>,
    ) -> Result<()> {
        let texture = self.resource(image)?;
        let class = self.image_kind(image)?.class;
        channel_type(class)?;
        let mut operands = self.texel(coordinate, array_index)?;
        operands.extend_from_slice(&self.values(value)?);
        self.call_image(HostFunction::ImageStore, &[texture], operands, &[]);
        Ok(())
    }

    pub(super) fn image_atomic(
        &mut self,
        image: Handle<E>,
        coordinate: Handle<E>,
        array_index: Option<Handle<E>>,
        function: &naga::AtomicFunction,
        value: Handle<E>,
    ) -> Result<()> {
        use naga::AtomicFunction as F;
        let texture = self.resource(image)?;
        channel_type(self.image_kind(image)?.class)?;
        let operation = match function {
            F::Add => ImageAtomic::Add,
            F::Subtract => ImageAtomic::Sub,
            F::And => ImageAtomic::And,
            F::InclusiveOr => ImageAtomic::Or,
            F::ExclusiveOr => ImageAtomic::Xor,
            F::Min => ImageAtomic::Min,
            F::Max => ImageAtomic::Max,
            F::Exchange { .. } => return Err(unsupported("an exchange of a texel")),
        };
        let mut operands = self.texel(coordinate, array_index)?;
        operands.push(self.scalar(value)?);
        let function = HostFunction::ImageAtomic(operation);
        self.call_image(function, &[texture], operands, &[]);
        Ok(())
    }

    pub(super) fn image_query(&mut self, image: Handle<E>, query: Q) -> Result<Node> {
        let texture = self.resource(image)?;
        let kind = self.image_kind(image)?;
        let mut level = self.b.u32(0);
        let (asked, count) = match query {
            Q::Size { level: of } => {
                if let Some(of) = of {
                    level = self.scalar(of)?;
                }
                (ImageQuery::Dimensions, kind.axes - usize::from(kind.cube))
            }
            Q::NumLevels => (ImageQuery::Levels, 1),
            Q::NumLayers => (ImageQuery::Layers, 1),
            Q::NumSamples => (ImageQuery::Samples, 1),
        };
        let function = HostFunction::ImageQuery(asked);
        let mut numbers = self.call_image(function, &[texture], vec![level], &[Type::I32; 3]);
        numbers.truncate(count);
        Ok(scalars(numbers))
    }

    pub(super) fn image_sample(&mut self, sample: &E) -> Result<Node> {
        let E::ImageSample {
            image,
            sampler,
            gather,
            coordinate,
            array_index,
            offset,
            level,
            depth_ref,
            clamp_to_edge,
        } = *sample
        else {
            return Err(internal("a sample of a texture was expected"));
        };
        let texture = self.resource(image)?;
        let sampler = self.resource(sampler)?;
        let kind = self.image_kind(image)?;
        let mut way = Sampled {
            gather: gather.map(|component| component as u8),
            compares: depth_ref.is_some(),
            gradient: false,
            clamps: clamp_to_edge,
        };
        let (zero, nothing) = (self.b.u32(0), self.b.f32(0.0));
        let mut operands = self.values(coordinate)?.to_vec();
        operands.resize(3, nothing);
        operands.push(match array_index {
            Some(index) => self.scalar(index)?,
            None => zero,
        });
        self.three(&mut operands, offset, zero)?;
        match level {
            SampleLevel::Zero => operands.resize(14, nothing),
            SampleLevel::Exact(level) => {
                let level = self.level(level)?;
                operands.push(level);
                operands.resize(14, nothing);
            }
            SampleLevel::Gradient { x, y } => {
                way.gradient = true;
                operands.push(nothing);
                self.three(&mut operands, Some(x), nothing)?;
                self.three(&mut operands, Some(y), nothing)?;
            }
            // The base level, where there are no derivatives.
            SampleLevel::Auto if clamp_to_edge || gather.is_some() => {
                operands.resize(14, nothing);
            }
            SampleLevel::Auto | SampleLevel::Bias(_) => {
                return Err(unsupported("sampling by derivatives"));
            }
        }
        operands.push(match depth_ref {
            Some(reference) => self.scalar(reference)?,
            None => nothing,
        });
        // The gathered values are the texels' own words.
        let ty = channel_type(kind.class)?;
        let function = HostFunction::ImageSample(way);
        let channels = self.call_image(function, &[texture, sampler], operands, &[ty; 4]);
        Ok(match way {
            Sampled {
                gather: Some(_), ..
            } => scalars(channels),
            Sampled { compares: true, .. } => scalars([channels[0]]),
            _ => by_class(kind.class, channels),
        })
    }

    /// Appends three operands: a vector and its filling.
    fn three(
        &mut self,
        operands: &mut Vec<Value>,
        vector: Option<Handle<E>>,
        fill: Value,
    ) -> Result<()> {
        let end = operands.len() + 3;
        if let Some(vector) = vector {
            operands.extend_from_slice(&self.values(vector)?);
        }
        operands.resize(end, fill);
        Ok(())
    }

    /// A level as a float: levels of depth textures are integers.
    fn level(&mut self, level: Handle<E>) -> Result<Value> {
        let value = self.scalar(level)?;
        Ok(match self.b.program.ty(value) {
            Type::I32 => self.b.convert(Conversion::SignedToFloat, Type::F32, value),
            _ => value,
        })
    }
}

/// The type of a texel's channels.
fn channel_type(class: ImageClass) -> Result<Type> {
    let scalar = match class {
        ImageClass::Sampled { kind, .. } => naga::Scalar { kind, width: 4 },
        ImageClass::Depth { .. } => naga::Scalar::F32,
        ImageClass::Storage { format, .. } => format.into(),
        ImageClass::External => return Err(unsupported("an external texture")),
    };
    if scalar.width != 4 {
        return Err(unsupported("a texture with texels of 64-bit integers"));
    }
    layout::scalar(scalar)
}

/// A depth texture has one channel.
fn by_class(class: ImageClass, channels: Vec<Value>) -> Node {
    match class {
        ImageClass::Depth { .. } => scalars([channels[0]]),
        _ => scalars(channels),
    }
}
