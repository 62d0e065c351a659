//! Recommendation: items that the subject may like.

pub mod decide;
