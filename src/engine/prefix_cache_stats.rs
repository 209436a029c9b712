//! What vLLM counts about lookups in the prefix cache (`v1/metrics/stats.py`).

use std::collections::VecDeque;

/// Lookups of admitted requests since the stats were last taken (`PrefixCacheStats`). Queries and
/// hits are tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrefixCacheStats {
    /// `reset_prefix_cache` succeeded before the lookups.
    pub reset: bool,
    pub requests: u64,
    pub queries: u64,
    pub hits: u64,
    /// Of requests that had been preempted: in no logged or exported figure.
    pub preempted_requests: u64,
    pub preempted_queries: u64,
    pub preempted_hits: u64,
}

impl PrefixCacheStats {
    pub fn record(&mut self, num_tokens: u32, num_hits: u32, preempted: bool) {
        let (requests, queries, hits) = if preempted {
            (&mut self.preempted_requests, &mut self.preempted_queries, &mut self.preempted_hits)
        } else {
            (&mut self.requests, &mut self.queries, &mut self.hits)
        };
        *requests += 1;
        *queries += u64::from(num_tokens);
        *hits += u64::from(num_hits);
    }
}

/// The hit rate over about the last 1,000 requests, which vLLM logs (`CachingMetrics`). The
/// exported counters are totals, so the two differ.
#[derive(Clone, Debug)]
pub struct CachingMetrics {
    max_recent_requests: u64,
    pub aggregated_requests: u64,
    pub aggregated_query_total: u64,
    pub aggregated_query_hit: u64,
    query_queue: VecDeque<(u64, u64, u64)>,
}

impl Default for CachingMetrics {
    fn default() -> Self {
        Self::new(1000)
    }
}

impl CachingMetrics {
    pub fn new(max_recent_requests: u64) -> Self {
        Self {
            max_recent_requests,
            aggregated_requests: 0,
            aggregated_query_total: 0,
            aggregated_query_hit: 0,
            query_queue: VecDeque::new(),
        }
    }

    /// Adds the stats of one update as one entry. The oldest entries leave while there are too
    /// many requests, but never the last one.
    pub fn observe(&mut self, stats: &PrefixCacheStats) {
        if stats.reset {
            *self = Self::new(self.max_recent_requests);
        }
        if stats.requests == 0 {
            return;
        }
        self.query_queue.push_back((stats.requests, stats.queries, stats.hits));
        self.aggregated_requests += stats.requests;
        self.aggregated_query_total += stats.queries;
        self.aggregated_query_hit += stats.hits;
        while self.query_queue.len() > 1 && self.aggregated_requests > self.max_recent_requests {
            let Some((requests, queries, hits)) = self.query_queue.pop_front() else { break };
            self.aggregated_requests -= requests;
            self.aggregated_query_total -= queries;
            self.aggregated_query_hit -= hits;
        }
    }

    /// 0 to 1; 0 when nothing was looked up.
    pub fn hit_rate(&self) -> f64 {
        if self.aggregated_query_total == 0 {
            return 0.0;
        }
        self.aggregated_query_hit as f64 / self.aggregated_query_total as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(requests: u64, queries: u64, hits: u64) -> PrefixCacheStats {
        PrefixCacheStats { requests, queries, hits, ..Default::default() }
    }

    #[test]
    fn the_window_keeps_whole_entries_and_always_the_last() {
        let mut metrics = CachingMetrics::new(3);
        metrics.observe(&stats(2, 20, 10));
        metrics.observe(&stats(1, 10, 0));
        assert_eq!(metrics.hit_rate(), 10.0 / 30.0);
        metrics.observe(&stats(1, 10, 10));
        assert_eq!((metrics.aggregated_requests, metrics.aggregated_query_total), (2, 20));
        metrics.observe(&stats(5, 50, 25));
        assert_eq!((metrics.aggregated_requests, metrics.aggregated_query_hit), (5, 25));
        metrics.observe(&PrefixCacheStats { reset: true, ..Default::default() });
        assert_eq!(metrics.hit_rate(), 0.0);
    }

    #[test]
    fn preempted_requests_are_counted_apart() {
        let mut stats = PrefixCacheStats::default();
        stats.record(10, 4, false);
        stats.record(20, 16, true);
        assert_eq!((stats.requests, stats.queries, stats.hits), (1, 10, 4));
        assert_eq!((stats.preempted_requests, stats.preempted_queries, stats.preempted_hits), (1, 20, 16));
    }
}
