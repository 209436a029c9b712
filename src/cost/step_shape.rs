//! What a step asks of the GPU, and how long that takes.

use serde::Serialize;

/// Some tokens of one prompt, computed in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefillChunk {
    /// Tokens computed in this step, at least one.
    pub num_tokens: u32,
    /// Tokens of the request whose KV is there already, by an earlier chunk or a cache hit.
    pub num_computed_tokens: u32,
}

/// The shape of one step's batch. Made to be cleared and filled again each step.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepShape {
    pub prefill_chunks: Vec<PrefillChunk>,
    /// Requests that compute one token each.
    pub num_decodes: u32,
    /// Sum over the decodes of the tokens they attend to, the new one included.
    pub decode_context_tokens: u64,
    /// Requests that sample a token: the decodes and the chunks that end their prompt.
    pub num_sampled: u32,
}

impl StepShape {
    /// Empties the shape and keeps its memory.
    pub fn clear(&mut self) {
        self.prefill_chunks.clear();
        self.num_decodes = 0;
        self.decode_context_tokens = 0;
        self.num_sampled = 0;
    }

    /// Adds a chunk of a prompt; `samples` when it ends the prompt.
    pub fn add_prefill(&mut self, num_tokens: u32, num_computed_tokens: u32, samples: bool) {
        self.prefill_chunks.push(PrefillChunk { num_tokens, num_computed_tokens });
        self.num_sampled += u32::from(samples);
    }

    /// Adds `num_decodes` decodes that together attend to `context_tokens` tokens.
    pub fn add_decodes(&mut self, num_decodes: u32, context_tokens: u64) {
        self.num_decodes += num_decodes;
        self.decode_context_tokens += context_tokens;
        self.num_sampled += num_decodes;
    }

    /// Tokens that the step computes.
    pub fn num_tokens(&self) -> u32 {
        self.prefill_chunks.iter().map(|chunk| chunk.num_tokens).sum::<u32>() + self.num_decodes
    }

    /// Requests in the step.
    pub fn num_requests(&self) -> u32 {
        self.prefill_chunks.len() as u32 + self.num_decodes
    }
}

/// How long a step takes, by what the time goes to. With synchronous scheduling host and GPU follow one
/// another; with asynchronous scheduling the host plans the next step while the GPU runs this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StepTime {
    /// Matrix products, that of the LM head too.
    pub gemm_ns: u64,
    pub attention_ns: u64,
    pub moe_ns: u64,
    pub comms_ns: u64,
    pub elementwise_ns: u64,
    pub sampler_ns: u64,
    /// Between kernels and between steps: launches, input copies.
    pub launch_ns: u64,
    /// What makes the drafts of speculative decoding.
    pub drafts_ns: u64,
    /// Of a constant cost, which knows no operations.
    pub other_ns: u64,
    pub host_ns: u64,
    /// The part of the GPU's time that only the last stage of a pipeline has: LM head, sampling, drafts.
    pub head_ns: u64,
    /// All of the GPU's time, if the step lies beyond what was measured for the profile.
    pub extrapolated_ns: u64,
}

impl StepTime {
    /// All but the host's.
    pub fn gpu_ns(&self) -> u64 {
        self.gemm_ns
            + self.attention_ns
            + self.moe_ns
            + self.comms_ns
            + self.elementwise_ns
            + self.sampler_ns
            + self.launch_ns
            + self.drafts_ns
            + self.other_ns
    }
}

impl std::ops::AddAssign for StepTime {
    fn add_assign(&mut self, more: Self) {
        self.gemm_ns += more.gemm_ns;
        self.attention_ns += more.attention_ns;
        self.moe_ns += more.moe_ns;
        self.comms_ns += more.comms_ns;
        self.elementwise_ns += more.elementwise_ns;
        self.sampler_ns += more.sampler_ns;
        self.launch_ns += more.launch_ns;
        self.drafts_ns += more.drafts_ns;
        self.other_ns += more.other_ns;
        self.host_ns += more.host_ns;
        self.head_ns += more.head_ns;
        self.extrapolated_ns += more.extrapolated_ns;
    }
}
