//! Inject: `mercury serve --inject`, failures on purpose in a process of its own, for rehearsals.

use base::inject::{Injection, Points};

/// Reads one `--inject`.
pub(crate) fn parse(text: &str) -> Result<Injection, String> {
    Injection::parse(text).map_err(|fault| fault.to_string())
}

/// Arms the points, and says so loudly: a process that fails on purpose must not be taken for one that fails.
pub(crate) fn arm(points: &Points, injections: &[Injection]) {
    for injection in injections {
        points.arm(*injection);
        tracing::warn!(
            point = injection.point.as_str(),
            action = injection.action.as_str(),
            injection = %injection,
            "FAILURES ARE INJECTED: this process fails on purpose"
        );
    }
}
