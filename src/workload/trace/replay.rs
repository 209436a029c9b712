//! A trace as a workload.

use std::collections::{BTreeMap, VecDeque};
use std::iter::Peekable;

use rustc_hash::FxHashMap;

use super::requests::Requests;
use super::{HfTokenizer, TraceArrivals, TraceConfig, TraceFormat, TraceInput, TraceRequest};
use crate::units::SimTime;
use crate::workload::{Arrival, ArrivalTimes, Distribution, Workload, WorkloadError, WorkloadNotes, rng};

/// The workload that replays a trace. Of the file it holds what is being sent, and turns that wait
/// for an answer.
pub struct Trace {
    requests: Requests,
    starts: Starts,
    closed_loop: bool,
    think_time_s: Option<Distribution>,
    seed: u64,
    /// What will be sent, by time and then position in the file, counted from 0.
    ready: BTreeMap<(SimTime, u64), Ready>,
    /// Sessions whose turns wait for answers; see [`Self::is_tracked`].
    sessions: FxHashMap<u64, Session>,
    /// The session of each request on its way that somebody waits for.
    sent: FxHashMap<u64, u64>,
    next_index: u64,
    /// Of the last request sent or answer ended.
    now: SimTime,
}

/// When what the file holds next begins.
enum Starts {
    /// At recorded times; none to come is before this one.
    Recorded { horizon: SimTime },
    /// Sessions, in the order of the file, at these times.
    Rate { times: Box<Peekable<ArrivalTimes>>, next_session: u64 },
    /// Sessions, in the order of the file, one for each time at which another ended.
    Concurrency { free: VecDeque<SimTime>, next_session: u64 },
}

struct Ready {
    request: TraceRequest,
    /// The key of [`Trace::sessions`], if the answer is waited for.
    session: Option<u64>,
}

/// Turns of one conversation.
#[derive(Default)]
struct Session {
    /// Turns that will be or have been sent and have no answer yet.
    unanswered: u32,
    /// When the last answer ended.
    ended: Option<SimTime>,
    /// Turns that wait for it, and their positions in the file.
    waiting: VecDeque<(TraceRequest, u64)>,
}

impl Trace {
    /// Replays `input`, the content of the trace file. The configuration has been
    /// [validated](TraceConfig::validate); `tokenizer` is what it names.
    ///
    /// # Errors
    /// The file cannot be read, its format cannot be told, or it needs a setting that is not there.
    pub fn new(
        input: TraceInput,
        config: &TraceConfig,
        tokenizer: Option<HfTokenizer>,
        seed: u64,
    ) -> Result<Self, WorkloadError> {
        let requests = Requests::open(input, config, tokenizer, seed)?;
        let starts = match &config.arrivals {
            TraceArrivals::Recorded => Starts::Recorded { horizon: SimTime::ZERO },
            TraceArrivals::Rate(rate) => {
                let times = ArrivalTimes::new(&rate.process, rate.per_s, seed, "trace arrivals").peekable();
                Starts::Rate { times: Box::new(times), next_session: 0 }
            }
            TraceArrivals::Concurrency(sessions) => {
                let free = (0..*sessions).map(|_| SimTime::ZERO).collect();
                Starts::Concurrency { free, next_session: 0 }
            }
        };
        Ok(Self {
            requests,
            starts,
            closed_loop: config.closed_loop,
            think_time_s: config.think_time_s.clone(),
            seed,
            ready: BTreeMap::new(),
            sessions: FxHashMap::default(),
            sent: FxHashMap::default(),
            next_index: 0,
            now: SimTime::ZERO,
        })
    }

    /// The format of the file.
    pub fn format(&self) -> TraceFormat {
        self.requests.format()
    }

    /// Reads on until nothing that is still in the file can come before what is ready.
    fn fill(&mut self) -> Result<(), WorkloadError> {
        loop {
            let first_ready = self.ready.first_key_value().map(|(&(at, _), _)| at);
            let next_start = match &mut self.starts {
                Starts::Recorded { horizon } => Some(*horizon),
                Starts::Rate { times, .. } => times.peek().copied(),
                Starts::Concurrency { free, .. } => free.front().copied(),
            };
            let Some(next_start) = next_start else { return Ok(()) };
            if first_ready.is_some_and(|at| at <= next_start) {
                return Ok(());
            }
            let has_more = match self.starts {
                Starts::Recorded { .. } => self.read_row()?,
                _ => self.read_session(next_start)?,
            };
            if !has_more {
                return Ok(());
            }
        }
    }

    /// Reads a row that is sent at its recorded time, or when its session's answer before is there.
    fn read_row(&mut self) -> Result<bool, WorkloadError> {
        let Some((request, position)) = self.requests.next()? else { return Ok(false) };
        let recorded = request.at;
        if let (Starts::Recorded { horizon }, Some(at)) = (&mut self.starts, recorded) {
            *horizon = at;
        }
        let Some(key) = request.session.filter(|_| self.is_tracked()) else {
            let at = recorded.ok_or_else(|| self.requests.no_time(&request))?;
            self.ready.insert((at, position), Ready { request, session: None });
            return Ok(true);
        };
        let session = self.sessions.entry(key).or_default();
        let waits = self.closed_loop || recorded.is_none();
        if waits && (session.unanswered > 0 || !session.waiting.is_empty()) {
            session.waiting.push_back((request, position));
            return Ok(true);
        }
        let ended = session.ended.filter(|_| waits);
        let at = match ended.map(|ended| ended + self.think_time(&request, position)).max(recorded) {
            Some(at) if at >= self.now || recorded.is_some() => at,
            Some(at) => return Err(self.requests.too_late(&request, at, self.now)),
            None => return Err(self.requests.no_time(&request)),
        };
        self.send(request, position, key, at);
        Ok(true)
    }

    /// Reads a session whose turns follow one another in the file, or a request without one; its first
    /// turn is sent at `start`.
    fn read_session(&mut self, start: SimTime) -> Result<bool, WorkloadError> {
        let Some((first, position)) = self.requests.next()? else { return Ok(false) };
        let is_closed = self.closed_loop || matches!(self.starts, Starts::Concurrency { .. });
        let key = match &mut self.starts {
            Starts::Recorded { .. } => 0,
            Starts::Rate { times, next_session } => {
                times.next();
                *next_session += 1;
                *next_session
            }
            Starts::Concurrency { free, next_session } => {
                free.pop_front();
                *next_session += 1;
                *next_session
            }
        };
        let (session, first_at) = (first.session, first.at);
        self.send(first, position, key, start);
        while session.is_some()
            && let Some((mut turn, position)) = self.requests.next_of_session(session)?
        {
            // Its time counts from the start of the session.
            turn.at = turn.at.zip(first_at).map(|(at, first_at)| start + at.since(first_at));
            match turn.at {
                Some(at) if !is_closed => self.send(turn, position, key, at),
                _ => self.sessions.entry(key).or_default().waiting.push_back((turn, position)),
            }
        }
        Ok(true)
    }

    /// Whether sessions are kept in mind at all. Where all turns have their times there is no need to.
    fn is_tracked(&self) -> bool {
        self.closed_loop || !self.requests.format().has_every_time()
    }

    fn send(&mut self, request: TraceRequest, position: u64, key: u64, at: SimTime) {
        self.sessions.entry(key).or_default().unanswered += 1;
        self.ready.insert((at, position), Ready { request, session: Some(key) });
    }

    /// From the end of the answer before to this turn.
    fn think_time(&self, request: &TraceRequest, position: u64) -> SimTime {
        match &self.think_time_s {
            Some(think_time_s) => {
                think_time_s.sample_time(&mut rng::stream(self.seed, "trace think time", position))
            }
            None => request.think_time.unwrap_or_default(),
        }
    }
}

impl Workload for Trace {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        self.fill()?;
        Ok(self.ready.first_key_value().map(|(&(at, _), _)| at))
    }

    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        self.fill()?;
        let Some(((at, _), ready)) = self.ready.pop_first() else { return Ok(None) };
        self.now = at;
        let index = self.next_index;
        self.next_index += 1;
        if let Some(session) = ready.session {
            self.sent.insert(index, session);
        }
        Ok(Some(Arrival { at, request: self.requests.spec(ready.request, index) }))
    }

    fn finished(&mut self, index: u64, at: SimTime) {
        self.now = self.now.max(at);
        let Some(key) = self.sent.remove(&index) else { return };
        let Some(session) = self.sessions.get_mut(&key) else { return };
        session.unanswered -= 1;
        session.ended = Some(at);
        if session.unanswered > 0 {
            return;
        }
        match session.waiting.pop_front() {
            Some((turn, position)) => {
                let send_at = (at + self.think_time(&turn, position)).max(turn.at.unwrap_or_default());
                self.send(turn, position, key, send_at);
            }
            None => match &mut self.starts {
                Starts::Recorded { .. } => {}
                Starts::Rate { .. } => drop(self.sessions.remove(&key)),
                Starts::Concurrency { free, .. } => {
                    free.push_back(at);
                    self.sessions.remove(&key);
                }
            },
        }
    }

    fn tenants(&self) -> &[String] {
        self.requests.tenants()
    }

    fn notes(&self) -> WorkloadNotes {
        self.requests.notes()
    }
}
