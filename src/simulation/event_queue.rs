//! Events in order of time, then rank, then insertion.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::engine::RequestSlot;
use crate::units::SimTime;

/// What can happen; at equal time in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A step's output is processed. First, so that the answers of a step end before anything new.
    Update,
    /// A request reaches the server. Known to the workload, so never in the queue itself.
    Arrival,
    /// The patience of a request's client ends. After what the client waits for can have come.
    Abort { slot: RequestSlot, index: u64 },
    /// Somebody acts on the server, such as a reset of its cache.
    Action(usize),
    /// The engine looks for work. Last, so that it sees all that came in at this time.
    Iterate,
}

#[derive(Debug, Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<(SimTime, Event, u64)>>,
    num_pushed: u64,
}

impl EventQueue {
    pub fn push(&mut self, at: SimTime, event: Event) {
        // The counter breaks ties, so equal events leave as they came in.
        self.heap.push(Reverse((at, event, self.num_pushed)));
        self.num_pushed += 1;
    }

    pub fn peek(&self) -> Option<(SimTime, Event)> {
        self.heap.peek().map(|&Reverse((at, event, _))| (at, event))
    }

    pub fn pop(&mut self) -> Option<(SimTime, Event)> {
        self.heap.pop().map(|Reverse((at, event, _))| (at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_leave_by_rank_then_by_insertion() {
        let mut queue = EventQueue::default();
        queue.push(SimTime(5), Event::Iterate);
        queue.push(SimTime(5), Event::Action(1));
        queue.push(SimTime(5), Event::Abort { slot: RequestSlot(3), index: 8 });
        queue.push(SimTime(5), Event::Update);
        queue.push(SimTime(4), Event::Iterate);
        queue.push(SimTime(5), Event::Action(0));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(at, event)| (at.0, event)).collect();
        assert_eq!(
            order,
            [
                (4, Event::Iterate),
                (5, Event::Update),
                (5, Event::Abort { slot: RequestSlot(3), index: 8 }),
                (5, Event::Action(0)),
                (5, Event::Action(1)),
                (5, Event::Iterate)
            ]
        );
    }
}
