//! Entry: one decision, and the line that it is written as.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

/// Schema of a line. It is part of what is digested, so that no other document can pass for a line.
pub const SCHEMA: &str = "mercury.decision/v1";
/// Stands for the digest of the line before the first.
pub const NO_DIGEST: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// A rollout begins, or begins anew: the subject is put where it starts.
    Begin,
    /// The evidence was good enough: the subject goes on to `to`.
    Advance,
    /// `to` is passed over, with nothing changed.
    Skip,
    /// Not enough evidence: the subject stays at `from`.
    Hold,
    /// The evidence breached a bound: the subject stays at `from`.
    Refuse,
    /// A bound was breached at `to`, which is still in force: a reversal is owed.
    Abort,
    /// The subject was put back to `to`.
    Reverse,
    /// The ledger cut off a torn line of its own.
    Repair,
}

impl Decision {
    /// The name used in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Begin => "begin",
            Self::Advance => "advance",
            Self::Skip => "skip",
            Self::Hold => "hold",
            Self::Refuse => "refuse",
            Self::Abort => "abort",
            Self::Reverse => "reverse",
            Self::Repair => "repair",
        }
    }
}

impl std::fmt::Display for Decision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The policy that a decision was taken under.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyRef {
    /// Its generation.
    pub generation: u64,
    /// Digest of the document, in hexadecimal.
    pub digest: String,
}

/// A decision before it has its place in the ledger.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// Who decided.
    pub actor: String,
    /// The command that did.
    pub command: String,
    /// What it is about.
    pub subject: String,
    /// Where the subject stands; `None` before its first decision.
    pub from: Option<String>,
    /// Where it would go, or went.
    pub to: String,
    /// What was decided.
    pub decision: Decision,
    /// Why, in one sentence.
    pub reason: String,
    /// The policy that the evidence was taken under.
    pub policy: Option<PolicyRef>,
    /// What it was decided on.
    pub evidence: Value,
}

/// A decision in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// [`SCHEMA`].
    pub schema: String,
    /// From 1, without a gap.
    pub sequence: u64,
    /// When, in milliseconds since the Unix epoch.
    pub at_unix_ms: i64,
    /// As in [`Draft`].
    pub actor: String,
    /// As in [`Draft`].
    pub command: String,
    /// As in [`Draft`].
    pub subject: String,
    /// As in [`Draft`].
    pub from: Option<String>,
    /// As in [`Draft`].
    pub to: String,
    /// As in [`Draft`].
    pub decision: Decision,
    /// As in [`Draft`].
    pub reason: String,
    /// As in [`Draft`].
    pub policy: Option<PolicyRef>,
    /// As in [`Draft`].
    pub evidence: Value,
    /// SHA-256 of the evidence, as the line spells it.
    pub evidence_sha256: String,
    /// [`Entry::digest`] of the entry before, or [`NO_DIGEST`].
    pub previous: String,
    /// SHA-256 of the schema, a newline, and the line up to this key.
    pub digest: String,
}

impl Entry {
    /// Where the subject stands after it; `None` for a repair, which is about no subject's phase.
    pub fn position(&self) -> Option<&str> {
        match self.decision {
            Decision::Begin | Decision::Advance | Decision::Skip | Decision::Abort | Decision::Reverse => {
                Some(&self.to)
            }
            Decision::Hold | Decision::Refuse => self.from.as_deref(),
            Decision::Repair => None,
        }
    }
}

/// The part of a line before its seals.
#[derive(Serialize)]
struct Body<'d> {
    schema: &'static str,
    sequence: u64,
    at_unix_ms: i64,
    actor: &'d str,
    command: &'d str,
    subject: &'d str,
    from: Option<&'d str>,
    to: &'d str,
    decision: Decision,
    reason: &'d str,
    policy: Option<&'d PolicyRef>,
    evidence: &'d Value,
}

impl Draft {
    /// Gives it its place. Returns the entry and its line, newline included.
    pub(super) fn seal(self, sequence: u64, at_unix_ms: i64, previous: &str) -> (Entry, String) {
        let body = Body {
            schema: SCHEMA,
            sequence,
            at_unix_ms,
            actor: &self.actor,
            command: &self.command,
            subject: &self.subject,
            from: self.from.as_deref(),
            to: &self.to,
            decision: self.decision,
            reason: &self.reason,
            policy: self.policy.as_ref(),
            evidence: &self.evidence,
        };
        // Texts, numbers and values of JSON: nothing here can fail to be written as JSON.
        let text = |value: serde_json::Result<String>| value.expect("plain data");
        let evidence_sha256 = sha256(text(serde_json::to_string(&self.evidence)).as_bytes());
        let mut line = text(serde_json::to_string(&body));
        line.pop();
        line.push_str(&format!(r#","evidence_sha256":"{evidence_sha256}","previous":"{previous}""#));
        let digest = digest(line.as_bytes());
        line.push_str(&format!(r#","digest":"{digest}"}}"#));
        line.push('\n');
        let entry = Entry {
            schema: SCHEMA.to_owned(),
            sequence,
            at_unix_ms,
            actor: self.actor,
            command: self.command,
            subject: self.subject,
            from: self.from,
            to: self.to,
            decision: self.decision,
            reason: self.reason,
            policy: self.policy,
            evidence: self.evidence,
            evidence_sha256,
            previous: previous.to_owned(),
            digest,
        };
        (entry, line)
    }
}

/// What a line says of itself, and what its bytes say.
pub(super) struct Seal<'l> {
    /// The digest that it carries.
    pub(super) carried: &'l str,
    /// The digest of its bytes.
    pub(super) of_bytes: String,
    /// The evidence as it is spelt.
    pub(super) evidence: &'l str,
}

/// Takes a line (without its newline) apart by its fixed end; `None` when it does not end like one.
pub(super) fn unseal(line: &str) -> Option<Seal<'_>> {
    let (body, carried) = end(line.strip_suffix('}')?, r#","digest":""#)?;
    let (rest, _) = end(body, r#","previous":""#)?;
    let (rest, _) = end(rest, r#","evidence_sha256":""#)?;
    // Inside a text the quotes would be escaped, and no object stands before it that has such a key.
    let (_, evidence) = rest.split_once(r#","evidence":"#)?;
    Some(Seal { carried, of_bytes: digest(body.as_bytes()), evidence })
}

/// Splits off `key` and the digest in quotes that ends `text`.
fn end<'l>(text: &'l str, key: &str) -> Option<(&'l str, &'l str)> {
    let text = text.strip_suffix('"')?;
    let at = text.len().checked_sub(NO_DIGEST.len())?;
    let (rest, digest) = text.split_at_checked(at)?;
    let lowercase = digest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let rest = rest.strip_suffix(key)?;
    lowercase.then_some((rest, digest))
}

/// The digest of a line's body.
fn digest(body: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(SCHEMA.as_bytes());
    hash.update(b"\n");
    hash.update(body);
    hex(&hash.finalize())
}

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
