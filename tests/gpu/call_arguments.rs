//! Long lists of arguments, in both directions: functions of the host called by kernels, streams, and functions of servers
//! called by threads.

use std::sync::{Arc, Mutex};

use crate::cases;
use crate::harness::{Fixture, kernel_of, run_with};
use crate::persistent::{MINUTE, builder, start};
use tombolo::{
    HostServices, PersistentKernel, Ptr,
    calls::CallStream,
    server::{CallArguments, DeviceFunction, HostServer},
};

cases![
    kernels_call_with_seven_arguments,
    kernels_call_with_twelve_arguments,
    kernels_begin_and_post_calls_with_twelve_arguments,
    streams_open_with_seven_and_twelve_arguments,
    threads_call_with_seven_arguments,
    threads_call_with_twelve_arguments,
];

/// What is made of the words of all arguments, in their order: each word and each place counts.
fn digest(words: &[u32]) -> u32 {
    (words.iter()).fold(17, |sum, word| {
        sum.rotate_left(5).wrapping_add(*word) ^ 0x5bd1
    })
}

type Seven = (u32, [f32; 3], i32, Ptr<u32>, f32, [u32; 2], u32);
type Twelve = (
    u32,
    f32,
    [f32; 3],
    i32,
    [u32; 2],
    Ptr<u32>,
    u32,
    i32,
    [i32; 4],
    f32,
    [[f32; 2]; 2],
    u32,
);

const SEVEN: &str =
    "fn seven(a: u32, b: vec3<f32>, c: i32, d: usm_ptr, e: f32, f: vec2<u32>, g: u32) -> u32";
const TWELVE: &str = "fn twelve(a: u32, b: f32, c: vec3<f32>, d: i32, e: vec2<u32>, f: usm_ptr, g: u32, h: i32, \
     i: vec4<i32>, j: f32, k: mat2x2<f32>, l: u32) -> u32";

/// The arguments of call `n`.
fn seven_of(n: u32) -> Seven {
    let x = n as f32;
    let at = Ptr::from_address(u64::from(n + 4) << 32 | u64::from(n + 5));
    (
        n,
        [x, x + 0.5, -x],
        -(n as i32),
        at,
        x * 0.25,
        [n + 6, n + 7],
        n + 8,
    )
}

fn twelve_of(n: u32) -> Twelve {
    let (x, i) = (n as f32, n as i32);
    let at = Ptr::from_address(u64::from(n + 4) << 32 | u64::from(n + 5));
    (
        n,
        x * 0.25,
        [x, x + 0.5, -x],
        -i,
        [n + 6, n + 7],
        at,
        n + 8,
        i - 100,
        [i, -i, i + 1, -i - 1],
        -x,
        [[x, x + 1.0], [x + 2.0, x + 3.0]],
        n + 9,
    )
}

/// The same in WGSL, in a kernel that counts calls by `n`.
const OF_SEVEN: &str = "n, vec3(f32(n), f32(n) + 0.5, -f32(n)), -i32(n), vec2(n + 5u, n + 4u), f32(n) * 0.25, \
     vec2(n + 6u, n + 7u), n + 8u";
const OF_TWELVE: &str = "n, f32(n) * 0.25, vec3(f32(n), f32(n) + 0.5, -f32(n)), -i32(n), vec2(n + 6u, n + 7u), \
     vec2(n + 5u, n + 4u), n + 8u, i32(n) - 100, vec4(i32(n), -i32(n), i32(n) + 1, -i32(n) - 1), -f32(n), \
     mat2x2(f32(n), f32(n) + 1.0, f32(n) + 2.0, f32(n) + 3.0), n + 9u";

/// The words of arguments, by the trait whose words the tests of the crate know.
fn words<A: CallArguments>(arguments: &A) -> Vec<u32> {
    let mut words = vec![0; A::words()];
    arguments.put(&mut words);
    words
}

fn seven(a: u32, b: [f32; 3], c: i32, d: Ptr<u32>, e: f32, f: [u32; 2], g: u32) -> u32 {
    digest(&words(&(a, b, c, d, e, f, g)))
}

#[allow(clippy::too_many_arguments, reason = "that is what is tested")]
fn twelve(
    a: u32,
    b: f32,
    c: [f32; 3],
    d: i32,
    e: [u32; 2],
    f: Ptr<u32>,
    g: u32,
    h: i32,
    i: [i32; 4],
    j: f32,
    k: [[f32; 2]; 2],
    l: u32,
) -> u32 {
    digest(&words(&(a, b, c, d, e, f, g, h, i, j, k, l)))
}

/// Words by hand: the two 32-bit halves of a pointer lie low half first, and each argument begins a word.
fn expected_seven(n: u32) -> u32 {
    let x = n as f32;
    let mut words = vec![n];
    words.extend([x, x + 0.5, -x].map(f32::to_bits));
    words.extend([n.wrapping_neg(), n + 5, n + 4, (x * 0.25).to_bits()]);
    words.extend([n + 6, n + 7, n + 8]);
    digest(&words)
}

fn expected_twelve(n: u32) -> u32 {
    let x = n as f32;
    let mut words = vec![n, (x * 0.25).to_bits()];
    words.extend([x, x + 0.5, -x].map(f32::to_bits));
    words.extend([n.wrapping_neg(), n + 6, n + 7, n + 5, n + 4, n + 8]);
    words.extend([n.wrapping_sub(100), n, n.wrapping_neg(), n + 1]);
    words.extend([(n + 1).wrapping_neg(), (-x).to_bits()]);
    words.extend([x, x + 1.0, x + 2.0, x + 3.0].map(f32::to_bits));
    words.push(n + 9);
    digest(&words)
}

const HEAD: &str = "@group(0) @binding(0) var<storage, read_write> out: array<u32>;
    @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) { let n = id.x;";

fn check_calls(f: &Fixture, services: &HostServices, body: &str, expected: fn(u32) -> u32) {
    let kernel = kernel_of(&f.device, services, &format!("{HEAD} {body} }}"));
    let (out, result) = run_with(&kernel, services, 64, |launch| launch.invocations(64));
    result.unwrap();
    let expected: Vec<u32> = (0..64).map(expected).collect();
    assert_eq!(out.read().unwrap(), expected);
}

fn kernels_call_with_seven_arguments(f: &Fixture) {
    let services = HostServices::builder().call(SEVEN, seven).start().unwrap();
    let body = format!("out[n] = seven({OF_SEVEN});");
    check_calls(f, &services, &body, expected_seven);
}

fn kernels_call_with_twelve_arguments(f: &Fixture) {
    let services = HostServices::builder()
        .call(TWELVE, twelve)
        .start()
        .unwrap();
    let body = format!("out[n] = twelve({OF_TWELVE});");
    check_calls(f, &services, &body, expected_twelve);
    let body = format!("out[n] = twelve_group(true, {OF_TWELVE});");
    check_calls(f, &services, &body, expected_twelve);
}

fn kernels_begin_and_post_calls_with_twelve_arguments(f: &Fixture) {
    let seen: Arc<Mutex<Vec<u32>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let post = move |a: u32, b, c, d, e, f, g, h, i, j, k, l| {
        let sum = twelve(a, b, c, d, e, f, g, h, i, j, k, l);
        noted.lock().unwrap().push(sum);
        sum
    };
    let services = HostServices::builder().call(TWELVE, post).ports(256);
    let services = services.start().unwrap();
    let body = format!("out[n] = twelve_begin({OF_TWELVE});");
    let begin = kernel_of(&f.device, &services, &format!("{HEAD} {body} }}"));
    let (tickets, result) = run_with(&begin, &services, 64, |launch| launch.invocations(64));
    result.unwrap();
    let collect = "out[n] = twelve_collect(out[n]).value;";
    let collect = kernel_of(&f.device, &services, &format!("{HEAD} {collect} }}"));
    let mut launch = collect
        .launch()
        .services(&services)
        .buffer("out", &tickets)
        .invocations(64);
    let expected: Vec<u32> = (0..64).map(expected_twelve).collect();
    // An answer may not be there yet: the ticket is good until it is collected, and the word is the ticket no more then.
    let is_served = || seen.lock().unwrap().len() >= 64;
    crate::persistent::until("the calls are served", is_served);
    launch.submit().unwrap().wait_timeout(MINUTE).unwrap();
    assert_eq!(tickets.read().unwrap(), expected);
    seen.lock().unwrap().clear();
    let body = format!("out[n] = twelve_post({OF_TWELVE});");
    let post = kernel_of(&f.device, &services, &format!("{HEAD} {body} }}"));
    let (_, result) = run_with(&post, &services, 64, |launch| launch.invocations(64));
    result.unwrap();
    crate::persistent::until("the calls are served", is_served);
    let mut seen = seen.lock().unwrap().clone();
    let mut expected = expected;
    seen.sort_unstable();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}

/// Gives back what its opening was given.
struct Opened(u32);

impl CallStream for Opened {
    type Output = u32;

    fn close(self) -> u32 {
        self.0
    }
}

fn streams_open_with_seven_and_twelve_arguments(f: &Fixture) {
    if !f.device.capabilities().live_memory() {
        return;
    }
    let services = HostServices::builder()
        .stream(SEVEN, |a, b, c, d, e, f, g| {
            Opened(seven(a, b, c, d, e, f, g))
        })
        .stream(TWELVE, |a, b, c, d, e, f, g, h, i, j, k, l| {
            Opened(twelve(a, b, c, d, e, f, g, h, i, j, k, l))
        })
        .start()
        .unwrap();
    for (name, arguments, expected) in [
        ("seven", OF_SEVEN, expected_seven as fn(u32) -> u32),
        ("twelve", OF_TWELVE, expected_twelve),
    ] {
        let body = format!(
            "var stream = {name}_open({arguments});
             out[n] = {name}_close(&stream).value;"
        );
        check_calls(f, &services, &body, expected);
    }
}

/// The functions in WGSL, with their results made word by word.
const SERVED: &str = "
    fn more(sum: u32, word: u32) -> u32 { return (((sum << 5u) | (sum >> 27u)) + word) ^ 0x5bd1u; }
    fn more2(sum: u32, words: vec2<u32>) -> u32 { return more(more(sum, words.x), words.y); }
    fn more3(sum: u32, words: vec3<f32>) -> u32 { return more(more2(sum, bitcast<vec2<u32>>(words.xy)), bitcast<u32>(words.z)); }
    fn seven(a: u32, b: vec3<f32>, c: i32, d: usm_ptr, e: f32, f: vec2<u32>, g: u32) -> u32 {
        var sum = more3(more(17u, a), b);
        sum = more2(more(sum, bitcast<u32>(c)), d);
        return more(more2(more(sum, bitcast<u32>(e)), f), g);
    }
    fn twelve(a: u32, b: f32, c: vec3<f32>, d: i32, e: vec2<u32>, f: usm_ptr, g: u32, h: i32,
        i: vec4<i32>, j: f32, k: mat2x2<f32>, l: u32) -> u32 {
        var sum = more3(more(more(17u, a), bitcast<u32>(b)), c);
        sum = more2(more2(more(sum, bitcast<u32>(d)), e), f);
        sum = more(more(sum, g), bitcast<u32>(h));
        sum = more2(more2(sum, bitcast<vec2<u32>>(i.xy)), bitcast<vec2<u32>>(i.zw));
        sum = more(sum, bitcast<u32>(j));
        sum = more2(more2(sum, bitcast<vec2<u32>>(k[0])), bitcast<vec2<u32>>(k[1]));
        return more(sum, l);
    }";

fn served<A: CallArguments + Clone + Sync>(
    f: &Fixture,
    name: &str,
    of: fn(u32) -> A,
) -> (PersistentKernel, DeviceFunction<A, u32>, Vec<A>) {
    let server = start(builder(&f.device, SERVED).handler(name));
    let function = server.function::<A, u32>(name).unwrap();
    (server, function, (0..40).map(of).collect())
}

fn check_served<A: CallArguments + Clone + Sync>(
    f: &Fixture,
    name: &str,
    of: fn(u32) -> A,
    expected: fn(u32) -> u32,
) {
    let (_server, function, arguments) = served(f, name, of);
    let expected: Vec<u32> = (0..40).map(expected).collect();
    for (arguments, expected) in arguments.iter().zip(&expected) {
        assert_eq!(function.call_timeout(arguments, MINUTE).unwrap(), *expected);
    }
    assert_eq!(function.call_all(&arguments).unwrap(), expected);
}

fn threads_call_with_seven_arguments(f: &Fixture) {
    check_served(f, "seven", seven_of, expected_seven);
}

fn threads_call_with_twelve_arguments(f: &Fixture) {
    check_served(f, "twelve", twelve_of, expected_twelve);
    let host = HostServer::builder()
        .handler(TWELVE, twelve)
        .start()
        .unwrap();
    let function = host.function::<Twelve, u32>("twelve").unwrap();
    let found = function.call_timeout(&twelve_of(5), MINUTE).unwrap();
    assert_eq!(found, expected_twelve(5));
}
