//! Index: a pure look-up over file descriptors, restricted to what one port serves.
//!
//! Files are handed out as the bytes they were compiled to, never decoded and encoded again: that would lose options
//! that prost does not know.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use bytes::Bytes;
use prost::Message as _;
use prost_types::{DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto};
use tonic::Code;

use super::SERVICE_NAMES;
use crate::health;

/// Descriptors of everything that this suite can serve.
const SETS: [&[u8]; 4] = [
    wire::DESCRIPTORS,
    tonic_health::pb::FILE_DESCRIPTOR_SET,
    tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
    tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
];

/// `google.protobuf.FileDescriptorSet` with its files left as bytes; on the wire the two are the same.
#[derive(Clone, PartialEq, prost::Message)]
struct RawSet {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    file: Vec<Bytes>,
}

/// A question, independent of the protocol's version.
#[derive(Clone, Copy, Debug)]
pub enum Query<'a> {
    /// Which services can be called here?
    Services,
    /// The file of that name.
    File(&'a str),
    /// The file that declares a service, method, message, field, oneof, enum, enum value or extension.
    Symbol(&'a str),
    /// The file that declares the extension of a message under that number.
    Extension(&'a str, i32),
    /// The numbers of all extensions of a message.
    ExtensionNumbers(&'a str),
}

/// An answer, independent of the protocol's version.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer<'a> {
    /// Full names, sorted.
    Services(&'a [String]),
    /// The file asked for, and everything it imports directly or indirectly.
    Files(Vec<Bytes>),
    /// A message and its extension numbers, ascending.
    ExtensionNumbers(&'a str, Vec<i32>),
    /// There is none. Goes out as an answer; the stream stays open.
    Error(Code, &'static str),
}

/// The descriptors do not cover what is served.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexError {
    /// A descriptor set cannot be decoded.
    Malformed(prost::DecodeError),
    /// No descriptor set declares the service of this name.
    UnknownService(String),
    /// The first file imports the second, which no set holds.
    MissingImport(String, String),
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "a descriptor set cannot be decoded: {error}"),
            Self::UnknownService(name) => write!(f, "no descriptor set declares the served service {name}"),
            Self::MissingImport(file, import) => {
                write!(f, "{file} imports {import}, which no descriptor set holds")
            }
        }
    }
}

impl std::error::Error for IndexError {}

/// What reflection knows about one port.
#[derive(Clone, Debug)]
pub struct Index {
    services: Vec<String>,
    files: HashMap<String, File>,
    /// Fully qualified symbol to file name.
    symbols: HashMap<String, String>,
    /// Extended message and number to file name.
    extensions: BTreeMap<(String, i32), String>,
}

#[derive(Clone, Debug)]
struct File {
    raw: Bytes,
    imports: Vec<String>,
}

impl Index {
    /// The index of a port that serves `services` of this suite; health and reflection are added, since every port has
    /// them.
    ///
    /// # Errors
    /// [`IndexError`] if the suite's descriptors do not declare one of the services.
    pub fn of<'a>(services: impl IntoIterator<Item = &'a str>) -> Result<Self, IndexError> {
        let own = SERVICE_NAMES.into_iter().chain([health::SERVICE_NAME]);
        Self::new(&SETS, services.into_iter().chain(own))
    }

    /// The index of a port that serves `services`, out of these serialized descriptor sets. Where sets hold a file of
    /// the same name, the first one counts. Files that no served service needs are left out.
    ///
    /// # Errors
    /// [`IndexError`] if a set is malformed, or if the sets do not cover the services.
    pub fn new<'a>(
        sets: &[&'static [u8]],
        services: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, IndexError> {
        let mut parsed = HashMap::new();
        for set in sets {
            for raw in RawSet::decode(Bytes::from_static(set)).map_err(IndexError::Malformed)?.file {
                let file = FileDescriptorProto::decode(raw.clone()).map_err(IndexError::Malformed)?;
                parsed.entry(file.name().to_owned()).or_insert((file, raw));
            }
        }
        let services: BTreeSet<String> = services.into_iter().map(str::to_owned).collect();
        let mut needed = Vec::new();
        for service in &services {
            let declares = |file: &FileDescriptorProto| {
                file.service.iter().any(|one| join(file.package(), one.name()) == *service)
            };
            let home = parsed.iter().find(|(_, (file, _))| declares(file)).map(|(name, _)| name.clone());
            needed.push(home.ok_or_else(|| IndexError::UnknownService(service.clone()))?);
        }
        let mut index = Self {
            services: services.into_iter().collect(),
            files: HashMap::new(),
            symbols: HashMap::new(),
            extensions: BTreeMap::new(),
        };
        while let Some(name) = needed.pop() {
            // Gone if it was taken before; its presence was checked when it was named.
            if let Some((file, raw)) = parsed.remove(&name) {
                for import in &file.dependency {
                    if !parsed.contains_key(import) && !index.files.contains_key(import) && *import != name {
                        return Err(IndexError::MissingImport(name, import.clone()));
                    }
                }
                needed.extend(file.dependency.iter().cloned());
                index.add(&name, &file);
                index.files.insert(name, File { raw, imports: file.dependency });
            }
        }
        Ok(index)
    }

    /// Answers one question.
    pub fn answer<'a>(&'a self, query: Query<'a>) -> Answer<'a> {
        let file = match query {
            Query::Services => return Answer::Services(&self.services),
            Query::ExtensionNumbers(base) => return self.extension_numbers(base),
            Query::File(name) => self.files.contains_key(name).then_some(name),
            Query::Symbol(name) => self.symbols.get(name).map(String::as_str),
            Query::Extension(base, number) => {
                self.extensions.get(&(base.to_owned(), number)).map(String::as_str)
            }
        };
        // The request is echoed beside the answer, so the message need not repeat what may be a very long name.
        match (file, query) {
            (Some(name), _) => Answer::Files(self.closure(name)),
            (None, Query::File(_)) => Answer::Error(Code::NotFound, "no served file has that name"),
            (None, Query::Extension(..)) => {
                Answer::Error(Code::NotFound, "no served file declares that extension")
            }
            (None, _) => Answer::Error(Code::NotFound, "no served file declares that symbol"),
        }
    }

    fn extension_numbers<'a>(&'a self, base: &'a str) -> Answer<'a> {
        if !self.symbols.contains_key(base) {
            return Answer::Error(Code::NotFound, "no served file declares that message");
        }
        let range = (base.to_owned(), i32::MIN)..=(base.to_owned(), i32::MAX);
        Answer::ExtensionNumbers(base, self.extensions.range(range).map(|((_, number), _)| *number).collect())
    }

    /// The file and all that it imports, itself first.
    fn closure(&self, name: &str) -> Vec<Bytes> {
        let mut names = vec![name];
        let mut next = 0;
        while let Some(file) = names.get(next).and_then(|name| self.files.get(*name)) {
            for import in &file.imports {
                if !names.contains(&import.as_str()) {
                    names.push(import);
                }
            }
            next += 1;
        }
        names.into_iter().filter_map(|name| self.files.get(name)).map(|file| file.raw.clone()).collect()
    }

    fn add(&mut self, name: &str, file: &FileDescriptorProto) {
        let package = file.package();
        for service in &file.service {
            let scope = self.symbol(package, service.name(), name);
            for method in &service.method {
                self.symbol(&scope, method.name(), name);
            }
        }
        for message in &file.message_type {
            self.message(package, message, name);
        }
        for one in &file.enum_type {
            self.enumeration(package, one, name);
        }
        for extension in &file.extension {
            self.extension(package, extension, name);
        }
    }

    fn message(&mut self, scope: &str, message: &DescriptorProto, file: &str) {
        let scope = self.symbol(scope, message.name(), file);
        for field in &message.field {
            self.symbol(&scope, field.name(), file);
        }
        for oneof in &message.oneof_decl {
            self.symbol(&scope, oneof.name(), file);
        }
        for nested in &message.nested_type {
            self.message(&scope, nested, file);
        }
        for one in &message.enum_type {
            self.enumeration(&scope, one, file);
        }
        for extension in &message.extension {
            self.extension(&scope, extension, file);
        }
    }

    /// Values of an enum are its siblings, not its children: that is how protobuf scopes them.
    fn enumeration(&mut self, scope: &str, one: &EnumDescriptorProto, file: &str) {
        self.symbol(scope, one.name(), file);
        for value in &one.value {
            self.symbol(scope, value.name(), file);
        }
    }

    fn extension(&mut self, scope: &str, extension: &FieldDescriptorProto, file: &str) {
        self.symbol(scope, extension.name(), file);
        // Compiled descriptors write the extended type fully qualified, with a leading dot.
        let base = extension.extendee().trim_start_matches('.').to_owned();
        self.extensions.insert((base, extension.number()), file.to_owned());
    }

    fn symbol(&mut self, scope: &str, name: &str, file: &str) -> String {
        let full = join(scope, name);
        self.symbols.insert(full.clone(), file.to_owned());
        full
    }
}

fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}
