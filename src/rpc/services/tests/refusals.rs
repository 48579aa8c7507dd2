//! Refusals of services at their start, and errors of a machine without threads or memory for services.

use super::*;

#[test]
fn mistakes_are_told_at_the_start() {
    let start = |signature: &str| {
        let builder = HostServices::builder().call(signature, |a: u32| a);
        builder.start().unwrap_err().to_string()
    };
    assert!(start("f(a: u32) -> u32").contains("does not begin with `fn`"));
    assert!(
        start("fn f(a: u32, b: u32) -> u32")
            .contains("2 parameters, and the Rust function takes 1")
    );
    assert!(start("fn f(a: u32)").contains("of a result the Rust function has one"));
    let twice = HostServices::builder()
        .call("fn f(a: u32) -> u32", |a: u32| a)
        .call("fn f(b: i32)", |_: i32| ());
    assert!(matches!(
        twice.start().unwrap_err(),
        ServiceError::Duplicate { .. }
    ));
    let long = HostServices::builder().call("fn f(a: T)", |_: [[u32; 1024]; 32]| ());
    assert!(matches!(
        long.start().unwrap_err(),
        ServiceError::TooLong { bytes: 131_072, .. }
    ));
    for ports in [0, 65_537] {
        let error = HostServices::builder().ports(ports).start().unwrap_err();
        assert_eq!(
            error,
            ServiceError::Ports {
                ports,
                limit: 65_536
            }
        );
    }
    for threads in [0, 257, usize::MAX] {
        let error = HostServices::builder().threads(threads).start();
        let limit = 256;
        assert_eq!(error.unwrap_err(), ServiceError::Threads { threads, limit });
    }
    let error = HostServices::builder()
        .payload(1 << 20)
        .start()
        .unwrap_err();
    assert!(matches!(error, ServiceError::TooLong { .. }));
}

#[test]
fn signatures_that_are_none_or_do_not_fit_are_refused() {
    let one = |signature: &str| {
        let builder = HostServices::builder().call(signature, |x: u32| x);
        builder.start().map(drop).unwrap_err()
    };
    for signature in [
        "",
        "nonsense",
        "fn f(x: u32) -> u32 { return x; }",
        "fn f() -> u32",
        "fn f(x: u32, y: u32) -> u32",
        "fn f(x: u32)",
    ] {
        let error = one(signature);
        assert!(
            matches!(&error, ServiceError::Signature { signature: of, .. } if of == signature),
            "{signature}: {error}"
        );
    }
    let unit = HostServices::builder().call("fn f(x: Nothing)", |_: [u32; 0]| ());
    let error = unit.start().map(drop).unwrap_err();
    assert!(matches!(error, ServiceError::Signature { .. }), "{error}");
}

/// In a process of its own, with thread stacks of a size beyond every machine.
#[cfg(unix)]
#[test]
fn threads_that_the_system_refuses_are_an_error() {
    use crate::server::{HostServer, ServerError};
    const CHILD: &str = "TOMBOLO_TEST_NO_THREADS";
    if std::env::var_os(CHILD).is_none() {
        let name = "rpc::services::tests::refusals::threads_that_the_system_refuses_are_an_error";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--test-threads=1"])
            .env(CHILD, "1")
            .env("RUST_MIN_STACK", (1u64 << 60).to_string())
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && told.contains("1 passed"),
            "{child:?}"
        );
        return;
    }
    for threads in [1, 4] {
        let error = arithmetic().threads(threads).start().unwrap_err();
        assert!(
            matches!(&error, ServiceError::Thread { message } if !message.is_empty()),
            "{error}"
        );
    }
    let server = HostServer::builder().handler("fn f(x: u32) -> u32", |x: u32| x);
    let error = server.start().map(drop).unwrap_err();
    assert!(
        matches!(&error, ServerError::Thread { message } if !message.is_empty()),
        "{error}"
    );
}

/// In a process of its own, with less address space than the need of the most ports of the greatest length.
#[cfg(target_os = "linux")]
#[test]
fn ports_that_the_host_has_no_memory_for_are_refused() {
    use crate::buffers::MemoryError;
    use crate::launch::LaunchError;
    use crate::server::{HostServer, ServerError};
    const CHILD: &str = "TOMBOLO_TEST_NO_PORTS";
    if std::env::var_os(CHILD).is_none() {
        let name =
            "rpc::services::tests::refusals::ports_that_the_host_has_no_memory_for_are_refused";
        let child = std::process::Command::new("sh")
            .args(["-c", "ulimit -v 4000000 && exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args([name, "--exact", "--test-threads=1"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout);
        assert!(
            child.status.success() && told.contains("1 passed"),
            "{child:?}"
        );
        return;
    }
    let (most, longest) = (1 << 16, 1 << 16);
    let services = arithmetic().ports(most).payload(longest).start().unwrap();
    let error = services.loopback().map(drop).unwrap_err();
    let wanted = services.port_bytes(most);
    assert!(wanted > 8 << 30, "{wanted}");
    assert!(
        matches!(&error, PortsError::Memory(MemoryError::HostMemory { bytes, .. }) if *bytes == wanted),
        "{error}"
    );
    // The same services without the length; and a server of the host that would take as much.
    let services = arithmetic().ports(most).start().unwrap();
    let mut loopback = services.loopback().unwrap();
    assert_eq!(loopback.call("sum", &[1, 2], MINUTE), Ok(vec![3]));
    let server = |ports: usize| {
        type Long = [[u32; 4]; 4096];
        HostServer::builder()
            .handler("fn first(x: array<vec4<u32>, 4096>) -> u32", |x: Long| {
                x[0][0]
            })
            .ports(ports)
            .start()
    };
    let error = server(1 << 15).map(drop).unwrap_err();
    assert!(
        matches!(
            &error,
            ServerError::Launch(LaunchError::Memory(MemoryError::HostMemory { .. }))
        ),
        "{error}"
    );
    assert!(server(1).is_ok());
}
