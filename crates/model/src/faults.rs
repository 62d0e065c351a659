//! Faults: everything that is wrong with a file a user edits, each fault with its line and key path.

use std::fmt;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Line in the file, from 1.
    pub line: usize,
    /// Full path of the key, `services.profile.reserve_ms`; empty when the fault belongs to the file as a whole.
    pub path: String,
    /// What was expected and what was found.
    pub message: String,
}

/// Every fault of one file, by line. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    file: String,
    list: Vec<Fault>,
}

impl Faults {
    /// Takes the faults of `file`. The list must not be empty.
    pub(crate) fn new(file: &str, mut list: Vec<Fault>) -> Self {
        debug_assert!(!list.is_empty(), "a refusal without a fault");
        list.sort_by_key(|fault| fault.line);
        Self { file: file.to_owned(), list }
    }

    /// A fault of the file as a whole.
    pub(crate) fn whole(file: &str, message: String) -> Self {
        Self::new(file, vec![Fault { line: 1, path: String::new(), message }])
    }

    /// The name of the file, as the reader was given it.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The faults, by line.
    pub fn list(&self) -> &[Fault] {
        &self.list
    }
}

impl fmt::Display for Faults {
    /// One line a fault: `file:line: path: message`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, fault) in self.list.iter().enumerate() {
            let newline = if position == 0 { "" } else { "\n" };
            let separator = if fault.path.is_empty() { "" } else { ": " };
            write!(f, "{newline}{}:{}: {}{separator}{}", self.file, fault.line, fault.path, fault.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Faults {}
