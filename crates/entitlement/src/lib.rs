//! Entitlement: what the authenticated subject may do.

pub mod decide;
