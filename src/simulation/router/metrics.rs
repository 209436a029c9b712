//! What a router sees of the replicas: what it counts itself, and what their metrics said when they
//! were last read.

use super::ReplicaView;
use crate::units::SimTime;

/// What a replica's metrics say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::simulation) struct Gauges {
    pub num_running: u32,
    pub num_waiting: u32,
    pub used_blocks: u32,
}

/// Metrics are read at 0 and after each interval. Nothing has to happen then: when a value changes or
/// is asked for, it is known whether the value before it was read in the meantime.
#[derive(Debug)]
pub(in crate::simulation) struct Metrics {
    /// 0 is at any time.
    interval: SimTime,
    views: Vec<ReplicaView>,
    /// As they are, and since when.
    gauges: Vec<(Gauges, SimTime)>,
}

impl Metrics {
    /// Of replicas with so many blocks, the null block left out.
    pub fn new(num_blocks: impl Iterator<Item = u32>) -> Self {
        let view = |num_blocks| ReplicaView { is_ready: true, num_blocks, ..ReplicaView::default() };
        let views: Vec<ReplicaView> = num_blocks.map(view).collect();
        Self { interval: SimTime::ZERO, gauges: vec![Default::default(); views.len()], views }
    }

    pub fn set_interval(&mut self, interval: SimTime) {
        self.interval = interval;
    }

    pub fn sent(&mut self, replica: usize) {
        self.views[replica].num_in_flight += 1;
    }

    pub fn left(&mut self, replica: usize) {
        self.views[replica].num_in_flight -= 1;
    }

    /// Whether it takes requests.
    pub fn set_ready(&mut self, replica: usize, is_ready: bool) {
        self.views[replica].is_ready = is_ready;
    }

    /// What the router saw last.
    pub fn known(&self) -> &[ReplicaView] {
        &self.views
    }

    /// The values of a replica from `now` on. Who reads at this very time still sees the old ones.
    #[inline]
    pub fn set(&mut self, now: SimTime, replica: usize, gauges: Gauges) {
        if self.interval == SimTime::ZERO {
            self.views[replica].read(gauges);
        } else {
            self.read_until(now, replica);
            self.gauges[replica] = (gauges, now);
        }
    }

    /// What the router sees at `now`.
    pub fn views(&mut self, now: SimTime) -> &[ReplicaView] {
        if self.interval > SimTime::ZERO {
            (0..self.views.len()).for_each(|replica| self.read_until(now, replica));
        }
        &self.views
    }

    /// Takes over the values as they are, if they have been read since they became so.
    fn read_until(&mut self, now: SimTime, replica: usize) {
        let (gauges, since) = self.gauges[replica];
        let num_reads = |at: SimTime| at.as_ns() / self.interval.as_ns();
        if num_reads(now) > num_reads(since) {
            self.views[replica].read(gauges);
        }
    }
}

impl ReplicaView {
    fn read(&mut self, gauges: Gauges) {
        self.num_running = gauges.num_running;
        self.num_waiting = gauges.num_waiting;
        self.used_blocks = gauges.used_blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_sees_what_was_last_read() {
        let mut metrics = Metrics::new([100].into_iter());
        metrics.set_interval(SimTime(10));
        let waiting = |num_waiting| Gauges { num_waiting, ..Gauges::default() };
        let seen = |metrics: &mut Metrics, now| metrics.views(SimTime(now))[0].num_waiting;
        metrics.set(SimTime(3), 0, waiting(1));
        assert_eq!(seen(&mut metrics, 9), 0);
        // Read at 10, before it becomes 2.
        metrics.set(SimTime(10), 0, waiting(2));
        assert_eq!(seen(&mut metrics, 15), 1);
        metrics.set(SimTime(16), 0, waiting(3));
        metrics.set(SimTime(17), 0, waiting(4));
        assert_eq!((seen(&mut metrics, 19), seen(&mut metrics, 20)), (1, 4));
        metrics.set(SimTime(25), 0, waiting(5));
        assert_eq!((seen(&mut metrics, 29), seen(&mut metrics, 47)), (4, 5));
        // What the router counts itself is never old.
        metrics.sent(0);
        assert_eq!(metrics.views(SimTime(48))[0].num_in_flight, 1);
        metrics.set_interval(SimTime::ZERO);
        metrics.set(SimTime(48), 0, waiting(6));
        assert_eq!(seen(&mut metrics, 48), 6);
    }
}
