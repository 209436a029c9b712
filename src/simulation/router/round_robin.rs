//! One after the other, whatever they do.

use super::turn::Turn;
use super::{ReplicaView, Router};
use crate::workload::RequestSpec;

#[derive(Debug, Default)]
pub struct RoundRobin {
    turn: Turn,
}

impl Router for RoundRobin {
    fn choose(&mut self, _request: &RequestSpec, replicas: &[ReplicaView]) -> usize {
        self.turn.least(replicas, |_, _| 0)
    }
}
