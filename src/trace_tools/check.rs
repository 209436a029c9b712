//! Whether a trace that was written says what it should: counted as it is written, and when it is
//! read again.

use super::TraceError;
use super::info::ReuseAt;
use crate::reuse::ComputedTokens;
use crate::workload::trace::{TraceReader, TraceRequest};

/// Prompts are compared in vLLM's default blocks.
const BLOCK_SIZE_TOKENS: u32 = 16;

/// What a trace holds in all.
#[derive(Debug)]
pub struct Totals {
    pub requests: u64,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    /// Where hits are counted.
    hits: Option<HitCount>,
}

/// In memory for every distinct block.
#[derive(Debug)]
struct HitCount {
    computed: ComputedTokens,
    reuse: ReuseAt,
    hits_tokens: u64,
}

impl Totals {
    /// `counts_hits`: what prompts share counts too, which takes memory for every distinct block.
    pub fn new(counts_hits: bool) -> Self {
        let hits = || HitCount {
            computed: ComputedTokens::default(),
            reuse: ReuseAt::new(BLOCK_SIZE_TOKENS),
            hits_tokens: 0,
        };
        Self { requests: 0, prompt_tokens: 0, output_tokens: 0, hits: counts_hits.then(hits) }
    }

    /// Counts a request.
    ///
    /// # Errors
    /// There are too many blocks.
    pub fn add(&mut self, request: &TraceRequest) -> Result<(), TraceError> {
        self.requests += 1;
        self.prompt_tokens += u64::from(request.prompt.len());
        self.output_tokens += u64::from(request.output.len());
        if let Some(hits) = &mut self.hits
            && let Some(computed) = hits.computed.of(request)
        {
            hits.hits_tokens += hits.reuse.add(request, &computed)?.hits_tokens;
        }
        Ok(())
    }

    /// The share of prompt tokens that a cache without end finds in blocks of 16 tokens, and these; where hits are
    /// counted.
    pub fn hits(&self) -> Option<(f64, u64)> {
        let hits_tokens = self.hits.as_ref()?.hits_tokens;
        Some((hits_tokens as f64 / self.prompt_tokens.max(1) as f64, hits_tokens))
    }
}

/// Reads what was written, and compares it with what should be there.
///
/// # Errors
/// It cannot be read, or differs: a mistake of ours.
pub fn read_back(written: &Totals, reader: &mut dyn TraceReader) -> Result<Totals, TraceError> {
    let mut found = Totals::new(written.hits.is_some());
    while let Some(request) = reader.next_request()? {
        found.add(&request)?;
    }
    let counts = |totals: &Totals| (totals.requests, totals.prompt_tokens, totals.output_tokens);
    if counts(written) != counts(&found) {
        return Err(TraceError::Unfit(format!(
            "what was written reads as {:?} requests, prompt and output tokens instead of {:?}; \
             this is a mistake in kvsim",
            counts(&found),
            counts(written)
        )));
    }
    Ok(found)
}
