//! Print: an account for people.

use std::fmt::Write as _;

use super::Account;

/// The account as text, discrepancies with their examples.
pub fn render(account: &Account, ledger: &str) -> String {
    let mut text = format!("Exposures in {ledger}\n\n");
    let Account { operations, arms, rows, .. } = account;
    // Writing to a String cannot fail.
    let mut line = |name: &str, count: u64, note: String| {
        let _ = writeln!(text, "  {name:<12} {count:>9}   {note}");
    };
    line(
        "operations",
        operations.total,
        format!(
            "{} answered, {} failed, {} departed, {} in flight at the end",
            operations.answered, operations.failed, operations.departed, operations.in_flight
        ),
    );
    line(
        "attempts",
        account.attempts,
        format!(
            "{} operations retried, {} attempts with an open effect; {} operations with rows that no attempt owned up to",
            account.retried, account.ambiguous, account.undeclared
        ),
    );
    line(
        "arms shown",
        arms.shown,
        format!(
            "{} committed, {} replayed, {} of them by another process",
            arms.committed, arms.replayed, arms.replayed_elsewhere
        ),
    );
    line(
        "rows",
        rows.total,
        format!("{} shown, {} whose caller left or was not answered", rows.shown, rows.unshown),
    );
    text.push('\n');
    for one in &account.discrepancies {
        let _ = writeln!(text, "  {:<12} {:>9}   {}", one.class.as_str(), one.count, one.class.meaning());
        for example in &one.examples {
            let _ = writeln!(text, "  {:<12} {:>9}     {example}", "", "");
        }
        let untold = one.count.saturating_sub(one.examples.len() as u64);
        if untold > 0 && !one.examples.is_empty() {
            let _ = writeln!(text, "  {:<12} {:>9}     and {untold} more", "", "");
        }
    }
    let why = account.why();
    let why = if why.is_empty() { String::new() } else { format!(": {why}") };
    let _ = writeln!(text, "\nverdict: {}{why}", account.verdict);
    text
}
