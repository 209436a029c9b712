//! What all generators have in common: sessions that start at given times and are closed-loop.
//!
//! A session sends one or more requests; when an answer ended it may send others, some time later.
//! What is said is the generator's business ([`Traffic`]); when, and in which order, is decided
//! here.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::starts::Starts;
use super::{Arrival, RequestSpec, Workload, WorkloadError, WorkloadNotes};
use crate::units::SimTime;

/// What a generator's sessions say.
///
/// Whatever is drawn depends on the seed and the session alone, not on when the server answers.
pub(super) trait Traffic: Send {
    /// A request of a session that is to be sent or answered, and what the session needs to go on
    /// from there.
    type Turn: Send;

    /// What session `index` sends first; `None` if it has nothing to send. Called once for each of
    /// 0, 1, 2, ...
    fn open(&mut self, index: u64) -> Result<Option<Self::Turn>, WorkloadError>;

    /// The request of a turn. Its index and session are filled in by the caller.
    fn request(&self, turn: &Self::Turn) -> RequestSpec;

    /// The answer ended: adds what the session now sends, if anything.
    fn answered(&mut self, turn: Self::Turn, next: &mut Vec<Next<Self::Turn>>);

    /// The patience of the request ended before the answer was there: adds what the session now
    /// sends, if anything.
    fn aborted(&mut self, turn: Self::Turn, next: &mut Vec<Next<Self::Turn>>) {
        self.answered(turn, next);
    }

    /// See [`Workload::tenants`].
    fn tenants(&self) -> &[String] {
        &[]
    }

    /// See [`Workload::notes`].
    fn notes(&self) -> WorkloadNotes {
        WorkloadNotes::default()
    }
}

/// A request to send some time after the answer that brought it about.
pub(super) struct Next<T> {
    pub after: SimTime,
    /// Tells requests of a session apart that are under way at the same time.
    pub branch: u32,
    pub turn: T,
}

impl<T> Next<T> {
    /// In a session that has one request under way at a time.
    pub fn only(after: SimTime, turn: T) -> Self {
        Self { after, branch: 0, turn }
    }
}

/// What a generator of independent requests says: each is a session of its own.
pub(super) trait Requests: Send {
    /// Request number `index`, called once for each of 0, 1, 2, ...; `None` if there is none. Its
    /// index and session are filled in by the caller.
    fn request(&mut self, index: u64) -> Result<Option<RequestSpec>, WorkloadError>;

    /// See [`Workload::notes`].
    fn notes(&self) -> WorkloadNotes {
        WorkloadNotes::default()
    }
}

pub(super) struct Independent<R>(pub R);

impl<R: Requests> Traffic for Independent<R> {
    type Turn = RequestSpec;

    fn open(&mut self, index: u64) -> Result<Option<RequestSpec>, WorkloadError> {
        self.0.request(index)
    }

    fn request(&self, request: &RequestSpec) -> RequestSpec {
        request.clone()
    }

    fn answered(&mut self, _request: RequestSpec, _next: &mut Vec<Next<RequestSpec>>) {}

    fn notes(&self) -> WorkloadNotes {
        self.0.notes()
    }
}

/// A generator that has nothing to send so often in a row has nothing more to send.
const MAX_EMPTY_SESSIONS: u32 = 1 << 20;

/// The workload of a generator.
pub(super) struct Sessions<T: Traffic> {
    traffic: T,
    starts: Starts,
    next_session: u64,
    next_request: u64,
    /// Requests to send, by time, at equal times by session and branch: the order must not depend
    /// on which answer ended first.
    writing: BTreeMap<(SimTime, u64, u32), T::Turn>,
    /// The session in `writing` that has sent nothing yet. The one after it is opened when it is
    /// sent, so that there is never more than one.
    unsent: Option<u64>,
    /// There are no more starts.
    is_exhausted: bool,
    /// Requests that wait for their answer, by index, with their session.
    waiting: FxHashMap<u64, (u64, T::Turn)>,
    /// How many requests of an open session are being written or answered.
    under_way: FxHashMap<u64, u32>,
    /// No session starts before this: then the one before it started, or made room for it.
    not_before: SimTime,
    /// Of one call, kept for its memory.
    next: Vec<Next<T::Turn>>,
}

impl<T: Traffic> Sessions<T> {
    pub fn new(traffic: T, starts: Starts) -> Self {
        Self {
            traffic,
            starts,
            next_session: 0,
            next_request: 0,
            writing: BTreeMap::new(),
            unsent: None,
            is_exhausted: false,
            waiting: FxHashMap::default(),
            under_way: FxHashMap::default(),
            not_before: SimTime::ZERO,
            next: Vec::new(),
        }
    }

    /// As many sessions are open as may be.
    fn is_full(&self) -> bool {
        self.under_way.len() >= self.starts.max_concurrency
    }

    /// Opens the next session that has something to send, if there is one and room for it.
    fn open_session(&mut self) -> Result<(), WorkloadError> {
        if self.unsent.is_some() || self.is_exhausted || self.is_full() {
            return Ok(());
        }
        // An error ends the sessions too.
        self.is_exhausted = true;
        for _ in 0..MAX_EMPTY_SESSIONS {
            let Some(at) = self.starts.next(self.not_before)? else { break };
            let index = self.next_session;
            self.next_session += 1;
            if let Some(turn) = self.traffic.open(index)? {
                self.writing.insert((at, index, 0), turn);
                self.under_way.insert(index, 1);
                self.unsent = Some(index);
                self.is_exhausted = false;
                break;
            }
        }
        Ok(())
    }

    /// One request of a session is no longer under way, and `self.next` are.
    fn go_on(&mut self, session: u64, at: SimTime) {
        let under_way = self.under_way.entry(session).or_default();
        *under_way += self.next.len() as u32;
        *under_way -= 1;
        if *under_way == 0 {
            if self.is_full() {
                self.not_before = self.not_before.max(at);
            }
            self.under_way.remove(&session);
        }
        for Next { after, branch, turn } in self.next.drain(..) {
            self.writing.insert((at + after, session, branch), turn);
        }
    }
}

impl<T: Traffic> Workload for Sessions<T> {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        self.open_session()?;
        Ok(self.writing.first_key_value().map(|(&(at, ..), _)| at))
    }

    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        self.open_session()?;
        let Some(((at, session, _), turn)) = self.writing.pop_first() else { return Ok(None) };
        if self.unsent == Some(session) {
            self.unsent = None;
            self.not_before = self.not_before.max(at);
        }
        let index = self.next_request;
        self.next_request += 1;
        let request = RequestSpec { index, session: Some(session), ..self.traffic.request(&turn) };
        self.waiting.insert(index, (session, turn));
        Ok(Some(Arrival { at, request }))
    }

    fn finished(&mut self, index: u64, at: SimTime) {
        if let Some((session, turn)) = self.waiting.remove(&index) {
            self.traffic.answered(turn, &mut self.next);
            self.go_on(session, at);
        }
    }

    fn aborted(&mut self, index: u64, at: SimTime) {
        if let Some((session, turn)) = self.waiting.remove(&index) {
            self.traffic.aborted(turn, &mut self.next);
            self.go_on(session, at);
        }
    }

    fn progress(&self) -> Option<f64> {
        self.starts.progress()
    }

    fn tenants(&self) -> &[String] {
        self.traffic.tenants()
    }

    fn notes(&self) -> WorkloadNotes {
        let mut notes = self.starts.notes();
        notes.extend(self.traffic.notes());
        notes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::workload::shared_prefix::SharedPrefixConfig;
    use crate::workload::testing::{assert_one_at_a_time, by_session, run, workload};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn sessions_start_in_order_as_soon_as_they_may(
            seed: u64,
            max_concurrency in 1usize..6,
            answer_ms in prop::collection::vec(0u64..900, 1..8),
        ) {
            let yaml = format!(
                "{{sessions_per_s: 5, num_sessions: 40, num_groups: 2, num_prompts_per_group: 20, \
                 system_prompt_len: 3, question_len: 2, output_len: 1, turns: {{geometric: {{mean: 3}}}}, \
                 think_time_s: {{uniform: {{min: 0, max: 0.3}}}}, max_concurrency: {max_concurrency}}}"
            );
            let config: SharedPrefixConfig = serde_yaml::from_str(&yaml).unwrap();
            let free = SharedPrefixConfig { max_concurrency: None, ..config.clone() };
            let answer_ns = |index: u64| answer_ms[index as usize % answer_ms.len()] * 1_000_000;
            let due: Vec<SimTime> =
                by_session(&run(&mut *workload(&free, seed).unwrap(), |_| 0)).values().map(|s| s[0].at).collect();

            let arrivals = run(&mut *workload(&config, seed).unwrap(), answer_ns);
            assert_one_at_a_time(&arrivals, answer_ns);
            let sessions = by_session(&arrivals);
            prop_assert_eq!(sessions.len(), 40);
            // When each session ended; the next starts when it is due and there is room, not later.
            let mut ends: Vec<SimTime> = Vec::new();
            for (index, (due, requests)) in due.iter().zip(sessions.values()).enumerate() {
                ends.sort_unstable();
                let room = if index < max_concurrency { SimTime::ZERO } else { ends[index - max_concurrency] };
                prop_assert_eq!(requests[0].at, room.max(*due));
                let last = &requests[requests.len() - 1];
                ends.push(last.at + SimTime(answer_ns(last.request.index)));
            }
        }
    }
}
