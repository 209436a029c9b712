//! The experts of one layer over all ranks that share them: the busiest rank's kernel, and what
//! brings tokens to it and back.
//!
//! Without expert parallelism every rank computes a slice of every expert. With it a rank computes
//! the tokens that chose its experts, and the layer ends with the busiest ([`BusiestRank`]). Ranks of one engine see all its tokens and add up with the all-reduce that ends the
//! layer. Between engines (data parallelism) tokens are gathered and scattered back, or sent to their
//! experts' ranks.

use crate::catalog::{Dtype, Gpu, Model};

use super::collective::AllGather;
use super::law::L2;
use super::moe::{BusiestRank, MoeLayer, MoeShape};
use super::parallelism::{All2AllBackend, Parallelism, StepTokens};
use super::{CompleteProfile, Format, tuned_moe};

#[derive(Clone, Debug)]
pub(super) struct ExpertLayer {
    layer: MoeLayer,
    busiest: Option<BusiestRank>,
    travel: Option<Travel>,
}

/// Collectives between data-parallel engines.
#[derive(Clone, Debug)]
struct Travel {
    dispatch: Option<AllGather>,
    combine: Option<AllGather>,
    /// Brings a sequence-parallel layer's tokens together; the all-reduce it replaces is counted by
    /// the caller.
    regather: Option<AllGather>,
    /// Bytes of a token in dispatch and combine.
    token_bytes: f64,
    /// Everybody gets the tokens of all, instead of sending its own.
    gathers: bool,
    hidden_bytes: f64,
}

impl ExpertLayer {
    /// None for a model without experts.
    pub fn new(
        model: &Model,
        gpu: &Gpu,
        parallelism: &Parallelism,
        profile: &CompleteProfile,
    ) -> Option<Self> {
        let moe = model.moe.as_ref()?;
        let ranks = parallelism.num_expert_ranks();
        let is_expert_parallel = parallelism.enable_expert_parallel && ranks > 1;
        let (num_experts, inter) = if is_expert_parallel {
            (moe.num_experts.div_ceil(ranks), moe.moe_intermediate_size)
        } else {
            (moe.num_experts, moe.moe_intermediate_size.div_ceil(ranks))
        };
        let experts_per_token = f64::from(moe.num_experts_per_tok);
        let shape = MoeShape {
            hidden: model.hidden_size,
            inter,
            num_experts,
            experts_per_token: experts_per_token.min(f64::from(num_experts)),
            rows_per_token: experts_per_token,
            expert_matrices: 3,
            is_balanced: moe.is_balanced,
            dtype: moe.expert_dtype,
            is_tuned: moe.expert_dtype == Dtype::Bf16 && tuned_moe::is_tuned(gpu, num_experts, inter),
        };
        let busiest = BusiestRank::new(ranks, moe.num_experts_per_tok, num_experts);
        let is_hopper = gpu.compute_capability / 10 == 9;
        let formats = Format::for_moe(moe.expert_dtype, is_expert_parallel && is_hopper);
        Some(Self {
            layer: MoeLayer::new(&shape, gpu, profile.moe(formats), L2::Cold),
            busiest: is_expert_parallel.then_some(busiest),
            travel: (parallelism.data_parallel_size > 1)
                .then(|| Travel::new(model, parallelism, experts_per_token, profile)),
        })
    }

    /// The kernel of the busiest rank, for the tokens of all engine cores.
    pub fn kernel_us(&self, tokens: StepTokens) -> f64 {
        match self.busiest {
            None => self.layer.time_us(tokens.all),
            Some(busiest) => {
                let experts_per_token = busiest.experts_per_token(f64::from(tokens.all));
                self.layer.time_with_choices_us(tokens.all, experts_per_token)
            }
        }
    }

    /// Dispatch and combine.
    pub fn travel_us(&self, tokens: StepTokens) -> f64 {
        let Some(travel) = &self.travel else { return 0.0 };
        let sent = f64::from(if travel.gathers { tokens.all } else { tokens.most });
        let time = |collective: &Option<AllGather>, bytes: f64| {
            collective.as_ref().map_or(0.0, |collective| collective.time_us(bytes))
        };
        time(&travel.dispatch, sent * travel.token_bytes)
            + time(&travel.combine, sent * travel.token_bytes)
            + time(&travel.regather, f64::from(tokens.most) * travel.hidden_bytes)
    }

    /// Whether the layer ends with something other than the all-reduce of dense layers.
    pub fn replaces_all_reduce(&self) -> bool {
        self.travel.as_ref().is_some_and(|travel| travel.regather.is_some())
    }
}

impl Travel {
    fn new(
        model: &Model,
        parallelism: &Parallelism,
        experts_per_token: f64,
        profile: &CompleteProfile,
    ) -> Self {
        let hidden_bytes = f64::from(model.hidden_size) * model.activation_dtype.bytes_per_value();
        let (tp, dp) = (parallelism.tensor_parallel_size, parallelism.data_parallel_size);
        let is_split = parallelism.uses_sequence_parallel_moe();
        let regather = if is_split { AllGather::new(tp, profile.all_gather()) } else { None };
        let gathers = parallelism.all2all_backend == All2AllBackend::AllgatherReducescatter;
        if gathers || !parallelism.enable_expert_parallel {
            let group = if is_split { tp * dp } else { dp };
            return Self {
                dispatch: AllGather::new(group, profile.all_gather()),
                combine: AllGather::new(group, profile.reduce_scatter()),
                regather,
                token_bytes: hidden_bytes,
                gathers: true,
                hidden_bytes,
            };
        }
        // A rank sends its tokens to those ranks that hold at least one of their experts.
        let ranks = f64::from(parallelism.num_expert_ranks());
        let visited = ranks * (1.0 - (1.0 - 1.0 / ranks).powf(experts_per_token));
        let sent_by_rank = if is_split { 1.0 / f64::from(tp) } else { 1.0 };
        let exchange = AllGather::new(parallelism.num_expert_ranks(), profile.all_to_all());
        Self {
            dispatch: exchange.clone(),
            combine: exchange,
            regather,
            token_bytes: hidden_bytes * visited * sent_by_rank,
            gathers: false,
            hidden_bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Profile;

    fn layer(parallelism: Parallelism) -> ExpertLayer {
        let gpu = Gpu::find("H200").unwrap();
        let profile = CompleteProfile::new(Profile::built_in(gpu).unwrap().clone(), gpu);
        ExpertLayer::new(&Model::find("DeepSeek-V3").unwrap(), gpu, &parallelism, &profile).unwrap()
    }

    fn alike(own: u32, num_engines: u32) -> StepTokens {
        StepTokens::alike(own, num_engines)
    }

    /// `_get_priority_backends` of `fused_moe/oracle/fp8.py`: on Hopper Triton for slices, CUTLASS for whole experts.
    #[test]
    fn whole_experts_on_hopper_have_kernels_of_their_own() {
        let profile = Profile::built_in(Gpu::find("H200").unwrap()).unwrap();
        let slices = profile.moe[&Format::Fp8Block].law;
        let whole = profile.moe[&Format::Fp8BlockCutlass].law;
        let time_us = |expert_parallel: bool, law| {
            let gpu = Gpu::find("H200").unwrap();
            let mut profile = profile.clone();
            for fit in profile.moe.values_mut() {
                fit.law = law;
            }
            let profile = CompleteProfile::new(profile, gpu);
            let parallelism =
                Parallelism { enable_expert_parallel: expert_parallel, ..Parallelism::tensor(8) };
            ExpertLayer::new(&Model::find("DeepSeek-V3").unwrap(), gpu, &parallelism, &profile)
                .unwrap()
                .kernel_us(alike(64, 1))
        };
        let own = |enable_expert_parallel| {
            layer(Parallelism { enable_expert_parallel, ..Parallelism::tensor(8) }).kernel_us(alike(64, 1))
        };
        assert_eq!(own(false), time_us(false, slices));
        assert_eq!(own(true), time_us(true, whole));
        assert_ne!(slices, whole);
    }

    /// One engine's ranks compute either a slice of every expert or some whole ones.
    #[test]
    fn whole_experts_cost_no_more_than_slices_of_all() {
        let sliced = layer(Parallelism::tensor(8));
        let whole = layer(Parallelism { enable_expert_parallel: true, ..Parallelism::tensor(8) });
        assert_eq!((sliced.travel_us(alike(64, 1)), whole.travel_us(alike(64, 1))), (0.0, 0.0));
        assert!(!whole.replaces_all_reduce());
        // With all experts hit both read the same bytes; narrow slices are slower than imbalance is.
        assert!(whole.kernel_us(alike(8192, 1)) < 1.1 * sliced.kernel_us(alike(8192, 1)));
        assert!(whole.kernel_us(alike(8192, 1)) > 0.3 * sliced.kernel_us(alike(8192, 1)));
    }

    #[test]
    fn data_parallel_engines_send_tokens_to_each_other() {
        let experts = Parallelism { data_parallel_size: 4, ..Parallelism::tensor(1) };
        let sliced = layer(experts);
        let whole = layer(Parallelism { enable_expert_parallel: true, ..experts });
        assert!(sliced.travel_us(alike(64, 4)) > 0.0);
        assert_eq!(sliced.travel_us(alike(64, 4)), whole.travel_us(alike(64, 4)));
        let deepep = Parallelism {
            enable_expert_parallel: true,
            all2all_backend: All2AllBackend::DeepepLowLatency,
            ..experts
        };
        assert!(layer(deepep).travel_us(alike(4096, 4)) > 0.0);
        // Four engines' tokens are computed.
        assert_eq!(sliced.kernel_us(alike(64, 4)), {
            let alone = layer(Parallelism::tensor(4));
            alone.kernel_us(alike(256, 1))
        });
        // Without padding a gather brings what there is; an exchange ends with who has most to send.
        let uneven = StepTokens { own: 10, most: 100, all: 130 };
        let even = StepTokens { own: 10, most: 40, all: 130 };
        assert_eq!(sliced.travel_us(uneven), sliced.travel_us(even));
        assert!(layer(deepep).travel_us(uneven) > layer(deepep).travel_us(even));
        let split = Parallelism { tensor_parallel_size: 2, enable_expert_parallel: true, ..experts };
        assert!(layer(split).replaces_all_reduce());
    }
}
