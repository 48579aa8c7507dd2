use super::*;
use crate::kernel::passes::tests_support::{kernel, occurrences, parse, text};

const SUM: &str = "
    var<private> kept: array<u32, 3>;
    var<workgroup> group: array<u32, 9>;
    fn sum(values: ptr<function, array<u32>>) -> u32 {
        var all = 0u;
        for (var i = 0u; i < arrayLength(values); i++) { all += values[i]; }
        return all;
    }
    fn both(a: ptr<function, array<u32>>, n: u32, b: ptr<function, array<u32>>) -> u32 {
        (*b)[0] = n;
        return sum(a) + sum(b) + arrayLength(b);
    }
    fn last(values: ptr<private, array<u32>>) -> u32 { return values[arrayLength(values) - 1u]; }
    fn first(values: ptr<workgroup, array<u32>>) -> u32 { return (*values)[0] + arrayLength(values); }
    fn nobody(values: ptr<function, array<f32>>) -> f32 { return values[0]; }
    fn ordinary(x: u32) -> u32 { return x + 1u; }";

#[test]
fn one_helper_serves_arrays_of_all_lengths() {
    let body = "var a: array<u32, 4>; var b: array<u32, 70>;
        a[n] = ordinary(n);
        o[0] = sum(&a) + sum(&b) + both(&a, n, &b) + last(&kept) + first(&group);";
    let source = kernel(SUM, body);
    let mut module = parse(&source);
    assert_eq!(run(&mut module, false), Ok(Some(Vec::new())));
    let written = text(&module, &source);
    assert_eq!(occurrences(&written, "fn sum"), 2, "{written}");
    assert_eq!(occurrences(&written, "arrayLength"), 0, "{written}");
    assert_eq!(occurrences(&written, "nobody"), 0, "{written}");
    assert!(crate::kernel::passes::every_loop_ends(&module));
}

#[test]
fn each_index_is_checked_in_each_helper() {
    let body = "var a: array<u32, 4>; var b: array<u32, 70>;
        o[0] = sum(&a) + sum(&b) + both(&a, n, &b) + last(&kept) + first(&group);";
    let source = kernel(SUM, body);
    let mut module = parse(&source);
    let sites = run(&mut module, true).unwrap().unwrap();
    // In `sum`, twice, and in `last`; the other helpers have known indices.
    assert_eq!(sites.len(), 3);
    assert!(sites.iter().all(Span::is_defined));
    for (_, variable) in module.global_variables.iter_mut() {
        if variable.name.as_deref() == Some("tombolo_status") {
            variable.binding = Some(naga::ResourceBinding {
                group: 3,
                binding: 0,
            });
        }
    }
    let written = text(&module, &source);
    assert_eq!(occurrences(&written, "tombolo_span_fault("), 4, "{written}");
}

#[test]
fn modules_without_spans_stay_as_they_are() {
    let mut module = parse(&kernel("", "var a: array<u32, 4>; o[0] = a[n];"));
    assert_eq!(run(&mut module, true), Ok(None));
}

#[test]
fn other_arguments_are_refused() {
    for (argument, found) in [
        ("&f", "a pointer to `array<f32, 4>` in the function space"),
        ("&x", "a pointer to `u32` in the function space"),
        ("&kept", "a pointer to `array<u32, 3>` in the private space"),
        ("n", "no pointer to an array"),
        (
            "&group",
            "a pointer to `array<u32, 9>` in the workgroup space",
        ),
    ] {
        let body = format!("var f: array<f32, 4>; var x = 3u; o[0] = sum({argument});");
        let mut module = parse(&kernel(SUM, &body));
        let error = run(&mut module, false).expect_err("does not fit");
        assert!(error.message.contains(found), "{}", error.message);
        assert!(error.message.contains("argument 1 of `sum` (`values`)"));
        assert!(error.span.is_defined());
    }
}
