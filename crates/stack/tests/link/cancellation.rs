//! Cancellation.
