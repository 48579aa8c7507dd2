//! Scalars beyond 32 bits, and halves, as arguments, results and members of structures: calls to the host in every form, and
//! functions of servers. Devices without such a scalar refuse, with advice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::cases;
use crate::harness::{Fixture, kernel_of};
use crate::persistent::{MINUTE, builder, start, until};
use bytemuck::{Pod, Zeroable};
use half::f16;
use tombolo::{
    Constants, DeviceBuffer, HostServices, Kernel, Program, calls::CallStream, device::Aspect,
    kernel::KernelError, server::ServerError,
};

cases![
    u64_travels_to_the_host,
    i64_travels_to_the_host,
    f64_travels_to_the_host,
    f16_travels_to_the_host,
    u64_travels_to_servers,
    i64_travels_to_servers,
    f64_travels_to_servers,
    f16_travels_to_servers,
];

/// A structure with a scalar, a vector and an array of a type, as WGSL lays it out.
trait Record: Pod + PartialEq + std::fmt::Debug + Send + Sync {
    type Scalar: Pod + Send + Sync;
    /// The scalar in WGSL.
    const NAME: &'static str;
    /// The needs on a device.
    const NEEDS: &'static [Aspect];
    fn of(index: usize) -> Self;
    fn scalar(&self) -> Self::Scalar;
    /// The answer of a call.
    fn turned(x: Self::Scalar, record: Self) -> Self;
}

macro_rules! record {
    ($name:ident, $scalar:ty, $wgsl:literal, $before:literal, $after:literal, $needs:expr, $samples:expr) => {
        #[repr(C)]
        #[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
        struct $name {
            b: $scalar,
            before: [u16; $before],
            a: u32,
            after: [u32; $after],
            c: [$scalar; 2],
            d: [$scalar; 2],
        }

        impl Record for $name {
            type Scalar = $scalar;
            const NAME: &'static str = $wgsl;
            const NEEDS: &'static [Aspect] = &$needs;

            fn of(index: usize) -> Self {
                let samples = $samples;
                let of = |at: usize| samples[(index * 3 + at) % samples.len()];
                Self {
                    b: of(0),
                    a: index as u32 * 7 + 1,
                    c: [of(1), of(2)],
                    d: [of(3), of(4)],
                    ..Self::zeroed()
                }
            }

            fn scalar(&self) -> $scalar {
                self.b
            }

            fn turned(x: $scalar, record: Self) -> Self {
                Self {
                    b: record.d[1],
                    a: record.a ^ 0x55aa,
                    c: [x, record.b],
                    d: [record.c[1], record.c[0]],
                    ..Self::zeroed()
                }
            }
        }
    };
}

record!(
    OfU64,
    u64,
    "u64",
    0,
    1,
    [Aspect::Int64],
    [
        u64::MAX,
        1 << 63,
        (1 << 32) - 1,
        1 << 32,
        0x0123_4567_89ab_cdef,
        7,
        0xfedc_ba98_0000_0001,
    ]
);
record!(
    OfI64,
    i64,
    "i64",
    0,
    1,
    [Aspect::Int64],
    [
        i64::MIN,
        i64::MAX,
        -1,
        -(1 << 32),
        0x0123_4567_89ab_cdef,
        7,
        -0x0123_4567_89ab_cdef,
    ]
);
record!(
    OfF64,
    f64,
    "f64",
    0,
    1,
    [Aspect::Fp64, Aspect::Int64],
    [
        f64::MAX,
        f64::MIN_POSITIVE,
        -1.0 / 3.0,
        1e-300,
        -123_456_789.012_345,
        std::f64::consts::PI,
        0.0,
    ]
);
record!(
    OfF16,
    f16,
    "f16",
    1,
    0,
    [Aspect::Fp16],
    [
        f16::MAX,
        f16::MIN_POSITIVE,
        f16::MIN,
        f16::from_f32_const(-1.0 / 3.0),
        f16::from_f32_const(1234.5),
        f16::EPSILON,
        f16::ZERO,
    ]
);

/// The structure, and the function on a device.
fn source<R: Record>() -> String {
    let enable = if R::NAME == "f16" { "enable f16;" } else { "" };
    let ty = R::NAME;
    format!(
        "{enable}
        struct Record {{ b: {ty}, a: u32, c: vec2<{ty}>, d: array<{ty}, 2> }}"
    )
}

const COUNT: u32 = 64;

fn records<R: Record>() -> Vec<R> {
    (0..COUNT as usize).map(R::of).collect()
}

fn expected<R: Record>() -> Vec<R> {
    let turned = |record: R| R::turned(record.scalar(), record);
    records::<R>().into_iter().map(turned).collect()
}

fn has<R: Record>(f: &Fixture) -> bool {
    let capabilities = f.device.capabilities();
    R::NEEDS.iter().all(|aspect| capabilities.has(*aspect))
}

/// Whether an error names the missing aspects, the type and the remedy.
fn is_told<R: Record>(why: &str) -> bool {
    R::NEEDS
        .iter()
        .all(|aspect| why.contains(&format!("Aspect::{aspect:?}")))
        && why.contains(R::NAME)
        && why.contains("hand over `")
}

/// Closes with the record of the opening, turned.
struct Opened<R: Record>(R);

impl<R: Record> CallStream for Opened<R> {
    type Output = R;

    fn close(self) -> R {
        self.0
    }
}

fn whole<R: Record>(body: &str) -> String {
    format!(
        "{}
        @group(0) @binding(0) var<storage, read> given: array<Record>;
        @group(0) @binding(1) var<storage, read_write> turned: array<Record>;
        @group(0) @binding(2) var<storage, read_write> tickets: array<u32>;
        @compute @workgroup_size(32) fn main(@builtin(global_invocation_id) id: vec3<u32>) {{
            let record = given[id.x];
            tickets[id.x] += 0u;
            turned[id.x].a += 0u;
            {body}
        }}",
        source::<R>()
    )
}

struct Machine<R: Record> {
    services: HostServices,
    given: DeviceBuffer<R>,
    turned: DeviceBuffer<R>,
    tickets: DeviceBuffer<u32>,
    served: Arc<AtomicU32>,
}

impl<R: Record> Machine<R> {
    fn new(f: &Fixture) -> Self {
        let served = Arc::new(AtomicU32::new(0));
        let counting = Arc::clone(&served);
        let turn = move |x: R::Scalar, record: R| {
            counting.fetch_add(1, Ordering::Relaxed);
            R::turned(x, record)
        };
        let signature = format!("(x: {}, record: Record) -> Record", R::NAME);
        let open = |x: R::Scalar, record: R| Opened(R::turned(x, record));
        let services = HostServices::builder()
            .call(&format!("fn turn{signature}"), turn)
            .stream(&format!("fn turning{signature}"), open)
            .ports(256)
            .start()
            .unwrap();
        Self {
            services,
            given: f.device.buffer(&records::<R>()).unwrap(),
            turned: f.device.buffer(&expected::<R>()).unwrap(),
            tickets: f.device.buffer(&[0u32; COUNT as usize]).unwrap(),
            served,
        }
    }

    fn poison(&self) {
        let poison = vec![R::zeroed(); COUNT as usize];
        assert!(expected::<R>().iter().all(|record| *record != R::zeroed()));
        self.turned.write(0, &poison).unwrap();
    }

    fn kernel(&self, f: &Fixture, body: &str) -> Kernel {
        kernel_of(&f.device, &self.services, &whole::<R>(body))
    }

    fn run(&self, kernel: &Kernel) {
        let launch = kernel
            .launch()
            .services(&self.services)
            .buffer("given", &self.given)
            .buffer("turned", &self.turned)
            .buffer("tickets", &self.tickets);
        let event = launch.invocations(COUNT).submit().unwrap();
        event.wait_timeout(MINUTE).unwrap();
    }

    fn check(&self, f: &Fixture, form: &str, body: &str) {
        self.poison();
        self.run(&self.kernel(f, body));
        assert_eq!(self.turned.read().unwrap(), expected::<R>(), "{form}");
    }
}

fn to_the_host<R: Record>(f: &Fixture) {
    let plain = "turned[id.x] = turn(record.b, record);";
    let machine = Machine::<R>::new(f);
    if !has::<R>(f) {
        let program = Program::builder()
            .source("calls.wgsl", whole::<R>(plain))
            .services(&machine.services)
            .build()
            .unwrap();
        let error = f.device.kernel(&program, "main", &Constants::new());
        let error = error.map(|_| ()).unwrap_err();
        let KernelError::HostCall { function, why, .. } = &error else {
            panic!("{error}");
        };
        assert!(function.starts_with("fn turn(x: "), "{function}");
        assert!(is_told::<R>(why) && why.starts_with("`x` is a "), "{why}");
        return;
    }
    machine.check(f, "plain", plain);
    let group = "turned[id.x] = turn_group(true, record.b, record);";
    machine.check(f, "group", group);
    let stream = "var stream = turning_open(record.b, record);
        turned[id.x] = turning_close(&stream).value;";
    machine.check(f, "stream", stream);
    machine.served.store(0, Ordering::Relaxed);
    machine.run(&machine.kernel(f, "tickets[id.x] = turn_begin(record.b, record);"));
    until("the calls are served", || {
        machine.served.load(Ordering::Relaxed) == COUNT
    });
    let collect = "turned[id.x] = turn_collect(tickets[id.x]).value;";
    machine.check(f, "begin and collect", collect);
    machine.served.store(0, Ordering::Relaxed);
    machine.run(&machine.kernel(f, "tickets[id.x] = turn_post(record.b, record);"));
    until("the posts are served", || {
        machine.served.load(Ordering::Relaxed) == COUNT
    });
}

fn to_servers<R: Record>(f: &Fixture) {
    let source = format!(
        "{}
        fn turn(x: {}, record: Record) -> Record {{
            var turned: Record;
            turned.b = record.d[1];
            turned.a = record.a ^ 0x55aau;
            turned.c = vec2(x, record.b);
            turned.d[0] = record.c.y;
            turned.d[1] = record.c.x;
            return turned;
        }}",
        source::<R>(),
        R::NAME
    );
    let builder = builder(&f.device, &source).handler("turn");
    if !has::<R>(f) {
        let error = builder.start().map(|_| ()).unwrap_err();
        let ServerError::Handler { handler, why } = &error else {
            panic!("{error}");
        };
        assert_eq!(handler, "turn");
        assert!(is_told::<R>(why) && why.starts_with("`x` is a "), "{why}");
        return;
    }
    let server = start(builder);
    let turn = server.function::<(R::Scalar, R), R>("turn").unwrap();
    let arguments: Vec<_> = (records::<R>().into_iter())
        .map(|record| (record.scalar(), record))
        .collect();
    let expected = expected::<R>();
    assert_eq!(turn.call_all(&arguments).unwrap(), expected);
    let one = turn.call_timeout(&arguments[5], MINUTE).unwrap();
    assert_eq!(one, expected[5]);
    let error = server.function::<(R, R), R>("turn").map(|_| ());
    assert!(
        matches!(error, Err(ServerError::Signature { .. })),
        "{error:?}"
    );
}

fn u64_travels_to_the_host(f: &Fixture) {
    to_the_host::<OfU64>(f);
}

fn i64_travels_to_the_host(f: &Fixture) {
    to_the_host::<OfI64>(f);
}

fn f64_travels_to_the_host(f: &Fixture) {
    to_the_host::<OfF64>(f);
}

fn f16_travels_to_the_host(f: &Fixture) {
    to_the_host::<OfF16>(f);
}

fn u64_travels_to_servers(f: &Fixture) {
    to_servers::<OfU64>(f);
}

fn i64_travels_to_servers(f: &Fixture) {
    to_servers::<OfI64>(f);
}

fn f64_travels_to_servers(f: &Fixture) {
    to_servers::<OfF64>(f);
}

fn f16_travels_to_servers(f: &Fixture) {
    to_servers::<OfF16>(f);
}
