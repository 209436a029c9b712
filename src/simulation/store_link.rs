//! The end of the links to a store that several replicas share: it carries one copy after the other in
//! each direction, at what all of them together can have.

use std::cell::RefCell;
use std::rc::Rc;

use crate::engine::connector::Direction;
use crate::units::SimTime;

/// Clones are handles of the same one.
#[derive(Clone, Debug)]
pub struct StoreLink(Rc<RefCell<[Port; 2]>>);

/// One direction.
#[derive(Clone, Copy, Debug)]
struct Port {
    bytes_per_s: f64,
    free_at: SimTime,
    busy: SimTime,
}

impl StoreLink {
    /// In bytes per second, above 0, over all replicas and their ranks.
    pub fn new(read_bytes_per_s: f64, write_bytes_per_s: f64) -> Self {
        let port = |bytes_per_s| Port { bytes_per_s, free_at: SimTime::ZERO, busy: SimTime::ZERO };
        Self(Rc::new(RefCell::new([port(read_bytes_per_s), port(write_bytes_per_s)])))
    }

    /// So many bytes are ready to go: when they begin, and how long the store takes for them.
    pub(super) fn take(&self, direction: Direction, ready: SimTime, bytes: u64) -> (SimTime, SimTime) {
        let port = &mut self.0.borrow_mut()[direction as usize];
        let begin = ready.max(port.free_at);
        let lasts = SimTime::from_secs_f64(bytes as f64 / port.bytes_per_s);
        port.free_at = begin + lasts;
        port.busy += lasts;
        (begin, lasts)
    }

    /// How long each direction was busy so far.
    pub(super) fn busy(&self) -> [SimTime; 2] {
        self.0.borrow().map(|port| port.busy)
    }
}
