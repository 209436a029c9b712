//! What the recording has told of the requests, so that a frame tells only what has changed.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::super::json::{list, numbers, string};
use super::hashes::{Hashes, Source};
use crate::engine::hash::BlockHash;
use crate::engine::kv_cache::BlockId;
use crate::engine::scheduler::{FinishedRequest, Scheduler};
use crate::engine::{Request, RequestSlot, RequestStatus};
use crate::prompt::{PromptExtras, TokenRuns};
use crate::simulation::RequestRecord;

#[derive(Default)]
struct Told {
    /// All tokens that it will ever have.
    tokens: TokenRuns,
    extras: Option<Box<PromptExtras>>,
    num_hashes: usize,
    counts: Counts,
    /// By group.
    tables: Vec<Vec<BlockId>>,
}

/// Tokens, but for the status.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    status: u8,
    num_tokens: u32,
    num_computed: u32,
    num_in_flight: u32,
}

#[derive(Default)]
pub(super) struct Requests {
    /// Those in the engine.
    told: BTreeMap<u64, Told>,
    num_told: usize,
    /// A row for each: `[id, prompt tokens, max tokens, [token runs], has a salt, adapter or the like]`.
    rows: String,
    /// `id: [session, turn, tenant]`, known at a request's end.
    names: String,
}

impl Requests {
    /// Names the hashes that have been made since the last frame: events `["H", id, [hashes]]`.
    pub fn push_new_hashes(
        &mut self,
        out: &mut Vec<String>,
        finished: &[FinishedRequest],
        hashes: &mut Hashes,
        scheduler: &Scheduler,
    ) {
        for (_, request) in scheduler.requests() {
            self.meet(request);
            self.push_hashes_of(request.id, &request.block_hashes, out, hashes, scheduler);
        }
        for request in finished {
            self.push_hashes_of(request.id, &request.block_hashes, out, hashes, scheduler);
        }
    }

    fn meet(&mut self, request: &Request) {
        if self.told.contains_key(&request.id) {
            return;
        }
        let mut tokens = TokenRuns::new();
        request
            .all_token_ids
            .slice(0, request.num_prompt_tokens)
            .for_each(|run| tokens.push_run(run.start, run.len));
        let rows = &mut self.rows;
        if self.num_told > 0 {
            rows.push_str(",\n");
        }
        self.num_told += 1;
        let _ = write!(rows, "[{},{},{},", request.id, request.num_prompt_tokens, request.max_tokens);
        list(rows, tokens.runs(), |rows, run| {
            let _ = write!(rows, "[\"{}\",{}]", run.start, run.len);
        });
        rows.push(']');
        if let Some(output) = &request.known_output {
            tokens.extend(output);
        }
        let extras = request.extras.clone();
        self.told.insert(request.id, Told { tokens, extras, ..Told::default() });
    }

    fn push_hashes_of(
        &mut self,
        id: u64,
        block_hashes: &[BlockHash],
        out: &mut Vec<String>,
        hashes: &mut Hashes,
        scheduler: &Scheduler,
    ) {
        let Some(told) = self.told.get_mut(&id).filter(|told| told.num_hashes < block_hashes.len()) else {
            return;
        };
        let source = Source {
            tokens: &told.tokens,
            extras: told.extras.as_deref(),
            hash_block_size: scheduler.kv_cache_manager().block_pool().hash_block_size(),
            num_lookahead_tokens: scheduler.config().num_hash_lookahead_tokens(),
        };
        let new = (told.num_hashes..).zip(&block_hashes[told.num_hashes..]).map(|(index, &hash)| {
            let parent = index.checked_sub(1).map(|before| block_hashes[before]);
            hashes.name(hash, parent, index, &source, scheduler)
        });
        let mut event = format!("[\"H\",{id},");
        numbers(&mut event, new);
        event.push(']');
        told.num_hashes = block_hashes.len();
        out.push(event);
    }

    /// `"r"`: counts that have changed, `"t"`: tables as `[id, group, blocks that stay, [new ones]]`.
    pub fn push_changes(&mut self, frame: &mut String, finished: &[FinishedRequest], scheduler: &Scheduler) {
        let live: BTreeMap<u64, (RequestSlot, &Request)> =
            scheduler.requests().map(|(slot, request)| (request.id, (slot, request))).collect();
        let (mut counts, mut tables) = (Vec::new(), Vec::new());
        let manager = scheduler.kv_cache_manager();
        for (id, &(slot, request)) in &live {
            let Some(told) = self.told.get_mut(id) else { continue };
            told.tables.resize_with(manager.num_groups(), Vec::new);
            let now = Counts {
                status: status_code(request.status),
                num_tokens: request.num_tokens(),
                num_computed: request.num_computed_tokens,
                num_in_flight: request.num_in_flight_tokens,
            };
            if now != told.counts {
                told.counts = now;
                counts.push((*id, now));
            }
            for (group, table) in told.tables.iter_mut().enumerate() {
                let blocks = manager.get_blocks(slot, group);
                let keep = table.iter().zip(blocks).take_while(|(a, b)| a == b).count();
                if keep < table.len() || keep < blocks.len() {
                    tables.push((*id, group, keep, blocks[keep..].to_vec()));
                    table.truncate(keep);
                    table.extend_from_slice(&blocks[keep..]);
                }
            }
        }
        for request in finished.iter().filter(|request| !live.contains_key(&request.id)) {
            self.told.remove(&request.id);
            let now = Counts {
                status: status_code(request.status),
                num_tokens: request.num_tokens,
                num_computed: request.num_computed_tokens,
                num_in_flight: 0,
            };
            counts.push((request.id, now));
        }
        if !counts.is_empty() {
            frame.push_str(",\"r\":");
            list(frame, counts, |frame, (id, counts)| {
                let Counts { status, num_tokens, num_computed, num_in_flight } = counts;
                let _ = write!(frame, "[{id},{status},{num_tokens},{num_computed},{num_in_flight}]");
            });
        }
        if !tables.is_empty() {
            frame.push_str(",\"t\":");
            list(frame, tables, |frame, (id, group, keep, blocks)| {
                let _ = write!(frame, "[{id},{group},{keep},");
                numbers(frame, blocks.iter().map(|block| block.0));
                frame.push(']');
            });
        }
    }

    pub fn name(&mut self, request: &RequestRecord, tenants: &[String]) {
        let names = &mut self.names;
        if !names.is_empty() {
            names.push(',');
        }
        let _ = write!(names, "\"{}\":[", request.index);
        match request.session {
            Some(session) => {
                let _ = write!(names, "\"{session}\"");
            }
            None => names.push_str("null"),
        }
        let _ = write!(names, ",{},", request.turn);
        string(names, tenants.get(request.tenant as usize).map_or("", String::as_str));
        names.push(']');
    }

    pub fn rows(&self) -> &str {
        &self.rows
    }

    pub fn names(&self) -> &str {
        &self.names
    }
}

/// The place in the page's list of statuses.
const fn status_code(status: RequestStatus) -> u8 {
    match status {
        RequestStatus::Waiting => 0,
        RequestStatus::WaitingForRemoteKvs => 1,
        RequestStatus::Running => 2,
        RequestStatus::Preempted => 3,
        RequestStatus::FinishedStopped => 4,
        RequestStatus::FinishedLengthCapped => 5,
        RequestStatus::FinishedAborted => 6,
        RequestStatus::FinishedError => 7,
    }
}
