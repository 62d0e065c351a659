//! Cli: the subcommands and flags of `mercury`, as its clap declarations spell them, so that a document cannot name
//! one that is not there.

use std::collections::BTreeSet;

use crate::{images, repo::Repo};

/// Where the declarations are.
const SOURCES: &str = "crates/mercury/src/";
/// What clap adds.
const BUILT_IN: [&str; 3] = ["help", "--help", "--version"];

/// Names that the command line takes.
#[derive(Default)]
pub(crate) struct Cli {
    /// Variants of enums that derive `Subcommand` or `ValueEnum`, as clap spells them.
    names: BTreeSet<String>,
    /// Long flags, with their dashes.
    flags: BTreeSet<String>,
}

impl Cli {
    /// Reads the declarations of the binary.
    pub(crate) fn read(repo: &Repo) -> Self {
        let mut cli = Self::default();
        for (_, text) in repo.ending(".rs").filter(|(path, _)| path.starts_with(SOURCES)) {
            cli.variants(text);
            cli.long_flags(text);
        }
        cli
    }

    /// What is wrong with the words after `mercury`, if anything. The leading bare words are subcommands, and values of
    /// closed sets; a word after a flag may be the flag's value, so it is not looked at.
    pub(crate) fn fault(&self, words: &[String]) -> Option<String> {
        let bare = words.iter().take_while(|word| !word.starts_with('-'));
        for name in bare.filter(|word| !BUILT_IN.contains(&word.as_str())) {
            let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c == '-');
            if is_name && !self.names.contains(name) && !images::SERVICES.contains(&name.as_str()) {
                return Some(format!("mercury takes no {name:?} (it takes {:?})", self.names));
            }
        }
        let flags = words.iter().filter(|word| word.starts_with("--") && word.len() > 2);
        for flag in flags.map(|word| word.split('=').next().unwrap_or(word)) {
            if !BUILT_IN.contains(&flag) && !self.flags.contains(flag) {
                return Some(format!("mercury has no flag {flag}"));
            }
        }
        match words.first() {
            None => Some("mercury takes a subcommand".to_owned()),
            Some(_) => None,
        }
    }

    fn variants(&mut self, text: &str) {
        let (mut derived, mut inside, mut depth, mut renamed) = (false, false, 0_i32, None);
        for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
            let opening = depth;
            depth += balance(line);
            if line.starts_with("#[derive(") {
                derived = line.contains("Subcommand") || line.contains("ValueEnum");
            } else if derived && line.contains("enum ") {
                (inside, derived, depth) = (true, false, balance(line));
            } else if inside && depth <= 0 {
                inside = false;
            } else if inside && opening == 1 && line.starts_with("#[") {
                renamed = attribute(line, "name").or(renamed.take());
            } else if inside && opening == 1 {
                let variant: String = line.chars().take_while(|c| c.is_alphanumeric()).collect();
                if variant.starts_with(|c: char| c.is_uppercase()) {
                    self.names.insert(renamed.take().unwrap_or_else(|| kebab(&variant)));
                }
            } else if !line.starts_with("#[") && !line.starts_with(')') && !line.is_empty() && !inside {
                derived = false;
            }
        }
    }

    fn long_flags(&mut self, text: &str) {
        let mut long = false;
        for line in text.lines().map(str::trim) {
            if let Some(name) = attribute(line, "long") {
                self.flags.insert(format!("--{name}"));
            } else if line.starts_with("#[arg(") || line.starts_with("#[clap(") {
                long |= line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "long");
            } else if long && !line.starts_with("#[") && !line.starts_with("//") {
                let field = line
                    .trim_start_matches("pub(crate) ")
                    .trim_start_matches("pub(super) ")
                    .trim_start_matches("pub ");
                if let Some((field, _)) = field.split_once(':') {
                    self.flags
                        .insert(format!("--{}", field.trim().trim_start_matches("r#").replace('_', "-")));
                    long = false;
                }
            }
        }
    }
}

/// The value of `key = "value"` in an attribute.
fn attribute(line: &str, key: &str) -> Option<String> {
    let (before, rest) = line.split_once(&format!("{key} = \""))?;
    let whole = before.chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '_');
    whole.then(|| rest.split('"').next().unwrap_or_default().to_owned())
}

fn balance(line: &str) -> i32 {
    line.chars().map(|c| i32::from(c == '{') - i32::from(c == '}')).sum()
}

/// `HomeApi` as clap spells it: `home-api`.
fn kebab(variant: &str) -> String {
    let mut name = String::new();
    for c in variant.chars() {
        if c.is_uppercase() && !name.is_empty() {
            name.push('-');
        }
        name.extend(c.to_lowercase());
    }
    name
}

#[test]
fn declarations_are_read_and_unknown_words_refused() {
    let source = r#"
        #[derive(Debug, clap::Subcommand)]
        enum Command {
            /// Starts it.
            Up {
                #[arg(long, default_value_t = 8080)]
                port: u16,
            },
            #[command(name = "rehearse")]
            Rehearsal(RehearseArgs),
            Emulator { #[command(subcommand)] command: EmulatorCommand },
        }
        #[derive(clap::Subcommand, Debug)]
        pub(crate) enum EmulatorCommand { 
            Digest,
        }
        #[derive(Debug)]
        enum Private {
            Hidden,
        }
        struct RehearseArgs {
            /// Where to.
            #[arg(long, value_name = "DIR")]
            out: PathBuf,
            #[arg(long = "scale")]
            fraction: Scale,
            #[arg(short)]
            quiet: bool,
        }
    "#;
    let cli = Cli::read(&Repo::of(&[("crates/mercury/src/main.rs", source)]));
    let fault = |line: &str| cli.fault(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    for good in ["up", "up --port 0", "emulator digest", "rehearse --out out/ --scale=1/60", "--help"] {
        assert_eq!(fault(good), None, "{good}");
    }
    for bad in [
        "",
        "down",
        "emulator digests",
        "hidden",
        "up --ports 0",
        "rehearsal",
        "rehearse --fraction 1",
        "up --quiet",
    ] {
        assert!(fault(bad).is_some(), "{bad}");
    }
}
