//! Inventory: what can be promised of each item.

pub mod decide;
