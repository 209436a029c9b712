//! How the layers of a model are shared out over pipeline stages (vLLM: `get_pp_indices` in
//! `distributed/utils.py`).

use std::ops::Range;

use super::geometry::ParameterRole;
use super::{Model, SlidingWindow};

/// The layers of one stage; the first has the embedding, the last the LM head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineStage {
    pub layers: Range<u32>,
    pub is_first: bool,
    pub is_last: bool,
}

impl PipelineStage {
    /// The only stage.
    pub fn whole(model: &Model) -> Self {
        Self { layers: 0..model.num_hidden_layers, is_first: true, is_last: true }
    }

    pub fn num_layers(&self) -> u32 {
        self.layers.end - self.layers.start
    }

    /// See [`Model::num_layers_per_kv_cache_group`].
    pub fn num_layers_per_kv_cache_group(&self, model: &Model) -> u32 {
        let window = model.sliding_window.as_ref();
        let layers = self.layers.start as usize..self.layers.end as usize;
        let own = Model {
            num_hidden_layers: self.num_layers(),
            sliding_window: window.map(|window| SlidingWindow {
                window_tokens: window.window_tokens,
                layers: window.layers[layers].to_vec(),
            }),
            ..model.clone()
        };
        own.num_layers_per_kv_cache_group()
    }
}

impl Model {
    /// Equal numbers of layers; those left over go to the stages before the last, from the back.
    pub fn pipeline_stages(&self, pipeline_parallel_size: u32) -> Vec<PipelineStage> {
        let num_stages = pipeline_parallel_size.clamp(1, self.num_hidden_layers);
        let (each, left_over) = (self.num_hidden_layers / num_stages, self.num_hidden_layers % num_stages);
        let mut start = 0;
        let stage = |stage: u32| {
            let is_last = stage + 1 == num_stages;
            let has_more = !is_last && num_stages - 1 - stage <= left_over;
            let end = start + each + u32::from(has_more);
            PipelineStage { layers: std::mem::replace(&mut start, end)..end, is_first: stage == 0, is_last }
        };
        (0..num_stages).map(stage).collect()
    }

    /// Bytes of the weights on one of `tp` ranks of a stage, of which as many as `expert_ranks` share the
    /// routed experts: those of all data-parallel engine cores.
    pub fn weight_bytes_of_stage(&self, stage: &PipelineStage, tp: u32, expert_ranks: u32) -> u64 {
        use ParameterRole::{
            Attention, DenseMlp, Embedding, LmHead, Norm, RoutedExperts, Router, SharedExperts,
        };
        let num_dense = self.num_hidden_layers - self.num_moe_layers();
        let dense_here = stage.layers.end.min(num_dense) - stage.layers.start.min(num_dense);
        let moe_here = stage.num_layers() - dense_here;
        let share = |bytes: u64, here: u32, all: u32| {
            // Up, as a rank's own share is.
            (u128::from(bytes) * u128::from(here)).div_ceil(u128::from(all.max(1))) as u64
        };
        let bytes_here = |group: &super::geometry::ParameterGroup| {
            let ranks = if group.role == RoutedExperts { expert_ranks } else { tp };
            let bytes = group.bytes_per_rank(ranks);
            match group.role {
                // Tied embeddings are there twice.
                Embedding if stage.is_first || (self.tie_word_embeddings && stage.is_last) => bytes,
                LmHead if stage.is_last => bytes,
                Embedding | LmHead => 0,
                Attention | Norm => share(bytes, stage.num_layers(), self.num_hidden_layers),
                DenseMlp => share(bytes, dense_here, num_dense),
                Router | SharedExperts | RoutedExperts => share(bytes, moe_here, self.num_moe_layers()),
            }
        };
        self.parameter_groups().iter().map(bytes_here).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> Model {
        Model::find(name).unwrap()
    }

    #[test]
    fn layers_left_over_go_before_the_last_stage() {
        let counts = |layers, stages| -> Vec<u32> {
            let model = Model { num_hidden_layers: layers, ..model("Llama-3.1-8B") };
            model.pipeline_stages(stages).iter().map(PipelineStage::num_layers).collect()
        };
        assert_eq!(counts(32, 1), [32]);
        assert_eq!(counts(32, 4), [8, 8, 8, 8]);
        assert_eq!(counts(61, 2), [31, 30]);
        assert_eq!(counts(61, 4), [15, 15, 16, 15]);
        assert_eq!(counts(62, 4), [15, 16, 16, 15]);
        assert_eq!(counts(63, 4), [16, 16, 16, 15]);
    }

    #[test]
    fn stages_hold_all_weights_once() {
        for name in ["Llama-3.1-70B", "DeepSeek-V3", "gpt-oss-120b"] {
            let model = model(name);
            let stages = model.pipeline_stages(4);
            assert_eq!(stages.last().unwrap().layers.end, model.num_hidden_layers);
            let sum: u64 = stages.iter().map(|stage| model.weight_bytes_of_stage(stage, 1, 1)).sum();
            assert!(sum.abs_diff(model.weight_bytes()) < 100, "{name}");
            let whole = PipelineStage::whole(&model);
            assert_eq!(model.weight_bytes_of_stage(&whole, 8, 8), model.weight_bytes_per_rank(8));
        }
    }

    #[test]
    fn only_routed_experts_are_shared_with_other_engine_cores() {
        let model = model("DeepSeek-V3");
        let whole = PipelineStage::whole(&model);
        let of = |tp, expert_ranks| model.weight_bytes_of_stage(&whole, tp, expert_ranks);
        // 256 experts in each of 58 layers, 3 x 7,168 x 2,048 values of a byte.
        let experts: u64 = 58 * 256 * 3 * 7_168 * 2_048;
        assert_eq!(of(1, 1) - of(1, 8), experts - experts / 8);
        assert!(of(1, 8) > of(8, 8));
    }
}
