//! Polling kernels that do, on demand, what no server does.

use super::tests_hostile::PORTS;
use crate::kernel::server::Places;

/// Behind the words of a lease: the evil for the kernel to do.
pub(super) fn evil_at(places: &Places) -> usize {
    places.start + 1
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Evil {
    Nothing,
    /// Statuses without a meaning, or a failure unheard of.
    Status,
    FailedNever,
    FailedNow,
    /// Calls are taken, and not answered.
    Silent,
    /// Never posted calls are answered: the next call at the same port, and at all others.
    Ahead,
    Others,
    /// The next call of a port is said to be taken.
    TakesNext,
    /// A seal is wrong, where there are seals.
    Seal,
    /// The host's words are written over.
    Header,
    Requests,
    Hides,
    /// The heartbeat does not move, or moves without end while the lease does not leave.
    NoBeat,
    BeatsForEver,
    ForEver,
    /// The last word does not come, is another word, or comes long before the end.
    NoDone,
    OtherDone,
    EarlyDone,
    /// Nothing is looked at.
    Blind,
}

pub(super) use Evil::*;

pub(super) const EVILS: [Evil; 18] = [
    Status,
    FailedNever,
    FailedNow,
    Silent,
    Ahead,
    Others,
    TakesNext,
    Seal,
    Header,
    Requests,
    Hides,
    NoBeat,
    NoDone,
    OtherDone,
    EarlyDone,
    Blind,
    BeatsForEver,
    ForEver,
];

/// Replaces what has to be there.
fn put(text: &mut String, what: &str, with: &str) {
    assert!(text.contains(what), "{what} in {text}");
    *text = text.replace(what, with);
}

/// The polling kernel, with all evils.
pub(super) fn spoil(mut text: String, places: &Places) -> String {
    let is = |evil: Evil| {
        format!(
            "(atomicLoad(&tombolo_server[{}u]) == {}u)",
            evil_at(places),
            evil as u32
        )
    };
    let out = match text.contains("tombolo_server_seal(results, status") {
        true => "tombolo_answers",
        false => "tombolo_server",
    };
    let alone = text.contains("tombolo_server_publish(reply, request);");
    let (reply, request, done, leaving) = match alone {
        true => (
            "reply",
            "request",
            format!("{}u + lane", places.done),
            "leaving",
        ),
        false => (
            "tombolo_server_reply",
            "call[2]",
            format!("{}u", places.done),
            "tombolo_server_leaving",
        ),
    };
    let head = match out {
        "tombolo_server" => "atomicStore(&tombolo_server[results], status);".to_owned(),
        _ => format!("tombolo_server_seal(results, status, {reply}, {request});"),
    };
    let statuses = format!(
        "if {} {{ status = 77u; }}
        if {} || {} {{ status = 13u; }}
        {head}
        if {} {{ atomicStore(&{out}[results + 1u], 4000000000u); }}
        if {} {{ atomicStore(&{out}[results + 1u], atomicLoad(&tombolo_server[{}u])); }}
        if {} {{ atomicAdd(&{out}[results + 3u], 1u); }}",
        is(Status),
        is(FailedNever),
        is(FailedNow),
        is(FailedNever),
        is(FailedNow),
        places.lease,
        is(Seal),
    );
    put(&mut text, &head, &statuses);
    let stride = places.mailbox_stride;
    let publish = format!("tombolo_server_publish({reply}, {request});");
    let published = format!(
        "if !{} && !{} {{ {publish} }}
        if {} {{ tombolo_server_publish({reply}, {request} + 1u); }}
        if {} {{
            for (var i = 0u; i < {PORTS}u; i++) {{
                let at = {}u + i * {stride}u;
                if at != {reply} {{ tombolo_server_publish(at, 0xdeadu + i); }}
            }}
        }}
        if {} {{
            for (var i = 0u; i < 5u; i++) {{
                atomicStore(&tombolo_server[{}u + i], 0x12345u * (i + {request}));
            }}
        }}
        if {} {{
            for (var i = 0u; i < {PORTS}u; i++) {{
                atomicStore(&tombolo_server[{}u + i * {stride}u], 0xbad00u + i);
            }}
        }}",
        is(Silent),
        is(Ahead),
        is(Ahead),
        is(Others),
        places.replies,
        is(Header),
        places.bell,
        is(Requests),
        places.requests,
    );
    put(&mut text, &publish, &published);
    let taken = "(&tombolo_server[taken], request);";
    let next = format!(
        "(&tombolo_server[taken], request + select(0u, 1u, {}));",
        is(TakesNext)
    );
    put(&mut text, taken, &next);
    let beat = match alone {
        true => format!("{}u + tombolo_server_lane", places.beat),
        false => format!("{}u", places.beat),
    };
    let beat = format!("atomicStore(&{out}[{beat}], tombolo_server_beats);");
    put(
        &mut text,
        &beat,
        &format!("if !{} {{ {beat} }}", is(NoBeat)),
    );
    let last = format!("tombolo_server_publish({done}, lease);");
    let lasts = format!(
        "if !{} {{ tombolo_server_publish({done}, lease + select(0u, 7u, {})); }}",
        is(NoDone),
        is(OtherDone)
    );
    put(&mut text, &last, &lasts);
    let most = format!("let most = atomicLoad(&tombolo_server[{}u]);", places.most);
    let early = format!("{most} if {} && lane == 0u {{ {last} }}", is(EarlyDone));
    put(&mut text, &most, &early);
    let end = match alone {
        true => "var end = ",
        false => "tombolo_server_end = ",
    };
    let ports = places.ports;
    let blind = format!("{end}select({ports}u, 0u, {});", is(Blind));
    put(&mut text, &format!("{end}{ports}u;"), &blind);
    for remote in ["var remote = lane;", "tombolo_server_remote = 0u;"] {
        // Where kernels of other devices call.
        let blind = remote.replace(';', &format!(" + select(0u, 4096u, {});", is(Blind)));
        text = text.replace(remote, &blind);
    }
    let leave = format!("{leaving} = tombolo_server_turns >= most");
    let stay = format!(
        "for (var i = 0u; i < {ports}u && {}; i++) {{
            atomicStore(&tombolo_server[{}u + i * {stride}u], atomicLoad(&tombolo_server[{}u + i]));
        }}
        loop {{
            let beats = {};
            if !beats && !{} {{ break; }}
            if beats {{ tombolo_server_beats += 1u; {} }}
            tombolo_server_turns += 1u;
        }}
        {leave}",
        is(Hides),
        places.requests,
        places.locks,
        is(BeatsForEver),
        is(ForEver),
        beat.replace("tombolo_server_lane", "0u"),
    );
    put(&mut text, &leave, &stay);
    text
}

/// Arguments for which a slice is answered with a status without a meaning, with a failure unheard of, and with the
/// number of another lease.
pub(super) const SLICE_EVILS: [u32; 3] = [77_000, 13_000, 5_000];

/// The kernel of slices, with these evils.
pub(super) fn spoil_slices(mut text: String, _: &Places) -> String {
    let [status, failed, lease] = SLICE_EVILS;
    let own = "tombolo_answers[results + 1u] = tombolo_requests[1];";
    let x = match text.contains("tombolo_server_call") {
        true => "call[5]",
        false => "tombolo_requests[arguments + 2u]",
    };
    let wrong = format!(
        "if {x} == {status}u {{ tombolo_answers[results] = 77u; }}
        if {x} == {failed}u {{ tombolo_answers[results] = 13u; }}
        tombolo_answers[results + 1u] = tombolo_requests[1] + select(0u, 1u, {x} == {lease}u);"
    );
    put(&mut text, own, &wrong);
    text
}
