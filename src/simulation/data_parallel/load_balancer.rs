//! Which engine core of a replica gets a request: vLLM's internal load balancer
//! (`DPLBAsyncMPClient.get_core_engine_for_request` in `v1/engine/core_client.py`).
//!
//! Each API server takes the engine core with the least
//!
//! ```text
//! max(API servers x own requests in flight, waiting + running) + waiting x 6 x max(0, KV usage - 0.5)
//! ```
//!
//! The requests in flight are its own count and exact; the rest is what the [`Coordinator`] published last,
//! and between publications every request that the API server sends adds to what waits there. Each begins
//! its search at another engine core, and one further after each request, so equals take turns. Prefix
//! caches play no part in it.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rustc_hash::FxHashMap;

use super::coordinator::{Coordinator, EngineCounts, StepOfWave};
use crate::units::SimTime;
use crate::workload::rng;

/// One API server's view of the engine cores.
#[derive(Clone, Debug)]
struct ApiServer {
    num_in_flight: Vec<u64>,
    counts: Vec<EngineCounts>,
    start: usize,
}

#[derive(Debug)]
pub(super) struct LoadBalancer {
    coordinator: Coordinator,
    api_servers: Vec<ApiServer>,
    /// Whoever of the API servers is first accepts a connection: it is drawn.
    rng: ChaCha8Rng,
    /// The API server of each request in flight.
    served_by: FxHashMap<u64, u32>,
    /// Waiting and running, as each engine core reported them last.
    reported: Vec<(u64, u64)>,
}

impl LoadBalancer {
    /// Both numbers are at least one.
    pub fn new(
        num_engines: usize,
        api_server_count: u32,
        is_lockstep: bool,
        seed: u64,
        replica: usize,
    ) -> Self {
        let api_server = |index: u32| ApiServer {
            num_in_flight: vec![0; num_engines],
            counts: vec![EngineCounts::default(); num_engines],
            start: num_engines * index as usize / api_server_count as usize,
        };
        Self {
            coordinator: Coordinator::new(num_engines, is_lockstep),
            api_servers: (0..api_server_count).map(api_server).collect(),
            rng: rng::stream(seed, "API server", replica as u64),
            served_by: FxHashMap::default(),
            reported: vec![(0, 0); num_engines],
        }
    }

    /// The engine core for a request that reaches the replica at `now`.
    pub fn choose(&mut self, now: SimTime, request: u64) -> usize {
        let last = self.api_servers.len() as u32 - 1;
        let api_server = if last == 0 { 0 } else { self.rng.random_range(0..=last) };
        self.served_by.insert(request, api_server);
        self.publish_until(now);
        let num_api_servers = self.api_servers.len() as u64;
        self.api_servers[api_server as usize].choose(num_api_servers)
    }

    /// A request has left its engine core.
    pub fn left(&mut self, request: u64, engine: usize) {
        if let Some(api_server) = self.served_by.remove(&request) {
            self.api_servers[api_server as usize].num_in_flight[engine] -= 1;
        }
    }

    /// An engine core says how it stands, if the number of its requests has changed.
    pub fn report(&mut self, now: SimTime, engine: usize, counts: EngineCounts, step: StepOfWave) {
        let requests = (counts.waiting, counts.running);
        if std::mem::replace(&mut self.reported[engine], requests) != requests {
            self.publish_until(now);
            self.coordinator.report(now, engine, counts, step);
        }
    }

    /// The engine cores begin a wave of steps together, or end one.
    pub fn wave_changed(&mut self, now: SimTime) {
        self.publish_until(now);
        self.coordinator.wake(now);
    }

    fn publish_until(&mut self, now: SimTime) {
        let Self { coordinator, api_servers, .. } = self;
        coordinator.run_until(now, |counts| {
            for api_server in &mut *api_servers {
                api_server.counts.copy_from_slice(counts);
            }
        });
    }
}

impl ApiServer {
    fn choose(&mut self, num_api_servers: u64) -> usize {
        let num_engines = self.counts.len();
        let (mut least, mut chosen) = (f64::INFINITY, 0);
        for step in 0..num_engines {
            let engine = (self.start + step) % num_engines;
            let EngineCounts { waiting, running, kv_cache_usage } = self.counts[engine];
            let load = (num_api_servers * self.num_in_flight[engine]).max(waiting + running);
            let mut score = load as f64;
            if waiting > 0 {
                score += waiting as f64 * 6.0 * (kv_cache_usage - 0.5).max(0.0);
            }
            if score < least {
                (least, chosen) = (score, engine);
            }
        }
        self.counts[chosen].waiting += num_api_servers;
        self.start = (self.start + 1) % num_engines;
        self.num_in_flight[chosen] += 1;
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded from vLLM's own function by `tests/vllm/record_load_balancer.py`.
    #[test]
    fn an_api_server_chooses_as_vllm_does() {
        let mut num_requests = 0;
        for line in include_str!("../../../tests/vllm/load_balancer.jsonl").lines() {
            let recorded: serde_json::Value = serde_json::from_str(line).unwrap();
            let number = |name: &str| recorded[name].as_u64().unwrap();
            let (num_engines, count, index) =
                (number("num_engines") as usize, number("client_count"), number("client_index"));
            let balancer = LoadBalancer::new(num_engines, count as u32, false, 0, 0);
            let mut api_server = balancer.api_servers[index as usize].clone();
            let mut chosen = Vec::new();
            for event in recorded["events"].as_array().unwrap() {
                match event[0].as_str().unwrap() {
                    "counts" => {
                        let counts = event[1].as_array().unwrap().iter().map(|counts| EngineCounts {
                            waiting: counts[0].as_u64().unwrap(),
                            running: counts[1].as_u64().unwrap(),
                            kv_cache_usage: counts[2].as_f64().unwrap(),
                        });
                        api_server.counts = counts.collect();
                    }
                    "request" => {
                        chosen.push(api_server.choose(count));
                        assert_eq!(chosen.last().copied(), event[1].as_u64().map(|engine| engine as usize));
                    }
                    _ => {
                        let engine = chosen[event[1].as_u64().unwrap() as usize];
                        api_server.num_in_flight[engine] -= 1;
                    }
                }
            }
            num_requests += chosen.len();
        }
        assert!(num_requests > 400, "{num_requests}");
    }

    /// A burst within 100 ms: each API server knows only what it sent itself.
    #[test]
    fn api_servers_do_not_see_each_others_requests_before_counts_are_published() {
        let mut one = LoadBalancer::new(4, 1, false, 7, 0);
        let mut spread = [0; 4];
        (0..40).for_each(|request| spread[one.choose(SimTime(1), request)] += 1);
        assert_eq!(spread, [10; 4]);
        let mut four = LoadBalancer::new(4, 4, false, 7, 0);
        let mut spread = [0; 4];
        (0..40).for_each(|request| spread[four.choose(SimTime(1), request)] += 1);
        assert_eq!(spread.iter().sum::<i32>(), 40);
        assert_ne!(spread, [10; 4]);
        // The end of a request is known at once to the one that sent it.
        let mut one = LoadBalancer::new(2, 1, false, 7, 0);
        assert_eq!([one.choose(SimTime(1), 0), one.choose(SimTime(1), 1)], [0, 1]);
        one.left(1, 1);
        // What it counted as waiting between publications stays: 1 of both, and it is the turn of 0.
        assert_eq!(one.choose(SimTime(1), 2), 0);
        // Published again without news after 5 s: nothing waits, and only 0 has requests in flight.
        assert_eq!(one.choose(SimTime::from_ms(5_000), 3), 1);
    }
}
