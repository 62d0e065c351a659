//! Effects: the kills that the process which records exposures went through, and what its ledger says after them.

use maud::{Markup, html};

use super::{text::Unit, view::View};
use crate::report::Effects;

/// Most examples of one kind of discrepancy on the page.
const EXAMPLES_MAX: usize = 5;

/// The section; nothing when no effects were rehearsed.
pub(super) fn section(view: &View<'_>) -> Markup {
    let Some(Effects { kills, account }) = &view.report.effects else { return html! {} };
    let ms = |value: Option<f64>| Unit::Ms.write(value).unwrap_or_else(|| "–".to_owned());
    let (operations, arms, rows) = (&account.operations, &account.arms, &account.rows);
    html! {
        section {
            h2 { "Exposures, after the kills" }
            p {
                "The process that records exposures was killed " (kills.total) " times under load: " (kills.any) " times at any \
                 moment, " (kills.submitted) " times while a lock kept submitted rows from the ledger, and " (kills.committing)
                " times just after such a lock was given up; " (kills.rows_in_flight) " rows were in flight at the latter two. \
                 It was ready again after " (ms(kills.restart_ms.p50)) " (median) and " (ms(kills.restart_ms.p99)) " (p99)."
            }
            p {
                (operations.total) " operations were asked for in " (account.attempts) " attempts: " (operations.answered)
                " were answered, " (operations.failed) " failed, " (operations.departed) " were left by their callers. They were \
                 shown " (arms.shown) " arms, of which an attempt before the answered one had recorded " (arms.replayed) ". \
                 The ledger holds " (rows.total) " rows; " (rows.unshown) " are of callers that left or were not answered."
            }
            div.wide {
                table {
                    thead { tr { th { "discrepancy" } th.figure { "count" } th { "what it is" } } }
                    tbody {
                        @for one in &account.discrepancies {
                            tr {
                                th scope="row" { (one.class.as_str()) }
                                td.figure { (one.count) }
                                td {
                                    (one.class.meaning())
                                    @for example in one.examples.iter().take(EXAMPLES_MAX) { div.note { (example) } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        exposures::{Account, Class},
        html::{render, sample},
        report::{Effects, Kills, Quantiles, Report},
    };

    #[test]
    fn kills_and_discrepancies_are_told_with_their_examples_escaped() {
        let mut account = Account::new();
        account.note(Class::Lost, 9, || "home of operation <script>1</script>".to_owned());
        let restart_ms = Quantiles { p50: Some(21.0), ..Quantiles::default() };
        let kills = Kills { total: 50, submitted: 12, restart_ms, ..Kills::default() };
        let report = Report { effects: Some(Effects { kills, account }), ..Report::default() };
        let page = render(&report, &sample::run()).replace('\u{a0}', " ");
        for text in [
            "killed 50 times",
            "12 times while a lock",
            "21 ms",
            "(median) and –",
            ">lost<",
            "&lt;script&gt;1",
        ] {
            assert!(page.contains(text), "{text}");
        }
        for class in Class::ALL {
            assert!(page.contains(class.meaning()), "{class}");
        }
        assert!(!page.contains("<script"), "nothing from outside becomes markup");
        assert!(!page.contains("<h2>Figures</h2>"), "there are no states to compare");
        assert!(!render(&Report::default(), &sample::run()).contains("after the kills"));
    }
}
