//! KV cache events as JSON (the fields of vLLM's `BlockStored`, `BlockRemoved`, `AllBlocksCleared`).

use std::fmt::Write;

use super::json::{list, number, numbers, option, string};
use crate::engine::hash::{BlockHash, EventExtraKey};
use crate::engine::kv_events::{BlockStored, KvCacheEvent, MEDIUM_GPU};
use crate::engine::scheduler::Scheduler;

/// Appends a hash's digest in hex.
pub(crate) fn hex(line: &mut String, hash: BlockHash, scheduler: &Scheduler) {
    let digest = scheduler.hasher().and_then(|hasher| hasher.digest(hash));
    option(line, digest, |line, digest| number(line, format_args!("\"{digest}\"")));
}

/// A hash as events publish it.
fn external(line: &mut String, hash: BlockHash, scheduler: &Scheduler, as_int: bool) {
    if as_int {
        let digest = scheduler.hasher().and_then(|hasher| hasher.digest(hash));
        option(line, digest, |line, digest| number(line, digest.low_u64()));
    } else {
        hex(line, hash, scheduler);
    }
}

/// Appends an event as one JSON object; hashes as integers, or in hex.
pub(crate) fn push_event(line: &mut String, event: &KvCacheEvent, scheduler: &Scheduler, as_int: bool) {
    match event {
        KvCacheEvent::BlockStored(stored) => push_stored(line, stored, scheduler, as_int),
        KvCacheEvent::BlockRemoved { block_hash, group_idx } => {
            line.push_str("{\"type\":\"BlockRemoved\",\"block_hashes\":[");
            external(line, *block_hash, scheduler, as_int);
            let _ = write!(line, "],\"group_idx\":{group_idx},\"medium\":\"{MEDIUM_GPU}\"}}");
        }
        KvCacheEvent::AllBlocksCleared => line.push_str("{\"type\":\"AllBlocksCleared\"}"),
    }
}

fn push_stored(line: &mut String, stored: &BlockStored, scheduler: &Scheduler, as_int: bool) {
    let hash = |line: &mut String, hash: BlockHash| external(line, hash, scheduler, as_int);
    let spec = scheduler.config().kv_cache_groups[stored.group_idx as usize];
    line.push_str("{\"type\":\"BlockStored\",\"block_hashes\":");
    list(line, stored.block_hashes.iter().copied(), hash);
    line.push_str(",\"parent_block_hash\":");
    option(line, stored.parent_block_hash, hash);
    line.push_str(",\"token_ids\":");
    list(line, stored.token_ids.runs(), |line, run| {
        let _ = write!(line, "[{},{}]", run.start, run.len);
    });
    let _ = write!(line, ",\"block_size\":{},\"lora_id\":", stored.block_size);
    option(line, stored.lora_id, number);
    line.push_str(",\"lora_name\":");
    option(line, stored.lora_name.as_ref(), |line, name| string(line, name));
    let _ = write!(line, ",\"medium\":\"{MEDIUM_GPU}\",\"extra_keys\":");
    let extra_keys = (!stored.extra_keys.is_empty()).then_some(&stored.extra_keys);
    option(line, extra_keys, |line, blocks| {
        list(line, blocks, |line, keys| {
            option(line, keys.as_ref(), |line, keys| list(line, keys, push_extra_key));
        });
    });
    let _ = write!(
        line,
        ",\"group_idx\":{},\"kv_cache_spec_kind\":\"{}\",\"kv_cache_spec_sliding_window\":",
        stored.group_idx,
        spec.kind()
    );
    option(line, spec.sliding_window(), number);
    line.push_str(",\"session_id\":");
    option(line, stored.session_id.as_ref(), |line, id| string(line, id));
    line.push_str(",\"lookahead_token_ids\":");
    option(line, stored.lookahead_token_ids.as_ref(), |line, blocks| {
        list(line, blocks, numbers);
    });
    line.push('}');
}

pub(crate) fn push_extra_key(line: &mut String, key: &EventExtraKey) {
    match key {
        EventExtraKey::Text(text) => string(line, text),
        EventExtraKey::MmItem { identifier, offset_tokens } => {
            line.push('[');
            string(line, identifier);
            let _ = write!(line, ",{offset_tokens}]");
        }
        EventExtraKey::Bytes(bytes) => {
            line.push_str("{\"bytes\":\"");
            bytes.iter().for_each(|byte| number(line, format_args!("{byte:02x}")));
            line.push_str("\"}");
        }
    }
}
