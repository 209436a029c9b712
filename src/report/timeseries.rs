//! The run in bins of simulated time: `timeseries.csv`, and what the plots draw.
//!
//! How long a run takes is not known before its end. Bins start at a second and are joined in pairs
//! when there are too many.

use std::path::Path;

use serde::Serialize;

use super::replica_tally::Standing;
use super::table_column::{Column, Kind, csv_with_header};
use crate::cost::StepTime;
use crate::simulation::StepRecord;
use crate::units::SimTime;

const MAX_BINS: usize = 2_000;
/// As many as can be told apart in a chart.
const MAX_CHART_BINS: usize = 400;
const FIRST_WIDTH_NS: u64 = 1_000_000_000;

/// What happened in a bin, and how things stood at its last step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bin {
    pub steps: u64,
    pub prefill_tokens: u64,
    pub decode_tokens: u64,
    pub queries_tokens: u64,
    pub hits_tokens: u64,
    pub finished_requests: u64,
    /// Aborted or failed.
    pub unfinished_requests: u64,
    pub preemptions: u64,
    pub evictions: u64,
    pub running: u32,
    pub waiting: u32,
    pub used_blocks: u32,
    /// The most blocks in use at any time in the bin.
    pub peak_used_blocks: u32,
    pub moving_queries_tokens: u64,
    pub moving_hits_tokens: u64,
    /// Of the steps that ended in the bin.
    pub time: StepTime,
    /// If replicas come and go.
    pub ready_replicas: Option<u32>,
}

impl Bin {
    /// The bin after this one, before anything has happened in it.
    fn next(&self) -> Self {
        Self {
            running: self.running,
            waiting: self.waiting,
            used_blocks: self.used_blocks,
            peak_used_blocks: self.used_blocks,
            moving_queries_tokens: self.moving_queries_tokens,
            moving_hits_tokens: self.moving_hits_tokens,
            ready_replicas: self.ready_replicas,
            ..Self::default()
        }
    }

    fn join(&self, later: &Self) -> Self {
        Self {
            steps: self.steps + later.steps,
            prefill_tokens: self.prefill_tokens + later.prefill_tokens,
            decode_tokens: self.decode_tokens + later.decode_tokens,
            queries_tokens: self.queries_tokens + later.queries_tokens,
            hits_tokens: self.hits_tokens + later.hits_tokens,
            finished_requests: self.finished_requests + later.finished_requests,
            unfinished_requests: self.unfinished_requests + later.unfinished_requests,
            preemptions: self.preemptions + later.preemptions,
            evictions: self.evictions + later.evictions,
            peak_used_blocks: self.peak_used_blocks.max(later.peak_used_blocks),
            time: {
                let mut time = self.time;
                time += later.time;
                time
            },
            ..*later
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Timeseries {
    width_ns: u64,
    bins: Vec<Bin>,
}

/// The columns of [`Row`]; the last only where replicas come and go.
pub(super) const COLUMNS: [Column<&str>; 18] = [
    ("begin_s", Kind::Float),
    ("end_s", Kind::Float),
    ("steps", Kind::Count),
    ("prefill_tokens", Kind::Count),
    ("decode_tokens", Kind::Count),
    ("queries_tokens", Kind::Count),
    ("hits_tokens", Kind::Count),
    ("moving_queries_tokens", Kind::Count),
    ("moving_hits_tokens", Kind::Count),
    ("finished_requests", Kind::Count),
    ("unfinished_requests", Kind::Count),
    ("preemptions", Kind::Count),
    ("evictions", Kind::Count),
    ("running", Kind::Count),
    ("waiting", Kind::Count),
    ("used_blocks", Kind::Count),
    ("peak_used_blocks", Kind::Count),
    ("ready_replicas", Kind::Int),
];

#[derive(Serialize)]
struct Row {
    begin_s: f64,
    end_s: f64,
    steps: u64,
    prefill_tokens: u64,
    decode_tokens: u64,
    queries_tokens: u64,
    hits_tokens: u64,
    moving_queries_tokens: u64,
    moving_hits_tokens: u64,
    finished_requests: u64,
    unfinished_requests: u64,
    preemptions: u64,
    evictions: u64,
    running: u32,
    waiting: u32,
    used_blocks: u32,
    peak_used_blocks: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready_replicas: Option<u32>,
}

impl Timeseries {
    pub fn new() -> Self {
        Self { width_ns: FIRST_WIDTH_NS, bins: Vec::new() }
    }

    /// The bin of a time that is not before that of the last call.
    #[inline]
    fn bin(&mut self, at: SimTime) -> &mut Bin {
        let mut index = (at.as_ns() / self.width_ns) as usize;
        while index >= MAX_BINS {
            self.join_pairs();
            index = (at.as_ns() / self.width_ns) as usize;
        }
        while self.bins.len() <= index {
            let next = self.bins.last().map_or_else(Bin::default, Bin::next);
            self.bins.push(next);
        }
        &mut self.bins[index]
    }

    fn join_pairs(&mut self) {
        // A bin that is left alone is not joined with itself.
        let join = |pair: &[Bin]| if let [bin, later] = pair { bin.join(later) } else { pair[0] };
        self.bins = self.bins.chunks(2).map(join).collect();
        self.width_ns *= 2;
    }

    /// The same in as few bins as charts show.
    pub fn coarser(&self) -> Self {
        let mut series = self.clone();
        while series.bins.len() > MAX_CHART_BINS {
            series.join_pairs();
        }
        series
    }

    /// A step, and how all replicas stand after it.
    pub fn on_step(&mut self, step: &StepRecord, standing: &Standing) {
        let bin = self.bin(step.finished_at);
        // A step can compute nothing and only say who has ended.
        bin.steps += u64::from(step.num_scheduled_requests > 0);
        bin.time += step.time;
        bin.prefill_tokens += u64::from(step.num_prefill_tokens);
        bin.decode_tokens += u64::from(step.num_decode_tokens);
        bin.queries_tokens += step.prefix_cache.queries;
        bin.hits_tokens += step.prefix_cache.hits;
        bin.preemptions += u64::from(step.num_preempted);
        bin.running = standing.num_running;
        bin.waiting = standing.num_waiting;
        bin.used_blocks = standing.used_blocks;
        bin.peak_used_blocks = bin.peak_used_blocks.max(standing.peak_used_blocks);
        bin.moving_queries_tokens = standing.moving_queries_tokens;
        bin.moving_hits_tokens = standing.moving_hits_tokens;
        bin.ready_replicas = standing.num_ready_replicas;
    }

    pub fn on_request(&mut self, at: SimTime, is_finished: bool) {
        let bin = self.bin(at);
        *if is_finished { &mut bin.finished_requests } else { &mut bin.unfinished_requests } += 1;
    }

    pub fn on_evictions(&mut self, at: SimTime, count: u64) {
        self.bin(at).evictions += count;
    }

    pub fn width_s(&self) -> f64 {
        self.width_ns as f64 / 1e9
    }

    pub fn bins(&self) -> &[Bin] {
        &self.bins
    }

    pub fn write(&self, path: &Path) -> csv::Result<()> {
        let first_ready = self.bins.iter().find_map(|bin| bin.ready_replicas);
        let all = if first_ready.is_some() { &COLUMNS[..] } else { &COLUMNS[..COLUMNS.len() - 1] };
        let mut writer = csv_with_header(path, all)?;
        for (index, bin) in self.bins.iter().enumerate() {
            writer.serialize(Row {
                begin_s: index as f64 * self.width_s(),
                end_s: (index + 1) as f64 * self.width_s(),
                steps: bin.steps,
                prefill_tokens: bin.prefill_tokens,
                decode_tokens: bin.decode_tokens,
                queries_tokens: bin.queries_tokens,
                hits_tokens: bin.hits_tokens,
                moving_queries_tokens: bin.moving_queries_tokens,
                moving_hits_tokens: bin.moving_hits_tokens,
                finished_requests: bin.finished_requests,
                unfinished_requests: bin.unfinished_requests,
                preemptions: bin.preemptions,
                evictions: bin.evictions,
                running: bin.running,
                waiting: bin.waiting,
                used_blocks: bin.used_blocks,
                peak_used_blocks: bin.peak_used_blocks,
                // Bins before the first step are as the first with one.
                ready_replicas: bin.ready_replicas.or(first_ready),
            })?;
        }
        writer.flush()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_joined_when_the_run_is_long_and_nothing_is_lost() {
        let mut series = Timeseries::new();
        for second in 0..5_000_u64 {
            let at = SimTime(second * FIRST_WIDTH_NS);
            let step = StepRecord { finished_at: at, num_decode_tokens: 3, ..StepRecord::default() };
            let standing = Standing { num_running: second as u32, used_blocks: 89, ..Standing::default() };
            series.on_step(&step, &standing);
            series.on_request(at, true);
        }
        assert_eq!(series.width_s(), 4.0);
        assert_eq!(series.bins().len(), 1_250);
        assert_eq!(series.bins().iter().map(|bin| bin.decode_tokens).sum::<u64>(), 15_000);
        assert_eq!(series.bins().iter().map(|bin| bin.finished_requests).sum::<u64>(), 5_000);
        assert_eq!((series.bins()[1].running, series.bins()[1].used_blocks), (7, 89));
    }

    #[test]
    fn a_bin_that_is_left_alone_counts_once() {
        let mut series = Timeseries::new();
        let decode = |second: u64| StepRecord {
            finished_at: SimTime(second * FIRST_WIDTH_NS),
            num_decode_tokens: 3,
            ..StepRecord::default()
        };
        // Bins 0 to 1,000 are 1,001, and the next step is far away.
        for second in [0, 1_000, 9_000] {
            series.on_step(&decode(second), &Standing::default());
        }
        assert_eq!(series.bins().iter().map(|bin| bin.decode_tokens).sum::<u64>(), 9);
        let coarser = series.coarser();
        assert!(coarser.bins().len() <= MAX_CHART_BINS);
        assert_eq!(coarser.bins().iter().map(|bin| bin.decode_tokens).sum::<u64>(), 9);
    }

    #[test]
    fn a_bin_without_steps_keeps_how_things_stood() {
        let mut series = Timeseries::new();
        let step = StepRecord { num_scheduled_requests: 5, ..StepRecord::default() };
        series.on_step(&step, &Standing { num_running: 5, ..Standing::default() });
        series.on_request(SimTime(2_500_000_000), true);
        let running: Vec<_> = series.bins().iter().map(|bin| (bin.steps, bin.running)).collect();
        assert_eq!(running, [(1, 5), (0, 5), (0, 5)]);
    }
}
