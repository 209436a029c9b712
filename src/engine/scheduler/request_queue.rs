//! Queues of waiting requests (`v1/core/sched/request_queue.py`).

use std::collections::{BTreeMap, VecDeque};

use crate::engine::config::SchedulingPolicy;
use crate::engine::request::Request;
use crate::engine::request_table::RequestSlot;

#[derive(Clone, Debug)]
pub(super) enum RequestQueue {
    Fcfs(VecDeque<RequestSlot>),
    /// By priority, arrival time and id.
    Priority(BTreeMap<(i64, u64, u64), RequestSlot>),
}

impl RequestQueue {
    pub fn new(policy: SchedulingPolicy) -> Self {
        match policy {
            SchedulingPolicy::Fcfs => Self::Fcfs(VecDeque::new()),
            SchedulingPolicy::Priority => Self::Priority(BTreeMap::new()),
        }
    }

    pub fn add_request(&mut self, slot: RequestSlot, request: &Request) {
        match self {
            Self::Fcfs(queue) => queue.push_back(slot),
            Self::Priority(queue) => {
                queue.insert(request.priority_key(), slot);
            }
        }
    }

    /// To the front, where the policy knows one.
    pub fn prepend_request(&mut self, slot: RequestSlot, request: &Request) {
        match self {
            Self::Fcfs(queue) => queue.push_front(slot),
            Self::Priority(queue) => {
                queue.insert(request.priority_key(), slot);
            }
        }
    }

    pub fn peek_request(&self) -> Option<RequestSlot> {
        match self {
            Self::Fcfs(queue) => queue.front().copied(),
            Self::Priority(queue) => queue.values().next().copied(),
        }
    }

    pub fn pop_request(&mut self) -> Option<RequestSlot> {
        match self {
            Self::Fcfs(queue) => queue.pop_front(),
            Self::Priority(queue) => queue.pop_first().map(|(_, slot)| slot),
        }
    }

    pub fn remove_request(&mut self, slot: RequestSlot, request: &Request) {
        match self {
            Self::Fcfs(queue) => queue.retain(|&other| other != slot),
            Self::Priority(queue) => {
                queue.remove(&request.priority_key());
            }
        }
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Fcfs(queue) => queue.len(),
            Self::Priority(queue) => queue.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// In the order of the policy.
    pub fn iter(&self) -> Box<dyn Iterator<Item = RequestSlot> + '_> {
        match self {
            Self::Fcfs(queue) => Box::new(queue.iter().copied()),
            Self::Priority(queue) => Box::new(queue.values().copied()),
        }
    }
}
