//! Outcome: the closed set of ways in which a scheduled operation can end, and the finer kinds behind it.

use std::fmt;

/// How an operation that was sent ended, as its caller saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// A correct answer with every optional section.
    Ok,
    /// A correct answer in which at least one optional section was omitted.
    OkDegraded,
    /// Refused for lack of capacity.
    Rejected,
    /// The deadline passed.
    Deadline,
    /// The service or a mandatory dependency was unavailable.
    Unavailable,
    /// Any other failure, incorrect answers included.
    ErrorOther,
    /// The caller lost patience first.
    Departed,
    /// No answer: no connection, a lost one, a reset stream.
    Transport,
}

impl Outcome {
    /// All of them, successes first.
    pub const ALL: [Self; 8] = [
        Self::Ok,
        Self::OkDegraded,
        Self::Rejected,
        Self::Deadline,
        Self::Unavailable,
        Self::ErrorOther,
        Self::Departed,
        Self::Transport,
    ];

    /// The name used in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::OkDegraded => "ok_degraded",
            Self::Rejected => "rejected",
            Self::Deadline => "deadline",
            Self::Unavailable => "unavailable",
            Self::ErrorOther => "error_other",
            Self::Departed => "departed",
            Self::Transport => "transport",
        }
    }

    /// Position in [`Outcome::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the caller got a correct answer. Only these enter the latency population, degraded ones included.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Ok | Self::OkDegraded)
    }

    /// Whether the operation failed: neither answered correctly nor given up by its caller.
    pub const fn is_failure(self) -> bool {
        !self.is_success() && !matches!(self, Self::Departed)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why an attempt failed, one step finer than its [`Outcome`]. Closed, so that it may be counted without a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Failure {
    /// A gRPC status other than OK.
    Status(Code),
    /// An HTTP status that stands in for a missing gRPC status.
    Http(u16),
    /// No connection was up.
    NotConnected,
    /// The connection was lost before the answer was complete.
    ConnectionLost,
    /// The peer reset the stream.
    StreamReset,
    /// The answer ended without `grpc-status`.
    StatusMissing,
    /// `grpc-status` is repeated, or is not a decimal number from 0 to 16.
    StatusMalformed,
    /// The content type is not gRPC.
    ContentType,
    /// The five-byte framing is broken, or compression was used although none was offered.
    Framing,
    /// Not exactly one message with an OK status.
    MessageCount,
    /// More bytes than an answer may have.
    TooLarge,
    /// The message does not decode.
    Undecodable,
    /// The generator's own limit, or the timeout that it sent, passed without an answer.
    ClientDeadline,
    /// The answer says OK and is not correct.
    CoreMismatch,
}

impl Failure {
    /// The outcome that it counts as.
    pub(crate) const fn outcome(self) -> Outcome {
        match self {
            Self::Status(code) => code.outcome(),
            // The table of the gRPC documents for a client that finds no grpc-status.
            Self::Http(429 | 502 | 503 | 504) => Outcome::Unavailable,
            Self::ClientDeadline => Outcome::Deadline,
            Self::NotConnected | Self::ConnectionLost | Self::StreamReset => Outcome::Transport,
            Self::Http(_)
            | Self::StatusMissing
            | Self::StatusMalformed
            | Self::ContentType
            | Self::Framing
            | Self::MessageCount
            | Self::TooLarge
            | Self::Undecodable
            | Self::CoreMismatch => Outcome::ErrorOther,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(code) => write!(f, "status_{}", code.as_str()),
            Self::Http(status) => write!(f, "http_{status}"),
            Self::NotConnected => f.write_str("not_connected"),
            Self::ConnectionLost => f.write_str("connection_lost"),
            Self::StreamReset => f.write_str("stream_reset"),
            Self::StatusMissing => f.write_str("status_missing"),
            Self::StatusMalformed => f.write_str("status_malformed"),
            Self::ContentType => f.write_str("content_type"),
            Self::Framing => f.write_str("framing"),
            Self::MessageCount => f.write_str("message_count"),
            Self::TooLarge => f.write_str("too_large"),
            Self::Undecodable => f.write_str("undecodable"),
            Self::ClientDeadline => f.write_str("client_deadline"),
            Self::CoreMismatch => f.write_str("core_mismatch"),
        }
    }
}

/// A failed attempt, and what its answer says about the effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    /// Whether the answer says that nobody knows whether the effect took place.
    pub(crate) ambiguous: bool,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self { failure, ambiguous: false }
    }
}

/// A gRPC status code, 0 to 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Code(u8);

impl Code {
    /// The call succeeded.
    pub(crate) const OK: Self = Self(0);
    /// Names by number.
    const NAMES: [&'static str; 17] = [
        "ok",
        "cancelled",
        "unknown",
        "invalid_argument",
        "deadline_exceeded",
        "not_found",
        "already_exists",
        "permission_denied",
        "resource_exhausted",
        "failed_precondition",
        "aborted",
        "out_of_range",
        "unimplemented",
        "internal",
        "unavailable",
        "data_loss",
        "unauthenticated",
    ];

    /// Reads a header value: decimal, no leading zero, 0 to 16.
    pub(crate) fn parse(value: &[u8]) -> Option<Self> {
        let number = match value {
            [digit @ b'0'..=b'9'] => digit - b'0',
            [b'1', digit @ b'0'..=b'6'] => 10 + digit - b'0',
            _ => return None,
        };
        Some(Self(number))
    }

    /// The name.
    pub(crate) const fn as_str(self) -> &'static str {
        Self::NAMES[self.0 as usize]
    }

    const fn outcome(self) -> Outcome {
        match self.0 {
            4 => Outcome::Deadline,
            8 => Outcome::Rejected,
            14 => Outcome::Unavailable,
            _ => Outcome::ErrorOther,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_numbers_are_read_strictly() {
        for number in 0..=16_u8 {
            let code = Code::parse(number.to_string().as_bytes()).expect("a status");
            assert_eq!(code.as_str(), Code::NAMES[usize::from(number)]);
        }
        for bad in ["", "00", "04", "17", "99", "-1", "+4", "4 ", " 4", "4,4", "1x", "\u{664}"] {
            assert_eq!(Code::parse(bad.as_bytes()), None, "{bad:?}");
        }
    }

    #[test]
    fn failures_count_as_the_outcome_that_a_caller_would_act_on() {
        let status = |text: &str| Failure::Status(Code::parse(text.as_bytes()).expect("a status")).outcome();
        assert_eq!(status("4"), Outcome::Deadline);
        assert_eq!(status("8"), Outcome::Rejected);
        assert_eq!(status("14"), Outcome::Unavailable);
        assert_eq!(status("1"), Outcome::ErrorOther);
        assert_eq!(Failure::Http(503).outcome(), Outcome::Unavailable);
        assert_eq!(Failure::Http(200).outcome(), Outcome::ErrorOther);
        assert_eq!(Failure::CoreMismatch.outcome(), Outcome::ErrorOther);
        assert_eq!(Failure::StreamReset.outcome(), Outcome::Transport);
    }

    #[test]
    fn indices_are_positions_and_nothing_is_both_success_and_failure() {
        for (position, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome.index(), position);
            assert!(!(outcome.is_success() && outcome.is_failure()));
        }
        assert!(!Outcome::Departed.is_success() && !Outcome::Departed.is_failure());
    }
}
