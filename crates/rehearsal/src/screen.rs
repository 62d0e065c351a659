//! Screen: a progress bar on a terminal, and nothing in a pipe.

use std::io::IsTerminal;

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

    /// One line while there is no length yet.
    pub(crate) fn say(&self, text: impl Into<String>) {
        if let Some(bar) = &self.0 {
            bar.set_message(text.into());
            bar.tick();
        }
    }

    /// How far the generator is.
    pub(crate) fn show(&self, stage: &str, progress: &Progress) {
        let Some(bar) = &self.0 else { return };
        if bar.length().is_none() {
            let style = ProgressStyle::with_template("{msg}\n{wide_bar} {percent:>3} %  {eta} left");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_length(progress.total.as_millis());
        }
        bar.set_position(progress.elapsed.as_millis());
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
