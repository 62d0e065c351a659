//! Profile: who the authenticated subject is.

pub mod decide;
