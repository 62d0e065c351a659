//! Marker: why an optional section is there or not. Absent, empty and omitted are three different things.

use std::fmt;

/// Why a section was left out. Bounded, so it may label a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Omission {
    /// Too little time was left to start it.
    DeadlineBudget,
    /// It was started and could not end usefully.
    Timeout,
    /// It gave way to mandatory work, here or at the dependency.
    Overload,
    /// The dependency failed.
    DependencyError,
    /// Switched off by policy.
    Disabled,
}

impl Omission {
    /// All of them, for tables and tests.
    pub const ALL: [Self; 5] =
        [Self::DeadlineBudget, Self::Timeout, Self::Overload, Self::DependencyError, Self::Disabled];

    /// The cause as metrics name it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DeadlineBudget => "deadline_budget",
            Self::Timeout => "timeout",
            Self::Overload => "overload",
            Self::DependencyError => "dependency_error",
            Self::Disabled => "disabled",
        }
    }

    /// Position in [`Omission::ALL`], for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Omission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a response says about one optional section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Marker {
    /// The section is in the response.
    Present,
    /// The dependency answered, and had nothing.
    Empty,
    /// The section was left out.
    Omitted(Omission),
}

impl Marker {
    /// All of them, in the order of the wire's own enumeration.
    pub const ALL: [Self; 7] = [
        Self::Present,
        Self::Empty,
        Self::Omitted(Omission::DeadlineBudget),
        Self::Omitted(Omission::Timeout),
        Self::Omitted(Omission::Overload),
        Self::Omitted(Omission::DependencyError),
        Self::Omitted(Omission::Disabled),
    ];

    /// The text that a response carries.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Empty => "empty",
            Self::Omitted(Omission::DeadlineBudget) => "omitted_deadline_budget",
            Self::Omitted(Omission::Timeout) => "omitted_timeout",
            Self::Omitted(Omission::Overload) => "omitted_overload",
            Self::Omitted(Omission::DependencyError) => "omitted_dependency_error",
            Self::Omitted(Omission::Disabled) => "omitted_disabled",
        }
    }

    /// Position in [`Marker::ALL`], for tables.
    pub const fn index(self) -> usize {
        match self {
            Self::Present => 0,
            Self::Empty => 1,
            Self::Omitted(cause) => 2 + cause.index(),
        }
    }

    /// Why the section was left out; `None` when it was not.
    pub const fn omission(self) -> Option<Omission> {
        match self {
            Self::Omitted(cause) => Some(cause),
            Self::Present | Self::Empty => None,
        }
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
