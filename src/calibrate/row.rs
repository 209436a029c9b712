//! One row of a timing table: values by column, and errors that name their place.

use std::path::Path;

use csv::StringRecord;

use super::CalibrateError;
use super::operations::{CollectiveShape, ElementwiseShape, Heads, MoeRouting, MoeTiming, RoutingMemo};
use crate::cost::moe::ExpertLoads;
use crate::cost::{Format, PrefillChunk};

const DTYPES: &str = "bfloat16, float16, fp8, fp8_block, int4_wo, nvfp4, w4a16_mxfp4, w4a8_mxfp4_mxfp8";

/// One record with the names of its columns.
pub(super) struct Row<'a> {
    pub path: &'a Path,
    pub line: u64,
    pub header: &'a StringRecord,
    pub record: &'a StringRecord,
}

impl Row<'_> {
    fn position(&self, column: &str) -> Option<usize> {
        self.header.iter().position(|name| name == column)
    }

    /// A value that is none of those that are known.
    pub fn wrong(&self, column: &str, problem: String, known: &str) -> CalibrateError {
        self.wrong_value(column, problem, format!("use one of: {known}"))
    }

    fn wrong_value(&self, column: &str, problem: String, hint: String) -> CalibrateError {
        CalibrateError::Value {
            path: self.path.to_owned(),
            line: self.line,
            column: self.position(column).map_or(1, |index| index + 1),
            name: column.to_owned(),
            problem,
            hint,
        }
    }

    pub fn optional(&self, column: &str) -> &str {
        self.position(column).map_or("", |index| &self.record[index])
    }

    pub fn text(&self, column: &str) -> Result<&str, CalibrateError> {
        let Some(index) = self.position(column) else {
            return Err(CalibrateError::Row {
                path: self.path.to_owned(),
                line: 1,
                problem: format!("the column `{column}` is missing"),
                hint: format!("add `{column}`, which rows of {} need", self.optional("op")),
            });
        };
        Ok(&self.record[index])
    }

    /// A number; empty is an error.
    pub fn number(
        &self,
        column: &str,
        wanted: &str,
        is_fine: impl Fn(f64) -> bool,
    ) -> Result<f64, CalibrateError> {
        let text = self.text(column)?;
        match text.trim().parse::<f64>() {
            Ok(value) if is_fine(value) => Ok(value),
            _ => {
                let is_empty = text.trim().is_empty();
                let problem =
                    if is_empty { "there is no value".to_owned() } else { format!("found `{text}`") };
                Err(self.wrong_value(column, problem, format!("give {wanted}")))
            }
        }
    }

    /// Who measured it, and with which release.
    pub fn source(&self) -> String {
        match (self.optional("source"), self.optional("framework")) {
            (source, "") => source.to_owned(),
            (source, framework) => format!("{source} ({framework})"),
        }
    }

    pub fn time_us(&self) -> Result<f64, CalibrateError> {
        self.number("time_us", "microseconds above 0", |time| time.is_finite() && time > 0.0)
    }

    pub fn count(&self, column: &str) -> Result<u32, CalibrateError> {
        let is_count = |value: f64| value.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&value);
        Ok(self.number(column, "a whole number from 1", is_count)? as u32)
    }

    /// A count that may be 0 or, where it does not apply, empty.
    fn count_or_0(&self, column: &str) -> Result<u32, CalibrateError> {
        if self.optional(column).trim().is_empty() {
            return Ok(0);
        }
        let is_count = |value: f64| value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value);
        Ok(self.number(column, "a whole number from 0", is_count)? as u32)
    }

    /// Of the KV cache where there is one, of weights and activations otherwise.
    pub fn format(&self) -> Result<Format, CalibrateError> {
        let column = if self.optional("kv_dtype").is_empty() { "dtype" } else { "kv_dtype" };
        Ok(match self.text(column)? {
            "bfloat16" | "float16" => Format::Bf16,
            // Logits; no product has a law in 32 bits.
            "float32" if self.optional("op") == "sampler" => Format::Bf16,
            "fp8" => Format::Fp8,
            "fp8_block" if self.optional("kernel").contains("moe_flashinfer_cutlass") => {
                Format::Fp8BlockCutlass
            }
            "fp8_block" => Format::Fp8Block,
            "int4_wo" => Format::Int4,
            "nvfp4" => Format::Nvfp4,
            "w4a16_mxfp4" if self.optional("kernel").contains("gptoss") => Format::Mxfp4,
            "w4a16_mxfp4" => Format::Mxfp4Marlin,
            "w4a8_mxfp4_mxfp8" => Format::Mxfp4Mxfp8,
            other => return Err(self.wrong(column, format!("there is no format `{other}`"), DTYPES)),
        })
    }

    pub fn heads(&self) -> Result<Heads, CalibrateError> {
        let window = self.count_or_0("window")?;
        let (heads_q, heads_kv) = (self.count("heads_q")?, self.count("heads_kv")?);
        if heads_q % heads_kv != 0 {
            let problem = format!("{heads_q} query heads cannot share {heads_kv} evenly");
            return Err(self.wrong_value("heads_kv", problem, format!("give a divisor of {heads_q}")));
        }
        Ok(Heads {
            heads_q,
            heads_kv,
            head_dim: self.count("head_dim")?,
            window_tokens: (window > 0).then_some(window),
        })
    }

    pub fn chunk(&self) -> Result<PrefillChunk, CalibrateError> {
        Ok(PrefillChunk {
            num_tokens: self.count("q_len")?,
            num_computed_tokens: self.count_or_0("kv_past")?,
        })
    }

    pub fn moe(&self, routings: &mut RoutingMemo) -> Result<MoeTiming, CalibrateError> {
        let (hidden, inter) = (self.count("hidden")?, self.count("inter")?);
        let (topk, experts) = (self.count("topk")?, self.count("experts")?);
        let (tokens, ranks) = (self.count("tokens")?, self.count("moe_ep")?);
        if topk > experts {
            let problem = format!("a token cannot choose {topk} of {experts} experts");
            return Err(self.wrong_value("topk", problem, format!("give 1 to {experts}")));
        }
        if ranks > experts {
            let problem = format!("{ranks} ranks cannot share {experts} experts");
            return Err(self.wrong_value("moe_ep", problem, format!("give 1 to {experts}")));
        }
        let routing = MoeRouting {
            name: self.optional("routing").to_owned(),
            tokens,
            experts_per_token: topk,
            num_experts: experts,
            ranks,
            is_grouped: self.has_grouped_router((hidden, inter, topk, experts)),
        };
        Ok(MoeTiming {
            tokens,
            hidden,
            inter: (inter / self.count("moe_tp")?).max(1),
            experts_per_token: topk,
            num_experts: experts,
            expert_matrices: self.expert_matrices((hidden, inter, topk, experts)),
            expert_parallel: ranks,
            is_cutlass: self.optional("kernel").contains("flashinfer_cutlass"),
            loads: match self.count_or_0("activated_experts")? {
                0 => routings.loads(&routing),
                hit => ExpertLoads::independent(f64::from(tokens) * f64::from(topk), f64::from(hit)),
            },
        })
    }

    /// NVIDIA's AIConfigurator counts the message's 16-bit values, whatever the column is called:
    /// its NCCL rows take as long as twice as many bytes of others do, and its all-reduces change
    /// their way at half of vLLM's bounds.
    pub fn collective(&self) -> Result<CollectiveShape, CalibrateError> {
        let bytes_per_unit = if self.optional("source") == "aiconfigurator" { 2.0 } else { 1.0 };
        let bytes = bytes_per_unit * f64::from(self.count("bytes")?);
        let num_gpus = self.count("num_gpus")?;
        if num_gpus < 2 {
            let problem = "one GPU has nobody to send to".to_owned();
            return Err(self.wrong_value("num_gpus", problem, "give 2 or more".to_owned()));
        }
        Ok(CollectiveShape { num_gpus, bytes })
    }

    /// An element-wise kernel by its name.
    pub fn elementwise(&self) -> Result<ElementwiseShape, CalibrateError> {
        let (tokens, hidden) = (self.count("tokens")?, self.count("hidden")?);
        // Read and written for each value of the output, in 16 bits, and the start against that of most
        // kernels, both as the tables have them.
        let (bytes_per_value, starts) = match self.text("kernel")? {
            // Gate and up in, one out.
            "act_fn" => (6.0, 0.75),
            // With the residual: two in, two out.
            "final_layernorm" => (8.0, 1.0),
            // The residual of the layer before is often in the L2 still.
            "layernorm" => (6.0, 0.9),
            // A row of the table, whose place comes from memory too.
            "embedding" => (2.2, 1.5),
            // The heads of queries and keys one by one.
            "qk_norm" => (8.0, 0.85),
            // Kernels of 2024, which pass over their operands more than once. Phi-2's activation has
            // no gate.
            "add" => (5.8, 0.5),
            "mlp_act" if hidden == 10_240 => (5.5, 0.5),
            "mlp_act" => (10.6, 0.8),
            "input_layernorm" => (9.0, 1.15),
            "post_attention_layernorm" => (9.7, 1.1),
            "attn_rope" => (14.2, 0.85),
            "emb" => (22.0, 1.2),
            // One in, one out.
            _ => (4.0, 1.0),
        };
        Ok(ElementwiseShape { tokens, hidden, bytes_per_value, starts })
    }

    /// Weight matrices of an expert: three with a gate. Nemotron 3's experts have none (squared
    /// ReLU), which vLLM's benchmarks know since 0.24; no column says so.
    fn expert_matrices(&self, shape: (u32, u32, u32, u32)) -> u32 {
        let (hidden, inter, topk, experts) = shape;
        let is_nemotron =
            (hidden, inter, topk, experts) == (2688, 1856, 6, 128) || (topk, experts) == (22, 512);
        if is_nemotron && self.uses_model_layers() { 2 } else { 3 }
    }

    /// DeepSeek-V3's router keeps four of eight groups of experts for each token; no column says so.
    fn has_grouped_router(&self, shape: (u32, u32, u32, u32)) -> bool {
        shape == (7168, 2048, 8, 256) && self.uses_model_layers()
    }

    /// Whether the benchmark runs the layer of the model that has such experts. The one for vLLM 0.14
    /// knew sizes only.
    fn uses_model_layers(&self) -> bool {
        self.optional("framework") != "vllm-0.14.0"
    }
}
