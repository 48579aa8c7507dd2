//! Structures of calls, declared by `shared!` in Rust and again in WGSL: compared field by field before anything runs, in
//! both directions.

use crate::cases;
use crate::harness::{Fixture, kernel_of, run_with};
use crate::persistent::{MINUTE, builder, start};
use bytemuck::{Pod, Zeroable};
use tombolo::{
    HostServices, PersistentKernel, Program,
    calls::CallStream,
    kernel::{HostShareable, KernelError, LayoutDifference, LayoutFault, RustLayout},
    launch::LaunchError,
    layout_of,
    server::ServerError,
    shared,
};

cases![
    structures_travel_to_the_host_and_back,
    structures_travel_to_servers_and_back,
    programs_with_other_structures_are_refused,
    streams_with_other_structures_are_refused,
    handlers_with_other_structures_are_refused,
    types_that_no_macro_declared_are_compared_when_named,
    services_with_another_structure_are_refused,
];

shared! {
    #[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
    struct Spot {
        at: [f32; 3],
        weight: f32,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
    struct Body {
        spot: Spot,
        spots: [Spot; 2],
        count: u32,
        charge: f32,
        _pad: [u32; 2],
    }

    #[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
    struct Tight {
        count: u32,
        spot: Spot,
    }
}

const SPOT: &str = "struct Spot { at: vec3<f32>, weight: f32 }";
const BODY: &str = "struct Body { spot: Spot, spots: array<Spot, 2>, count: u32, charge: f32 }";
const TIGHT: &str = "struct Tight { count: u32, spot: Spot }";

/// A difference of a program from the Rust structures above.
struct Slip {
    /// The declarations of the program.
    structures: [&'static str; 3],
    /// The function whose value is another structure, and the value.
    function: &'static str,
    value: &'static str,
    /// The first fault: the field, the text, and the kind.
    field: &'static str,
    says: &'static str,
    kind: fn(&LayoutFault) -> bool,
}

const TURN: &str = "fn turn(body: Body) -> Body";
const PICK: &str = "fn pick(i: u32, bodies: array<Body, 3>) -> Spot";
const TAKE: &str = "fn take(i: u32, tight: Tight) -> u32";

fn is_type(fault: &LayoutFault) -> bool {
    matches!(fault, LayoutFault::Type { .. })
}

fn is_offset(fault: &LayoutFault) -> bool {
    matches!(fault, LayoutFault::Offset { .. })
}

fn is_missing(fault: &LayoutFault) -> bool {
    matches!(fault, LayoutFault::MissingInWgsl { .. })
}

const SLIPS: [Slip; 6] = [
    // Fields in another order, of the same sizes.
    Slip {
        structures: [
            SPOT,
            "struct Body { spot: Spot, spots: array<Spot, 2>, charge: f32, count: u32 }",
            "",
        ],
        function: TURN,
        value: "`body`",
        field: "count",
        says: "`count` lies at byte 48 in Rust and at byte 52 in WGSL",
        kind: is_offset,
    },
    // Another scalar of the same size.
    Slip {
        structures: [
            SPOT,
            "struct Body { spot: Spot, spots: array<Spot, 2>, count: i32, charge: f32 }",
            "",
        ],
        function: TURN,
        value: "`body`",
        field: "count",
        says: "`count` is a `u32` in Rust and a `i32` in WGSL; declare it as `i32` in Rust",
        kind: is_type,
    },
    // The same in a structure within the structure.
    Slip {
        structures: ["struct Spot { at: vec3<i32>, weight: f32 }", BODY, ""],
        function: TURN,
        value: "`body`",
        field: "spot.at",
        says: "`spot.at` is a `[f32; 3]` in Rust and a `vec3<i32>` in WGSL",
        kind: is_type,
    },
    // Of the elements of an array of structures.
    Slip {
        structures: [
            SPOT,
            "struct Body { spot: Spot, spots: array<Spot, 2>, count: f32, charge: f32 }",
            "",
        ],
        function: PICK,
        value: "`bodies`",
        field: "count",
        says: "`count` is a `u32` in Rust and a `f32` in WGSL",
        kind: is_type,
    },
    // Another name, at the same place.
    Slip {
        structures: [
            SPOT,
            "struct Body { spot: Spot, spots: array<Spot, 2>, number: u32, charge: f32 }",
            "",
        ],
        function: PICK,
        value: "`bodies`",
        field: "count",
        says: "`count` is missing in WGSL",
        kind: is_missing,
    },
    // WGSL aligns the vector within the structure, and Rust has no padding before.
    Slip {
        structures: [SPOT, "", TIGHT],
        function: TAKE,
        value: "`tight`",
        field: "spot",
        says: "`spot` lies at byte 4 in Rust and at byte 16 in WGSL",
        kind: is_offset,
    },
];

impl Slip {
    /// The slip is told, with both layouts.
    fn is_told(&self, function: &str, value: &str, difference: &LayoutDifference, text: &str) {
        assert_eq!((function, value), (self.function, self.value), "{text}");
        let first = &difference.faults[0];
        assert_eq!(first.field(), self.field, "{text}");
        assert!((self.kind)(first), "{first:?}");
        for part in [function, value, self.says, "Rust", "WGSL"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    /// The call of the function in a kernel, whose other functions do not matter.
    fn call(&self) -> &'static str {
        match self.function {
            TURN => "var body: Body; body = turn(body);",
            PICK => "var bodies: array<Body, 3>; out[0] = u32(pick(1u, bodies).weight);",
            _ => "var tight: Tight; out[0] = take(1u, tight);",
        }
    }
}

/// What the functions make of values, on the host.
fn turn(body: Body) -> Body {
    let [first, second] = body.spots;
    Body {
        spot: second,
        spots: [body.spot, first],
        count: body.count * 3 + 1,
        charge: body.charge - 0.5,
        _pad: [0; 2],
    }
}

fn pick(i: u32, bodies: [Body; 3]) -> Spot {
    let body = bodies[i as usize % 3];
    Spot {
        at: body.spots[1].at,
        weight: body.charge,
    }
}

/// The same in WGSL.
const SERVED: &str = "
    fn turn(body: Body) -> Body {
        var turned: Body;
        turned.spot = body.spots[1];
        turned.spots = array(body.spot, body.spots[0]);
        turned.count = body.count * 3u + 1u;
        turned.charge = body.charge - 0.5;
        return turned;
    }
    fn pick(i: u32, bodies: array<Body, 3>) -> Spot {
        var all = bodies;
        return Spot(all[i % 3u].spots[1].at, all[i % 3u].charge);
    }";

fn spot_of(x: f32) -> Spot {
    Spot {
        at: [x, x + 0.25, -x],
        weight: x * 2.0,
    }
}

fn body_of(n: u32) -> Body {
    let x = n as f32;
    Body {
        spot: spot_of(x),
        spots: [spot_of(x + 10.0), spot_of(x + 20.0)],
        count: n + 7,
        charge: x - 3.0,
        _pad: [0; 2],
    }
}

const OF: &str = "
    fn spot_of(x: f32) -> Spot { return Spot(vec3(x, x + 0.25, -x), x * 2.0); }
    fn body_of(n: u32) -> Body {
        let x = f32(n);
        return Body(spot_of(x), array(spot_of(x + 10.0), spot_of(x + 20.0)), n + 7u, x - 3.0);
    }
    fn put(at: u32, spot: Spot) {
        for (var i = 0u; i < 3u; i++) { out[at + i] = bitcast<u32>(spot.at[i]); }
        out[at + 3u] = bitcast<u32>(spot.weight);
    }";

fn words_of(spot: &Spot) -> [u32; 4] {
    let [x, y, z] = spot.at;
    [x, y, z, spot.weight].map(f32::to_bits)
}

fn services() -> HostServices {
    HostServices::builder()
        .call(TURN, turn)
        .call(PICK, pick)
        .call(TAKE, |i: u32, tight: Tight| i + tight.count)
        .start()
        .unwrap()
}

const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {";

fn structures_travel_to_the_host_and_back(f: &Fixture) {
    let services = services();
    let source = format!(
        "{SPOT} {BODY} {OF} {HEAD}
            let at = id.x * 18u;
            let turned = turn(body_of(id.x));
            put(at, turned.spot);
            put(at + 4u, turned.spots[0]);
            put(at + 8u, turned.spots[1]);
            out[at + 12u] = turned.count;
            out[at + 13u] = bitcast<u32>(turned.charge);
            put(at + 14u, pick(id.x, array(body_of(id.x), body_of(id.x + 1u), body_of(id.x + 2u))));
        }}"
    );
    let kernel = kernel_of(&f.device, &services, &source);
    let run = run_with(&kernel, &services, 64 * 18, |launch| launch.invocations(64));
    let (out, result) = run;
    result.unwrap();
    let mut expected = Vec::new();
    for n in 0..64 {
        let turned = turn(body_of(n));
        for spot in [turned.spot, turned.spots[0], turned.spots[1]] {
            expected.extend(words_of(&spot));
        }
        expected.extend([turned.count, turned.charge.to_bits()]);
        let picked = pick(n, [body_of(n), body_of(n + 1), body_of(n + 2)]);
        expected.extend(words_of(&picked));
    }
    assert_eq!(out.read().unwrap(), expected);
}

fn structures_travel_to_servers_and_back(f: &Fixture) {
    let source = format!("{SPOT} {BODY} {SERVED}");
    let server = start(builder(&f.device, &source).handler("turn").handler("pick"));
    let turns = server.function::<(Body,), Body>("turn").unwrap();
    type Picked = (u32, [Body; 3]);
    let picks = server.function::<Picked, Spot>("pick").unwrap();
    for n in 0..20 {
        let found = turns.call_timeout(&(body_of(n),), MINUTE).unwrap();
        assert_eq!(found, turn(body_of(n)));
        let bodies = [body_of(n), body_of(n + 1), body_of(n + 2)];
        let found = picks.call_timeout(&(n, bodies), MINUTE).unwrap();
        assert_eq!(found, pick(n, bodies));
    }
}

fn build(services: &HostServices, source: String) -> Result<Program, KernelError> {
    let program = Program::builder().source("structures.wgsl", source);
    program.services(services).build()
}

fn programs_with_other_structures_are_refused(_: &Fixture) {
    let services = services();
    for slip in &SLIPS {
        let source = format!("{} {HEAD} {} }}", slip.structures.join(" "), slip.call());
        let error = build(&services, source).unwrap_err();
        let text = error.to_string();
        let KernelError::HostCallLayout {
            function,
            value,
            difference,
        } = &error
        else {
            panic!("{error}");
        };
        slip.is_told(function, value, difference, &text);
        assert!(text.contains("structures.wgsl"), "{text}");
    }
    // Results, too.
    let spots = HostServices::builder().call("fn spot() -> Spot", || spot_of(1.0));
    let spots = spots.start().unwrap();
    let source = format!("{SPOT} {HEAD} out[0] = u32(spot().weight); }}");
    let error = build(&spots, source.replace("weight: f32", "weight: u32")).unwrap_err();
    let KernelError::HostCallLayout { value, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(value, "the result");
    // A type that is no structure in WGSL is compared by size, as ever.
    let four = HostServices::builder().call("fn four() -> vec4<f32>", || spot_of(1.0));
    let four = four.start().unwrap();
    build(&four, format!("{HEAD} out[0] = u32(four().x); }}")).unwrap();
}

/// Gives back what its opening was given.
struct Opened(Body);

impl CallStream for Opened {
    type Output = Body;

    fn close(self) -> Body {
        self.0
    }
}

fn streams_with_other_structures_are_refused(_: &Fixture) {
    let services = HostServices::builder().stream(TURN, Opened);
    let services = services.start().unwrap();
    let slip = &SLIPS[0];
    let body = "var body: Body; var s = turn_open(body); body = turn_close(&s).value;";
    let source = |structures: &str| format!("{structures} {HEAD} {body} }}");
    build(&services, source(&format!("{SPOT} {BODY}"))).unwrap();
    let error = build(&services, source(&slip.structures.join(" "))).unwrap_err();
    let KernelError::HostCallLayout {
        function,
        value,
        difference,
    } = &error
    else {
        panic!("{error}");
    };
    slip.is_told(function, value, difference, &error.to_string());
}

fn refused<T>(found: Result<T, ServerError>, slip: &Slip) {
    let Err(error) = found else {
        panic!("{} was taken", slip.says);
    };
    let text = error.to_string();
    let ServerError::Layout {
        handler,
        value,
        difference,
    } = error
    else {
        panic!("{text}");
    };
    slip.is_told(&handler, &value, &difference, &text);
    assert_eq!(difference.program, "server.wgsl");
}

fn handlers_with_other_structures_are_refused(f: &Fixture) {
    for slip in &SLIPS {
        let body = match slip.function {
            TURN => "return body; }",
            PICK => "return Spot(vec3(0), 0.0); }",
            _ => "return i + tight.count; }",
        };
        let source = format!("{} {} {{ {body}", slip.structures.join(" "), slip.function);
        let name = match slip.function {
            TURN => "turn",
            PICK => "pick",
            _ => "take",
        };
        let server: PersistentKernel = start(builder(&f.device, &source).handler(name));
        match slip.function {
            TURN => refused(server.function::<(Body,), Body>(name), slip),
            PICK => refused(server.function::<(u32, [Body; 3]), Spot>(name), slip),
            _ => refused(server.function::<(u32, Tight), u32>(name), slip),
        }
        // Sizes agree where only fields do not, and no more is known of plain words.
        if slip.function == TURN {
            let words = server.function::<([u32; 16],), [u32; 16]>(name);
            words.unwrap();
        }
    }
}

/// Declared by no macro, with a member of another name.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Named {
    mass: f32,
    charge: f32,
}

impl HostShareable for Named {
    const LAYOUT: RustLayout = layout_of!(Named { mass => weight, charge });
}

fn types_that_no_macro_declared_are_compared_when_named(f: &Fixture) {
    let swapped = "struct Named { charge: f32, weight: f32 }";
    let alike = "struct Named { weight: f32, charge: f32 }";
    let source =
        |structure: &str| format!("{structure} {HEAD} out[0] = heavy(Named(1.0, 2.0)); }}");
    let served = |structure: &str| {
        format!("{structure} fn heavy(it: Named) -> u32 {{ return u32(it.weight); }}")
    };
    let services = || {
        let builder = HostServices::builder();
        builder.call("fn heavy(it: Named) -> u32", |it: Named| it.mass as u32)
    };
    let plain = services().start().unwrap();
    build(&plain, source(swapped)).unwrap();
    let named = services().shared::<Named>().start().unwrap();
    build(&named, source(alike)).unwrap();
    let error = build(&named, source(swapped)).unwrap_err();
    assert!(
        matches!(&error, KernelError::HostCallLayout { value, .. } if value == "`it`"),
        "{error}"
    );
    let look = |structure: &str, named: bool| {
        let server = builder(&f.device, &served(structure)).handler("heavy");
        let server = start(match named {
            true => server.shared::<Named>(),
            false => server,
        });
        let found = server.function::<(Named,), u32>("heavy");
        found.map(|_| ()).map_err(Box::new)
    };
    look(swapped, false).unwrap();
    look(alike, true).unwrap();
    let error = look(swapped, true).unwrap_err();
    assert!(
        matches!(&*error, ServerError::Layout { value, .. } if value == "`it`"),
        "{error}"
    );
}

fn services_with_another_structure_are_refused(f: &Fixture) {
    mod other {
        use super::{Pod, Zeroable, shared};

        shared! {
            #[derive(Debug, Clone, Copy, Pod, Zeroable)]
            pub struct Spot {
                pub weight: f32,
                pub at: [f32; 3],
            }
        }
    }
    let signature = "fn weigh(spot: Spot) -> u32";
    let services = HostServices::builder().call(signature, |spot: Spot| spot.weight as u32);
    let services = services.start().unwrap();
    let others = HostServices::builder().call(signature, |spot: other::Spot| spot.weight as u32);
    let others = others.start().unwrap();
    let source = format!("{SPOT} {HEAD} out[id.x] = weigh(Spot(vec3(1.0), f32(id.x))); }}");
    let kernel = kernel_of(&f.device, &services, &source);
    let out = f.device.buffer(&[0xDEAD_BEEFu32; 32]).unwrap();
    let launch = kernel.launch().services(&others).buffer("out", &out);
    let error = launch.invocations(32).submit().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, LaunchError::OtherServices { .. }), "{text}");
    assert!(text.contains("another structure"), "{text}");
    assert_eq!(out.read().unwrap(), [0xDEAD_BEEF; 32]);
}
