//! How long who computed a prompt keeps its blocks for who has not read them yet.
//!
//! In vLLM 0.33.0 (`nixl/pull_scheduler.py`, `base_worker.py`) blocks are kept for `kv_lease_duration` after the
//! request has ended; a server that has the request renews that every sixth of it, until it has read them. So
//! while such a server is there a lease does not run out here, and after it has gone it lasts a whole duration
//! (in vLLM as much as a sixth less). Blocks that are read after it are overwritten by then, which vLLM notes
//! in its log.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::units::SimTime;

/// What a server keeps of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lease {
    /// Somebody renews it.
    Renewed,
    /// It runs out then.
    Until(SimTime),
    /// It has run out.
    Expired,
}

#[derive(Debug)]
pub(super) struct Leases {
    duration: SimTime,
    /// By server and request.
    leases: FxHashMap<(usize, u64), Lease>,
    /// Of each server, those that run out, in order; some may have been renewed since.
    ends: Vec<VecDeque<(SimTime, u64)>>,
    num_expired: u64,
}

impl Leases {
    pub fn new(duration: SimTime, num_servers: usize) -> Self {
        Self {
            duration,
            leases: FxHashMap::default(),
            ends: vec![VecDeque::new(); num_servers],
            num_expired: 0,
        }
    }

    pub fn num_expired(&self) -> u64 {
        self.num_expired
    }

    /// A server keeps the blocks of a request.
    pub fn hold(&mut self, server: usize, request: u64) {
        self.leases.insert((server, request), Lease::Renewed);
    }

    pub fn renew(&mut self, server: usize, request: u64) {
        if let Some(lease) = self.leases.get_mut(&(server, request))
            && *lease != Lease::Expired
        {
            *lease = Lease::Renewed;
        }
    }

    /// Nobody renews it from `now` on: when it ends, if it has not.
    pub fn run_out(&mut self, server: usize, request: u64, now: SimTime) -> Option<SimTime> {
        let lease = self.leases.get_mut(&(server, request)).filter(|lease| **lease == Lease::Renewed)?;
        let at = now + self.duration;
        *lease = Lease::Until(at);
        self.ends[server].push_back((at, request));
        Some(at)
    }

    /// The blocks are read now: whether they are still kept. `None` if the server has gone.
    pub fn end(&mut self, server: usize, request: u64) -> Option<bool> {
        self.leases.remove(&(server, request)).map(|lease| lease != Lease::Expired)
    }

    /// A server has gone.
    pub fn fail(&mut self, server: usize) {
        self.ends[server].clear();
        self.leases.retain(|&(of, _), _| of != server);
    }

    /// When the next lease of a server may end.
    pub fn next_end(&self, server: usize) -> Option<SimTime> {
        self.ends[server].front().map(|&(at, _)| at)
    }

    /// Adds the requests whose leases have ended by `now`.
    pub fn take_expired(&mut self, server: usize, now: SimTime, expired: &mut Vec<u64>) {
        while let Some(&(at, request)) = self.ends[server].front().filter(|(at, _)| *at <= now) {
            self.ends[server].pop_front();
            if let Some(lease) = self.leases.get_mut(&(server, request))
                && *lease == Lease::Until(at)
            {
                *lease = Lease::Expired;
                self.num_expired += 1;
                expired.push(request);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_a_while_after_nobody_renews_it() {
        let mut leases = Leases::new(SimTime(30), 2);
        for request in 0..4 {
            leases.hold(1, request);
        }
        let ends: Vec<_> = [2, 0, 1].map(|request| leases.run_out(1, request, SimTime(request))).to_vec();
        assert_eq!(ends, [32, 30, 31].map(|at| Some(SimTime(at))));
        leases.renew(1, 0);
        assert_eq!(leases.end(1, 3), Some(true));
        let mut expired = Vec::new();
        leases.take_expired(1, SimTime(31), &mut expired);
        // They lie in the order in which they were lost, which is that of time in a run.
        assert!(expired.is_empty() && leases.next_end(1) == Some(SimTime(32)));
        leases.take_expired(1, SimTime(32), &mut expired);
        assert_eq!((expired, leases.num_expired()), (vec![2, 1], 2));
        assert_eq!((leases.end(1, 2), leases.end(1, 0), leases.end(1, 3)), (Some(false), Some(true), None));
        leases.fail(1);
        assert_eq!(leases.end(1, 1), None);
    }
}
