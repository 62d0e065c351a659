//! Revision: the git revision of the tree that a command runs in, read from the files without running git.

use std::{fs, path::Path};

/// The commit that `HEAD` names, when `start` is inside a git work tree.
pub fn of(start: &Path) -> Option<String> {
    let start = start.canonicalize().ok()?;
    let git = start.ancestors().map(|directory| directory.join(".git")).find(|path| path.exists())?;
    let git = match fs::read_to_string(&git) {
        // A work tree of another repository: the file names the directory.
        Ok(text) => git.parent()?.join(text.trim().strip_prefix("gitdir: ")?),
        Err(_) => git,
    };
    let head = fs::read_to_string(git.join("HEAD")).ok()?;
    let Some(reference) = head.trim().strip_prefix("ref: ") else { return commit(&head) };
    let common =
        fs::read_to_string(git.join("commondir")).map_or_else(|_| git.clone(), |t| git.join(t.trim()));
    let loose = [&git, &common].into_iter().find_map(|home| fs::read_to_string(home.join(reference)).ok());
    loose.as_deref().and_then(commit).or_else(|| {
        let packed = fs::read_to_string(common.join("packed-refs")).ok()?;
        packed.lines().find_map(|line| commit(line.strip_suffix(reference)?))
    })
}

fn commit(text: &str) -> Option<String> {
    let text = text.trim();
    let plain = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "1111111111111111111111111111111111111111";
    const TWO: &str = "2222222222222222222222222222222222222222";

    #[test]
    fn loose_packed_and_detached_heads_are_read() {
        let home = tempfile::tempdir().expect("a directory");
        let git = home.path().join(".git");
        fs::create_dir_all(git.join("refs/heads")).expect("made");
        fs::create_dir_all(home.path().join("deep/down")).expect("made");
        let write = |name: &str, text: &str| fs::write(git.join(name), text).expect("written");
        let read = || of(&home.path().join("deep/down"));

        write("HEAD", "ref: refs/heads/main\n");
        assert_eq!(read(), None, "no commit yet");
        write("packed-refs", &format!("# pack-refs\n{ONE} refs/heads/main\n"));
        assert_eq!(read().as_deref(), Some(ONE));
        write("refs/heads/main", &format!("{TWO}\n"));
        assert_eq!(read().as_deref(), Some(TWO), "a loose one is newer");
        write("HEAD", &format!("{ONE}\n"));
        assert_eq!(read().as_deref(), Some(ONE));
        assert_eq!(of(Path::new("/nonexistent")), None);
    }
}
