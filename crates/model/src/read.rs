//! Read: the one TOML reader for every file a user edits. It keeps going after a fault and reports all of them at once.
//!
//! Every method that reads a key records what is wrong with it and then answers `None`; the caller reads all its keys
//! first and combines them with `?` afterwards, so that one bad key never hides another. A key that nobody asked for
//! is a fault too, reported when its table has been read.

use std::{cell::RefCell, ops::RangeInclusive};

use base::Nanos;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::faults::{Fault, Faults};

/// Longest file that is read, in bytes.
pub const TEXT_BYTES_MAX: usize = 1 << 20;
/// Longest excerpt of a found value in a message, in characters.
const EXCERPT_CHARS_MAX: usize = 40;

/// Reads `text` as one document. `file` names it in messages and is not opened.
///
/// # Errors
/// [`Faults`] with every fault that was found, syntax faults and duplicate keys included.
pub fn document<T>(
    file: &str,
    text: &str,
    build: impl FnOnce(&mut Table<'_>) -> Option<T>,
) -> Result<T, Faults> {
    let (root, syntax) = parse(file, text)?;
    let log =
        Log { text, broken: syntax.iter().map(|fault| fault.line).collect(), faults: RefCell::new(syntax) };
    let mut table =
        Table { log: &log, entries: root.get_ref(), path: String::new(), line: 1, known: Vec::new() };
    let built = build(&mut table);
    table.finish();
    let mut faults = log.faults.into_inner();
    match built {
        Some(value) if faults.is_empty() => Ok(value),
        _ => {
            if faults.is_empty() {
                // A builder that refuses without saying why is a bug of ours; the user still gets a refusal.
                faults.push(Fault { line: 1, path: String::new(), message: "the file was refused".into() });
            }
            Err(Faults::new(file, faults))
        }
    }
}

/// Whether `text` is TOML at all.
///
/// # Errors
/// [`Faults`] with every syntax fault.
pub(crate) fn syntax(file: &str, text: &str) -> Result<(), Faults> {
    let (_, faults) = parse(file, text)?;
    if faults.is_empty() { Ok(()) } else { Err(Faults::new(file, faults)) }
}

/// What the parser makes of a text, and the syntax faults that it found.
fn parse<'d>(file: &str, text: &'d str) -> Result<(Spanned<DeTable<'d>>, Vec<Fault>), Faults> {
    if text.len() > TEXT_BYTES_MAX {
        let bytes = text.len();
        return Err(Faults::whole(
            file,
            format!("the file has {bytes} bytes, more than the {TEXT_BYTES_MAX} allowed"),
        ));
    }
    let (root, errors) = DeTable::parse_recoverable(text);
    let fault = |error: &toml::de::Error| Fault {
        line: line_of(text, error.span().map_or(0, |span| span.start)),
        path: String::new(),
        message: error.message().replace('\n', "; "),
    };
    Ok((root, errors.iter().map(fault).collect()))
}

/// Where faults are collected while a document is read.
struct Log<'d> {
    text: &'d str,
    /// Lines with a syntax fault. What the parser made of them proves nothing, so no other fault is reported there.
    broken: Vec<usize>,
    faults: RefCell<Vec<Fault>>,
}

impl Log<'_> {
    fn add(&self, line: usize, path: String, message: String) {
        if !self.broken.contains(&line) {
            self.faults.borrow_mut().push(Fault { line, path, message });
        }
    }
}

/// The line of a byte offset, from 1.
fn line_of(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}

/// Where a key is.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    line: usize,
    path: String,
}

/// A table of the document while it is read.
pub struct Table<'d> {
    log: &'d Log<'d>,
    entries: &'d DeTable<'d>,
    path: String,
    line: usize,
    known: Vec<&'static str>,
}

impl<'d> Table<'d> {
    /// A whole number within `range`.
    pub fn integer(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        self.required(key)?.integer(range)
    }

    /// A whole number within `range` that fits 32 bits.
    pub fn integer32(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let wide = u64::from(*range.start())..=u64::from(*range.end());
        self.integer(key, wide).and_then(|value| u32::try_from(value).ok())
    }

    /// A whole number within `range`, or `default` when the key is absent.
    pub fn integer_or(&mut self, key: &'static str, range: RangeInclusive<u64>, default: u64) -> Option<u64> {
        self.optional(key).map_or(Some(default), |value| value.integer(range))
    }

    /// A whole number of milliseconds within `range`; the key should end in `_ms`.
    pub fn millis(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<Nanos> {
        self.integer(key, range).map(Nanos::from_millis)
    }

    /// A whole number of milliseconds within `range`, or `default` when the key is absent.
    pub fn millis_or(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        default: Nanos,
    ) -> Option<Nanos> {
        self.optional(key).map_or(Some(default), |value| value.integer(range).map(Nanos::from_millis))
    }

    /// A whole number of microseconds within `range`; the key should end in `_us`.
    pub fn micros(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<Nanos> {
        self.integer(key, range).map(Nanos::from_micros)
    }

    /// A whole number of microseconds within `range`, or `default` when the key is absent.
    pub fn micros_or(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
        default: Nanos,
    ) -> Option<Nanos> {
        self.optional(key).map_or(Some(default), |value| value.integer(range).map(Nanos::from_micros))
    }

    /// A finite number within `range`; a whole number is one too.
    pub fn number(&mut self, key: &'static str, range: RangeInclusive<f64>) -> Option<f64> {
        self.required(key)?.number(range)
    }

    /// A finite number within `range`, or `default` when the key is absent.
    pub fn number_or(&mut self, key: &'static str, range: RangeInclusive<f64>, default: f64) -> Option<f64> {
        self.optional(key).map_or(Some(default), |value| value.number(range))
    }

    /// A whole number within `range`; `Some(None)` when the key is absent.
    pub fn integer_opt(&mut self, key: &'static str, range: RangeInclusive<u64>) -> Option<Option<u64>> {
        self.optional(key).map_or(Some(None), |value| value.integer(range).map(Some))
    }

    /// A finite number within `range`; `Some(None)` when the key is absent.
    pub fn number_opt(&mut self, key: &'static str, range: RangeInclusive<f64>) -> Option<Option<f64>> {
        self.optional(key).map_or(Some(None), |value| value.number(range).map(Some))
    }

    /// A table whose keys are the file's own choice, as numbers in the order of the file. `accept` says what is wrong with a
    /// key, and otherwise what its number must be within.
    pub fn numbers(
        &mut self,
        key: &'static str,
        count: RangeInclusive<usize>,
        accept: impl Fn(&str) -> Result<RangeInclusive<f64>, String>,
    ) -> Option<Vec<(String, f64)>> {
        let value = self.required(key)?;
        let DeValue::Table(entries) = value.value() else {
            return value.unexpected("a table");
        };
        if !count.contains(&entries.len()) {
            let (least, most) = (count.start(), count.end());
            value.fault(format!("expected {least} to {most} keys, found {}", entries.len()));
            return None;
        }
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let table = Table { path: value.path.clone(), line: value.line, known: Vec::new(), ..*self };
        let read = entries.into_iter().map(|(name, spanned)| {
            let (key, line): (&str, usize) = (name.get_ref(), table.line_at(name));
            let entry = Value { log: self.log, line, path: table.path_of(key), spanned };
            match accept(key) {
                Ok(range) => entry.number(range).map(|number| (key.to_owned(), number)),
                Err(wrong) => {
                    entry.fault(wrong);
                    None
                }
            }
        });
        // All of them are read before the first fault ends it.
        read.collect::<Vec<_>>().into_iter().collect()
    }

    /// `true` or `false`, or `default` when the key is absent.
    pub fn boolean_or(&mut self, key: &'static str, default: bool) -> Option<bool> {
        self.optional(key).map_or(Some(default), |value| match value.value() {
            DeValue::Boolean(flag) => Some(*flag),
            _ => value.unexpected("true or false"),
        })
    }

    /// A text that `accept` turns into a value; `expected` says what would have been accepted.
    pub fn text<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        accept: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        self.required(key)?.text(expected, accept)
    }

    /// A text like [`Table::text`]; `Some(None)` when the key is absent.
    pub fn text_opt<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        accept: impl FnOnce(&str) -> Option<T>,
    ) -> Option<Option<T>> {
        self.optional(key).map_or(Some(None), |value| value.text(expected, accept).map(Some))
    }

    /// An array of at most `count_max` texts, each of which `accept` turns into a value; `Some(None)` when the key is absent.
    pub fn texts_opt<T>(
        &mut self,
        key: &'static str,
        count_max: usize,
        expected: &str,
        accept: impl Fn(&str) -> Option<T>,
    ) -> Option<Option<Vec<T>>> {
        let Some(value) = self.optional(key) else { return Some(None) };
        let DeValue::Array(items) = value.value() else {
            return value.unexpected("an array of texts");
        };
        if items.is_empty() || items.len() > count_max {
            return value.unexpected(&format!("1 to {count_max} texts"));
        }
        let read = items.iter().enumerate().map(|(position, item)| {
            let line = line_of(self.log.text, item.span().start);
            let path = format!("{}[{position}]", value.path);
            Value { log: self.log, line, path, spanned: item }.text(expected, &accept)
        });
        // All of them are read before the first fault ends it.
        read.collect::<Vec<_>>().into_iter().collect::<Option<Vec<T>>>().map(Some)
    }

    /// A table that must be there.
    pub fn section<T>(
        &mut self,
        key: &'static str,
        build: impl FnOnce(&mut Table<'_>) -> Option<T>,
    ) -> Option<T> {
        self.required(key)?.section(build)
    }

    /// A table that may be there; `Some(None)` when it is not.
    pub fn section_opt<T>(
        &mut self,
        key: &'static str,
        build: impl FnOnce(&mut Table<'_>) -> Option<T>,
    ) -> Option<Option<T>> {
        self.optional(key).map_or(Some(None), |value| value.section(build).map(Some))
    }

    /// Whether there is a table of that name. What it holds is another document's and is not read here.
    pub fn carries(&mut self, key: &'static str) -> Option<bool> {
        self.optional(key).map_or(Some(false), |value| match value.value() {
            DeValue::Table(_) => Some(true),
            _ => value.unexpected("a table"),
        })
    }

    /// An array of tables with a length within `count`; an absent key is an empty array.
    pub fn sections<T>(
        &mut self,
        key: &'static str,
        count: RangeInclusive<usize>,
        mut build: impl FnMut(&mut Table<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(value) = self.optional(key) else {
            if count.contains(&0) {
                return Some(Vec::new());
            }
            self.missing(key);
            return None;
        };
        let DeValue::Array(items) = value.value() else {
            return value.unexpected("an array of tables");
        };
        if !count.contains(&items.len()) {
            let (least, most) = (count.start(), count.end());
            value.fault(format!("expected {least} to {most} tables, found {}", items.len()));
        }
        let built: Vec<Option<T>> = items
            .iter()
            .enumerate()
            .map(|(position, item)| {
                let path = format!("{}[{position}]", value.path);
                let line = line_of(self.log.text, item.span().start);
                Value { log: self.log, line, path, spanned: item }.section(&mut build)
            })
            .collect();
        if count.contains(&items.len()) { built.into_iter().collect() } else { None }
    }

    /// Records a fault of `key` that only shows beside other keys.
    pub fn fault(&self, key: &str, message: impl Into<String>) {
        let line = self.entries.get_key_value(key).map_or(self.line, |(name, _)| self.line_at(name));
        self.log.add(line, self.path_of(key), message.into());
    }

    /// Records a fault of a key in a table below this one, given by its keys from here, that only shows beside others.
    pub fn fault_in(&self, keys: &[&str], message: impl Into<String>) {
        let Some((first, rest)) = keys.split_first() else { return };
        let mut path = self.path_of(first);
        let mut line = self.entries.get_key_value(*first).map_or(self.line, |(name, _)| self.line_at(name));
        let mut found = self.entries.get(*first);
        for key in rest {
            path = format!("{path}.{key}");
            let below = found
                .and_then(|value| value.get_ref().as_table())
                .and_then(|table| table.get_key_value(*key));
            if let Some((name, _)) = below {
                line = self.line_at(name);
            }
            found = below.map(|(_, value)| value);
        }
        self.log.add(line, path, message.into());
    }

    /// Where a key of this table is, or would be, for a fault that only shows when the whole document has been read.
    pub(crate) fn place(&self, key: &str) -> Place {
        let line = self.entries.get_key_value(key).map_or(self.line, |(name, _)| self.line_at(name));
        Place { line, path: self.path_of(key) }
    }

    /// Records a fault of a key of whatever table.
    pub(crate) fn fault_at(&self, place: &Place, message: impl Into<String>) {
        self.log.add(place.line, place.path.clone(), message.into());
    }

    fn optional(&mut self, key: &'static str) -> Option<Value<'d>> {
        self.known.push(key);
        let (name, spanned) = self.entries.get_key_value(key)?;
        Some(Value { log: self.log, line: self.line_at(name), path: self.path_of(key), spanned })
    }

    fn required(&mut self, key: &'static str) -> Option<Value<'d>> {
        let found = self.optional(key);
        if found.is_none() {
            self.missing(key);
        }
        found
    }

    fn missing(&self, key: &str) {
        // After a syntax fault a key may only seem to be missing: the parser could have lost it.
        if self.log.broken.is_empty() {
            self.log.add(self.line, self.path_of(key), "missing".into());
        }
    }

    fn line_at<T>(&self, spanned: &Spanned<T>) -> usize {
        line_of(self.log.text, spanned.span().start)
    }

    fn path_of(&self, key: &str) -> String {
        let bare = !key.is_empty()
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        let name = if bare { key.to_owned() } else { excerpt(&format!("{key:?}")) };
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }

    /// Reports the keys that nobody asked for.
    fn finish(&self) {
        for (name, _) in self.entries.iter() {
            let key: &str = name.get_ref();
            if !self.known.contains(&key) {
                let expected = self.known.join(", ");
                self.log.add(
                    self.line_at(name),
                    self.path_of(key),
                    format!("unknown key; the keys here are {expected}"),
                );
            }
        }
    }
}

/// A value of the document while it is read.
struct Value<'d> {
    log: &'d Log<'d>,
    line: usize,
    path: String,
    spanned: &'d Spanned<DeValue<'d>>,
}

impl<'d> Value<'d> {
    fn value(&self) -> &'d DeValue<'d> {
        self.spanned.get_ref()
    }

    fn integer(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let expected = || format!("an integer from {} to {}", range.start(), range.end());
        let DeValue::Integer(digits) = self.value() else {
            return self.unexpected(&expected());
        };
        match u64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(value) if range.contains(&value) => Some(value),
            _ => self.unexpected(&expected()),
        }
    }

    fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let parsed = match self.value() {
            DeValue::Integer(digits) => {
                i64::from_str_radix(digits.as_str(), digits.radix()).ok().map(|whole| whole as f64)
            }
            DeValue::Float(digits) => digits.as_str().parse::<f64>().ok(),
            _ => None,
        };
        // `contains` is false for NaN, and the ranges are finite.
        match parsed {
            Some(value) if range.contains(&value) => Some(value),
            _ => self.unexpected(&format!("a number from {} to {}", range.start(), range.end())),
        }
    }

    fn text<T>(&self, expected: &str, accept: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let accepted = match self.value() {
            DeValue::String(text) => accept(text),
            _ => None,
        };
        accepted.or_else(|| self.unexpected(expected))
    }

    fn section<T>(&self, build: impl FnOnce(&mut Table<'_>) -> Option<T>) -> Option<T> {
        let DeValue::Table(entries) = self.value() else {
            return self.unexpected("a table");
        };
        let mut table =
            Table { log: self.log, entries, path: self.path.clone(), line: self.line, known: Vec::new() };
        let built = build(&mut table);
        table.finish();
        built
    }

    fn unexpected<T>(&self, expected: &str) -> Option<T> {
        self.fault(format!("expected {expected}, found {}", describe(self.value())));
        None
    }

    fn fault(&self, message: String) {
        self.log.add(self.line, self.path.clone(), message);
    }
}

/// A found value as a message shows it, cut short.
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => excerpt(&format!("{text:?}")),
        DeValue::Integer(digits) => excerpt(&digits.to_string()),
        DeValue::Float(digits) => excerpt(digits.as_str()),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date".into(),
        DeValue::Array(_) => "an array".into(),
        DeValue::Table(_) => "a table".into(),
    }
}

fn excerpt(text: &str) -> String {
    match text.char_indices().nth(EXCERPT_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The values of a fixed set of keys, once all of them have been read.
pub(crate) fn every<T, const N: usize>(values: [Option<T>; N]) -> Option<[T; N]> {
    values.into_iter().collect::<Option<Vec<T>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests;
