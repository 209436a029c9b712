//! So many users, each of whom sends the next random prompt when the answer to the last is there:
//! `vllm bench serve --dataset-name random --max-concurrency N --ignore-eos`.

use std::collections::BTreeMap;

use rand::RngExt;

use super::bench_run::ClosedLoopLoad;
use crate::prompt::TokenRuns;
use crate::units::SimTime;
use crate::workload::{Arrival, RequestSpec, Workload, WorkloadError, rng};

/// Token ids of one request; far enough apart that no two requests share one.
const IDS_PER_REQUEST: u64 = 1 << 32;

pub(super) struct ClosedLoop {
    load: ClosedLoopLoad,
    seed: u64,
    /// From the end of an answer in the engine to the arrival of the next request there.
    round_trip: SimTime,
    num_sent: u64,
    /// Users who are about to send, by time and then by the request that they waited for.
    ready: BTreeMap<(SimTime, u64), ()>,
}

impl ClosedLoop {
    pub fn new(load: ClosedLoopLoad, seed: u64, round_trip: SimTime) -> Self {
        let ready = (0..u64::from(load.concurrency)).map(|user| ((SimTime::ZERO, user), ())).collect();
        Self { load, seed, round_trip, num_sent: 0, ready }
    }

    fn length(&self, longest: u32, rng: &mut impl rand::Rng) -> u32 {
        let shortest = (f64::from(longest) * self.load.range_ratio) as u32;
        rng.random_range(shortest.min(longest)..=longest).max(1)
    }
}

impl Workload for ClosedLoop {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        let is_over = self.num_sent == u64::from(self.load.num_requests);
        Ok(self.ready.first_key_value().filter(|_| !is_over).map(|(&(at, _), ())| at))
    }

    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        let Some(((at, _), ())) = self.ready.pop_first() else { return Ok(None) };
        let index = self.num_sent;
        self.num_sent += 1;
        let mut rng = rng::stream(self.seed, "closed loop lengths", index);
        let input = self.length(self.load.input_tokens, &mut rng);
        let output = self.length(self.load.output_tokens, &mut rng);
        let start = index * IDS_PER_REQUEST;
        let prompt = TokenRuns::from_run(start, input);
        let output = TokenRuns::from_run(start + IDS_PER_REQUEST / 2, output);
        let request = RequestSpec { index, ..RequestSpec::plain(prompt, output) };
        Ok(Some(Arrival { at, request }))
    }

    fn finished(&mut self, index: u64, at: SimTime) {
        self.ready.insert((at + self.round_trip, u64::from(self.load.concurrency) + index), ());
    }

    fn tenants(&self) -> &[String] {
        &[]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_sends_when_the_answer_is_there() {
        let load = ClosedLoopLoad {
            concurrency: 2,
            num_requests: 3,
            input_tokens: 100,
            output_tokens: 10,
            range_ratio: 0.8,
        };
        let mut workload = ClosedLoop::new(load, 1, SimTime(5));
        let first = workload.next().unwrap().unwrap();
        assert_eq!((first.at, first.request.index), (SimTime::ZERO, 0));
        assert!((80..=100).contains(&first.request.prompt.len()));
        assert!((8..=10).contains(&first.request.output.len()));
        assert_eq!(workload.next().unwrap().unwrap().at, SimTime::ZERO);
        assert_eq!(workload.peek().unwrap(), None);
        workload.finished(1, SimTime(100));
        assert_eq!(workload.peek().unwrap(), Some(SimTime(105)));
        assert_eq!(workload.next().unwrap().unwrap().request.index, 2);
        // All are sent.
        workload.finished(0, SimTime(200));
        assert!(workload.next().unwrap().is_none());
    }
}
