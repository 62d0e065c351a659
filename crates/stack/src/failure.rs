//! Failure: outcomes that a link made itself, told apart from those that the peer sent.

use std::{borrow::Cow, fmt};

use crate::status::Code;

/// Header of a status that a link made itself; its value is [`LocalFailure::as_str`]. Generated clients turn headers and
/// trailers into the status's metadata and drop extensions, so this is how the cause survives them. A peer cannot
/// forge it: it is taken out of whatever the peer sends.
pub const LOCAL_FAILURE_HEADER: &str = "x-mercury-link-failure";

/// Why a link answered in the peer's place. Bounded, so it may label a metric. Also a response extension when the whole
/// response was made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalFailure {
    /// Nothing was left to give to the callee; no call was sent. DEADLINE_EXCEEDED.
    NoBudget,
    /// The call's own time ran out: while connecting, before the head, or within the body. DEADLINE_EXCEEDED.
    Deadline,
    /// As many calls as are allowed at one time are under way; none was sent. RESOURCE_EXHAUSTED.
    Saturated,
    /// No connection could be made; no call was sent. UNAVAILABLE.
    Unreachable,
    /// The connection was lost during the call; whether the peer did the work is unknown. UNAVAILABLE.
    ConnectionLost,
    /// The peer let the call go without having processed it, twice. UNAVAILABLE; another attempt is safe.
    NotProcessed,
    /// The peer reset the stream without a status. The code follows the reset's reason.
    Reset,
    /// The response is no gRPC response: the code follows the HTTP status, UNKNOWN for 200.
    NotGrpc,
    /// The response ended without a valid status, or within a message. UNKNOWN or INTERNAL.
    Malformed,
    /// A response message is larger than the bound. RESOURCE_EXHAUSTED.
    MessageTooLarge,
    /// The request body failed while it was being sent. INTERNAL.
    RequestBody,
    /// The link was closed; no call was sent. UNAVAILABLE.
    Closed,
}

impl LocalFailure {
    /// All of them, for tables and tests.
    pub const ALL: [Self; 12] = [
        Self::NoBudget,
        Self::Deadline,
        Self::Saturated,
        Self::Unreachable,
        Self::ConnectionLost,
        Self::NotProcessed,
        Self::Reset,
        Self::NotGrpc,
        Self::Malformed,
        Self::MessageTooLarge,
        Self::RequestBody,
        Self::Closed,
    ];

    /// The name used in the header and in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoBudget => "no_budget",
            Self::Deadline => "deadline",
            Self::Saturated => "saturated",
            Self::Unreachable => "unreachable",
            Self::ConnectionLost => "connection_lost",
            Self::NotProcessed => "not_processed",
            Self::Reset => "reset",
            Self::NotGrpc => "not_grpc",
            Self::Malformed => "malformed",
            Self::MessageTooLarge => "message_too_large",
            Self::RequestBody => "request_body",
            Self::Closed => "closed",
        }
    }

    /// The failure of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|failure| failure.as_str() == name)
    }

    /// Position in [`LocalFailure::ALL`], for tables.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// True when it is certain that the peer did no work for the call, so that another attempt repeats nothing.
    pub const fn is_unprocessed(self) -> bool {
        matches!(
            self,
            Self::NoBudget | Self::Saturated | Self::Unreachable | Self::NotProcessed | Self::Closed
        )
    }
}

impl fmt::Display for LocalFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A status that is made here.
#[derive(Debug)]
pub(crate) struct Made {
    pub(crate) code: Code,
    pub(crate) failure: LocalFailure,
    pub(crate) message: Cow<'static, str>,
}

impl Made {
    pub(crate) fn new(code: Code, failure: LocalFailure, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, failure, message: message.into() }
    }

    /// The call's own time ran out.
    pub(crate) fn deadline() -> Self {
        Self::new(Code::DeadlineExceeded, LocalFailure::Deadline, "deadline exceeded at the caller")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_positions_are_those_of_the_table() {
        for (position, failure) in LocalFailure::ALL.into_iter().enumerate() {
            assert_eq!(LocalFailure::parse(failure.as_str()), Some(failure));
            assert_eq!(failure.index(), position);
        }
        assert_eq!(LocalFailure::parse("other"), None);
    }
}
