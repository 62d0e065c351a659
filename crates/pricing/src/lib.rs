//! Pricing: what items cost the subject.

pub mod decide;
