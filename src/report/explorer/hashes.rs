//! What is known of the hashes that the recording names.

use std::fmt::Write;

use rustc_hash::FxHashMap;

use super::super::json::{list, number, option};
use super::super::kv_event_json::push_extra_key;
use crate::engine::hash::{BlockHash, generate_block_hash_extra_keys};
use crate::engine::scheduler::Scheduler;
use crate::prompt::{PromptExtras, TokenRuns};

/// Gives each hash a number in the order in which they are first named, and writes a row for it:
/// `[digest, parent, first token, [token runs], extra keys]`, of which all but the digest are null
/// where the hash is from before the recording.
#[derive(Default)]
pub(super) struct Hashes {
    numbers: FxHashMap<BlockHash, u32>,
    rows: String,
}

/// Whose tokens a hash covers.
pub(super) struct Source<'a> {
    pub tokens: &'a TokenRuns,
    pub extras: Option<&'a PromptExtras>,
    pub hash_block_size: u32,
    pub num_lookahead_tokens: u32,
}

impl Hashes {
    /// Names the hash of a request's block number `index`, after `parent`.
    pub fn name(
        &mut self,
        hash: BlockHash,
        parent: Option<BlockHash>,
        index: usize,
        source: &Source<'_>,
        scheduler: &Scheduler,
    ) -> u32 {
        if let Some(&number) = self.numbers.get(&hash) {
            return number;
        }
        let parent = parent.map(|parent| self.number(parent, scheduler));
        let start = index as u32 * source.hash_block_size;
        let end = start + source.hash_block_size;
        let mut keys = Vec::new();
        if let Some(extras) = source.extras {
            let hash_end = end + source.num_lookahead_tokens;
            generate_block_hash_extra_keys(extras, start, hash_end, 0, &mut keys);
        }
        let number_of = self.push_digest(hash, scheduler);
        let rows = &mut self.rows;
        rows.push(',');
        option(rows, parent, number);
        let _ = write!(rows, ",{start},");
        list(rows, source.tokens.slice(start, end), |rows, run| {
            // Ids above 2^53 would lose their last digits as numbers.
            let _ = write!(rows, "[\"{}\",{}]", run.start, run.len);
        });
        rows.push(',');
        option(rows, (!keys.is_empty()).then_some(&keys), |rows, keys| {
            list(rows, keys, |rows, key| push_extra_key(rows, &key.to_event()));
        });
        rows.push(']');
        number_of
    }

    /// The number of a hash that has most likely been named.
    pub fn number(&mut self, hash: BlockHash, scheduler: &Scheduler) -> u32 {
        if let Some(&number) = self.numbers.get(&hash) {
            return number;
        }
        let number = self.push_digest(hash, scheduler);
        self.rows.push_str(",null,null,null,null]");
        number
    }

    /// Begins a row.
    fn push_digest(&mut self, hash: BlockHash, scheduler: &Scheduler) -> u32 {
        let next = self.numbers.len() as u32;
        self.numbers.insert(hash, next);
        let separator = if self.rows.is_empty() { "" } else { ",\n" };
        let digest = scheduler.hasher().and_then(|hasher| hasher.digest(hash));
        let digest = digest.map_or_else(|| format!("{:08x}", hash.0), |digest| digest.to_string());
        // Enough to tell them apart, as people shorten commits.
        let _ = write!(self.rows, "{separator}[\"{:.16}\"", digest);
        next
    }

    pub fn rows(&self) -> &str {
        &self.rows
    }
}
