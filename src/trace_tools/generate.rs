//! The requests of a workload as a trace, without a server: answers take the time that a rule says.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::TraceError;
use crate::prompt::{TokenRun, TokenRuns};
use crate::units::SimTime;
use crate::workload::trace::{FIRST_UNKNOWN_TOKEN, TraceRequest, TraceTokens};
use crate::workload::{Patience, RequestSpec, WaitsFor, Workload, WorkloadNotes};

/// How long answers take, whatever else the server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerTimes {
    /// To the first token.
    pub ttft: SimTime,
    /// Each further token.
    pub tpot: SimTime,
}

impl AnswerTimes {
    /// From the arrival of a request to the end of its answer, or until its client goes away, which is
    /// true then.
    fn of(&self, request: &RequestSpec) -> (SimTime, bool) {
        let further = u64::from(request.output.len().saturating_sub(1));
        let last = self.ttft + SimTime(self.tpot.as_ns().saturating_mul(further));
        let Some(Patience { lasts, waits_for }) = request.patience else { return (last, false) };
        let awaited = match waits_for {
            WaitsFor::FirstToken => self.ttft,
            WaitsFor::LastToken => last,
        };
        if lasts < awaited { (lasts, true) } else { (last, false) }
    }

    /// The rule in words.
    pub fn note(&self) -> String {
        let ms = |time: SimTime| time.as_ms_f64();
        format!(
            "answers took {} ms to the first token and {} ms for each further one, whatever the load",
            ms(self.ttft),
            ms(self.tpot)
        )
    }
}

/// Which times are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnTimes {
    /// When each request is sent, and think times beside.
    Recorded,
    /// Of a turn that waits for an answer only the think time, so that whoever replays the trace
    /// decides when it is sent. The turns of a session follow one another.
    ClosedLoop,
}

/// Ids of tokens that the workload's own trace tells only the number of are moved to here, where no
/// reader and no generator has ids.
const MOVED_TOKENS: Range<u64> = 13 << 59..14 << 59;

/// Asks a workload for its requests.
pub struct Generator {
    workload: Box<dyn Workload>,
    answers: AnswerTimes,
    turn_times: TurnTimes,
    under_way: BinaryHeap<Reverse<UnderWay>>,
    sessions: FxHashMap<u64, Session>,
}

/// A request that has no answer yet. Ordered by the end of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct UnderWay {
    end: SimTime,
    index: u64,
    session: Option<u64>,
    is_aborted: bool,
}

/// How far a session is.
struct Session {
    /// The index of its first request.
    first: u64,
    under_way: u32,
    /// When its last answer ended.
    last_end: Option<SimTime>,
}

impl Generator {
    pub fn new(workload: Box<dyn Workload>, answers: AnswerTimes, turn_times: TurnTimes) -> Self {
        Self { workload, answers, turn_times, under_way: BinaryHeap::new(), sessions: FxHashMap::default() }
    }

    /// Hands out all requests, each with the share that they are with it, where that is known. With [`TurnTimes::ClosedLoop`] all are in memory before.
    ///
    /// # Errors
    /// A trace that the workload reads is bad, what it says does not fit a trace, or what `write`
    /// returns.
    pub fn run(
        &mut self,
        mut write: impl FnMut(&TraceRequest, Option<f64>) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        if self.turn_times == TurnTimes::Recorded {
            while let Some((_, request)) = self.next()? {
                write(&request, self.workload.progress())?;
            }
            return Ok(());
        }
        let mut sessions: BTreeMap<u64, Vec<TraceRequest>> = BTreeMap::new();
        while let Some((first, request)) = self.next()? {
            sessions.entry(first).or_default().push(request);
        }
        let all: usize = sessions.values().map(Vec::len).sum();
        let share = |index: usize| Some((index + 1) as f64 / all as f64);
        let mut requests = sessions.values().flatten().enumerate();
        requests.try_for_each(|(index, request)| write(request, share(index)))
    }

    /// What the workload has to say of where its requests come from.
    pub fn notes(&self) -> WorkloadNotes {
        self.workload.notes()
    }

    /// The next request, and the index of the first of its session.
    fn next(&mut self) -> Result<Option<(u64, TraceRequest)>, TraceError> {
        loop {
            let arrival = self.workload.peek()?;
            match (arrival, self.under_way.peek()) {
                (None, None) => return Ok(None),
                // At equal times the answer ends first: it can bring in a request at this very time.
                (at, Some(&Reverse(request))) if at.is_none_or(|at| request.end <= at) => {
                    self.under_way.pop();
                    self.ended(request);
                }
                _ => {
                    if let Some(arrival) = self.workload.next()? {
                        return self.record(arrival.at, arrival.request).map(Some);
                    }
                }
            }
        }
    }

    fn ended(&mut self, request: UnderWay) {
        let UnderWay { end, index, session, is_aborted } = request;
        if let Some(session) = session.and_then(|session| self.sessions.get_mut(&session)) {
            session.under_way -= 1;
            session.last_end = Some(end);
        }
        if is_aborted {
            self.workload.aborted(index, end);
        } else {
            self.workload.finished(index, end);
        }
    }

    fn record(&mut self, at: SimTime, request: RequestSpec) -> Result<(u64, TraceRequest), TraceError> {
        let (takes, is_aborted) = self.answers.of(&request);
        let (index, session) = (request.index, request.session);
        self.under_way.push(Reverse(UnderWay { end: at + takes, index, session, is_aborted }));
        let (mut first, mut think_time) = (index, None);
        if let Some(id) = request.session {
            let new = Session { first, under_way: 0, last_end: None };
            let session = self.sessions.entry(id).or_insert(new);
            first = session.first;
            if session.under_way == 0 {
                think_time = session.last_end.map(|last_end| at.since(last_end));
            } else if self.turn_times == TurnTimes::ClosedLoop {
                return Err(TraceError::Unfit(format!(
                    "session {id} has several requests under way at once, and a trace can only say that a turn \
                     waits for the one before; leave --closed-loop out"
                )));
            }
            session.under_way += 1;
        }
        let waits = self.turn_times == TurnTimes::ClosedLoop && think_time.is_some();
        let row = TraceRequest {
            think_time,
            extras: request.extras,
            priority: request.priority,
            skip_reading_prefix_cache: request.skip_reading_prefix_cache,
            patience: request.patience,
            tenant: request.tenant,
            session: request.session,
            turn: request.turn,
            ..TraceRequest::new(
                request.trace_line.unwrap_or(request.index + 1),
                (!waits).then_some(at),
                TraceTokens::Known(moved(request.prompt)?),
                TraceTokens::Known(moved(request.output)?),
            )
        };
        Ok((first, row))
    }
}

/// Tokens whose ids a trace can hold.
fn moved(tokens: TokenRuns) -> Result<TokenRuns, TraceError> {
    let end = |run: &TokenRun| u128::from(run.start) + u128::from(run.len);
    let is_low = |run: &TokenRun| end(run) <= u128::from(MOVED_TOKENS.start);
    if tokens.runs().iter().all(is_low) {
        return Ok(tokens);
    }
    let num_moved = MOVED_TOKENS.end - MOVED_TOKENS.start;
    let mut moved = TokenRuns::new();
    for run in tokens.runs() {
        let is_high = run.start >= MOVED_TOKENS.end && end(run) <= u128::from(FIRST_UNKNOWN_TOKEN);
        match run.start.checked_sub(FIRST_UNKNOWN_TOKEN) {
            None if is_low(run) || is_high => moved.push_run(run.start, run.len),
            Some(offset) if offset < num_moved - u64::from(run.len) => {
                moved.push_run(MOVED_TOKENS.start + offset, run.len);
            }
            _ => {
                return Err(TraceError::Unfit(format!(
                    "the token id {} is one of those that stand for unknown tokens, {} to {}",
                    run.start, MOVED_TOKENS.start, MOVED_TOKENS.end
                )));
            }
        }
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::{ConfigError, WorkloadConfig, WorkloadError};

    const CHAT: &str = "{sessions_per_s: 1, arrival_process: fixed, num_sessions: 2, tenants: [{name: a, \
                        system_prompt_tokens: 100}], turns: {fixed: 2}, message_tokens: {fixed: 10}, \
                        answer_tokens: {fixed: 5}, think_time_s: {fixed: 3}, max_context_tokens: 1000}";

    fn chat() -> Box<dyn Workload> {
        let config = WorkloadConfig::Chat(serde_yaml::from_str(CHAT).unwrap());
        let built = config.build::<Unbuilt>(1, &mut |_, _| unreachable!("chat reads no trace"));
        built.unwrap_or_else(|Unbuilt(problem)| panic!("{problem}"))
    }

    struct Unbuilt(String);

    impl From<ConfigError> for Unbuilt {
        fn from(error: ConfigError) -> Self {
            Self(error.to_string())
        }
    }

    impl From<WorkloadError> for Unbuilt {
        fn from(error: WorkloadError) -> Self {
            Self(error.to_string())
        }
    }

    fn generate(turn_times: TurnTimes) -> Vec<TraceRequest> {
        let answers = AnswerTimes { ttft: SimTime::from_ms(200), tpot: SimTime::from_ms(50) };
        let mut rows = Vec::new();
        let mut generator = Generator::new(chat(), answers, turn_times);
        generator
            .run(|row, _| {
                rows.push(row.clone());
                Ok(())
            })
            .unwrap();
        rows
    }

    #[test]
    fn answers_take_their_time() {
        let rows = generate(TurnTimes::Recorded);
        // 200 ms and four times 50 ms, then 3 s of thinking.
        let at = rows.iter().map(|row| row.at.unwrap().as_ms_f64()).collect::<Vec<_>>();
        assert_eq!(at, [0.0, 1000.0, 3400.0, 4400.0]);
        let thinking = Some(SimTime::from_ms(3000));
        assert_eq!(
            rows.iter().map(|row| row.think_time).collect::<Vec<_>>(),
            [None, None, thinking, thinking]
        );
        assert_eq!(
            rows.iter().map(|row| (row.session, row.turn)).collect::<Vec<_>>(),
            [(Some(0), 0), (Some(1), 0), (Some(0), 1), (Some(1), 1)]
        );
    }

    #[test]
    fn a_closed_loop_leaves_times_to_whoever_replays_it() {
        let rows = generate(TurnTimes::ClosedLoop);
        let times = rows.iter().map(|row| (row.session, row.at.map(SimTime::as_ms_f64))).collect::<Vec<_>>();
        assert_eq!(times, [(Some(0), Some(0.0)), (Some(0), None), (Some(1), Some(1000.0)), (Some(1), None)]);
        assert!(rows.iter().all(|row| row.at.is_some() || row.think_time == Some(SimTime::from_ms(3000))));
    }

    #[test]
    fn patience_can_end_before_the_answer() {
        let answers = AnswerTimes { ttft: SimTime::from_ms(200), tpot: SimTime::from_ms(50) };
        let mut request = RequestSpec { output: TokenRuns::from_run(0, 11), ..request() };
        let mut takes = |lasts_ms, waits_for| {
            request.patience = Some(Patience { lasts: SimTime::from_ms(lasts_ms), waits_for });
            let (time, is_aborted) = answers.of(&request);
            (time.as_ms_f64(), is_aborted)
        };
        assert_eq!(takes(200, WaitsFor::FirstToken), (700.0, false));
        assert_eq!(takes(199, WaitsFor::FirstToken), (199.0, true));
        assert_eq!(takes(699, WaitsFor::LastToken), (699.0, true));
        assert_eq!(takes(700, WaitsFor::LastToken), (700.0, false));
    }

    fn request() -> RequestSpec {
        chat().next().unwrap().unwrap().request
    }

    #[test]
    fn ids_that_a_trace_cannot_hold_are_moved() {
        let mut tokens = TokenRuns::from_run(7, 3);
        tokens.push_run(FIRST_UNKNOWN_TOKEN + 5, 2);
        tokens.push_run(MOVED_TOKENS.end, 1);
        let mut expected = TokenRuns::from_run(7, 3);
        expected.push_run(MOVED_TOKENS.start + 5, 2);
        expected.push_run(MOVED_TOKENS.end, 1);
        assert_eq!(moved(tokens).unwrap(), expected);
        assert!(moved(TokenRuns::from_run(MOVED_TOKENS.start, 1)).is_err());
        assert!(moved(TokenRuns::from_run(u64::MAX, 1)).is_err());
    }
}
