//! A replica and where its loop stands.

use super::event_queue::{Event, EventQueue};
use super::observer::Observer;
use super::replica::{LostRequests, Next, Replica};
use super::router::Gauges;
use super::transfers::Transfers;
use crate::units::SimTime;

pub(super) struct Serving {
    pub replica: Replica,
    /// When the loop goes on; `None` while a step is being executed, or nothing is to do. An
    /// [`Event::Iterate`] of another time has been overtaken.
    iterate_at: Option<SimTime>,
    /// When the step that is being executed is done, likewise.
    update_at: Option<SimTime>,
    /// The loop waits and may be woken.
    is_idle: bool,
    /// Requests wait, and time alone changes nothing.
    pub is_stuck: bool,
}

impl Serving {
    pub fn new(replica: Replica) -> Self {
        Self { replica, iterate_at: None, update_at: None, is_idle: true, is_stuck: false }
    }

    /// What the replica's metrics say now.
    pub fn gauges(&self) -> Gauges {
        let counts = self.replica.request_counts();
        Gauges {
            num_running: counts.running,
            num_waiting: counts.waiting + counts.skipped_waiting,
            used_blocks: self.replica.used_blocks(),
        }
    }

    /// Whether the loop was to go on `now`.
    pub fn takes_iterate(&mut self, now: SimTime) -> bool {
        self.iterate_at.take_if(|at| *at == now).is_some()
    }

    /// A turn of the loop.
    pub fn iterate(&mut self, now: SimTime, observer: &mut dyn Observer) -> Next {
        self.is_idle = false;
        self.replica.iterate(now, observer)
    }

    /// Whether the output that is there `now` is of a step of this server, and not of one that is gone.
    pub fn takes_update(&mut self, now: SimTime) -> bool {
        self.update_at.take_if(|at| *at == now).is_some()
    }

    /// See [`Replica::shut_down`].
    pub fn shut_down(&mut self, now: SimTime, reports: bool, observer: &mut dyn Observer) -> LostRequests {
        (self.iterate_at, self.update_at) = (None, None);
        (self.is_idle, self.is_stuck) = (true, false);
        self.replica.shut_down(now, reports, observer)
    }

    /// See [`Replica::land`].
    pub fn land(&mut self, now: SimTime, events: &mut EventQueue, observer: &mut dyn Observer) {
        self.replica.land(now, observer);
        self.expect_landings(events);
    }

    pub fn expect_landings(&mut self, events: &mut EventQueue) {
        let replica = self.replica.index();
        let landings = self.replica.transfers_mut().into_iter().flat_map(Transfers::take_landings);
        landings.for_each(|at| events.push(at, Event::Land { replica }));
    }

    pub fn plan(&mut self, next: Next, events: &mut EventQueue) {
        self.expect_landings(events);
        self.is_stuck = next == Next::Stuck;
        match next {
            Next::Iterate(at) => self.iterate_at(at, events),
            Next::Update(at) => {
                self.update_at = Some(at);
                events.push(at, Event::Update { replica: self.replica.index() });
            }
            Next::Waiting(at) => {
                self.is_idle = true;
                self.iterate_at(at, events);
            }
            Next::Idle | Next::Stuck => self.is_idle = true,
        }
    }

    /// The loop goes on at a time, whatever it waited for.
    pub fn go_on_at(&mut self, at: SimTime, events: &mut EventQueue) {
        self.is_idle = false;
        self.iterate_at(at, events);
    }

    /// The loop waits until it is woken.
    pub fn sleep(&mut self) {
        self.is_idle = true;
    }

    /// Wakes the loop if it waits.
    pub fn wake(&mut self, now: SimTime, events: &mut EventQueue) {
        if std::mem::take(&mut self.is_idle) {
            self.iterate_at(now, events);
        }
    }

    fn iterate_at(&mut self, at: SimTime, events: &mut EventQueue) {
        self.iterate_at = Some(at);
        events.push(at, Event::Iterate { replica: self.replica.index() });
    }
}
