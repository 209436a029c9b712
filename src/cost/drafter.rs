//! What a drafter adds to a step of speculative decoding.
//!
//! A draft head (EAGLE, DeepSeek's MTP) is one more decoder layer of the target's own shape, behind a
//! product that joins the target's hidden state with the next token's embedding, and it uses the
//! target's LM head. It runs once over all tokens of the step, and once for each further draft over
//! one token of every request (`propose` in vLLM's `v1/spec_decode/llm_base_proposer.py`). EAGLE 3 has
//! a smaller vocabulary and reads three hidden states; it is taken for the same.
//!
//! N-gram drafts are looked up on the CPU after sampling, while the GPU waits. Times are those of
//! vLLM 0.33.0's `NgramProposer` on an AMD EPYC (Python 3.11, numba, one thread as vLLM sets it; 1 to
//! 256 requests of 256 to 32,768 random tokens, n-grams of 2 to 5): median error 7 %, 90th percentile
//! 24 %.

use crate::catalog::{Gpu, Model};

use super::attention::Attention;
use super::gemm::Gemm;
use super::law::L2;
use super::layers::Layers;
use super::parallelism::{Parallelism, StepTokens};
use super::{CompleteProfile, StepShape};

/// Microseconds of a call, of each request, and of each token of its context.
const NGRAM_CALL_US: f64 = 6.65;
const NGRAM_REQUEST_US: f64 = 1.11;
const NGRAM_TOKEN_US: f64 = 0.000_765;

/// How drafts are made, and how many in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drafts {
    /// By a head on the target's hidden states.
    Head { num_tokens: u32 },
    /// By looking for the last tokens in the context.
    Ngram,
}

#[derive(Clone, Debug)]
pub(super) enum Drafter {
    Head(Box<Head>),
    Ngram,
}

#[derive(Clone, Debug)]
pub(super) struct Head {
    layers: Layers,
    attention: Attention,
    join: Gemm,
    num_tokens: u32,
    /// Engine cores that share the experts, each with as many tokens.
    num_engines: u32,
}

impl Drafter {
    pub fn new(
        drafts: Drafts,
        model: &Model,
        gpu: &Gpu,
        parallelism: &Parallelism,
        profile: &CompleteProfile,
    ) -> Self {
        let Drafts::Head { num_tokens } = drafts else { return Self::Ngram };
        let mut layer = Model { num_hidden_layers: 1, sliding_window: None, ..model.clone() };
        if let Some(moe) = &mut layer.moe {
            moe.num_dense_layers = 0;
        }
        // Every rank holds the whole product.
        let join = Gemm::new(
            model.hidden_size,
            2 * model.hidden_size,
            model.weight_dtype,
            gpu,
            profile.gemm(model.weight_dtype, gpu),
            L2::Cold,
        );
        Self::Head(Box::new(Head {
            layers: Layers::new(&layer, gpu, parallelism, profile),
            attention: Attention::new(&layer, gpu, parallelism, profile),
            join,
            num_tokens,
            num_engines: parallelism.data_parallel_size,
        }))
    }

    /// After a step of this shape, which is not empty.
    pub fn time_us(&self, shape: &StepShape) -> f64 {
        let num_requests = shape.num_requests();
        let chunks = &shape.prefill_chunks;
        let known = |computed: u32, new: u32| u64::from(computed) + u64::from(new);
        let context_tokens = shape.decode_context_tokens
            + chunks.iter().map(|chunk| known(chunk.num_computed_tokens, chunk.num_tokens)).sum::<u64>();
        match self {
            Self::Ngram => {
                NGRAM_CALL_US
                    + NGRAM_REQUEST_US * f64::from(num_requests)
                    + NGRAM_TOKEN_US * context_tokens as f64
            }
            Self::Head(head) => {
                let mut one_each = StepShape::default();
                one_each.add_decodes(num_requests, context_tokens);
                let further = f64::from(head.num_tokens.saturating_sub(1));
                head.pass_us(shape) + further * head.pass_us(&one_each)
            }
        }
    }
}

impl Head {
    fn pass_us(&self, shape: &StepShape) -> f64 {
        let num_tokens = shape.num_tokens();
        let experts = self.layers.experts_us(StepTokens::alike(num_tokens, self.num_engines));
        self.join.time_us(num_tokens)
            + self.layers.time_us(num_tokens).sum_us()
            + experts.map_or(0.0, |experts| experts.sum_us())
            + self.attention.time_us(shape)
            + self.layers.sampling_us(shape.num_requests()).sum_us()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Profile;

    fn drafter(drafts: Drafts) -> Drafter {
        let gpu = Gpu::find("H100").unwrap();
        let profile = CompleteProfile::new(Profile::built_in(gpu).unwrap().clone(), gpu);
        let model = Model::find("Llama-3.1-8B").unwrap();
        Drafter::new(drafts, &model, gpu, &Parallelism::tensor(1), &profile)
    }

    fn decodes(num: u32, context_tokens: u64) -> StepShape {
        let mut shape = StepShape::default();
        shape.add_decodes(num, context_tokens);
        shape
    }

    #[test]
    fn ngrams_are_looked_up_in_the_whole_context() {
        let ngram = drafter(Drafts::Ngram);
        let time = ngram.time_us(&decodes(10, 40_000));
        assert!((time - (6.65 + 11.1 + 30.6)).abs() < 1e-9, "{time}");
    }

    /// DeepSeek's MTP layer has experts as the target's layers have: on eight H200 64 tokens read most of
    /// 256 experts of three times 7,168 x 256 bytes, 1.4 GB at 4.8 TB/s.
    #[test]
    fn a_head_visits_its_experts() {
        let gpu = Gpu::find("H200").unwrap();
        let profile = CompleteProfile::new(Profile::built_in(gpu).unwrap().clone(), gpu);
        let mut model = Model::find("DeepSeek-V3").unwrap();
        let mut time_us = |num_experts_per_tok: u32| {
            model.moe.as_mut().unwrap().num_experts_per_tok = num_experts_per_tok;
            let drafts = Drafts::Head { num_tokens: 1 };
            Drafter::new(drafts, &model, gpu, &Parallelism::tensor(8), &profile).time_us(&decodes(64, 64_000))
        };
        let read_us = 256.0 * 3.0 * 7168.0 * 256.0 / 4.8e6;
        let more = time_us(8) - time_us(1);
        assert!((0.2 * read_us..read_us).contains(&more), "{more} of {read_us}");
    }

    #[test]
    fn each_further_draft_is_a_pass_over_one_token_of_every_request() {
        let time = |num_tokens| drafter(Drafts::Head { num_tokens }).time_us(&decodes(8, 8000));
        let (one, two, three) = (time(1), time(2), time(3));
        assert!((three - two - (two - one)).abs() < 1e-6);
        // The first pass over decodes is such a pass too.
        assert!((two - 2.0 * one).abs() < 1e-6);
        // A layer of 32 and the whole LM head.
        assert!(one > 3.0 && one < 1000.0, "{one}");
    }
}
