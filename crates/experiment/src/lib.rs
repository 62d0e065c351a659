//! Experiment: which arms the subject is shown, and the durable record of it.

pub mod decide;
pub mod ledger;
pub mod metrics;
pub mod recorder;
