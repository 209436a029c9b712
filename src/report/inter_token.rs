//! Inter-token latency of a replica, exact, without a value for each token: a step ends at one time
//! for all who get a token, so for each step it is enough to count for how many the step before brought one too.

use super::distribution::Distribution;
use crate::simulation::StepSpan;
use crate::units::SimTime;

#[derive(Debug, Default)]
pub(super) struct InterTokenLatencies {
    /// When each step that computed something ended.
    step_ends_ns: Vec<u64>,
    /// By step, the number of requests whose span has its second step here less those whose span
    /// ended with the step before: summed up, those to whom two steps in a row brought output.
    changes: Vec<i32>,
    /// Between the spans of requests.
    pauses_ns: Vec<u64>,
}

impl InterTokenLatencies {
    pub fn on_step(&mut self, finished_at: SimTime) {
        self.step_ends_ns.push(finished_at.as_ns());
    }

    /// A request got output at these steps.
    pub fn on_request(&mut self, spans: &[StepSpan]) {
        if self.changes.len() <= self.step_ends_ns.len() {
            self.changes.resize(self.step_ends_ns.len() + 1, 0);
        }
        for span in spans {
            self.changes[span.first as usize + 1] += 1;
            self.changes[span.last as usize + 1] -= 1;
        }
        for pair in spans.windows(2) {
            let end_ns = |step: u64| self.step_ends_ns[step as usize];
            self.pauses_ns.push(end_ns(pair[1].first) - end_ns(pair[0].last));
        }
    }

    /// Latencies of all replicas together, in nanoseconds.
    pub fn distribution<'a>(replicas: impl IntoIterator<Item = &'a Self>) -> Distribution {
        let mut counts: Vec<(u64, u64)> = Vec::new();
        for replica in replicas {
            let mut in_a_row = 0_i32;
            let ends = replica.step_ends_ns.windows(2);
            let steps = ends.zip(replica.changes.iter().skip(1)).map(|(ends, change)| {
                in_a_row += change;
                (ends[1] - ends[0], in_a_row as u64)
            });
            counts.extend(steps.filter(|&(_, count)| count > 0));
            counts.extend(replica.pauses_ns.iter().map(|&pause_ns| (pause_ns, 1)));
        }
        Distribution::of_counts(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::percentiles::LatencyMs;

    #[test]
    fn every_gap_between_two_outputs_of_a_request_counts_once() {
        let mut latencies = InterTokenLatencies::default();
        let span = |first, last| StepSpan { first, last };
        // Steps end at 10, 30, 60, 100 and 150 ms.
        for ms in [10, 30, 60] {
            latencies.on_step(SimTime::from_ms(ms));
        }
        latencies.on_request(&[span(0, 2)]);
        latencies.on_request(&[span(2, 2)]);
        for ms in [100, 150] {
            latencies.on_step(SimTime::from_ms(ms));
        }
        latencies.on_request(&[span(0, 1), span(3, 4)]);
        // 20 and 30; nothing; 20, 70 and 50.
        let summary = LatencyMs::of_distribution(&InterTokenLatencies::distribution([&latencies]));
        assert_eq!((summary.count, summary.mean_ms), (5, 38.0));
        assert_eq!((summary.p50_ms, summary.p90_ms, summary.max_ms), (30.0, 70.0, 70.0));
        assert_eq!(InterTokenLatencies::distribution([]).total(), 0);
    }
}
