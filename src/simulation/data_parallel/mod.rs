//! Replicas of several engine cores (`data_parallel_size`): each rank has its own scheduler, KV cache and
//! clock.
//!
//! A router addresses the replica, and its internal [load balancer](load_balancer) chooses the engine
//! core; or it addresses the ranks themselves, as with vLLM's external load balancing, one port for each
//! rank, or a request that names its `data_parallel_rank`.
//!
//! Engine cores are counted over all replicas, and endpoints are what the router tells apart. Without data
//! parallelism engine cores, replicas and endpoints are the same.

mod coordinator;
mod load_balancer;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use self::coordinator::EngineCounts;
use self::load_balancer::LoadBalancer;
use super::router::Gauges;
use super::serving::Serving;
use crate::units::SimTime;

/// The engine cores of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataParallelConfig {
    /// At least one.
    pub data_parallel_size: u32,
    /// API servers of the replica, each with its own view of the engine cores; at least one.
    pub api_server_count: u32,
}

/// What a router tells apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Endpoints {
    /// Replicas; the engine core is chosen there.
    #[default]
    Replicas,
    /// Each data-parallel rank.
    Ranks,
}

/// Which engine cores belong together.
#[derive(Debug)]
pub(super) struct DataParallel {
    /// Of each engine core.
    replica_of: Vec<usize>,
    endpoint_of: Vec<usize>,
    /// Of each replica.
    engines: Vec<Range<usize>>,
    /// Of each endpoint its engine cores.
    endpoints: Vec<Range<usize>>,
    /// Of each endpoint of several engine cores.
    load_balancers: Vec<Option<LoadBalancer>>,
    /// Of each engine core, as its metrics said last.
    gauges: Vec<Gauges>,
}

impl DataParallel {
    /// Every engine core is a replica.
    pub fn none(num_engines: usize) -> Self {
        let alone = DataParallelConfig { data_parallel_size: 1, api_server_count: 1 };
        Self::new(&vec![alone; num_engines], Endpoints::Replicas, 0)
    }

    /// Of these replicas; whatever is drawn comes from streams of this seed.
    pub fn new(replicas: &[DataParallelConfig], endpoints: Endpoints, seed: u64) -> Self {
        let mut num_engines = 0;
        let engines: Vec<Range<usize>> = replicas
            .iter()
            .map(|config| {
                let first = num_engines;
                num_engines += config.data_parallel_size as usize;
                first..num_engines
            })
            .collect();
        let endpoints: Vec<Range<usize>> = match endpoints {
            Endpoints::Replicas => engines.clone(),
            Endpoints::Ranks => (0..num_engines).map(|engine| engine..engine + 1).collect(),
        };
        let load_balancer = |(endpoint, engines): (usize, &Range<usize>)| {
            (engines.len() > 1).then(|| {
                LoadBalancer::new(engines.len(), replicas[endpoint].api_server_count, false, seed, endpoint)
            })
        };
        Self {
            replica_of: owners(&engines),
            endpoint_of: owners(&endpoints),
            load_balancers: endpoints.iter().enumerate().map(load_balancer).collect(),
            gauges: vec![Gauges::default(); num_engines],
            engines,
            endpoints,
        }
    }

    pub fn num_engines(&self) -> usize {
        self.replica_of.len()
    }

    pub fn num_replicas(&self) -> usize {
        self.engines.len()
    }

    pub fn num_endpoints(&self) -> usize {
        self.endpoints.len()
    }

    pub fn replica_of(&self, engine: usize) -> usize {
        self.replica_of[engine]
    }

    pub fn endpoint_of(&self, engine: usize) -> usize {
        self.endpoint_of[engine]
    }

    pub fn replica_of_endpoint(&self, endpoint: usize) -> usize {
        self.replica_of[self.endpoints[endpoint].start]
    }

    /// Those of a replica.
    pub fn engines(&self, replica: usize) -> Range<usize> {
        self.engines[replica].clone()
    }

    /// Those behind an endpoint.
    pub fn engines_of_endpoint(&self, endpoint: usize) -> Range<usize> {
        self.endpoints[endpoint].clone()
    }

    /// Those that are of a replica.
    pub fn endpoints_of(&self, replica: usize) -> Range<usize> {
        let engines = &self.engines[replica];
        self.endpoint_of[engines.start]..self.endpoint_of[engines.end - 1] + 1
    }

    /// The engine core for a request that reaches an endpoint at `now`.
    pub fn choose(&mut self, now: SimTime, endpoint: usize, request: u64) -> usize {
        let first = self.endpoints[endpoint].start;
        match &mut self.load_balancers[endpoint] {
            Some(load_balancer) => first + load_balancer.choose(now, request),
            None => first,
        }
    }

    /// A request has left its engine core.
    pub fn left(&mut self, request: u64, engine: usize) {
        let endpoint = self.endpoint_of[engine];
        if let Some(load_balancer) = &mut self.load_balancers[endpoint] {
            load_balancer.left(request, engine - self.endpoints[endpoint].start);
        }
    }

    /// The engine core tells the load balancer how it stands, if there is one (`_maybe_publish_request_counts`
    /// in `v1/engine/core.py`: before and after each turn of its loop).
    pub fn report(&mut self, now: SimTime, engine: usize, serving: &Serving) {
        let endpoint = self.endpoint_of[engine];
        let Some(load_balancer) = &mut self.load_balancers[endpoint] else { return };
        let counts = serving.replica.scheduler().request_counts();
        let counts = EngineCounts {
            waiting: u64::from(counts.waiting + counts.skipped_waiting),
            running: u64::from(counts.running),
            kv_cache_usage: serving.replica.kv_cache_usage(),
        };
        load_balancer.report(now, engine - self.endpoints[endpoint].start, counts, (0, 0));
    }

    /// The metrics of the endpoint of an engine core, of which those of the engine core have just been set.
    pub fn gauges(&mut self, engine: usize, gauges: Gauges) -> Gauges {
        let engines = self.endpoints[self.endpoint_of[engine]].clone();
        if engines.len() == 1 {
            return gauges;
        }
        self.gauges[engine] = gauges;
        let mut sum = Gauges::default();
        for gauges in &self.gauges[engines] {
            sum.num_running += gauges.num_running;
            sum.num_waiting += gauges.num_waiting;
            sum.used_blocks += gauges.used_blocks;
        }
        sum
    }
}

/// By member, the range that it is in.
fn owners(ranges: &[Range<usize>]) -> Vec<usize> {
    let owner = |(owner, range): (usize, &Range<usize>)| std::iter::repeat_n(owner, range.len());
    ranges.iter().enumerate().flat_map(owner).collect()
}
