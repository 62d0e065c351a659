//! Speed: how fast a region is simulated on this machine: one run on one core, ever longer. The time has to grow in proportion to
//! the requests and the memory must not grow at all, or a packet would not end.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use base::{Clock, clock::MonotonicClock};
use load::table::{NOT_MEASURED, count, grid};
use serde::Serialize;

use super::{PEAK, Plan, SimulateOptions};
use crate::{
    report::ratio,
    slo::{Output, RehearsalError},
    sweep::{self, Extent, Variant},
    usage::{self, Machine},
};

/// Virtual minutes of the runs.
const MINUTES: [u32; 3] = [1, 10, 100];

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Row {
    /// Time of the model.
    pub(super) virtual_minutes: f64,
    /// Operations that were simulated.
    pub(super) requests: u64,
    /// How long it took.
    pub(super) wall_s: f64,
    /// Operations a second.
    pub(super) requests_per_s: Option<f64>,
    /// Most resident memory while it ran; null where the system does not tell.
    pub(super) memory_peak_mib: Option<f64>,
}

/// Simulates the policy after, or the one of `options`, at peak for one, ten and a hundred minutes, one after the other on one
/// core, and prints requests per second and memory. Nothing is judged, and no file is written.
///
/// # Errors
/// [`RehearsalError`] when a file is wrong, or a signal came before everything had ended.
pub async fn speed(options: &SimulateOptions) -> Result<(), RehearsalError> {
    let plan = Plan::of(&SimulateOptions { packet: false, ..options.clone() })?;
    let mut rows = Vec::with_capacity(MINUTES.len());
    for minutes in MINUTES {
        rows.push(run(&plan, minutes * 60, options).await?);
    }
    let text = match options.output {
        Output::Human => human(&rows),
        Output::Json => {
            let mut text = serde_json::to_string_pretty(&rows).unwrap_or_default();
            text.push('\n');
            text
        }
    };
    // A reader that went away wants nothing any more.
    let _ = io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

/// One run of so many seconds, without a warm-up.
pub(super) async fn run(
    plan: &Plan,
    window_s: u32,
    options: &SimulateOptions,
) -> Result<Row, RehearsalError> {
    let extent = Extent { warm_up_s: 0, window_s, runs: 1 };
    let variants: Vec<Variant> =
        plan.variants.iter().take(1).map(|one| Variant { states: PEAK, ..one.clone() }).collect();
    let own = std::process::id();
    // Where it is not allowed, the most is that of the process's whole life, which earlier and shorter runs do not raise.
    let _ = usage::reset_peak(own);
    let began = MonotonicClock.now();
    let shown = options.output == Output::Human;
    let swept = sweep::watched(variants, extent, options.seed, std::num::NonZero::new(1), shown).await?;
    let wall_s = (MonotonicClock.now() - began).as_secs_f64();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    Ok(Row {
        virtual_minutes: f64::from(window_s) / 60.0,
        requests: swept.requests,
        wall_s,
        requests_per_s: ratio(swept.requests as f64, wall_s),
        memory_peak_mib: usage::read(own).ok().map(|usage| mib(usage.rss_peak_bytes)),
    })
}

fn human(rows: &[Row]) -> String {
    let machine = Machine::this();
    let mut text = format!(
        "\none run on one of {} cores, {}\n\n",
        machine.cores,
        machine.cpu_model.as_deref().unwrap_or("of a model that is not known")
    );
    let known = |value: Option<String>| value.unwrap_or_else(|| NOT_MEASURED.to_owned());
    let lines = rows.iter().map(|row| {
        vec![
            format!("{}", row.virtual_minutes),
            count(row.requests),
            format!("{:.2}", row.wall_s),
            known(row.requests_per_s.map(|rate| count(rate as u64))),
            known(row.memory_peak_mib.map(|mib| format!("{mib:.1}"))),
        ]
    });
    let header = ["virtual minutes", "requests", "wall s", "requests/s", "most memory, MiB"];
    let _ = writeln!(text, "{}", grid(&header, 0, lines));
    if let [first, .., last] = rows
        && let Some(times) = slower(first, last)
    {
        let _ = writeln!(
            text,
            "\na request of the longest run took {times:.2} times as long as one of the shortest"
        );
    }
    text
}

/// How much longer a request took in `last`.
fn slower(first: &Row, last: &Row) -> Option<f64> {
    first.requests_per_s.zip(last.requests_per_s).and_then(|(first, last)| ratio(first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_takes_longer_in_a_longer_run_is_seen() {
        let row = |requests: u64, wall_s: f64| Row {
            virtual_minutes: 1.0,
            requests,
            wall_s,
            requests_per_s: ratio(requests as f64, wall_s),
            memory_peak_mib: None,
        };
        let (short, long) = (row(1_000_000, 1.0), row(100_000_000, 250.0));
        assert_eq!(slower(&short, &long), Some(2.5));
        let text = human(&[short, long]);
        assert!(text.contains("2.50 times as long") && text.contains("400,000"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
        assert_eq!(slower(&row(0, 0.0), &long), None, "a run that took no time has no rate");
    }
}
