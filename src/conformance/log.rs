//! The decision log: one line for each schedule, update and action (format 1, section 5).

use std::fmt::Write;

use sha2::{Digest, Sha256};

use super::digests::PoolDigests;
use crate::engine::connector::{KvConnectorOutput, PullRead};
use crate::engine::kv_cache::BlockId;
use crate::engine::prefix_cache_stats::{CachingMetrics, PrefixCacheStats};
use crate::engine::scheduler::{
    EngineCoreOutputs, FinishedRequest, ScheduledKind, Scheduler, SchedulerOutput,
};
use crate::engine::{FinishReason, Request, RequestStatus};
use crate::report::json::{list, number, numbers, option, string};
use crate::report::kv_event_json::{hex, push_event};

/// Writes the lines of one run.
pub(super) struct LogWriter<'a> {
    /// Ids by rank.
    names: &'a [String],
    use_int_block_hashes: bool,
    full_every: Option<u64>,
    digests: PoolDigests,
    line: String,
    num_lines: u64,
    log: String,
}

/// Sums for the last line.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub steps: u64,
    pub schedules: u64,
    pub unfinished: usize,
    pub scheduled_tokens: u64,
    pub preemptions: u64,
    pub stats: PrefixCacheStats,
}

impl<'a> LogWriter<'a> {
    pub fn new(
        names: &'a [String],
        use_int_block_hashes: bool,
        full_every: Option<u64>,
        digests: PoolDigests,
    ) -> Self {
        Self {
            names,
            use_int_block_hashes,
            full_every,
            digests,
            line: String::new(),
            num_lines: 0,
            log: String::new(),
        }
    }

    pub fn into_log(self) -> String {
        self.log
    }

    /// Ends the first or the last line, which is always whole.
    fn end_whole_line(&mut self) {
        self.log.push_str(&self.line);
        self.log.push('\n');
        self.num_lines += 1;
        self.line.clear();
    }

    /// Ends a line between; in digest form, that is its digest, after the line itself when it is due.
    fn end_line(&mut self) {
        let Some(every) = self.full_every else { return self.end_whole_line() };
        let digest = Sha256::digest(self.line.as_bytes());
        if self.num_lines.is_multiple_of(every) {
            self.log.push_str(&self.line);
            self.log.push('\n');
        }
        self.log.push_str("{\"d\":\"");
        for byte in &digest[..8] {
            number(&mut self.log, format_args!("{byte:02x}"));
        }
        self.log.push_str("\"}\n");
        self.num_lines += 1;
        self.line.clear();
    }

    pub fn start(&mut self, name: &str, scheduler: &Scheduler, none_hash: Option<String>) {
        let config = scheduler.config();
        let (scheduler_block_size, hash_block_size) = config.resolve_kv_cache_block_sizes();
        let line = &mut self.line;
        line.push_str("{\"kind\":\"start\",\"format\":1,\"name\":");
        string(line, name);
        let _ = write!(
            line,
            ",\"scheduler_block_size\":{scheduler_block_size},\"hash_block_size\":{hash_block_size},\
             \"num_lookahead_tokens\":{},\"num_hash_lookahead_tokens\":{},\"max_concurrent_batches\":{},\
             \"none_hash\":",
            config.num_lookahead_tokens(),
            config.num_hash_lookahead_tokens(),
            config.max_concurrent_batches(),
        );
        option(line, none_hash, |line, hash| string(line, &hash));
        let class = if config.async_scheduling { "AsyncScheduler" } else { "Scheduler" };
        let _ = write!(line, ",\"scheduler\":\"{class}\"}}");
        self.end_whole_line();
    }

    /// `reads` are what a pull connector has planned.
    pub fn schedule(
        &mut self,
        step: u64,
        index: u64,
        output: &SchedulerOutput,
        reads: Option<&[PullRead]>,
        scheduler: &mut Scheduler,
    ) {
        let names = self.names;
        let line = &mut self.line;
        let _ = write!(
            line,
            "{{\"step\":{step},\"kind\":\"schedule\",\"schedule\":{index},\"total_tokens\":{},\"scheduled\":",
            output.total_num_scheduled_tokens
        );
        let manager = scheduler.kv_cache_manager();
        let groups = 0..manager.num_groups();
        let has_drafts = scheduler.config().speculative.is_some();
        list(line, &output.scheduled, |line, entry| {
            line.push_str("{\"id\":");
            string(line, &names[entry.id as usize]);
            let kind = match entry.kind {
                ScheduledKind::New => "new",
                ScheduledKind::Resumed => "resumed",
                ScheduledKind::Running => "running",
            };
            let _ = write!(
                line,
                ",\"kind\":\"{kind}\",\"num_tokens\":{},\"num_computed\":{},\"blocks\":",
                entry.num_tokens, entry.num_computed_tokens
            );
            let blocks = |group| match entry.kind {
                ScheduledKind::Running => output.new_blocks(entry, group),
                _ => manager.get_blocks(entry.slot, group),
            };
            let none_new =
                entry.kind == ScheduledKind::Running && groups.clone().all(|group| blocks(group).is_empty());
            option(line, (!none_new).then_some(groups.clone()), |line, groups| {
                list(line, groups, |line, group| numbers(line, ids(blocks(group))));
            });
            if has_drafts {
                let _ = write!(line, ",\"num_draft\":{}", entry.num_draft_tokens);
            }
            line.push('}');
        });
        line.push_str(",\"preempted\":");
        list(line, &output.preempted, |line, &id| string(line, &names[id as usize]));
        line.push_str(",\"finished_ids\":");
        let mut finished = output.finished.clone();
        finished.sort_unstable();
        list(line, &finished, |line, &id| string(line, &names[id as usize]));
        if !output.block_copies.is_empty() {
            line.push_str(",\"block_copies\":");
            list(line, &output.block_copies, |line, &(source, copy)| numbers(line, [source.0, copy.0]));
        }
        if let Some(reads) = reads {
            line.push_str(",\"reads\":");
            list(line, reads, |line, read| {
                line.push('[');
                string(line, &names[read.request as usize]);
                let _ = write!(line, ",{},{}]", read.num_blocks, read.is_awaited);
            });
        }
        self.state(scheduler);
        self.end_line();
    }

    pub fn update(
        &mut self,
        step: u64,
        index: u64,
        outputs: &EngineCoreOutputs,
        kv: Option<&KvConnectorOutput>,
        window: &CachingMetrics,
        scheduler: &mut Scheduler,
    ) {
        let names = self.names;
        let name = |line: &mut String, id: u64| string(line, &names[id as usize]);
        let as_int = self.use_int_block_hashes;
        let line = &mut self.line;
        let _ = write!(line, "{{\"step\":{step},\"kind\":\"update\",\"schedule\":{index},\"outputs\":");
        list(line, &outputs.outputs, |line, output| {
            line.push_str("{\"id\":");
            name(line, output.id);
            line.push_str(",\"tokens\":");
            numbers(line, outputs.tokens(output));
            line.push_str(",\"finish\":");
            option(line, output.finish_reason, |line, reason| string(line, finish_name(reason)));
            if let Some(stats) = output.prefill_stats {
                line.push_str(",\"prefill\":");
                numbers(
                    line,
                    [
                        stats.num_prompt_tokens,
                        stats.num_local_cached_tokens,
                        stats.num_external_cached_tokens,
                        stats.num_cache_creation_tokens,
                    ],
                );
            }
            line.push('}');
        });
        line.push_str(",\"finished\":");
        finished_list(line, &outputs.finished, names, scheduler);
        line.push_str(",\"events\":");
        list(line, &outputs.events, |line, event| push_event(line, event, scheduler, as_int));
        line.push_str(",\"stats\":");
        stats_list(line, &outputs.prefix_cache_stats);
        line.push_str(",\"window\":");
        numbers(
            line,
            [window.aggregated_requests, window.aggregated_query_total, window.aggregated_query_hit],
        );
        let counts = scheduler.request_counts();
        line.push_str(",\"counts\":");
        numbers(line, [counts.running, counts.waiting, counts.skipped_waiting]);
        if kv.is_some() {
            line.push_str(",\"connector_stats\":");
            stats_list(line, &outputs.connector_prefix_cache_stats);
        }
        if scheduler.config().speculative.is_some() {
            line.push_str(",\"spec_stats\":");
            option(line, outputs.spec_decoding_stats, |line, stats| {
                numbers(line, [stats.num_drafts, stats.num_draft_tokens, stats.num_accepted_tokens]);
            });
        }
        if let Some(kv) = kv.filter(|kv| !kv.is_empty()) {
            line.push_str(",\"kv\":{\"finished_recving\":");
            list(line, &kv.finished_recving, |line, &id| name(line, id));
            line.push_str(",\"finished_sending\":");
            list(line, &kv.finished_sending, |line, &id| name(line, id));
            line.push_str(",\"invalid_block_ids\":");
            numbers(line, ids(&kv.invalid_block_ids));
            line.push_str(",\"failed_recving\":");
            list(line, &kv.failed_recving, |line, &id| name(line, id));
            line.push('}');
        }
        self.state(scheduler);
        self.end_line();
    }

    pub fn reset(
        &mut self,
        step: u64,
        reset_running_requests: bool,
        ok: bool,
        preempted: &[u64],
        scheduler: &mut Scheduler,
    ) {
        let names = self.names;
        let _ = write!(
            self.line,
            "{{\"step\":{step},\"kind\":\"action\",\"action\":\"reset_prefix_cache\",\
             \"reset_running_requests\":{reset_running_requests},\"ok\":{ok},\"preempted\":"
        );
        list(&mut self.line, preempted, |line, &id| string(line, &names[id as usize]));
        self.state(scheduler);
        self.end_line();
    }

    pub fn abort(&mut self, step: u64, id: &str, finished: &[FinishedRequest], scheduler: &mut Scheduler) {
        let _ = write!(self.line, "{{\"step\":{step},\"kind\":\"action\",\"action\":\"abort\",\"id\":");
        string(&mut self.line, id);
        self.line.push_str(",\"finished\":");
        finished_list(&mut self.line, finished, self.names, scheduler);
        self.state(scheduler);
        self.end_line();
    }

    pub fn end(&mut self, totals: &Totals) {
        let stats = &totals.stats;
        let _ = write!(
            self.line,
            "{{\"kind\":\"end\",\"steps\":{},\"schedules\":{},\"unfinished\":{},\"scheduled_tokens\":{},\
             \"preemptions\":{},\"totals\":",
            totals.steps, totals.schedules, totals.unfinished, totals.scheduled_tokens, totals.preemptions
        );
        numbers(
            &mut self.line,
            [
                stats.requests,
                stats.queries,
                stats.hits,
                stats.preempted_requests,
                stats.preempted_queries,
                stats.preempted_hits,
            ],
        );
        self.line.push('}');
        self.end_whole_line();
    }

    /// The state after what the line tells.
    fn state(&mut self, scheduler: &mut Scheduler) {
        let names = self.names;
        let line = &mut self.line;
        let name = |line: &mut String, request: &Request| string(line, &names[request.id as usize]);
        line.push_str(",\"running\":");
        list(line, scheduler.running(), name);
        line.push_str(",\"waiting\":");
        list(line, scheduler.waiting(), name);
        line.push_str(",\"holding\":");
        list(line, scheduler.kv_holding_waiting(), name);
        self.digests.update(scheduler);
        let pool = scheduler.kv_cache_manager().block_pool();
        let _ = write!(line, ",\"free\":{},\"free_head\":", pool.get_num_free_blocks());
        numbers(line, pool.free_blocks_in_order().take(8).map(|block| block.0));
        let _ = write!(
            line,
            ",\"free_digest\":\"{:016x}\",\"hashes\":{},\"cached\":{},\"cached_digest\":\"{:016x}\"}}",
            self.digests.free(),
            pool.num_cached_hashes(),
            pool.num_cached_pairs(),
            self.digests.cached(),
        );
    }
}

fn ids(blocks: &[BlockId]) -> impl Iterator<Item = u32> + '_ {
    blocks.iter().map(|block| block.0)
}

const fn finish_name(reason: FinishReason) -> &'static str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::Length => "length",
        FinishReason::Abort => "abort",
        FinishReason::Error => "error",
    }
}

const fn status_name(status: RequestStatus) -> &'static str {
    match status {
        RequestStatus::Waiting => "WAITING",
        RequestStatus::WaitingForRemoteKvs => "WAITING_FOR_REMOTE_KVS",
        RequestStatus::Running => "RUNNING",
        RequestStatus::Preempted => "PREEMPTED",
        RequestStatus::FinishedStopped => "FINISHED_STOPPED",
        RequestStatus::FinishedLengthCapped => "FINISHED_LENGTH_CAPPED",
        RequestStatus::FinishedAborted => "FINISHED_ABORTED",
        RequestStatus::FinishedError => "FINISHED_ERROR",
    }
}

fn stats_list(line: &mut String, stats: &PrefixCacheStats) {
    numbers(
        line,
        [
            u64::from(stats.reset),
            stats.requests,
            stats.queries,
            stats.hits,
            stats.preempted_requests,
            stats.preempted_queries,
            stats.preempted_hits,
        ],
    );
}

fn finished_list(line: &mut String, finished: &[FinishedRequest], names: &[String], scheduler: &Scheduler) {
    list(line, finished, |line, request| {
        line.push_str("{\"id\":");
        string(line, &names[request.id as usize]);
        let _ = write!(
            line,
            ",\"status\":\"{}\",\"num_tokens\":{},\"num_output_tokens\":{},\"num_computed_tokens\":{},\
             \"num_preemptions\":{},\"num_hashes\":{},\"hashes\":",
            status_name(request.status),
            request.num_tokens,
            request.num_output_tokens(),
            request.num_computed_tokens,
            request.num_preemptions,
            request.block_hashes.len(),
        );
        list(line, request.block_hashes.iter().take(4), |line, &hash| hex(line, hash, scheduler));
        line.push_str(",\"last_hash\":");
        option(line, request.block_hashes.last(), |line, &hash| hex(line, hash, scheduler));
        line.push('}');
    });
}
