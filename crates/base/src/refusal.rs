//! Refusal: the closed set of reasons for which this suite does not answer a request, independent of transport.
//!
//! `runtime` renders a refusal on both faces by one exhaustive match (DESIGN section 8).

use std::{borrow::Cow, fmt};

use crate::{Nanos, Phase};

/// Longest message that leaves the process, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 1_024;

/// Why a request was not answered. Bounded, so it may label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// The deadline passed, or too little of it was left.
    DeadlineExceeded,
    /// The caller went away.
    Cancelled,
    /// Admission or capacity refused the request; it did no work.
    Overload,
    /// The request body is larger than its limit.
    BodyTooLarge,
    /// The request headers are larger than their limit.
    HeadersTooLarge,
    /// A mandatory dependency is unreachable, or answered with a failure of its own.
    DependencyUnavailable,
    /// A dependency answered with a code that means a bug of ours.
    DependencyBug,
    /// The caller's input is invalid; [`Refusal::field`] names the field.
    InvalidInput,
    /// The caller's `grpc-timeout` is outside the grammar, or was sent twice.
    MalformedTimeout,
    /// Identity is missing or malformed.
    Unauthenticated,
    /// The identity may not do this.
    PermissionDenied,
    /// The same event id with another body.
    Conflict,
    /// The deadline passed and an effect was not answered for.
    EffectAmbiguousDeadline,
    /// An effect was not answered for.
    EffectAmbiguous,
    /// The process is shutting down.
    Quiescing,
    /// No such method or path.
    UnknownMethod,
    /// The path exists and the HTTP method is wrong.
    MethodNotAllowed,
    /// The content type is not one that this port speaks.
    UnsupportedMediaType,
    /// A fault of our own.
    Internal,
}

impl Reason {
    /// All of them, for tables and tests.
    pub const ALL: [Self; 19] = [
        Self::DeadlineExceeded,
        Self::Cancelled,
        Self::Overload,
        Self::BodyTooLarge,
        Self::HeadersTooLarge,
        Self::DependencyUnavailable,
        Self::DependencyBug,
        Self::InvalidInput,
        Self::MalformedTimeout,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::Conflict,
        Self::EffectAmbiguousDeadline,
        Self::EffectAmbiguous,
        Self::Quiescing,
        Self::UnknownMethod,
        Self::MethodNotAllowed,
        Self::UnsupportedMediaType,
        Self::Internal,
    ];

    /// The reason of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }

    /// The name used in metrics and in error details.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeadlineExceeded => "deadline_exceeded",
            Self::Cancelled => "cancelled",
            Self::Overload => "overload",
            Self::BodyTooLarge => "body_too_large",
            Self::HeadersTooLarge => "headers_too_large",
            Self::DependencyUnavailable => "dependency_unavailable",
            Self::DependencyBug => "dependency_bug",
            Self::InvalidInput => "invalid_input",
            Self::MalformedTimeout => "malformed_timeout",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission_denied",
            Self::Conflict => "conflict",
            Self::EffectAmbiguousDeadline => "effect_ambiguous_deadline",
            Self::EffectAmbiguous => "effect_ambiguous",
            Self::Quiescing => "quiescing",
            Self::UnknownMethod => "unknown_method",
            Self::MethodNotAllowed => "method_not_allowed",
            Self::UnsupportedMediaType => "unsupported_media_type",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A request that is not answered, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    reason: Reason,
    message: Cow<'static, str>,
    phase: Option<Phase>,
    field: Option<Cow<'static, str>>,
    retry_after: Option<Nanos>,
    effect_open: bool,
}

impl Refusal {
    /// A refusal with a message for the caller; longer messages are cut at [`MESSAGE_BYTES_MAX`].
    pub fn new(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        let mut message = message.into();
        if message.len() > MESSAGE_BYTES_MAX {
            let end = (0..=MESSAGE_BYTES_MAX).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            message = Cow::Owned(message[..end].to_owned());
        }
        Self { reason, message, phase: None, field: None, retry_after: None, effect_open: false }
    }

    /// The deadline passed in `phase`.
    pub fn deadline(phase: Phase) -> Self {
        Self::new(Reason::DeadlineExceeded, format!("deadline exceeded in {phase}")).in_phase(phase)
    }

    /// Invalid input; `field` is the header, parameter or message field at fault.
    pub fn invalid(field: impl Into<Cow<'static, str>>, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Reason::InvalidInput, message).for_field(field)
    }

    /// Says where the request was.
    pub fn in_phase(mut self, phase: Phase) -> Self {
        self.phase = Some(phase);
        self
    }

    /// Names the field at fault.
    pub fn for_field(mut self, field: impl Into<Cow<'static, str>>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Tells the caller when another attempt makes sense.
    pub fn retry_after(mut self, span: Nanos) -> Self {
        self.retry_after = Some(span);
        self
    }

    /// Says that the effect that was asked for may have happened, whatever else went wrong. The reason stays: it is what to mend.
    pub const fn with_open_effect(mut self) -> Self {
        self.effect_open = true;
        self
    }

    /// What is known of the effect that was asked for, where that is more than that nothing was done: `ambiguous`, when the caller
    /// cannot know, or `conflict`.
    pub const fn effect(&self) -> Option<&'static str> {
        match self.reason {
            Reason::Conflict => Some("conflict"),
            Reason::EffectAmbiguous | Reason::EffectAmbiguousDeadline => Some("ambiguous"),
            _ if self.effect_open => Some("ambiguous"),
            _ => None,
        }
    }

    /// The reason.
    pub const fn reason(&self) -> Reason {
        self.reason
    }

    /// The message, at most [`MESSAGE_BYTES_MAX`] bytes.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Where the request was, when that is known.
    pub const fn phase(&self) -> Option<Phase> {
        self.phase
    }

    /// The field at fault, for invalid input.
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// When another attempt makes sense, for refusals that did no work.
    pub const fn retry_delay(&self) -> Option<Nanos> {
        self.retry_after
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_cut_on_a_character() {
        let refusal = Refusal::new(Reason::Internal, "é".repeat(MESSAGE_BYTES_MAX));
        assert_eq!(refusal.message().len(), MESSAGE_BYTES_MAX);
        let odd = Refusal::new(Reason::Internal, format!("a{}", "é".repeat(MESSAGE_BYTES_MAX)));
        assert_eq!(odd.message().len(), MESSAGE_BYTES_MAX - 1);
    }

    #[test]
    fn an_open_effect_outlives_every_reason() {
        let open = |reason| Refusal::new(reason, "").with_open_effect();
        for reason in [Reason::DeadlineExceeded, Reason::DependencyUnavailable] {
            assert_eq!((open(reason).reason(), open(reason).effect()), (reason, Some("ambiguous")));
        }
        assert_eq!(open(Reason::Conflict).effect(), Some("conflict"), "that row is known");
        assert_eq!(Refusal::new(Reason::DependencyUnavailable, "").effect(), None);
    }

    #[test]
    fn names_are_unique() {
        let names: std::collections::BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(names.len(), Reason::ALL.len());
    }
}
