//! More users of the same kind: sessions are multiplied, each with tokens of its own.
//!
//! What several sessions of the trace share (system prompts, documents, popular questions) stays shared
//! with the copies too, since more users would share it as well. What only one session has gets new
//! token ids in each copy of it, so that copies find nothing of each other's. Which is which is told by
//! the prompts: the part in front that requests of another session have too, in whole hash ids of the
//! trace, or pieces of 16 tokens.
//!
//! A copy starts when another session of the trace starts, drawn from those after which there is time
//! enough for it; so the rate keeps its shape and the trace its length.

use std::collections::BTreeMap;

use rand::RngExt;
use rustc_hash::FxHashSet;

use super::sample::shuffled;
use super::{SessionFinder, TraceError};
use crate::prompt::TokenRuns;
use crate::reuse::BlockChains;
use crate::units::SimTime;
use crate::workload::rng;
use crate::workload::trace::{FIRST_UNKNOWN_TOKEN, TraceReader, TraceRequest, TraceTokens};

const PIECE_TOKENS: u32 = 16;

/// A trace in memory, to be multiplied.
pub struct Population {
    requests: Vec<TraceRequest>,
    session_of: Vec<u32>,
    sessions: Vec<Span>,
    /// The tokens in front of each request that other sessions have too.
    shared_tokens: Vec<u32>,
    ids: IdRanges,
    num_estimated: u32,
}

/// When the requests of a session are sent.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    first: SimTime,
    last: SimTime,
}

impl Population {
    /// Reads a trace to its end.
    ///
    /// # Errors
    /// A row that cannot be read, or too many distinct prompts.
    pub fn read(reader: &mut dyn TraceReader) -> Result<Self, TraceError> {
        let mut finder = SessionFinder::default();
        let mut population = Self {
            requests: Vec::new(),
            session_of: Vec::new(),
            sessions: Vec::new(),
            shared_tokens: Vec::new(),
            ids: IdRanges::default(),
            num_estimated: 0,
        };
        let mut now = SimTime::ZERO;
        while let Some(request) = reader.next_request()? {
            let session = finder.session_of(&request, reader.hash_id_tokens())?;
            now = request.at.unwrap_or(now);
            if session as usize == population.sessions.len() {
                population.sessions.push(Span { first: now, last: now });
            }
            population.sessions[session as usize].last = now;
            population.session_of.push(session);
            population.requests.push(request);
        }
        population.num_estimated = finder.num_estimated();
        let piece_tokens = reader.hash_id_tokens().unwrap_or(PIECE_TOKENS);
        population.find_shared(piece_tokens)?;
        population.ids = IdRanges::of(&population.requests, &population.shared_tokens, piece_tokens);
        Ok(population)
    }

    pub fn num_sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Sessions that the trace does not tell.
    pub fn num_estimated(&self) -> usize {
        self.num_estimated as usize
    }

    /// Prompt tokens that stay shared with copies, of all.
    pub fn shared_prompt_tokens(&self) -> (u64, u64) {
        self.requests.iter().zip(&self.shared_tokens).fold((0, 0), |(shared, all), (request, &tokens)| {
            let prompt = request.prompt.len();
            (shared + u64::from(tokens.min(prompt)), all + u64::from(prompt))
        })
    }

    fn find_shared(&mut self, piece_tokens: u32) -> Result<(), TraceError> {
        const NOBODY: u32 = u32::MAX;
        const SEVERAL: u32 = u32::MAX - 1;
        let mut chains = BlockChains::new(piece_tokens);
        let mut owners = Vec::new();
        for (request, &session) in self.requests.iter().zip(&self.session_of) {
            for block in chains.of(&known_tokens(request), &request.extras)? {
                let index = block.0 as usize;
                if index >= owners.len() {
                    owners.resize(index + 1, NOBODY);
                }
                let owner = &mut owners[index];
                *owner = if *owner == NOBODY || *owner == session { session } else { SEVERAL };
            }
        }
        for request in &self.requests {
            let chain = chains.of(&known_tokens(request), &request.extras)?;
            let shared = chain.iter().take_while(|block| owners[block.0 as usize] == SEVERAL).count();
            self.shared_tokens.push(shared as u32 * piece_tokens);
        }
        Ok(())
    }

    /// The requests of `factor` times as many sessions, in order of time: all sessions so many whole
    /// times, and of the rest a random choice.
    ///
    /// # Errors
    /// Token ids would become too large.
    pub fn multiply(&self, factor: f64, seed: u64) -> Result<Vec<TraceRequest>, TraceError> {
        let copies = self.copies(factor, seed);
        let num_layers = copies.iter().map(|&(_, layer, _)| layer).max().unwrap_or(0);
        self.ids.check(num_layers)?;
        let used: FxHashSet<u64> = self.requests.iter().filter_map(|request| request.session).collect();
        let mut free_ids = (0..).filter(|id| !used.contains(id));
        let mut requests_of: Vec<Vec<usize>> = vec![Vec::new(); self.sessions.len()];
        for (index, &session) in self.session_of.iter().enumerate() {
            requests_of[session as usize].push(index);
        }
        let mut rows = Vec::new();
        for (session, layer, start) in copies {
            let id = if layer == 0 { None } else { free_ids.next() };
            let first = self.sessions[session].first;
            let mut now = start;
            for &index in &requests_of[session] {
                let mut request = self.requests[index].clone();
                request.at = request.at.map(|at| start + at.since(first));
                now = request.at.unwrap_or(now);
                if layer > 0 {
                    request.session = request.session.and(id);
                    self.rename(&mut request, self.shared_tokens[index], layer);
                }
                rows.push((now, layer, index, request));
            }
        }
        rows.sort_unstable_by_key(|&(at, layer, index, _)| (at, layer, index));
        Ok(rows.into_iter().map(|(.., request)| request).collect())
    }

    /// Sessions, how often they were there before, and when they start.
    fn copies(&self, factor: f64, seed: u64) -> Vec<(usize, u64, SimTime)> {
        let num_sessions = self.sessions.len();
        let total = (factor * num_sessions as f64).round() as usize;
        let order = shuffled(num_sessions, seed, "trace population");
        let end = self.sessions.iter().map(|span| span.last).max().unwrap_or_default();
        let mut starts: Vec<SimTime> = self.sessions.iter().map(|span| span.first).collect();
        starts.sort_unstable();
        let mut rng = rng::stream(seed, "trace population starts", 0);
        (0..total)
            .map(|copy| {
                let (session, layer) = (order[copy % num_sessions], (copy / num_sessions) as u64);
                let span = self.sessions[session];
                let latest = SimTime(end.as_ns() - span.last.since(span.first).as_ns());
                // Its own start is among them.
                let candidates = starts.partition_point(|&start| start <= latest);
                let start = if layer == 0 { span.first } else { starts[rng.random_range(0..candidates)] };
                (session, layer, start)
            })
            .collect()
    }

    /// Gives new ids to the known tokens behind the shared ones.
    fn rename(&self, request: &mut TraceRequest, shared_tokens: u32, layer: u64) {
        let prompt_tokens = request.prompt.len();
        let shared_answer = shared_tokens.saturating_sub(prompt_tokens);
        for (tokens, shared) in [(&mut request.prompt, shared_tokens), (&mut request.output, shared_answer)] {
            if let TraceTokens::Known(known) = tokens {
                let kept = shared.min(known.len());
                let mut renamed = TokenRuns::new();
                known.slice(0, kept).for_each(|run| renamed.push_run(run.start, run.len));
                for run in known.slice(kept, known.len()) {
                    self.ids.rename(run.start, run.len, layer, |start, len| renamed.push_run(start, len));
                }
                *known = renamed;
            }
        }
    }
}

/// The prompt and the answer, as far as known.
fn known_tokens(request: &TraceRequest) -> TokenRuns {
    let TraceTokens::Known(prompt) = &request.prompt else { return TokenRuns::new() };
    let mut tokens = prompt.clone();
    if let TraceTokens::Known(output) = &request.output {
        tokens.extend(output);
    }
    tokens
}

/// The token ids that are renamed, and where their new names lie: one range behind the other, each as
/// long as all of them together, from the first id on that the trace does not use.
#[derive(Debug, Default)]
struct IdRanges {
    /// First id to the end of the range and the number of renamed ids before it.
    ranges: BTreeMap<u64, (u64, u64)>,
    total: u64,
    first_free: u64,
}

impl IdRanges {
    /// Ranges are widened to multiples of `piece_tokens`, so that what was a whole hash id stays one.
    fn of(requests: &[TraceRequest], shared_tokens: &[u32], piece_tokens: u32) -> Self {
        let piece = u64::from(piece_tokens);
        let mut all = Vec::new();
        let mut largest = 0;
        for (request, &shared) in requests.iter().zip(shared_tokens) {
            let tokens = known_tokens(request);
            largest = tokens.runs().iter().map(|run| run.start + u64::from(run.len)).fold(largest, u64::max);
            let kept = shared.min(tokens.len());
            all.extend(tokens.slice(kept, tokens.len()).map(|run| {
                (run.start / piece * piece, (run.start + u64::from(run.len)).div_ceil(piece) * piece)
            }));
        }
        all.sort_unstable();
        let mut ranges = Self { first_free: largest.div_ceil(piece) * piece, ..Self::default() };
        let mut open: Option<(u64, u64)> = None;
        for (start, end) in all {
            match &mut open {
                Some((_, open_end)) if start <= *open_end => *open_end = end.max(*open_end),
                _ => {
                    ranges.close(open);
                    open = Some((start, end));
                }
            }
        }
        ranges.close(open);
        ranges
    }

    fn close(&mut self, range: Option<(u64, u64)>) {
        if let Some((start, end)) = range {
            self.ranges.insert(start, (end, self.total));
            self.total += end - start;
        }
    }

    fn check(&self, num_layers: u64) -> Result<(), TraceError> {
        let room = FIRST_UNKNOWN_TOKEN.saturating_sub(self.first_free);
        match self.total.checked_mul(num_layers) {
            Some(needed) if needed <= room => Ok(()),
            _ => Err(TraceError::Unfit(format!(
                "{num_layers} new names for {} token ids from {} up would reach 2^63; scale by less",
                self.total, self.first_free
            ))),
        }
    }

    /// Hands out the runs that stand for a run in a layer, from 1 up.
    fn rename(&self, mut start: u64, mut len: u32, layer: u64, mut run: impl FnMut(u64, u32)) {
        let base = self.first_free + (layer - 1) * self.total;
        while len > 0 {
            let Some((&first, &(end, before))) = self.ranges.range(..=start).next_back() else { return };
            let part = u64::from(len).min(end - start) as u32;
            run(base + before + (start - first), part);
            start += u64::from(part);
            len -= part;
        }
    }
}

#[cfg(test)]
mod tests;
