//! Repo: the checkout as the checkers see it, a map from path to text. Real ones are read from disk; a checker's own
//! tests make small ones.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// Everything that would be committed: what .gitignore names, and git's own directory, is left out.
pub(crate) struct Repo {
    pub(crate) root: PathBuf,
    pub(crate) files: BTreeMap<String, String>,
    pub(crate) ignored: Ignored,
}

impl Repo {
    /// The checkout that this test was built from.
    pub(crate) fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ has a parent").to_path_buf();
        let text = fs::read_to_string(root.join(".gitignore")).expect(".gitignore is readable");
        let mut repo = Self { root: root.clone(), files: BTreeMap::new(), ignored: Ignored::parse(&text) };
        repo.walk(&root);
        assert!(repo.files.contains_key("Cargo.toml"), "no checkout at {}", root.display());
        repo
    }

    /// A repository of exactly these files.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let files = files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Self { root: PathBuf::from("/nowhere"), files, ignored: Ignored::parse("/target\n/out\n*.pyc\n") }
    }

    /// The text of a file, or nothing.
    pub(crate) fn text(&self, path: &str) -> &str {
        self.files.get(path).map_or("", String::as_str)
    }

    /// Files whose name ends with `suffix`.
    pub(crate) fn ending<'a>(&'a self, suffix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files
            .iter()
            .filter(move |(path, _)| path.ends_with(suffix))
            .map(|(p, t)| (p.as_str(), t.as_str()))
    }

    /// True for a file, and for a directory that has one.
    pub(crate) fn exists(&self, path: &str) -> bool {
        let path = path.trim_start_matches("./").trim_end_matches('/');
        path.is_empty()
            || path == "."
            || self.files.contains_key(path)
            || self
                .files
                .range(format!("{path}/")..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&format!("{path}/")))
    }

    /// True for a name that stands at the root.
    pub(crate) fn is_top_level(&self, name: &str) -> bool {
        self.files.keys().any(|path| path.split('/').next() == Some(name))
    }

    fn walk(&mut self, directory: &Path) {
        for entry in fs::read_dir(directory).expect("a directory of the checkout is readable") {
            let path = entry.expect("a directory entry is readable").path();
            let relative =
                path.strip_prefix(&self.root).expect("below the root").to_string_lossy().into_owned();
            if relative == ".git" || self.ignored.covers(&relative) {
                continue;
            }
            if path.is_dir() {
                self.walk(&path);
            } else {
                let bytes = fs::read(&path).expect("a file of the checkout is readable");
                self.files.insert(relative, String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }
}

/// The few forms of .gitignore pattern that this repository uses; any other is refused rather than misread.
pub(crate) struct Ignored(Vec<String>);

impl Ignored {
    fn parse(text: &str) -> Self {
        let patterns: Vec<_> = text
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .map(str::to_owned)
            .collect();
        for pattern in &patterns {
            let plain =
                pattern.strip_prefix("*.").unwrap_or(pattern).trim_start_matches('/').trim_end_matches('/');
            assert!(
                !plain.is_empty() && !plain.contains(['*', '!', '/', '[', '?']),
                "tests/tidy does not read the .gitignore pattern {pattern:?}"
            );
        }
        Self(patterns)
    }

    /// True for a path that git would not take.
    pub(crate) fn covers(&self, path: &str) -> bool {
        let mut parts = path.trim_start_matches("./").trim_end_matches('/').split('/');
        let first = parts.next().unwrap_or_default();
        self.0.iter().any(|pattern| match (pattern.strip_prefix('/'), pattern.strip_prefix('*')) {
            (Some(anchored), _) => first == anchored.trim_end_matches('/'),
            (None, Some(ending)) => path.ends_with(ending),
            (None, None) => path.split('/').any(|part| part == pattern.trim_end_matches('/')),
        })
    }
}

#[test]
fn ignored_paths_are_told_apart() {
    let ignored = Ignored::parse("/out\n__pycache__/\n*.pyc\n");
    for path in ["out", "out/report.json", "./out/", "tests/python/__pycache__/a", "a/b.pyc"] {
        assert!(ignored.covers(path), "{path}");
    }
    for path in ["outer", "crates/out", "a/b.py"] {
        assert!(!ignored.covers(path), "{path}");
    }
}

#[test]
fn a_directory_exists_when_it_has_a_file() {
    let repo = Repo::of(&[("config/policy.toml", ""), ("config-old", "")]);
    assert!(repo.exists("config/") && repo.exists("./config") && repo.exists("config/policy.toml"));
    assert!(!repo.exists("conf") && !repo.exists("config/policy"));
}
