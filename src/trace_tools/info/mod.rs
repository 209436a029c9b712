//! `kvsim trace info`: what a trace holds, in one pass and in memory proportional to its distinct
//! blocks.

mod arrivals;
mod block_reuse;
mod percentiles;
mod session_info;
mod table;

use serde::Serialize;

pub use arrivals::ArrivalInfo;
pub use block_reuse::BlockReuse;
pub use percentiles::Percentiles;
pub use session_info::SessionInfo;
pub use table::info_table;

use super::TraceError;
use crate::prompt::PromptExtras;
use crate::reuse::ComputedTokens;
use crate::workload::trace::{TraceFormat, TraceReader, TraceRequest, TraceTokens};
use arrivals::Arrivals;
use block_reuse::Lookup;
pub(super) use block_reuse::ReuseAt;
use percentiles::Values;
use session_info::Sessions;

/// What a trace holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceInfo {
    pub format: &'static str,
    pub requests: u64,
    /// `None` if no request has a time.
    pub arrivals: Option<ArrivalInfo>,
    /// Requests that wait for the answer before instead of having a time.
    pub requests_without_time: u64,
    pub prompt_tokens: Option<Percentiles<u64>>,
    pub prompt_tokens_total: u64,
    pub output_tokens: Option<Percentiles<u64>>,
    pub output_tokens_total: u64,
    /// Requests of which only the length of the prompt is known: they are in no figure of reuse.
    pub requests_with_unknown_prompt: u64,
    /// Requests of which it is not known which tokens the answer has: later prompts cannot find these.
    pub requests_with_unknown_output: u64,
    /// The tokens that a hash id stands for; shorter pieces of prompts are not known to be shared.
    pub hash_id_tokens: Option<u32>,
    /// By block size, in the order asked for; empty without a prompt whose tokens are known.
    pub infinite_cache: Vec<BlockReuse>,
    pub sessions: SessionInfo,
    /// Empty when there is only one tenant without a name.
    pub tenants: Vec<TenantInfo>,
    pub with: Features,
    /// What was assumed when the trace was read or made.
    pub notes: Vec<String>,
    /// Rows that could not be read and were left out.
    pub skipped_rows: u64,
    pub first_skipped_row: Option<String>,
}

/// The requests of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TenantInfo {
    pub name: String,
    pub requests: u64,
    pub prompt_tokens_total: u64,
    pub output_tokens_total: u64,
    /// Of the lookups in a cache without end, at the first block size.
    pub queries_tokens: u64,
    pub hits_tokens: u64,
}

/// How many requests carry what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Features {
    pub think_time: u64,
    pub priority: u64,
    pub skip_reading_prefix_cache: u64,
    pub cache_salt: u64,
    pub lora: u64,
    pub mm_items: u64,
    pub prompt_embeds: u64,
    pub patience: u64,
}

impl Features {
    fn add(&mut self, request: &TraceRequest) {
        let PromptExtras { lora, mm, cache_salt, prompt_embeds } = &request.extras;
        for (count, is_there) in [
            (&mut self.think_time, request.think_time.is_some()),
            (&mut self.priority, request.priority != 0),
            (&mut self.skip_reading_prefix_cache, request.skip_reading_prefix_cache),
            (&mut self.cache_salt, cache_salt.is_some()),
            (&mut self.lora, lora.is_some()),
            (&mut self.mm_items, !mm.is_empty()),
            (&mut self.prompt_embeds, prompt_embeds.is_some()),
            (&mut self.patience, request.patience.is_some()),
        ] {
            *count += u64::from(is_there);
        }
    }
}

/// Reads a trace to its end. Block sizes are in tokens, at least 1 each.
///
/// # Errors
/// A row that cannot be read, or more blocks than can be counted.
pub fn trace_info(
    format: TraceFormat,
    reader: &mut dyn TraceReader,
    block_sizes: &[u32],
) -> Result<TraceInfo, TraceError> {
    let mut collector = Collector::new(block_sizes);
    while let Some(request) = reader.next_request()? {
        collector.add(&request, reader.hash_id_tokens())?;
    }
    Ok(collector.info(format, reader))
}

struct Collector {
    computed: ComputedTokens,
    reuse: Vec<ReuseAt>,
    arrivals: Arrivals,
    sessions: Sessions,
    prompt_tokens: Values,
    output_tokens: Values,
    tenants: Vec<TenantInfo>,
    with: Features,
    requests: u64,
    without_time: u64,
    unknown_prompts: u64,
    unknown_outputs: u64,
}

impl Collector {
    fn new(block_sizes: &[u32]) -> Self {
        Self {
            computed: ComputedTokens::default(),
            reuse: block_sizes.iter().map(|&block_size| ReuseAt::new(block_size)).collect(),
            arrivals: Arrivals::default(),
            sessions: Sessions::default(),
            prompt_tokens: Values::default(),
            output_tokens: Values::default(),
            tenants: Vec::new(),
            with: Features::default(),
            requests: 0,
            without_time: 0,
            unknown_prompts: 0,
            unknown_outputs: 0,
        }
    }

    fn add(&mut self, request: &TraceRequest, hash_id_tokens: Option<u32>) -> Result<(), TraceError> {
        self.requests += 1;
        match request.at {
            Some(at) => self.arrivals.add(at),
            None => self.without_time += 1,
        }
        self.prompt_tokens.add(u64::from(request.prompt.len()));
        self.output_tokens.add(u64::from(request.output.len()));
        self.unknown_outputs += u64::from(matches!(request.output, TraceTokens::Length(_)));
        let mut lookup = Lookup::default();
        match self.computed.of(request) {
            Some(computed) => {
                for (reuse, index) in self.reuse.iter_mut().zip(0..) {
                    let found = reuse.add(request, &computed)?;
                    lookup = if index == 0 { found } else { lookup };
                }
            }
            None => self.unknown_prompts += 1,
        }
        self.sessions.add(request, hash_id_tokens)?;
        self.with.add(request);
        let tenant = request.tenant as usize;
        if tenant >= self.tenants.len() {
            self.tenants.resize(tenant + 1, TenantInfo::default());
        }
        let tenant = &mut self.tenants[tenant];
        tenant.requests += 1;
        tenant.prompt_tokens_total += u64::from(request.prompt.len());
        tenant.output_tokens_total += u64::from(request.output.len());
        tenant.queries_tokens += lookup.queries_tokens;
        tenant.hits_tokens += lookup.hits_tokens;
        Ok(())
    }

    fn info(mut self, format: TraceFormat, reader: &dyn TraceReader) -> TraceInfo {
        let total = |of: fn(&TenantInfo) -> u64| self.tenants.iter().map(of).sum();
        let (prompt_tokens_total, output_tokens_total) =
            (total(|tenant| tenant.prompt_tokens_total), total(|tenant| tenant.output_tokens_total));
        let names = reader.tenants();
        self.tenants.resize(names.len(), TenantInfo::default());
        for (tenant, name) in self.tenants.iter_mut().zip(names) {
            tenant.name.clone_from(name);
        }
        let skipped = reader.skipped();
        let is_known = self.requests > self.unknown_prompts;
        TraceInfo {
            format: format.name(),
            requests: self.requests,
            arrivals: self.arrivals.info(),
            requests_without_time: self.without_time,
            prompt_tokens: self.prompt_tokens.percentiles(),
            prompt_tokens_total,
            output_tokens: self.output_tokens.percentiles(),
            output_tokens_total,
            requests_with_unknown_prompt: self.unknown_prompts,
            requests_with_unknown_output: self.unknown_outputs,
            hash_id_tokens: reader.hash_id_tokens(),
            infinite_cache: if is_known {
                self.reuse.iter().map(ReuseAt::info).collect()
            } else {
                Vec::new()
            },
            sessions: self.sessions.info(),
            tenants: self.tenants,
            with: self.with,
            notes: reader.notes(),
            skipped_rows: skipped.count,
            first_skipped_row: skipped.first,
        }
    }
}

#[cfg(test)]
mod tests;
