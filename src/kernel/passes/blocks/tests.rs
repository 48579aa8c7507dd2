//! Tests of the walks on a text with every kind of inner block.

use std::convert::Infallible;

use naga::{Expression, Function, Literal, Module};

use super::*;
use crate::kernel::passes::tests_support::{kernel, occurrences, parse, text};

/// Stores 1 to 8 in the order of the text, of which 6 is in a `continuing`.
const BODY: &str = "
    o[0] = 1u;
    { o[0] = 2u; }
    if n > 1u { o[0] = 3u; } else { switch n { case 1u: { o[0] = 4u; } default: { } } }
    loop {
        o[0] = 5u;
        continuing { o[0] = 6u; break if n > 2u; }
    }
    switch n { case 1u, 2u: { if n > 3u { o[0] = 7u; } } default: { o[0] = 8u; } }";

fn module() -> (String, Module) {
    let source = kernel("", BODY);
    let module = parse(&source);
    (source, module)
}

/// The literal that a statement stores.
fn stored(function: &Function, statement: &Statement) -> Option<u32> {
    match *statement {
        Statement::Store { value, .. } => match function.expressions[value] {
            Expression::Literal(Literal::U32(number)) => Some(number),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn statements_come_in_the_order_of_the_text() {
    let (_, module) = module();
    let function = &module.entry_points[0].function;
    let mut seen = Vec::new();
    each_statement(&function.body, &mut |statement| {
        seen.extend(stored(function, statement));
    });
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn statements_and_spans_are_changed_where_they_stand() {
    let (source, mut module) = module();
    let function = &mut module.entry_points[0].function;
    let mut body = std::mem::take(&mut function.body);
    let mut seen = Vec::new();
    let ended: Result<(), Infallible> = each_statement_mut(&mut body, &mut |statement, span| {
        if let Some(number) = stored(function, statement) {
            assert!(span.is_defined());
            seen.push(number);
            *statement = Statement::Block(Block::new());
            *span = Span::UNDEFINED;
        }
        Ok(())
    });
    assert_eq!((seen, ended), ((1..=8).collect(), Ok(())));
    let mut left = 0;
    let _: Result<(), Infallible> = each_statement_mut(&mut body, &mut |statement, span| {
        if let Statement::Block(block) = statement
            && block.is_empty()
        {
            assert!(!span.is_defined());
            left += 1;
        }
        Ok(())
    });
    assert_eq!(left, 8);
    function.body = body;
    assert_eq!(occurrences(&text(&module, &source), "o[0] ="), 0);
}

#[test]
fn a_walk_ends_with_the_first_error() {
    let (_, mut module) = module();
    let function = &mut module.entry_points[0].function;
    let mut body = std::mem::take(&mut function.body);
    for last in 1..=8 {
        let mut seen = Vec::new();
        let ended = each_statement_mut(&mut body, &mut |statement, _| {
            let number = stored(function, statement);
            seen.extend(number);
            if number == Some(last) {
                Err(last)
            } else {
                Ok(())
            }
        });
        assert_eq!((seen, ended), ((1..=last).collect(), Err(last)));
    }
}

#[test]
fn statements_are_put_behind_others() {
    let (source, mut module) = module();
    let function = &mut module.entry_points[0].function;
    let mut body = std::mem::take(&mut function.body);
    let before = text(&parse(&source), &source);
    rebuild(&mut body, &mut |statement, span, block| {
        block.push(statement, span)
    });
    function.body = body.clone();
    assert_eq!(text(&module, &source), before);
    let function = &mut module.entry_points[0].function;
    rebuild(&mut body, &mut |statement, span, block| {
        let copies = match stored(function, &statement) {
            // One is left out.
            Some(4) => 0,
            Some(_) => 3,
            None => 1,
        };
        for _ in 0..copies {
            block.push(statement.clone(), span);
        }
    });
    function.body = body;
    let after = text(&module, &source);
    let counts = (1..=8).map(|number| occurrences(&after, &format!("= {number}u;")));
    assert_eq!(
        counts.collect::<Vec<_>>(),
        [3, 3, 3, 0, 3, 3, 3, 3],
        "{after}"
    );
}

#[test]
fn a_continuing_block_is_told_apart() {
    fn inside(function: &Function, block: &Block, continues: bool, found: &mut Vec<u32>) {
        for statement in block {
            found.extend(stored(function, statement).filter(|_| continues));
            for one in inner(statement) {
                inside(function, one.block, continues || one.is_continuing, found);
            }
        }
    }
    let (_, mut module) = module();
    let function = &module.entry_points[0].function;
    let mut found = Vec::new();
    inside(function, &function.body, false, &mut found);
    assert_eq!(found, [6]);
    // Both say the same.
    let body = &mut module.entry_points[0].function.body;
    for statement in body.iter_mut() {
        let own: Vec<_> = (inner(statement).iter())
            .map(|one| one.is_continuing)
            .collect();
        let changed = inner_mut(statement).into_iter();
        assert_eq!(
            own,
            changed.map(|one| one.is_continuing).collect::<Vec<_>>()
        );
    }
}
