//! Table: a report for people.

use std::fmt::Write as _;

use base::WorkloadClass;
use comfy_table::{Cell, CellAlignment, LineStyle, Table, presets};

use crate::report::{Figures, Generator, Report, Stage};

/// What stands for a figure that was not measured.
pub const NOT_MEASURED: &str = "–";

/// A grid with a header; the first `left` columns are aligned to the left, the others to the right.
pub fn grid(header: &[&str], left: usize, rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING.header_separator(LineStyle::none().fill('─').junction('─')));
    let align = |column: usize| if column < left { CellAlignment::Left } else { CellAlignment::Right };
    let cells = |texts: Vec<String>| {
        texts
            .into_iter()
            .enumerate()
            .map(|(at, text)| Cell::new(text).set_alignment(align(at)))
            .collect::<Vec<_>>()
    };
    table.set_header(cells(header.iter().map(ToString::to_string).collect()));
    for row in rows {
        table.add_row(cells(row));
    }
    table.trim_fmt()
}

/// Milliseconds with as many decimals as the histogram supports.
pub fn ms(value: Option<f64>) -> String {
    value.map_or_else(
        || NOT_MEASURED.to_owned(),
        |value| match value {
            v if v >= 100.0 => format!("{v:.0}"),
            v if v >= 10.0 => format!("{v:.1}"),
            v => format!("{v:.2}"),
        },
    )
}

/// A ratio as a percentage.
pub fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| NOT_MEASURED.to_owned(), |ratio| format!("{:.2} %", ratio * 100.0))
}

/// A count with its thousands apart.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The whole report.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    let scale = report.scale.as_ref().map_or_else(String::new, |scale| format!(" · scale {scale}"));
    let dilate =
        if report.dilate == 1 { String::new() } else { format!(" · slow motion × {}", report.dilate) };
    let _ = writeln!(
        text,
        "{} · seed {} · {:.1} req/s{scale}{dilate} · origin {} · target {}\n",
        report.workload, report.seed, report.rate_per_s, report.origin, report.target
    );
    let several = report.stages.iter().filter(|stage| stage.measured).count() > 1;
    let stages = report.stages.iter().chain(several.then_some(&report.total));
    text.push_str(&figures(stages));
    text.push_str(&details(&report.total.all));
    let _ = writeln!(text, "\n{}", generator(&report.generator));
    if report.stopped_early {
        text.push_str("The run was ended before its time.\n");
    }
    for sample in &report.mismatch_samples {
        let _ = writeln!(text, "mismatch  {}  {}: {}", sample.request_id, sample.violation, sample.detail);
    }
    text
}

/// One row a stage, and one a class below it.
fn figures<'a>(stages: impl Iterator<Item = &'a Stage>) -> String {
    let header = [
        "stage",
        "class",
        "offered",
        "ok",
        "degraded",
        "failed",
        "departed",
        "unsent",
        "in flight",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "max ms",
        "goodput",
    ];
    let mut rows = Vec::new();
    for stage in stages {
        let name = if stage.measured { stage.name.clone() } else { format!("{} (not measured)", stage.name) };
        rows.push(row(name, "all", &stage.all));
        if stage.measured {
            let classes =
                WorkloadClass::ALL.iter().filter_map(|class| stage.classes.get_key_value(class.as_str()));
            rows.extend(classes.map(|(class, figures)| row(String::new(), class, figures)));
        }
    }
    let mut text = grid(&header, 2, rows);
    text.push('\n');
    text
}

fn row(stage: String, class: &str, figures: &Figures) -> Vec<String> {
    let latency = &figures.latency_ms;
    vec![
        stage,
        class.to_owned(),
        count(figures.scheduled),
        count(figures.completed.ok),
        count(figures.completed.ok_degraded),
        count(figures.completed.failed()),
        count(figures.completed.departed),
        count(figures.unsent.total),
        count(figures.in_flight),
        ms(latency.p50),
        ms(latency.p99),
        ms(latency.p999),
        ms(latency.max),
        percent(figures.core_goodput_ratio),
    ]
}

/// What failed, was omitted or does not add up; nothing when all is well.
fn details(total: &Figures) -> String {
    let mut text = String::new();
    let mut list = |title: &str, entries: Vec<String>| {
        if !entries.is_empty() {
            let _ = writeln!(text, "{title:<16}{}", entries.join(" · "));
        }
    };
    let entry = |(name, count): (&str, &u64)| format!("{name} {}", self::count(*count));
    list("failures", total.failures.iter().map(|(name, count)| entry((name, count))).collect());
    let omissions = &total.omissions;
    list("recommendations", omissions.recommendations.iter().map(|(name, n)| entry((name, n))).collect());
    list("reputation", omissions.reputation.iter().map(|(name, n)| entry((name, n))).collect());
    let retries = total.attempts.saturating_sub(total.completed.total);
    list("attempts", if retries > 0 { vec![format!("{} retries", count(retries))] } else { Vec::new() });
    if !total.balanced {
        text.push_str("The run does not balance: scheduled is not completed + unsent + in flight.\n");
    }
    text
}

/// The generator's account of itself.
pub fn generator(generator: &Generator) -> String {
    let error = &generator.clock_error_ms;
    let mut text = format!(
        "generator {} · clock error p50 {} p99 {} max {} ms (bound 3 ms) · CPU {} of {} cores · unsent {} · \
         in flight at most {} of {} · nice {}",
        if generator.valid { "valid" } else { "INVALID" },
        ms(error.p50),
        ms(error.p99),
        ms(error.max),
        percent(generator.cpu_ratio),
        generator.cores,
        percent(generator.unsent_ratio),
        generator.in_flight_peak,
        count(generator.in_flight_max as u64),
        generator.schedule_priority.nice,
    );
    for reason in &generator.reasons {
        let _ = write!(text, "\n  {reason}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_well() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(18_400_000), "18,400,000");
        assert_eq!(ms(None), NOT_MEASURED);
        assert_eq!(ms(Some(487.26)), "487");
        assert_eq!(ms(Some(76.04)), "76.0");
        assert_eq!(percent(Some(0.995)), "99.50 %");
        assert_eq!(percent(None), NOT_MEASURED);
    }

    #[test]
    fn a_grid_is_aligned() {
        let rows = [vec!["peak".to_owned(), "7".to_owned()], vec!["slowdown".to_owned(), "1,000".to_owned()]];
        let expected = " stage          n\n──────────────────\n peak           7\n slowdown   1,000";
        assert_eq!(grid(&["stage", "n"], 1, rows), expected);
    }
}
