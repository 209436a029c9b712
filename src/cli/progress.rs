//! How far a command is: a bar on a terminal, events where they were asked for, else nothing.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::console::{Console, rounded};

/// Between two drawings, and before the first.
const DRAW_EVERY: Duration = Duration::from_millis(100);
/// Between two events, and before the first.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// The length of a bar on a terminal.
const WHOLE: u64 = 1_000;
/// Before that much a guess of the time left is no use.
const LEAST_SHARE: f64 = 0.01;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Read or written, many in a millisecond.
    Requests,
    /// Of the clock of a simulation.
    SimulatedSeconds,
    Runs,
    Cases,
    Rows,
    Operations,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::SimulatedSeconds => "simulated seconds",
            Self::Runs => "runs",
            Self::Cases => "cases",
            Self::Rows => "rows",
            Self::Operations => "operations",
        }
    }
}

/// Cleared when it is dropped.
pub(super) struct Bar<'a> {
    view: View<'a>,
    unit: Unit,
    state: State,
    /// Behind all else, on a terminal.
    remark: String,
    begun: Instant,
    shown: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    done: f64,
    all: Option<u64>,
    /// Of the work, where that is not `done / all`.
    share: Option<f64>,
}

enum View<'a> {
    Hidden,
    Terminal(ProgressBar),
    Events(&'a Console),
}

impl Console {
    /// A bar of `all` units, if that is known.
    pub fn bar(&self, name: &str, unit: Unit, all: Option<usize>) -> Bar<'_> {
        let view = if self.tells_events() {
            View::Events(self)
        } else if self.tells_people() && std::io::stderr().is_terminal() {
            View::Terminal(terminal_bar(name, unit))
        } else {
            View::Hidden
        };
        let state = State { all: all.map(|all| all as u64), ..State::default() };
        let remark = String::new();
        let bar = Bar { view, unit, state, remark, begun: Instant::now(), shown: Instant::now() };
        if !matches!(unit, Unit::Requests | Unit::SimulatedSeconds) {
            bar.draw();
        }
        bar
    }
}

fn terminal_bar(name: &str, unit: Unit) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(WHOLE), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{spinner} {prefix} {bar:20} {msg} [{elapsed_precise}]");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(name.to_owned());
    if !matches!(unit, Unit::Requests | Unit::SimulatedSeconds) {
        // One of them may take minutes: the clock shows that the program lives.
        bar.enable_steady_tick(Duration::from_millis(200));
    }
    bar
}

impl Bar<'_> {
    /// So many more are done.
    pub fn add(&mut self, count: u64) {
        self.set(self.state.done + count as f64, None);
    }

    /// So many are done, and this share of the work, where that is known and another than theirs of all.
    pub fn set(&mut self, done: f64, share: Option<f64>) {
        (self.state.done, self.state.share) = (done, share);
        if matches!(self.view, View::Hidden) {
            return;
        }
        let every = if matches!(self.view, View::Terminal(_)) { DRAW_EVERY } else { TELL_EVERY };
        if self.shown.elapsed() >= every {
            self.shown = Instant::now();
            self.draw();
        }
    }

    /// How many there are is known only now.
    pub fn set_all(&mut self, all: usize) {
        self.state.all = Some(all as u64);
    }

    /// What else is to be seen from now on.
    pub fn remark(&mut self, remark: String) {
        self.remark = remark;
    }

    fn draw(&self) {
        let elapsed = self.begun.elapsed();
        match &self.view {
            View::Hidden => {}
            View::Terminal(bar) => {
                bar.set_position((self.state.share().unwrap_or(0.0) * WHOLE as f64) as u64);
                let message = self.state.message(self.unit, elapsed);
                let comma = if self.remark.is_empty() { "" } else { ", " };
                bar.set_message(format!("{message}{comma}{}", self.remark));
                bar.tick();
            }
            View::Events(console) if elapsed >= TELL_EVERY => {
                let done = match self.unit {
                    Unit::SimulatedSeconds => json!(rounded(self.state.done)),
                    _ => json!(self.state.done as u64),
                };
                let fields = json!({
                    "unit": self.unit.name(),
                    "done": done,
                    "all": self.state.all,
                    "share": self.state.share().map(rounded),
                    "elapsed_s": rounded(console.elapsed_s()),
                    "left_s": self.state.left_s(elapsed).map(rounded),
                });
                // Nobody listens any more: the work is still wanted.
                let _ = console.event("progress", fields);
            }
            View::Events(_) => {}
        }
    }
}

impl Drop for Bar<'_> {
    fn drop(&mut self) {
        if let View::Terminal(bar) = &self.view {
            bar.finish_and_clear();
        }
    }
}

impl State {
    fn share(&self) -> Option<f64> {
        let of_all = || self.all.filter(|&all| all > 0).map(|all| self.done / all as f64);
        self.share.or_else(of_all).map(|share| share.min(1.0))
    }

    fn left_s(&self, elapsed: Duration) -> Option<f64> {
        let share = self.share().filter(|&share| share >= LEAST_SHARE)?;
        Some(elapsed.as_secs_f64() * (1.0 - share) / share)
    }

    fn message(&self, unit: Unit, elapsed: Duration) -> String {
        let (done, name) = (self.done, unit.name());
        let rate = done / elapsed.as_secs_f64().max(1e-9);
        let mut message = match (unit, self.all) {
            (Unit::SimulatedSeconds, _) => format!("simulated {done:.0} s ({rate:.0} x real time)"),
            (_, None) => format!("{done:.0} {name}, {}/s", significant(rate)),
            (_, Some(all)) => format!("{done:.0}/{all} {name}, {}/s", significant(rate)),
        };
        match self.share() {
            Some(1.0) if unit == Unit::SimulatedSeconds => message += ", the last requests",
            Some(share) if share >= LEAST_SHARE => {
                let left = duration(self.left_s(elapsed).unwrap_or(0.0));
                message += &format!(", {:.0} %, {left} left", 100.0 * share);
            }
            _ => {}
        }
        message
    }
}

fn significant(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
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
        let told = |share| {
            State { done: 90.0, all: None, share }.message(Unit::SimulatedSeconds, Duration::from_secs(3))
        };
        assert_eq!(told(None), "simulated 90 s (30 x real time)");
        assert_eq!(told(Some(0.001)), "simulated 90 s (30 x real time)");
        assert_eq!(told(Some(0.25)), "simulated 90 s (30 x real time), 25 %, 9 s left");
        assert_eq!(told(Some(0.01)), "simulated 90 s (30 x real time), 1 %, 4:57 min left");
        assert_eq!(told(Some(1.0)), "simulated 90 s (30 x real time), the last requests");
        assert_eq!(duration(3.0 * 3_600.0 + 125.0), "3:02 h");
    }

    #[test]
    fn a_rate_is_told_of_whatever_is_counted() {
        let told = |done, all, share, unit| State { done, all, share }.message(unit, Duration::from_secs(4));
        assert_eq!(told(3.0, Some(12), None, Unit::Runs), "3/12 runs, 0.8/s, 25 %, 12 s left");
        assert_eq!(told(0.0, Some(12), None, Unit::Runs), "0/12 runs, 0.0/s");
        assert_eq!(told(8e6, None, Some(0.5), Unit::Requests), "8000000 requests, 2000000/s, 50 %, 4 s left");
        assert_eq!(told(80.0, None, None, Unit::Requests), "80 requests, 20/s");
    }
}
