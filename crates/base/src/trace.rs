//! Trace: W3C trace context (level 1) as a value that crosses every hop, whether or not an exporter is set.

use std::fmt;

/// A position in a distributed trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// Trace id, not zero.
    pub trace_id: u128,
    /// Id of the span that is the parent of whatever receives this; not zero.
    pub span_id: u64,
    /// Whether the trace is recorded.
    pub sampled: bool,
}

impl TraceContext {
    /// Reads a `traceparent` value. `None` when it is not one: the receiver then starts a trace of its own, as the
    /// recommendation says. A later version is read by its first four fields.
    pub fn parse(value: &str) -> Option<Self> {
        let bytes = value.as_bytes();
        if !value.is_ascii() || bytes.len() < 55 || bytes[2] != b'-' || bytes[35] != b'-' || bytes[52] != b'-'
        {
            return None;
        }
        let version = hex(&value[..2])?;
        let well_ended =
            if version == 0 { bytes.len() == 55 } else { bytes.len() == 55 || bytes[55] == b'-' };
        if version == 0xff || !well_ended {
            return None;
        }
        let trace_id = hex(&value[3..35])?;
        let span_id = u64::try_from(hex(&value[36..52])?).ok()?;
        let flags = hex(&value[53..55])?;
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, sampled: flags & 1 == 1 })
    }

    /// The same trace, seen from a new span.
    pub const fn child(self, span_id: u64) -> Self {
        Self { span_id, ..self }
    }
}

/// Lower-case hexadecimal only, as the recommendation demands; at most the 32 digits that fit.
fn hex(text: &str) -> Option<u128> {
    text.bytes().try_fold(0, |value: u128, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u128::from(digit))
    })
}

impl fmt::Display for TraceContext {
    /// The `traceparent` value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_format_is_strict() {
        let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let context = TraceContext::parse(good).expect("well formed");
        assert!(context.sampled);
        assert_eq!(context.to_string(), good);
        assert!(TraceContext::parse(&good.replace("00-4b", "cc-4b")).is_some());
        assert!(TraceContext::parse(&format!("{}-extra", good.replace("00-4b", "cc-4b"))).is_some());
        for bad in [
            "",
            "00",
            &good.to_uppercase(),
            &good.replace("00-4b", "ff-4b"),
            &format!("{good}-extra"),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7_01",
            "+0-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(trace_id in 1_u128.., span_id in 1_u64.., sampled: bool) {
            let context = TraceContext { trace_id, span_id, sampled };
            prop_assert_eq!(TraceContext::parse(&context.to_string()), Some(context));
        }

        #[test]
        fn no_input_panics(text in "\\PC{0,80}") {
            let _ = TraceContext::parse(&text);
        }
    }
}
