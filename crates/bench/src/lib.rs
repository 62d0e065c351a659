//! Bench: comparisons of this suite with its peers, run by `cargo bench -p bench`. Never a dependency of anything.
