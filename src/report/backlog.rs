//! How many requests still waited when the last one came: whether the server kept up.

use crate::simulation::RequestRecord;

/// A queue of more than this share of all requests is no burst.
const OVERLOAD: f64 = 0.1;
/// Nor is one of so few.
const LEAST_WAITING: u64 = 16;

/// Arrival and end of the wait of each request.
#[derive(Default)]
pub(super) struct Backlog {
    last_arrival_ns: u64,
    /// When each request was scheduled first, or ended without that, and when it came.
    waits_ns: Vec<[u64; 2]>,
}

impl Backlog {
    pub fn on_request(&mut self, request: &RequestRecord) {
        let arrival_ns = request.arrival.as_ns();
        self.last_arrival_ns = self.last_arrival_ns.max(arrival_ns);
        let served = request.first_scheduled.unwrap_or(request.finished);
        self.waits_ns.push([arrival_ns, served.as_ns()]);
    }

    /// Without those that came with the last one.
    pub fn waiting_at_last_arrival(&self) -> u64 {
        let last = self.last_arrival_ns;
        self.waits_ns.iter().filter(|[arrival_ns, served_ns]| *arrival_ns < last && *served_ns > last).count()
            as u64
    }

    /// What to know of a run whose queue grew as long as requests came. Users who wait for their answers keep the
    /// queue short by themselves.
    pub fn overload(&self, duration_s: f64) -> Option<String> {
        let (waiting, requests) = (self.waiting_at_last_arrival(), self.waits_ns.len() as u64);
        let is_overloaded = waiting >= LEAST_WAITING && waiting as f64 > OVERLOAD * requests as f64;
        is_overloaded.then(|| {
            let last_s = self.last_arrival_ns as f64 / 1e9;
            format!(
                "requests came faster than they were served: {waiting} of {requests} still waited when the last one \
                 came at {last_s:.0} s, and it took until {duration_s:.0} s to serve them. Waiting times say how long \
                 the load lasted, not how fast the server is"
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backlog(waits_s: impl IntoIterator<Item = [u64; 2]>) -> Backlog {
        let waits_ns: Vec<[u64; 2]> =
            waits_s.into_iter().map(|wait| wait.map(|second| second * 1_000_000_000)).collect();
        let last_arrival_ns = waits_ns.iter().map(|wait| wait[0]).max().unwrap_or(0);
        Backlog { last_arrival_ns, waits_ns }
    }

    /// A request each second, each served in two: of 100, the last of which comes at 99 s, those that came at 50 s to
    /// 98 s wait then.
    #[test]
    fn a_queue_that_grows_is_told() {
        let backlog = backlog((0..100).map(|at| [at, 2 * at]));
        assert_eq!(backlog.waiting_at_last_arrival(), 49);
        let told = backlog.overload(200.0).unwrap();
        assert!(told.contains("49 of 100 still waited when the last one came at 99 s"), "{told}");
    }

    #[test]
    fn a_server_that_keeps_up_and_a_batch_are_not() {
        assert_eq!(backlog((0..100).map(|at| [at, at + 1])).overload(101.0), None);
        // All at once, as offline.
        let batch = backlog((0..100).map(|at| [0, at]));
        assert_eq!((batch.waiting_at_last_arrival(), batch.overload(100.0)), (0, None));
        assert_eq!(backlog([]).overload(0.0), None);
    }
}
