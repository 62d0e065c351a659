//! Identity: who a request is for. Every value is checked once, where it enters, and is a type afterwards.

use std::{fmt, sync::Arc};

/// A text that does not name what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidName {
    /// What was expected, for the message to the caller.
    pub expected: &'static str,
}

impl fmt::Display for InvalidName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}", self.expected)
    }
}

impl std::error::Error for InvalidName {}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $bytes_max:literal, $allowed:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $type(Arc<str>);

        impl $type {
            /// Longest value, in bytes.
            pub const BYTES_MAX: usize = $bytes_max;

            /// Checks and takes a value.
            ///
            /// # Errors
            #[doc = concat!("[`InvalidName`] unless the text is ", $expected, ".")]
            pub fn parse(text: &str) -> Result<Self, InvalidName> {
                let allowed: fn(u8) -> bool = $allowed;
                let starts_well = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
                if starts_well && text.len() <= $bytes_max && text.bytes().all(allowed) {
                    Ok(Self(Arc::from(text)))
                } else {
                    Err(InvalidName { expected: $expected })
                }
            }

            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// A tenant.
    Tenant, 64, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.'),
    "1 to 64 characters of a-z, 0-9, '-', '_' and '.', beginning with a letter or digit"
);
name!(
    /// A subject, unique within its tenant.
    Subject, 64, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_' | b'.'),
    "1 to 64 characters of a-z, 0-9, '-', '_' and '.', beginning with a letter or digit"
);
name!(
    /// A region. Bounded in length; services that label metrics with it bound the set as well.
    Region, 32, |byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-',
    "1 to 32 characters of a-z, 0-9 and '-', beginning with a letter or digit"
);
name!(
    /// The logical operation id: the same for every attempt of one operation.
    RequestId, 64, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'),
    "1 to 64 characters of A-Z, a-z, 0-9, '-', '_' and '.', beginning with a letter or digit"
);

/// The class that admission, budgets and reports are partitioned by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkloadClass {
    /// 72 % of the declared mix.
    Standard,
    /// 23 % of the declared mix.
    Premium,
    /// 5 % of the declared mix.
    Enterprise,
}

impl WorkloadClass {
    /// All of them, largest share first.
    pub const ALL: [Self; 3] = [Self::Standard, Self::Premium, Self::Enterprise];

    /// The name used in headers, files and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Premium => "premium",
            Self::Enterprise => "enterprise",
        }
    }

    /// The class of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == name)
    }

    /// Position in [`WorkloadClass::ALL`], for tables.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for WorkloadClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where a request comes from. Only customer operations enter the objective's population.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A customer.
    #[default]
    Customer,
    /// A synthetic probe.
    Probe,
    /// A declared load test.
    LoadTest,
}

impl Origin {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Customer, Self::Probe, Self::LoadTest];

    /// The name used in headers and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Customer => "customer",
            Self::Probe => "probe",
            Self::LoadTest => "load_test",
        }
    }

    /// The origin of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|origin| origin.as_str() == name)
    }
}

/// Who a request is for, as the authenticator established it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// The tenant.
    pub tenant: Tenant,
    /// The subject within the tenant.
    pub subject: Subject,
    /// The workload class.
    pub class: WorkloadClass,
    /// The caller's region.
    pub region: Region,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_at_their_bounds() {
        assert!(Tenant::parse(&"a".repeat(64)).is_ok());
        assert!(Tenant::parse(&"a".repeat(65)).is_err());
        for bad in ["", "-a", "A", "a b", "a/b", "é", "a\n"] {
            assert!(Tenant::parse(bad).is_err(), "{bad:?}");
        }
        assert!(RequestId::parse("Req-7.x_1").is_ok());
        assert!(Region::parse("eu-west").is_ok());
        assert!(Region::parse("eu_west").is_err());
    }

    #[test]
    fn classes_and_origins_read_back() {
        for class in WorkloadClass::ALL {
            assert_eq!(WorkloadClass::parse(class.as_str()), Some(class));
        }
        for origin in Origin::ALL {
            assert_eq!(Origin::parse(origin.as_str()), Some(origin));
        }
        assert_eq!(WorkloadClass::parse("gold"), None);
    }
}
