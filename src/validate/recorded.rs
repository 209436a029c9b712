//! Requests at the times at which they were sent.

use std::collections::VecDeque;

use super::bench_run::RecordedRequest;
use crate::prompt::TokenRuns;
use crate::units::SimTime;
use crate::workload::{Arrival, RequestSpec, Workload, WorkloadError};

/// Output tokens are above every prompt's: no answer is asked again.
const FIRST_OUTPUT_ID: u64 = 1 << 62;

pub(super) struct Recorded {
    requests: VecDeque<Arrival>,
}

impl Recorded {
    /// `delay` is what lies between sending a request and its arrival in the engine.
    pub fn new(requests: &[RecordedRequest], delay: SimTime) -> Self {
        let mut order: Vec<usize> = (0..requests.len()).collect();
        order.sort_by_key(|&index| requests[index].at);
        let arrival = |(index, &position): (usize, &usize)| {
            let request = &requests[position];
            let start = FIRST_OUTPUT_ID + ((index as u64) << 32);
            let output = TokenRuns::from_run(start, request.num_output_tokens);
            Arrival {
                at: request.at + delay,
                request: RequestSpec {
                    index: index as u64,
                    ..RequestSpec::plain(request.prompt.clone(), output)
                },
            }
        };
        Self { requests: order.iter().enumerate().map(arrival).collect() }
    }
}

impl Workload for Recorded {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        Ok(self.requests.front().map(|arrival| arrival.at))
    }

    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        Ok(self.requests.pop_front())
    }

    fn finished(&mut self, _index: u64, _at: SimTime) {}

    fn tenants(&self) -> &[String] {
        &[]
    }
}
