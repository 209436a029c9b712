//! Follows the engine and writes a frame for each of its calls.
//!
//! A frame has what happened, in the words of the journal, and what has changed in the requests since
//! the frame before. The pool's state is not repeated: whoever applies the entries to the state at the
//! begin has it, and `"x"` tells whether rightly.

use std::fmt::Write;

use super::ExploreOptions;
use super::hashes::Hashes;
use super::requests::Requests;
use crate::engine::FinishReason;
use crate::engine::kv_cache::{BlockId, JournalEntry};
use crate::engine::scheduler::{FinishedRequest, ScheduledKind, Scheduler};
use crate::report::json::{list, numbers, option, string};
use crate::report::kv_event_json::push_event;
use crate::simulation::{EngineCall, RequestRecord};
use crate::units::SimTime;

/// A page with more is slow to open.
const MAX_BYTES: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Before,
    Recording,
    /// The window has ended.
    Done,
    /// [`MAX_BYTES`] were reached.
    Full,
}

pub(in crate::report) struct Recorder {
    options: ExploreOptions,
    stage: Stage,
    /// What does not change, and the state at the begin.
    head: String,
    frames: String,
    hashes: Hashes,
    requests: Requests,
    queues: [Vec<u64>; 2],
    /// Steps planned while it recorded.
    num_steps: u64,
}

impl Recorder {
    /// Before the first call of the replica's engine.
    pub fn new(options: ExploreOptions, scheduler: &Scheduler) -> Self {
        let mut new = Self {
            options,
            stage: Stage::Before,
            head: String::new(),
            frames: String::new(),
            hashes: Hashes::default(),
            requests: Requests::default(),
            queues: [Vec::new(), Vec::new()],
            num_steps: 0,
        };
        if new.options.steps.start == 0 {
            new.start(scheduler);
        }
        new
    }

    pub fn on_engine_call(
        &mut self,
        replica: u32,
        at: SimTime,
        call: EngineCall<'_>,
        journal: &[JournalEntry],
        scheduler: &Scheduler,
    ) {
        if replica != self.options.replica {
            return;
        }
        match self.stage {
            Stage::Before => {
                let before = |index| index + 1 >= self.options.steps.start;
                if matches!(call, EngineCall::Schedule { record, .. } if before(record.index)) {
                    self.start(scheduler);
                }
            }
            Stage::Recording => {
                if let EngineCall::Schedule { record, .. } = call {
                    if record.index >= self.options.steps.end {
                        self.stage = Stage::Done;
                        return;
                    }
                    self.num_steps += 1;
                }
                self.push_frame(at, call, journal, scheduler);
                if self.frames.len() > MAX_BYTES {
                    self.stage = Stage::Full;
                }
            }
            Stage::Done | Stage::Full => {}
        }
    }

    /// Its server is gone, and what starts in its place has another pool.
    pub fn on_off(&mut self, replica: u32) {
        if replica == self.options.replica && self.stage == Stage::Recording && self.num_steps > 0 {
            self.stage = Stage::Done;
        }
    }

    pub fn on_request(&mut self, request: &RequestRecord, tenants: &[String]) {
        if self.stage != Stage::Before && request.replica == self.options.replica {
            self.requests.name(request, tenants);
        }
    }

    pub fn first_step(&self) -> u64 {
        self.options.steps.start
    }

    pub fn num_steps(&self) -> u64 {
        self.num_steps
    }

    /// The run reached the first step that was asked for.
    pub fn has_begun(&self) -> bool {
        self.stage != Stage::Before
    }

    /// The recording ends before the window does, for its size.
    pub fn is_cut(&self) -> bool {
        self.stage == Stage::Full
    }

    /// The recording as one JSON object.
    pub fn json(&self, name: &str) -> String {
        let mut json = String::from("{\"name\":");
        string(&mut json, name);
        let _ = write!(
            json,
            ",\"steps\":[{},{}],\"cut\":{}{},\n\"hashes\":[\n{}],\n\"requests\":[\n{}],\n\"names\":{{{}}},\n\
             \"frames\":[\n{}]}}",
            self.options.steps.start,
            self.options.steps.start + self.num_steps,
            self.is_cut(),
            self.head,
            self.hashes.rows(),
            self.requests.rows(),
            self.requests.names(),
            self.frames,
        );
        json
    }

    /// Tells what there is, and records from the next call on.
    fn start(&mut self, scheduler: &Scheduler) {
        self.stage = Stage::Recording;
        let config = scheduler.config();
        let manager = scheduler.kv_cache_manager();
        let pool = manager.block_pool();
        let head = &mut self.head;
        let _ = write!(
            head,
            ",\"num_blocks\":{},\"hash_block_size\":{},\"caching\":{},\"algo\":\"{}\",\"async\":{},\
             \"max_num_batched_tokens\":{},\"max_num_seqs\":{},\"groups\":",
            pool.num_gpu_blocks(),
            pool.hash_block_size(),
            pool.enable_caching(),
            config.prefix_caching_hash_algo,
            config.async_scheduling,
            config.max_num_batched_tokens,
            config.max_num_seqs,
        );
        list(head, manager.group_block_sizes().zip(&config.kv_cache_groups), |head, (size, spec)| {
            let _ = write!(head, "[\"{}\",{size}]", spec.kind());
        });
        // The free queue from the head on, as runs of ids in a row.
        head.push_str(",\"begin\":{\"free\":");
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for BlockId(block) in pool.free_blocks_in_order() {
            match runs.last_mut() {
                Some((start, len)) if *start + *len == block => *len += 1,
                _ => runs.push((block, 1)),
            }
        }
        list(head, runs, |head, (start, len)| numbers(head, [start, len]));
        head.push_str(",\"refs\":");
        let blocks = || (1..pool.num_gpu_blocks()).map(BlockId);
        let held = blocks().map(|block| (block.0, pool.ref_cnt(block))).filter(|&(_, count)| count > 0);
        list(head, held, |head, (block, count)| numbers(head, [block, count]));
        head.push_str(",\"hashes\":");
        let pairs = blocks().flat_map(|block| pool.block_hashes(block).map(move |key| (block, key)));
        let hashes = &mut self.hashes;
        let mut events = Vec::new();
        self.requests.push_new_hashes(&mut events, &[], hashes, scheduler);
        list(head, pairs, |head, (block, key)| {
            numbers(head, [block.0, hashes.number(key.hash, scheduler), key.group_id]);
        });
        // The requests that are there already, as a frame tells of them.
        head.push_str(",\"e\":");
        list(head, events, |head, event| head.push_str(&event));
        self.requests.push_changes(head, &[], scheduler);
        push_queues(head, &mut self.queues, scheduler);
        head.push('}');
    }

    fn push_frame(
        &mut self,
        at: SimTime,
        call: EngineCall<'_>,
        journal: &[JournalEntry],
        scheduler: &Scheduler,
    ) {
        let finished: &[FinishedRequest] = match call {
            EngineCall::UpdateFromOutput { outputs, .. } => &outputs.finished,
            EngineCall::Abort { finished } => finished,
            _ => &[],
        };
        let mut events = Vec::new();
        self.requests.push_new_hashes(&mut events, finished, &mut self.hashes, scheduler);
        push_journal(&mut events, journal, &mut self.hashes, scheduler);
        let has_work = match call {
            EngineCall::Schedule { output, .. } => output.total_num_scheduled_tokens > 0,
            EngineCall::UpdateFromOutput { record, outputs } => {
                record.num_scheduled_requests > 0 || !outputs.events.is_empty()
            }
            _ => true,
        };
        if events.is_empty() && !has_work {
            return;
        }
        let frame = &mut self.frames;
        if !frame.is_empty() {
            frame.push_str(",\n");
        }
        let _ = write!(frame, "{{\"at\":{},", at.as_ns());
        push_call(frame, call, scheduler);
        frame.push_str(",\"e\":");
        list(frame, events, |frame, event| frame.push_str(&event));
        self.requests.push_changes(frame, finished, scheduler);
        push_queues(frame, &mut self.queues, scheduler);
        push_check(frame, scheduler);
        frame.push('}');
    }
}

fn push_call(frame: &mut String, call: EngineCall<'_>, scheduler: &Scheduler) {
    match call {
        EngineCall::AddRequest { id, .. } => {
            let _ = write!(frame, "\"k\":\"add\",\"id\":{id}");
        }
        EngineCall::Schedule { record, output } => {
            let _ = write!(frame, "\"k\":\"schedule\",\"n\":{},\"s\":", record.index);
            list(frame, &output.scheduled, |frame, entry| {
                let kind = match entry.kind {
                    ScheduledKind::New => 0,
                    ScheduledKind::Resumed => 1,
                    ScheduledKind::Running => 2,
                };
                let _ =
                    write!(frame, "[{},{kind},{},{}]", entry.id, entry.num_tokens, entry.num_computed_tokens);
            });
            let _ = write!(frame, ",\"gpu\":[{},{}]", record.started_at.as_ns(), record.gpu_ns);
        }
        EngineCall::UpdateFromOutput { record, outputs } => {
            let _ = write!(frame, "\"k\":\"update\",\"n\":{},\"o\":", record.index);
            list(frame, &outputs.outputs, |frame, output| {
                let _ = write!(frame, "[{},{},", output.id, outputs.tokens(output).len());
                let reason = output.finish_reason.map(|reason| match reason {
                    FinishReason::Stop => "stop",
                    FinishReason::Length => "length",
                    FinishReason::Abort => "abort",
                    FinishReason::Error => "error",
                });
                option(frame, reason, string);
                frame.push(']');
            });
            if !outputs.events.is_empty() {
                frame.push_str(",\"v\":");
                list(frame, &outputs.events, |frame, event| push_event(frame, event, scheduler, false));
            }
        }
        EngineCall::Abort { finished } => {
            frame.push_str("\"k\":\"abort\",\"ids\":");
            numbers(frame, finished.iter().map(|request| request.id));
        }
        EngineCall::ResetPrefixCache { done, preempted } => {
            let _ = write!(frame, "\"k\":\"reset\",\"done\":{done},\"ids\":");
            numbers(frame, preempted);
        }
    }
}

/// Entries as `[code, ...]`; hits stand with their lookup.
fn push_journal(out: &mut Vec<String>, journal: &[JournalEntry], hashes: &mut Hashes, scheduler: &Scheduler) {
    let mut journal = journal.iter().peekable();
    while let Some(&entry) = journal.next() {
        out.push(match entry {
            JournalEntry::Lookup { request, num_blocks, hit_tokens } => {
                let mut event = format!("[\"L\",{request},{num_blocks},{hit_tokens},");
                let hits = std::iter::from_fn(|| {
                    journal.next_if(|entry| matches!(entry, JournalEntry::Hit(_))).map(|entry| match entry {
                        JournalEntry::Hit(block) => block.0,
                        _ => 0,
                    })
                });
                numbers(&mut event, hits);
                event + "]"
            }
            // A lookup took it.
            JournalEntry::Hit(_) => continue,
            JournalEntry::Refuse { request, required_blocks, free_blocks } => {
                format!("[\"R\",{request},{required_blocks},{free_blocks}]")
            }
            JournalEntry::Allocate { request } => format!("[\"A\",{request}]"),
            JournalEntry::Touch(block) => format!("[\"T\",{}]", block.0),
            JournalEntry::PopLeft(block) => format!("[\"P\",{}]", block.0),
            JournalEntry::CacheFullBlocks { request, group_id, first, end } => {
                format!("[\"C\",{request},{group_id},{first},{end}]")
            }
            JournalEntry::Insert { hash, group_id, block } => {
                format!("[\"I\",{},{},{group_id}]", block.0, hashes.number(hash, scheduler))
            }
            JournalEntry::Erase { hash, group_id, block } => {
                format!("[\"E\",{},{},{group_id}]", block.0, hashes.number(hash, scheduler))
            }
            JournalEntry::Preempt { request } => format!("[\"X\",{request}]"),
            JournalEntry::Free { request } => format!("[\"F\",{request}]"),
            JournalEntry::Release(block) => format!("[\"r\",{}]", block.0),
            JournalEntry::Remove(block) => format!("[\"-\",{}]", block.0),
            JournalEntry::Prepend(block) => format!("[\"f\",{}]", block.0),
            JournalEntry::Append(block) => format!("[\"b\",{}]", block.0),
            JournalEntry::Clear => "[\"0\"]".to_owned(),
        });
    }
}

/// `"q"`: the ids that run and that wait, if they have changed.
fn push_queues(frame: &mut String, told: &mut [Vec<u64>; 2], scheduler: &Scheduler) {
    let running = scheduler.running().map(|request| request.id).collect();
    let waiting = scheduler.kv_holding_waiting().chain(scheduler.waiting());
    let now = [running, waiting.map(|request| request.id).collect()];
    if now != *told {
        frame.push_str(",\"q\":");
        list(frame, &now, numbers);
        *told = now;
    }
}

/// `"x"`: free blocks, hashes, (hash, block) pairs and the head of the free queue.
fn push_check(frame: &mut String, scheduler: &Scheduler) {
    let pool = scheduler.kv_cache_manager().block_pool();
    let _ = write!(
        frame,
        ",\"x\":[{},{},{},",
        pool.get_num_free_blocks(),
        pool.num_cached_hashes(),
        pool.num_cached_pairs()
    );
    numbers(frame, pool.free_blocks_in_order().take(8).map(|block| block.0));
    frame.push(']');
}
