//! To the replica with the fewest requests that were sent there and have not ended (`least_request`
//! of Envoy over all hosts, `leastconn` of HAProxy): the router counts them itself, so the figure is
//! never old.

use super::turn::Turn;
use super::{ReplicaView, Router};
use crate::workload::RequestSpec;

#[derive(Debug, Default)]
pub struct LeastRequests {
    turn: Turn,
}

impl Router for LeastRequests {
    fn choose(&mut self, _request: &RequestSpec, replicas: &[ReplicaView]) -> usize {
        self.turn.least(replicas, |_, view| view.num_in_flight)
    }
}
