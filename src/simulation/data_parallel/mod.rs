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
mod lockstep;
#[cfg(test)]
mod tests;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use self::coordinator::EngineCounts;
use self::load_balancer::LoadBalancer;
pub(super) use self::lockstep::{Lockstep, World};
pub use self::lockstep::{LockstepConfig, LockstepStats};
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
    /// If the ranks run their steps together.
    pub lockstep: Option<LockstepConfig>,
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
    /// Of each replica whose ranks run their steps together.
    lockstep: Vec<Option<Lockstep>>,
    /// Of each engine core, as its metrics said last.
    gauges: Vec<Gauges>,
}

impl DataParallel {
    /// Every engine core is a replica.
    pub fn none(num_engines: usize) -> Self {
        let alone = DataParallelConfig { data_parallel_size: 1, api_server_count: 1, lockstep: None };
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
            // Several engine cores: the endpoint is a replica.
            (engines.len() > 1).then(|| {
                let DataParallelConfig { api_server_count, lockstep, .. } = replicas[endpoint];
                LoadBalancer::new(engines.len(), api_server_count, lockstep.is_some(), seed, endpoint)
            })
        };
        let lockstep = |(config, engines): (&DataParallelConfig, &Range<usize>)| {
            let config = config.lockstep.filter(|_| engines.len() > 1)?;
            Some(Lockstep::new(config, engines.clone()))
        };
        Self {
            replica_of: owners(&engines),
            endpoint_of: owners(&endpoints),
            load_balancers: endpoints.iter().enumerate().map(load_balancer).collect(),
            lockstep: replicas.iter().zip(&engines).map(lockstep).collect(),
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
        let counts = serving.replica.request_counts();
        let counts = EngineCounts {
            waiting: u64::from(counts.waiting + counts.skipped_waiting),
            running: u64::from(counts.running),
            kv_cache_usage: serving.replica.kv_cache_usage(),
        };
        let step = self.lockstep[self.replica_of[engine]].as_ref().map(|ranks| ranks.step_of_wave(engine));
        load_balancer.report(now, engine - self.endpoints[endpoint].start, counts, step.unwrap_or_default());
    }

    /// The ranks that an engine core runs its steps with.
    pub fn lockstep(&mut self, engine: usize) -> Option<&mut Lockstep> {
        self.lockstep[self.replica_of[engine]].as_mut()
    }

    /// The ranks of an engine core have begun a wave of steps together, or ended one.
    pub fn wave_changed(&mut self, now: SimTime, engine: usize) {
        if let Some(load_balancer) = &mut self.load_balancers[self.endpoint_of[engine]] {
            load_balancer.wave_changed(now);
        }
    }

    /// The servers of a replica are gone.
    pub fn reset(&mut self, replica: usize, now: SimTime) {
        if let Some(ranks) = &mut self.lockstep[replica] {
            ranks.reset(now);
        }
    }

    /// Of all replicas whose ranks run their steps together, if there are any.
    pub fn lockstep_stats(&self) -> Option<LockstepStats> {
        let stats = self.lockstep.iter().flatten().map(Lockstep::stats);
        stats.reduce(|mut sum, stats| {
            sum.add(&stats);
            sum
        })
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
