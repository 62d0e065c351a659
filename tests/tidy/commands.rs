//! Commands: the shell commands in the fenced blocks of a Markdown file, cut into words, and its inline code and links.

/// Fences whose every line is a command, but for comments.
const SHELL: [&str; 3] = ["sh", "bash", "shell"];
/// A fence in which commands start with `$ ` and the rest is what they printed.
const CONSOLE: &str = "console";

/// One program and its arguments.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// Line of the file where it starts, from 1.
    pub(crate) line: usize,
    /// The program, then its arguments; quotes removed, leading `A=b` assignments dropped.
    pub(crate) words: Vec<String>,
}

/// Text in backticks or the target of a link, outside fenced blocks.
pub(crate) struct Mention {
    /// Line of the file, from 1.
    pub(crate) line: usize,
    /// The text.
    pub(crate) text: String,
    /// A link's target rather than code.
    pub(crate) link: bool,
}

/// Every command of every shell block.
pub(crate) fn commands(markdown: &str) -> Vec<Command> {
    let mut found = Vec::new();
    let (mut fence, mut pending): (Option<&str>, Option<(usize, String)>) = (None, None);
    for (index, line) in markdown.lines().enumerate() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            fence = fence.is_none().then_some(info.trim());
            continue;
        }
        let Some(info) = fence else { continue };
        let text = match (&pending, line.trim_start().strip_prefix("$ ")) {
            (Some(_), _) => line,
            (None, Some(command)) if info == CONSOLE => command,
            (None, _) if SHELL.contains(&info) => line,
            _ => continue,
        };
        let (start, mut whole) = pending.take().unwrap_or((index + 1, String::new()));
        whole.push_str(text.trim_end().trim_end_matches('\\'));
        if text.trim_end().ends_with('\\') {
            whole.push(' ');
            pending = Some((start, whole));
        } else {
            found.extend(split(&whole).into_iter().map(|words| Command { line: start, words }));
        }
    }
    found
}

/// Every piece of inline code and every link target outside fenced blocks.
pub(crate) fn mentions(markdown: &str) -> Vec<Mention> {
    let mut found = Vec::new();
    let mut fenced = false;
    for (index, line) in markdown.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let code = line.split('`').skip(1).step_by(2);
        found.extend(code.map(|text| Mention { line: index + 1, text: text.to_owned(), link: false }));
        let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        found.extend(links.map(|text| Mention { line: index + 1, text: text.to_owned(), link: true }));
    }
    found
}

/// Cuts a shell line into simple commands. Quotes group, `#` at the start of a word comments, redirections are dropped.
fn split(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, '|' | '&' | ';') => {
                words.extend(word.take());
                commands.push(std::mem::take(&mut words));
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    commands.push(words);
    commands.into_iter().map(without_assignments).filter(|words| !words.is_empty()).collect()
}

fn without_assignments(words: Vec<String>) -> Vec<String> {
    let is_assignment = |word: &String| {
        word.split_once('=').is_some_and(|(name, _)| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        })
    };
    let redirects = |word: &String| word.starts_with(['>', '<']) || word.starts_with("2>");
    words.into_iter().skip_while(is_assignment).take_while(|word| !redirects(word)).collect()
}

#[test]
fn blocks_are_cut_into_commands() {
    let markdown = "text `code` and [link](docs/a.md)\n\
        ```sh\ncargo test --workspace   # all of it\nA=1 curl -H 'x: y z' \\\n  http://h/ | jq .\n```\n\
        ```console\n$ mercury up\nready\n```\n\
        ```json\n{}\n```\n";
    let words =
        |line, words: &[&str]| Command { line, words: words.iter().map(|w| (*w).to_owned()).collect() };
    assert_eq!(
        commands(markdown),
        [
            words(3, &["cargo", "test", "--workspace"]),
            words(4, &["curl", "-H", "x: y z", "http://h/"]),
            words(4, &["jq", "."]),
            words(8, &["mercury", "up"]),
        ]
    );
    let found = mentions(markdown);
    assert_eq!(
        found.iter().map(|m| (m.text.as_str(), m.link)).collect::<Vec<_>>(),
        [("code", false), ("docs/a.md", true)]
    );
}
