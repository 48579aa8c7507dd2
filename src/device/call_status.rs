//! Outcomes of calls.

/// The outcome of a call. The numbers are those of `CALL_…` in WGSL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CallStatus {
    /// The call was served, and its result is there.
    Done,
    /// The caller gave up waiting for a call that a server had begun, or may begin yet. It is served once, or not at all.
    TimedOut,
    /// The services have been stopped.
    Stopped,
    /// The server knows no such function.
    Unknown,
    /// The arguments are not as long as the function's, or longer than the port.
    Malformed,
    /// The function panicked on the host.
    Panicked,
    /// The call was begun and has not been answered yet: ask again, in a later launch at the latest.
    Pending,
    /// No call with that ticket is under way: the call was collected or left, or belongs to another function.
    NoTicket,
    /// The stream has nothing more to give.
    End,
    /// The function, on a device, gave up: an `assert` failed, or a `panic` was reached.
    Failed,
    /// The function, on a device, took more turns of its loops than a call may take.
    TooManyTurns,
    /// The call was not begun, and will not be: there was no free port, or no server came round to the call before the
    /// caller's turns of loops were nearly spent, and the caller took the call back. Ask again, in the next launch where
    /// turns are rationed.
    Busy,
    /// Not a status: written by a side that breaks the protocol.
    Invalid(u32),
}

impl CallStatus {
    /// The number that stands for the status in WGSL.
    pub const fn code(self) -> u32 {
        match self {
            Self::Done => 1,
            Self::TimedOut => 2,
            Self::Stopped => 3,
            Self::Unknown => 4,
            Self::Malformed => 5,
            Self::Panicked => 6,
            Self::Pending => 7,
            Self::NoTicket => 8,
            Self::End => 9,
            Self::Failed => 13,
            Self::TooManyTurns => 14,
            Self::Busy => 15,
            Self::Invalid(code) => code,
        }
    }

    /// The status that `code` stands for.
    pub const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Done,
            2 => Self::TimedOut,
            3 => Self::Stopped,
            4 => Self::Unknown,
            5 => Self::Malformed,
            6 => Self::Panicked,
            7 => Self::Pending,
            8 => Self::NoTicket,
            9 => Self::End,
            13 => Self::Failed,
            14 => Self::TooManyTurns,
            15 => Self::Busy,
            code => Self::Invalid(code),
        }
    }
}

impl std::fmt::Display for CallStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Done => f.write_str("it was served"),
            Self::TimedOut => f.write_str("it was not answered in the time that the caller waits"),
            Self::Stopped => f.write_str("the services were stopped"),
            Self::Unknown => f.write_str("the services know no such function"),
            Self::Malformed => f.write_str("its arguments had the wrong length"),
            Self::Panicked => f.write_str("the function panicked on the host"),
            Self::Pending => f.write_str("it has not been answered yet"),
            Self::NoTicket => f.write_str("no call with its ticket is under way"),
            Self::End => f.write_str("the stream has nothing more to give"),
            Self::Failed => f.write_str("the function failed on its device"),
            Self::TooManyTurns => f.write_str("the function took too many turns of its loops"),
            Self::Busy => f.write_str(
                "it was not begun, since no server came round to it in time, or no port was free: call `f_try`, and make \
                 those calls in the next launch that this one tells as `CALL_BUSY`",
            ),
            Self::Invalid(code) => write!(f, "the port held {code:#x}, which is no status"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_round_trip() {
        for code in 0..100 {
            assert_eq!(CallStatus::from_code(code).code(), code);
        }
    }
}
