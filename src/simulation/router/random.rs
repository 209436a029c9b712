//! Each replica with the same chance: what a service without session affinity comes to.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{ReplicaView, Router};
use crate::workload::{RequestSpec, rng};

#[derive(Debug)]
pub struct Random {
    rng: ChaCha8Rng,
}

impl Random {
    pub fn new(seed: u64) -> Self {
        Self { rng: rng::stream(seed, "random router", 0) }
    }
}

impl Router for Random {
    fn choose(&mut self, _request: &RequestSpec, replicas: &[ReplicaView]) -> usize {
        let num_ready = replicas.iter().filter(|view| view.is_ready).count();
        let nth = self.rng.random_range(0..num_ready.max(1));
        let ready = replicas.iter().enumerate().filter(|(_, view)| view.is_ready);
        ready.map(|(index, _)| index).nth(nth).unwrap_or(0)
    }
}
