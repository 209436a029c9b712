//! So many users, each of whom sends the next random prompt when the answer to the last is there:
//! `vllm bench serve --dataset-name random --max-concurrency N --ignore-eos`.
//!
//! The front end passes requests on one after the other. That matters where all answers are equally
//! long: users who are in step end together and send together, and if the engine heard of them all at
//! once, their prompts would collide in every round. As it is, it begins with the first while the
//! others are on their way, and one user after another falls out of step.
//!
//! A round trip is not always equally long: a message that comes to the event loop of a server or client
//! finds it idle, or behind the tokens of all others. It takes anything from nothing to twice the mean, each
//! as likely. Without that, users who send again just before one step ends would do so in every round, and
//! TTFT would jump by a whole step where a round trip grew by a microsecond.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_mt::Mt;

use super::bench_run::ClosedLoopLoad;
use crate::cost::host::HostLaw;
use crate::prompt::TokenRuns;
use crate::units::SimTime;
use crate::workload::{Arrival, RequestSpec, Workload, WorkloadError};

/// Default of the client's `--seed`.
const SEED: u32 = 0;

/// Token ids of one request; far enough apart that no two requests share one.
const IDS_PER_REQUEST: u64 = 1 << 32;

/// How long each request, by its index, was in the front end before it came to the engine.
#[derive(Clone, Debug, Default)]
pub(super) struct FrontEndLog(Arc<Mutex<Vec<u64>>>);

impl FrontEndLog {
    fn push(&self, delay_ns: u64) {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(delay_ns);
    }

    pub fn delay_ns(&self, index: u64) -> u64 {
        let delays = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        delays.get(index as usize).copied().unwrap_or(0)
    }
}

pub(super) struct ClosedLoop {
    concurrency: u32,
    /// Tokens of prompt and answer of each request.
    lengths: Vec<(u32, u32)>,
    host: HostLaw,
    /// From the end of an answer in the engine to the next request at the front end's queue, all
    /// that does not keep other requests waiting: of each request, by its index.
    round_trips: Vec<SimTime>,
    num_sent: usize,
    /// Users who are about to send, by time and then by the request that they waited for.
    ready: BTreeMap<(SimTime, u64), ()>,
    /// When the front end has passed on all requests so far.
    frontend_free_at: SimTime,
    log: FrontEndLog,
}

impl ClosedLoop {
    pub fn new(load: ClosedLoopLoad, host: &HostLaw, log: FrontEndLog) -> Self {
        let ready = (0..u64::from(load.concurrency)).map(|user| ((SimTime::ZERO, user), ())).collect();
        Self {
            concurrency: load.concurrency,
            lengths: lengths(&load),
            host: *host,
            round_trips: round_trips(&load, host),
            num_sent: 0,
            ready,
            frontend_free_at: SimTime::ZERO,
            log,
        }
    }
}

fn round_trips(load: &ClosedLoopLoad, host: &HostLaw) -> Vec<SimTime> {
    let mean_ns = host.frontend_latency_ns(load.users_per_thread());
    let mut random = ChaCha8Rng::seed_from_u64(u64::from(SEED));
    (0..load.num_requests).map(|_| SimTime(random.random_range(0..=2 * mean_ns))).collect()
}

/// Those that vLLM's `benchmark_serving.py` and its copies draw: with the generator of `numpy.random.seed`, all
/// prompts and then all answers.
fn lengths(load: &ClosedLoopLoad) -> Vec<(u32, u32)> {
    let mut generator = Mt::new(SEED);
    let mut draw = |longest: u32| -> Vec<u32> {
        let shortest = ((f64::from(longest) * load.range_ratio) as u32).min(longest);
        (0..load.num_requests).map(|_| randint(&mut generator, shortest, longest).max(1)).collect()
    };
    let inputs = draw(load.input_tokens);
    inputs.into_iter().zip(draw(load.output_tokens)).collect()
}

/// `numpy.random.randint(least, most + 1)`: as many bits as the largest needs, until they are not too many.
fn randint(generator: &mut Mt, least: u32, most: u32) -> u32 {
    let range = most - least;
    if range == 0 {
        return least;
    }
    let mask = u32::MAX >> range.leading_zeros();
    loop {
        let drawn = generator.next_u32() & mask;
        if drawn <= range {
            return least + drawn;
        }
    }
}

impl Workload for ClosedLoop {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        let Some(&(input, _)) = self.lengths.get(self.num_sent) else { return Ok(None) };
        let Some((&(at, _), ())) = self.ready.first_key_value() else { return Ok(None) };
        Ok(Some(at.max(self.frontend_free_at) + SimTime(self.host.frontend_busy_ns(input))))
    }

    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        let Some(at) = self.peek()? else { return Ok(None) };
        let Some(((sent, _), ())) = self.ready.pop_first() else { return Ok(None) };
        let (input, output) = self.lengths[self.num_sent];
        let index = self.num_sent as u64;
        self.num_sent += 1;
        self.frontend_free_at = at;
        self.log.push(at.since(sent).as_ns());
        let start = index * IDS_PER_REQUEST;
        let prompt = TokenRuns::from_run(start, input);
        let output = TokenRuns::from_run(start + IDS_PER_REQUEST / 2, output);
        let request = RequestSpec { index, ..RequestSpec::plain(prompt, output) };
        Ok(Some(Arrival { at, request }))
    }

    fn finished(&mut self, index: u64, at: SimTime) {
        let back_at = at + self.round_trips[index as usize];
        self.ready.insert((back_at, u64::from(self.concurrency) + index), ());
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
            range_ratio: 1.0,
            client_has_workers: false,
        };
        // No time there and back, and 1 us + 0.01 us for each token before the engine.
        let host = HostLaw {
            frontend_us: 0.0,
            frontend_user_us: 0.0,
            frontend_request_us: 1.0,
            frontend_token_us: 0.01,
            ..HostLaw::default()
        };
        let log = FrontEndLog::default();
        let mut workload = ClosedLoop::new(load, &host, log.clone());
        let first = workload.next().unwrap().unwrap();
        assert_eq!((first.at, first.request.index), (SimTime(2_000), 0));
        assert_eq!((first.request.prompt.len(), first.request.output.len()), (100, 10));
        // The second waits for the first.
        assert_eq!(workload.next().unwrap().unwrap().at, SimTime(4_000));
        assert_eq!(workload.peek().unwrap(), None);
        workload.finished(1, SimTime(100_000));
        assert_eq!(workload.peek().unwrap(), Some(SimTime(102_000)));
        assert_eq!(workload.next().unwrap().unwrap().request.index, 2);
        assert_eq!([0, 1, 2].map(|index| log.delay_ns(index)), [2_000, 4_000, 2_000]);
        // All are sent.
        workload.finished(0, SimTime(200_000));
        assert!(workload.next().unwrap().is_none());
    }

    #[test]
    fn a_round_trip_takes_from_nothing_to_twice_the_mean() {
        let mut load = ClosedLoopLoad {
            concurrency: 40,
            num_requests: 10_000,
            input_tokens: 100,
            output_tokens: 10,
            range_ratio: 1.0,
            client_has_workers: false,
        };
        // 20 us, and half a microsecond for each user of a thread.
        let host = HostLaw { frontend_us: 20.0, frontend_user_us: 0.5, ..HostLaw::default() };
        for (client_has_workers, mean_ns) in [(false, 40_000), (true, 20_500)] {
            load.client_has_workers = client_has_workers;
            let times = round_trips(&load, &host);
            assert!(times.iter().all(|time| time.as_ns() <= 2 * mean_ns));
            let share_below = |limit_ns: u64| {
                times.iter().filter(|time| time.as_ns() < limit_ns).count() as f64 / times.len() as f64
            };
            // Three standard deviations of 10,000 draws are 0.015.
            for quarter in 1..4 {
                let expected = quarter as f64 / 4.0;
                assert!((share_below(quarter * mean_ns / 2) - expected).abs() < 0.015);
            }
        }
    }

    /// `numpy.random.seed(0)`, `randint(819, 1025, size=8)`, `randint(6553, 8193, size=8)`.
    #[test]
    fn lengths_are_those_of_the_benchmark() {
        let load = ClosedLoopLoad {
            concurrency: 8,
            num_requests: 8,
            input_tokens: 1024,
            output_tokens: 8192,
            range_ratio: 0.8,
            client_has_workers: false,
        };
        let (inputs, outputs): (Vec<u32>, Vec<u32>) = lengths(&load).into_iter().unzip();
        assert_eq!(inputs, [991, 866, 936, 1011, 886, 1014, 922, 828]);
        assert_eq!(outputs, [6830, 7152, 7647, 8049, 7153, 7973, 6867, 7258]);
        assert_eq!(lengths(&ClosedLoopLoad { range_ratio: 1.0, ..load }), [(1024, 8192); 8]);
    }
}
