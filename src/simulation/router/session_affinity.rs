//! All requests of a session to one replica, by rendezvous hashing: each replica has a weight for the
//! session, and the heaviest that is ready gets it. A replica that comes or goes moves only the
//! sessions that it gains or had.
//!
//! With a load factor, the heaviest whose load is below that many times the mean ("consistent hashing
//! with bounded loads"). Requests without a session go to the replica with the fewest requests.

use super::turn::Turn;
use super::{ReplicaView, Router};
use crate::units::SimTime;
use crate::workload::RequestSpec;

#[derive(Debug)]
pub struct SessionAffinity {
    seed: u64,
    /// More than 1; `None` is without a bound.
    load_factor: Option<f64>,
    turn: Turn,
}

impl SessionAffinity {
    pub fn new(seed: u64, load_factor: Option<f64>) -> Self {
        Self { seed, load_factor, turn: Turn::default() }
    }
}

impl Router for SessionAffinity {
    fn choose(&mut self, _now: SimTime, request: &RequestSpec, replicas: &[ReplicaView]) -> usize {
        let Some(session) = request.session else {
            return self.turn.least(replicas, |_, view| view.num_in_flight);
        };
        let ready = || replicas.iter().enumerate().filter(|(_, view)| view.is_ready);
        // With the request that is to be sent.
        let load: u32 = ready().map(|(_, view)| view.num_in_flight).sum::<u32>() + 1;
        let bound = self.load_factor.map(|factor| (factor * f64::from(load) / ready().count() as f64).ceil());
        let has_room =
            |view: &ReplicaView| bound.is_none_or(|bound| f64::from(view.num_in_flight) + 1.0 <= bound);
        let key = mix(self.seed ^ mix(session));
        let weight = |replica: usize| mix(key ^ replica as u64);
        let heaviest = ready().filter(|(_, view)| has_room(view)).max_by_key(|&(at, _)| weight(at));
        heaviest.map_or(0, |(at, _)| at)
    }
}

/// The finaliser of SplitMix64: every bit of the input changes about half of the output's.
const fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
