//! Screen: a progress bar on a terminal, and nothing in a pipe.

use std::io::IsTerminal;

use base::Nanos;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use load::Progress;

/// A bar on stderr, when that is a terminal.
pub(crate) struct Screen(Option<ProgressBar>);

impl Screen {
    /// `wanted` is false for machine-readable output.
    pub(crate) fn new(wanted: bool) -> Self {
        let shown = wanted && std::io::stderr().is_terminal();
        Self(shown.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8));
            bar.set_style(ProgressStyle::default_spinner());
            bar
        }))
    }

    /// How long everything will take; from now on there is a bar.
    pub(crate) fn expect(&self, total: Nanos) {
        let Some(bar) = &self.0 else { return };
        let style = ProgressStyle::with_template("{msg}\n{wide_bar} {percent:>3} %  {prefix} left");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_length(total.as_millis());
        self.at(Nanos::ZERO);
    }

    /// How much of it is over.
    pub(crate) fn at(&self, done: Nanos) {
        let Some(bar) = &self.0 else { return };
        bar.set_position(done.as_millis());
        let left = bar.length().unwrap_or_default().saturating_sub(done.as_millis());
        bar.set_prefix(clock(Nanos::from_millis(left)));
    }

    /// What is being done.
    pub(crate) fn say(&self, text: impl Into<String>) {
        if let Some(bar) = &self.0 {
            bar.set_message(text.into());
            bar.tick();
        }
    }

    /// How far the generator is.
    pub(crate) fn show(&self, stage: &str, progress: &Progress) {
        let Some(bar) = &self.0 else { return };
        bar.set_message(format!(
            "{stage}  sent {}  ok {}  failed {}  departed {}  unsent {}  in flight {}  p99 {} ms",
            progress.sent,
            progress.ok,
            progress.failed,
            progress.departed,
            progress.unsent,
            progress.in_flight,
            load::table::ms(progress.recent_p99_ms),
        ));
    }

    /// Takes the bar away.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}

/// A span as people say it: `45 s`, `12 min`, `3 h 20 min`.
pub(crate) fn clock(span: Nanos) -> String {
    let seconds = span.as_millis().div_ceil(1_000);
    match seconds {
        0..100 => format!("{seconds} s"),
        100..7_200 => format!("{} min", seconds.div_ceil(60)),
        _ => {
            let minutes = seconds.div_ceil(60);
            format!("{} h {} min", minutes / 60, minutes % 60)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_well() {
        for (seconds, text) in
            [(0, "0 s"), (99, "99 s"), (100, "2 min"), (2_340, "39 min"), (12_000, "3 h 20 min")]
        {
            assert_eq!(clock(Nanos::from_secs(seconds)), text);
        }
    }
}
