//! Bars with what has been simulated and the time left, on a terminal only.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::simulation::Simulation;
use crate::units::SimTime;

/// How often the clock is looked at: an event takes less than a microsecond.
const EVENTS_BETWEEN_LOOKS: u32 = 1_000;
/// The length of a bar that knows how far it is.
const WHOLE: u64 = 1_000;
/// Before that much a guess of the time left is no use.
const LEAST_SHARE: f64 = 0.01;

pub(super) struct Progress {
    bar: Option<ProgressBar>,
    events: u32,
    drawn_at: Instant,
}

impl Progress {
    pub fn new(name: &str, quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::with_draw_target(Some(WHOLE), ProgressDrawTarget::stderr());
            let style = ProgressStyle::with_template("{spinner} {prefix} {bar:20} {msg} [{elapsed_precise}]");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(name.to_owned());
            bar
        });
        Self { bar, events: 0, drawn_at: Instant::now() }
    }

    /// One event was simulated.
    #[inline]
    pub fn event(&mut self, simulation: &Simulation) {
        self.events += 1;
        if self.events == EVENTS_BETWEEN_LOOKS {
            self.events = 0;
            self.look(simulation);
        }
    }

    fn look(&mut self, simulation: &Simulation) {
        if let Some(bar) = &self.bar
            && self.drawn_at.elapsed() >= Duration::from_millis(100)
        {
            self.drawn_at = Instant::now();
            let share = simulation.progress();
            bar.set_position((share.unwrap_or(0.0) * WHOLE as f64) as u64);
            bar.set_message(message(simulation.now(), bar.elapsed(), share));
            bar.tick();
        }
    }

    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A count of requests, whose number nobody knows before, with their rate.
pub(super) fn requests_spinner(name: &str, quiet: bool) -> Option<ProgressBar> {
    (!quiet && std::io::stderr().is_terminal()).then(|| {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(
            "{spinner} {prefix} {human_pos} requests, {per_sec} [{elapsed_precise}]",
        );
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_prefix(name.to_owned());
        bar
    })
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

/// What is said of a run that has got to `now` after so long, with this share of its requests.
fn message(now: SimTime, elapsed: Duration, share: Option<f64>) -> String {
    let rate = now.as_secs_f64() / elapsed.as_secs_f64();
    let mut message = format!("simulated {:.0} s ({rate:.0} x real time)", now.as_secs_f64());
    match share {
        Some(1.0) => message += ", the last requests",
        Some(share) if share >= LEAST_SHARE => {
            let left_s = elapsed.as_secs_f64() * (1.0 - share) / share;
            message += &format!(", {:.0} %, {} left", 100.0 * share, duration(left_s));
        }
        _ => {}
    }
    message
}

fn duration(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match (seconds / 3_600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes}:{seconds:02} min"),
        (hours, minutes, _) => format!("{hours}:{minutes:02} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_told_where_it_can_be_known() {
        let told = |share| message(SimTime::from_ms(90_000), Duration::from_secs(3), share);
        assert_eq!(told(None), "simulated 90 s (30 x real time)");
        assert_eq!(told(Some(0.001)), "simulated 90 s (30 x real time)");
        assert_eq!(told(Some(0.25)), "simulated 90 s (30 x real time), 25 %, 9 s left");
        assert_eq!(told(Some(0.01)), "simulated 90 s (30 x real time), 1 %, 4:57 min left");
        assert_eq!(told(Some(1.0)), "simulated 90 s (30 x real time), the last requests");
        assert_eq!(duration(3.0 * 3_600.0 + 125.0), "3:02 h");
    }
}
