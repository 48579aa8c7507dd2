//! Visits against the text of naga's own `Debug`, where an expression's handle is its index in brackets.

use std::convert::Infallible;

use naga::{
    Arena, AtomicFunction, Block, CollectiveOperation, CooperativeData, Expression, Function,
    GatherMode, Handle, ImageQuery, Literal, MathFunction, RayPipelineFunction, RayQueryFunction,
    SampleLevel, Span, Statement, SubgroupOperation, Type, TypeInner, UniqueArena,
};

use super::{operands, used_by};

/// Handles from here on are expressions in the tests; functions and types have the handle 0.
const FIRST: usize = 10;
/// Handles from here on are results of statements.
const RESULTS: usize = 30;
const ALL: usize = 100;

fn expressions() -> Vec<Handle<Expression>> {
    let mut arena = Arena::new();
    (0..ALL)
        .map(|_| arena.append(Expression::Literal(Literal::Bool(true)), Span::UNDEFINED))
        .collect()
}

fn a_type() -> Handle<Type> {
    let inner = TypeInner::Sampler { comparison: false };
    UniqueArena::new().insert(Type { name: None, inner }, Span::UNDEFINED)
}

/// `text` with `shift` applied to every index in brackets.
fn shifted(text: &str, shift: impl Fn(usize) -> usize) -> String {
    let mut parts = text.split('[');
    let mut shifted = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (index, rest) = part.split_once(']').unwrap_or((part, ""));
        shifted += &match index.parse() {
            Ok(index) => format!("[{}]{rest}", shift(index)),
            Err(_) => format!("[{part}"),
        };
    }
    shifted
}

#[test]
fn every_operand_of_an_expression_is_visited_once() {
    let all = expressions();
    let [a, b, c, d, e, f, g, h] = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| all[FIRST + at]);
    let sample = |level, given: bool| Expression::ImageSample {
        image: a,
        sampler: b,
        gather: None,
        coordinate: c,
        array_index: given.then_some(d),
        offset: given.then_some(e),
        level,
        depth_ref: given.then_some(f),
        clamp_to_edge: false,
    };
    let math = |arg1, arg2, arg3| Expression::Math {
        fun: MathFunction::Fma,
        arg: a,
        arg1,
        arg2,
        arg3,
    };
    let cases = [
        Expression::ZeroValue(a_type()),
        Expression::Compose {
            ty: a_type(),
            components: vec![a, b, c, d],
        },
        Expression::Access { base: a, index: b },
        Expression::AccessIndex { base: a, index: 3 },
        Expression::Load { pointer: a },
        sample(SampleLevel::Auto, true),
        sample(SampleLevel::Zero, false),
        sample(SampleLevel::Exact(g), true),
        sample(SampleLevel::Bias(g), false),
        sample(SampleLevel::Gradient { x: g, y: h }, true),
        Expression::ImageLoad {
            image: a,
            coordinate: b,
            array_index: Some(c),
            sample: Some(d),
            level: Some(e),
        },
        Expression::ImageQuery {
            image: a,
            query: ImageQuery::Size { level: Some(b) },
        },
        Expression::ImageQuery {
            image: a,
            query: ImageQuery::NumLayers,
        },
        Expression::Binary {
            op: naga::BinaryOperator::Add,
            left: a,
            right: b,
        },
        Expression::Select {
            condition: a,
            accept: b,
            reject: c,
        },
        math(None, None, None),
        math(Some(b), None, None),
        math(Some(b), Some(c), Some(d)),
        Expression::ArrayLength(a),
        Expression::CooperativeMultiplyAdd { a, b, c },
    ];
    for mut case in cases {
        let before = format!("{case:?}");
        let visited = operands(&mut case, &mut |handle| {
            *handle = all[handle.index() + 40];
            Ok::<(), Infallible>(())
        });
        assert_eq!(visited, Ok(()));
        let moved = |index| if index < FIRST { index } else { index + 40 };
        assert_eq!(format!("{case:?}"), shifted(&before, moved));
    }
}

/// Statements of every kind that has operands or a result.
fn statements(all: &[Handle<Expression>]) -> Vec<Statement> {
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| all[FIRST + at]);
    let result = all[RESULTS];
    let exchange = AtomicFunction::Exchange { compare: Some(d) };
    let atomic = |fun, result| Statement::Atomic {
        pointer: a,
        fun,
        value: b,
        result,
    };
    let query = |fun| Statement::RayQuery { query: a, fun };
    let gather = |mode| Statement::SubgroupGather {
        mode,
        argument: a,
        result,
    };
    let function = Arena::new().append(Function::default(), Span::UNDEFINED);
    vec![
        Statement::Break,
        Statement::If {
            condition: a,
            accept: Block::new(),
            reject: Block::new(),
        },
        Statement::Loop {
            body: Block::new(),
            continuing: Block::new(),
            break_if: Some(a),
        },
        Statement::Return { value: Some(a) },
        Statement::Store {
            pointer: a,
            value: b,
        },
        Statement::ImageStore {
            image: a,
            coordinate: b,
            array_index: Some(c),
            value: d,
        },
        atomic(AtomicFunction::Add, None),
        atomic(AtomicFunction::Max, Some(result)),
        atomic(exchange, Some(result)),
        Statement::ImageAtomic {
            image: a,
            coordinate: b,
            array_index: Some(c),
            fun: AtomicFunction::Add,
            value: d,
        },
        Statement::WorkGroupUniformLoad { pointer: a, result },
        Statement::Call {
            function,
            arguments: vec![a, b, c],
            result: Some(result),
        },
        query(RayQueryFunction::Initialize {
            acceleration_structure: b,
            descriptor: c,
        }),
        query(RayQueryFunction::Proceed { result }),
        query(RayQueryFunction::GenerateIntersection { hit_t: b }),
        query(RayQueryFunction::Terminate),
        Statement::RayPipelineFunction(RayPipelineFunction::TraceRay {
            acceleration_structure: a,
            descriptor: b,
            payload: c,
        }),
        Statement::SubgroupBallot {
            result,
            predicate: Some(a),
        },
        gather(GatherMode::BroadcastFirst),
        gather(GatherMode::Broadcast(b)),
        gather(GatherMode::Shuffle(b)),
        gather(GatherMode::ShuffleXor(b)),
        gather(GatherMode::QuadBroadcast(b)),
        Statement::SubgroupCollectiveOperation {
            op: SubgroupOperation::Add,
            collective_op: CollectiveOperation::Reduce,
            argument: a,
            result,
        },
        Statement::CooperativeStore {
            target: a,
            data: CooperativeData {
                pointer: b,
                stride: c,
                row_major: false,
            },
        },
    ]
}

#[test]
fn every_operand_and_result_of_a_statement_is_visited_once() {
    let all = expressions();
    for mut case in statements(&all) {
        let before = format!("{case:?}");
        let visited = used_by(
            &mut case,
            &mut |handle| {
                *handle = all[handle.index() + 40];
                Ok::<(), Infallible>(())
            },
            &mut |handle| {
                *handle = all[handle.index() + 60];
                Ok(())
            },
        );
        assert_eq!(visited, Ok(()));
        let moved = |index| match index {
            0..FIRST => index,
            FIRST..RESULTS => index + 40,
            _ => index + 60,
        };
        assert_eq!(format!("{case:?}"), shifted(&before, moved));
    }
}
