//! Events in order of time, then rank, then replica, then insertion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::engine_times::{EngineTimes, Turn};
use crate::engine::RequestSlot;
use crate::units::SimTime;

/// What can happen; at equal time in this order, and of one kind in the order of the replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A step's output is processed. First, so that the answers of a step end before anything new. In the
    /// queue, only the last that was pushed for a replica.
    Update { replica: u32 },
    /// A request reaches the router. Known to the workload, so never in the queue itself.
    Arrival,
    /// A request reaches the replica that the router chose for it, some time after it came.
    Deliver,
    /// A replica's input thread has hashed the prompt of the request that it took in first.
    Hashed { replica: u32 },
    /// The patience of a request's client ends. After what the client waits for can have come.
    Abort { replica: u32, slot: RequestSlot, index: u64 },
    /// The patience of a client ends whose request waits at the router.
    GiveUp { index: u64 },
    /// Somebody acts on the servers, such as a reset of their caches.
    Action(usize),
    /// A replica has started up.
    Ready { replica: u32 },
    /// Copies of a replica to or from a store that it shares begin or end.
    Land { replica: u32 },
    /// Somebody has read a replica's blocks.
    Wake { replica: u32 },
    /// An autoscaler looks at its metric.
    Scale { scaler: u32 },
    /// The engine looks for work. Last, so that it sees all that came in at this time. In the queue, only
    /// the last that was pushed for a replica.
    Iterate { replica: u32 },
}

#[derive(Debug, Default)]
pub(super) struct EventQueue {
    /// [`Event::Update`] and [`Event::Iterate`].
    engines: EngineTimes,
    /// All others.
    heap: BinaryHeap<Reverse<(SimTime, Event, u64)>>,
    num_pushed: u64,
}

impl EventQueue {
    pub fn push(&mut self, at: SimTime, event: Event) {
        match event {
            Event::Update { replica } => self.engines.set(at, Turn::Update, replica),
            Event::Iterate { replica } => self.engines.set(at, Turn::Iterate, replica),
            _ => {
                // The counter breaks ties, so equal events leave as they came in.
                self.heap.push(Reverse((at, event, self.num_pushed)));
                self.num_pushed += 1;
            }
        }
    }

    #[inline]
    pub fn peek(&self) -> Option<(SimTime, Event)> {
        let of_engine = self.engines.peek().map(|(at, turn, replica)| match turn {
            Turn::Update => (at, Event::Update { replica }),
            Turn::Iterate => (at, Event::Iterate { replica }),
        });
        let other = self.heap.peek().map(|&Reverse((at, event, _))| (at, event));
        match (of_engine, other) {
            (Some(of_engine), Some(other)) => Some(of_engine.min(other)),
            (of_engine, other) => of_engine.or(other),
        }
    }

    /// Takes the event that [`Self::peek`] returned.
    #[inline]
    pub fn pop(&mut self, event: Event) {
        match event {
            Event::Update { replica } => self.engines.take(Turn::Update, replica),
            Event::Iterate { replica } => self.engines.take(Turn::Iterate, replica),
            _ => {
                self.heap.pop();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_leave_by_rank_then_by_replica_then_by_insertion() {
        let mut queue = EventQueue::default();
        let iterate = |replica| Event::Iterate { replica };
        let update = |replica| Event::Update { replica };
        let abort = Event::Abort { replica: 0, slot: RequestSlot(3), index: 8 };
        for event in [iterate(1), iterate(0), Event::Action(1), abort, update(2), update(1), Event::Action(0)]
        {
            queue.push(SimTime(5), event);
        }
        // Only the last of these counts.
        queue.push(SimTime(3), iterate(2));
        queue.push(SimTime(4), iterate(2));
        let next = || queue.peek().inspect(|&(_, event)| queue.pop(event));
        let order: Vec<_> = std::iter::from_fn(next).map(|(at, event)| (at.0, event)).collect();
        let at_5 = [update(1), update(2), abort, Event::Action(0), Event::Action(1), iterate(0), iterate(1)];
        assert_eq!(order[0], (4, iterate(2)));
        assert_eq!(order[1..], at_5.map(|event| (5, event)));
    }
}
