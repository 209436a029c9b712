//! Events on their way to the file, in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt::{Display, Write as _};
use std::io::{self, Write};

use super::super::json::string;
use crate::units::SimTime;

/// A row of events: a thread of a replica's process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Track {
    pub replica: u32,
    pub tid: u32,
}

/// 0 is the idle process to some viewers.
const fn pid(replica: u32) -> u32 {
    replica + 1
}

/// Holds back what begins after the present. A call's events come in any order, and those of equal
/// time leave as they came.
pub(super) struct EventQueue<W> {
    out: W,
    pending: BinaryHeap<Reverse<(SimTime, u64, String)>>,
    num_pushed: u64,
    is_first: bool,
    /// The first thing that went wrong.
    error: Option<io::Error>,
}

impl<W: Write> EventQueue<W> {
    pub fn new(out: W) -> Self {
        Self { out, pending: BinaryHeap::new(), num_pushed: 0, is_first: true, error: None }
    }

    pub fn out(&self) -> &W {
        &self.out
    }

    pub fn begin(&mut self, head: &str) {
        self.write(head);
    }

    /// Writes what begins before or at `now`.
    pub fn flush(&mut self, now: SimTime) {
        while let Some(Reverse((at, _, _))) = self.pending.peek()
            && *at <= now
            && let Some(Reverse((_, _, event))) = self.pending.pop()
        {
            self.write_event(&event);
        }
    }

    /// Ends the list and the file's object.
    pub fn finish(mut self) -> io::Result<W> {
        self.write("\n]}\n");
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.out),
        }
    }

    /// A name or an order, which belongs to no time.
    pub fn metadata(&mut self, what: &str, track: Track, args: &str) {
        let (pid, tid) = (pid(track.replica), track.tid);
        self.write_event(&format!(
            "{{\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid},\"name\":\"{what}\",\"args\":{args}}}"
        ));
    }

    /// Something that takes its time on a track.
    pub fn slice(&mut self, at: SimTime, duration_ns: u64, track: Track, name: &str, args: impl Display) {
        let duration = Micros(duration_ns);
        self.push(at, 'X', track, name, |out| {
            let _ = write!(out, ",\"dur\":{duration},\"args\":{args}");
        });
    }

    /// `scope` is t for the track, p for the process.
    pub fn instant(&mut self, at: SimTime, track: Track, scope: &str, name: &str, args: impl Display) {
        self.push(at, 'i', track, name, |out| {
            let _ = write!(out, ",\"s\":\"{scope}\",\"args\":{args}");
        });
    }

    pub fn counter(&mut self, at: SimTime, replica: u32, name: &str, value: u64) {
        self.push(at, 'C', Track { replica, tid: 0 }, name, |out| {
            let _ = write!(out, ",\"args\":{{\"value\":{value}}}");
        });
    }

    /// An end of an arrow between the slices of a step, which are there already: s or f.
    pub fn flow(&mut self, at: SimTime, track: Track, arrow: u64, end: char) {
        self.push(at, end, track, "step", |out| {
            let enclosing = if end == 'f' { ",\"bp\":\"e\"" } else { "" };
            let _ = write!(out, ",\"cat\":\"step\",\"id\":{arrow}{enclosing}");
        });
    }

    /// A part of a request's life: `phase` is b at its begin, e at its end, n for an instant.
    /// The id is local to the process, so that viewers show it there.
    pub fn lifeline(
        &mut self,
        at: SimTime,
        phase: char,
        (replica, request): (u32, u64),
        name: &str,
        args: impl Display,
    ) {
        self.push(at, phase, Track { replica, tid: 0 }, name, |out| {
            let _ =
                write!(out, ",\"cat\":\"request\",\"id2\":{{\"local\":\"0x{request:x}\"}},\"args\":{args}");
        });
    }

    fn push(&mut self, at: SimTime, phase: char, track: Track, name: &str, rest: impl FnOnce(&mut String)) {
        let Track { replica, tid } = track;
        let (pid, ts) = (pid(replica), Micros(at.as_ns()));
        let mut event = format!("{{\"ph\":\"{phase}\",\"pid\":{pid},\"tid\":{tid},\"ts\":{ts},\"name\":");
        string(&mut event, name);
        rest(&mut event);
        event.push('}');
        self.pending.push(Reverse((at, self.num_pushed, event)));
        self.num_pushed += 1;
    }

    fn write_event(&mut self, event: &str) {
        let is_first = std::mem::take(&mut self.is_first);
        self.write(if is_first { "\n" } else { ",\n" });
        self.write(event);
    }

    fn write(&mut self, text: &str) {
        if self.error.is_none()
            && let Err(error) = self.out.write_all(text.as_bytes())
        {
            self.error = Some(error);
        }
    }
}

/// Nanoseconds as the format's microseconds, with nothing lost.
struct Micros(u64);

impl Display for Micros {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 % 1_000 {
            0 => write!(f, "{}", self.0 / 1_000),
            ns => write!(f, "{}.{ns:03}", self.0 / 1_000),
        }
    }
}
