//! Bars with the simulated time, or the number of runs, on a terminal only.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::units::SimTime;

/// How often the clock is looked at: an event takes less than a microsecond.
const EVENTS_BETWEEN_LOOKS: u32 = 1_000;

pub(super) struct Progress {
    bar: Option<ProgressBar>,
    events: u32,
    drawn_at: Instant,
}

impl Progress {
    pub fn new(name: &str, quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} {prefix} {msg} [{elapsed_precise}]");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.set_prefix(name.to_owned());
            bar
        });
        Self { bar, events: 0, drawn_at: Instant::now() }
    }

    /// One event was simulated.
    #[inline]
    pub fn event(&mut self, now: SimTime) {
        self.events += 1;
        if self.events == EVENTS_BETWEEN_LOOKS {
            self.events = 0;
            self.look(now);
        }
    }

    fn look(&mut self, now: SimTime) {
        if let Some(bar) = &self.bar
            && self.drawn_at.elapsed() >= Duration::from_millis(100)
        {
            self.drawn_at = Instant::now();
            let rate = now.as_secs_f64() / bar.elapsed().as_secs_f64();
            bar.set_message(format!("simulated {:.0} s ({rate:.0} x real time)", now.as_secs_f64()));
            bar.tick();
        }
    }

    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar of `all` runs, of which `done` were there before, with their rate and the time left.
pub(super) fn runs_bar(name: &str, done: usize, all: usize, quiet: bool) -> Option<ProgressBar> {
    (!quiet && std::io::stderr().is_terminal()).then(|| {
        let left = (all - done) as u64;
        let bar = ProgressBar::with_draw_target(Some(left), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(
            "{spinner} {prefix} [{bar:30}] {pos}/{len} runs, {per_sec}, {eta} left {msg} [{elapsed_precise}]",
        );
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(name.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        bar
    })
}
