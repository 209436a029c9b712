//! Reads a Hugging Face `config.json` into a [`Model`].

use serde_json::Value;

use super::hf_fields::Fields;
use super::{Dtype, Mla, Model, Moe, SlidingWindow};

/// What is wrong with a `config.json`.
#[derive(Debug, thiserror::Error)]
pub enum HfConfigError {
    #[error("config.json of {model}: line {line}, column {column}: {source}")]
    Json { model: String, line: usize, column: usize, source: serde_json::Error },
    #[error("config.json of {model}: expected one JSON object")]
    NotAnObject { model: String },
    #[error("config.json of {model}: `model_type` is `{found}`; expected one of: {}", MODEL_TYPES.join(", "))]
    UnknownModelType { model: String, found: String },
    #[error("config.json of {model}: `{field}` is missing; expected {expected}")]
    MissingField { model: String, field: &'static str, expected: &'static str },
    #[error("config.json of {model}: `{field}` is {found}; expected {expected}")]
    InvalidField { model: String, field: String, found: String, expected: String },
}

/// The architectures whose geometry is known.
const MODEL_TYPES: [&str; 12] = [
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen3",
    "qwen3_moe",
    "gpt_oss",
    "deepseek_v2",
    "deepseek_v3",
    "kimi_k2",
    "minimax_m2",
    "gemma3_text",
];

// Limits of `Fields::optional_u32`.
const MAX_LAYERS: u32 = 1 << 12;
const MAX_HEADS: u32 = 1 << 12;
const MAX_HEAD_DIM: u32 = 1 << 12;
const MAX_WIDTH: u32 = 1 << 18;
const MAX_EXPERTS: u32 = 1 << 12;
const MAX_SHARED_EXPERTS: u32 = 1 << 8;
const MAX_TOKENS: u32 = 1 << 28;
const MAX_BITS: u32 = 32;

/// Reads the text of a `config.json`; `name` is what the model is called from then on.
///
/// The weight format comes from `quantization_config`; `kv_cache_dtype` is what vLLM's `auto`
/// gives, the model's own 16-bit format.
///
/// # Errors
/// [`HfConfigError`], which names the field and what it should hold.
pub fn parse_hf_config(name: &str, text: &str) -> Result<Model, HfConfigError> {
    let document: Value = serde_json::from_str(text).map_err(|source| HfConfigError::Json {
        model: name.to_owned(),
        line: source.line(),
        column: source.column(),
        source,
    })?;
    let Value::Object(root) = &document else {
        return Err(HfConfigError::NotAnObject { model: name.to_owned() });
    };
    let root = Fields::new(name, root);
    // Multimodal models nest the language model's fields.
    let text_config = root.object("text_config")?;
    let fields = text_config.as_ref().unwrap_or(&root);
    let model_type = fields.string("model_type")?.unwrap_or_default();
    if !MODEL_TYPES.contains(&model_type) {
        return Err(HfConfigError::UnknownModelType { model: name.to_owned(), found: model_type.to_owned() });
    }

    let num_hidden_layers = fields.u32("num_hidden_layers", MAX_LAYERS)?;
    let hidden_size = fields.u32("hidden_size", MAX_WIDTH)?;
    let num_attention_heads = fields.u32("num_attention_heads", MAX_HEADS)?;
    let num_key_value_heads =
        fields.optional_u32("num_key_value_heads", MAX_HEADS)?.unwrap_or(num_attention_heads);
    if !num_attention_heads.is_multiple_of(num_key_value_heads) {
        let found = Value::from(num_key_value_heads);
        return Err(fields.invalid("num_key_value_heads", &found, "a divisor of num_attention_heads"));
    }
    let head_dim =
        fields.optional_u32("head_dim", MAX_HEAD_DIM)?.unwrap_or((hidden_size / num_attention_heads).max(1));
    let gemma = model_type == "gemma3_text";
    let attention_bias = fields.bool("attention_bias", false)?;
    let quantization = Quantization::read(&root, model_type)?;

    Ok(Model {
        name: name.to_owned(),
        num_hidden_layers,
        hidden_size,
        num_attention_heads,
        num_key_value_heads,
        head_dim,
        intermediate_size: fields.u32("intermediate_size", MAX_WIDTH)?,
        vocab_size: fields.u32("vocab_size", MAX_TOKENS)?,
        max_position_embeddings: fields.u32("max_position_embeddings", MAX_TOKENS)?,
        tie_word_embeddings: fields.bool("tie_word_embeddings", gemma)?,
        norms_per_layer: if gemma { 4 } else { 2 },
        // Qwen2 has the bias in its code, not in its configuration.
        qkv_bias: attention_bias || model_type == "qwen2",
        o_bias: attention_bias,
        qk_norm: matches!(model_type, "qwen3" | "qwen3_moe" | "gemma3_text" | "minimax_m2"),
        qk_norm_over_all_heads: model_type == "minimax_m2",
        attention_sinks: model_type == "gpt_oss",
        weight_dtype: quantization.linear,
        activation_dtype: Dtype::Bf16,
        kv_cache_dtype: Dtype::Bf16,
        moe: read_moe(fields, model_type, num_hidden_layers, quantization.experts)?,
        mla: read_mla(fields, model_type)?,
        sliding_window: read_sliding_window(fields, model_type, num_hidden_layers)?,
    })
}

fn read_moe(
    fields: &Fields<'_>,
    model_type: &str,
    num_hidden_layers: u32,
    expert_dtype: Dtype,
) -> Result<Option<Moe>, HfConfigError> {
    let (experts, inter) = match model_type {
        "mixtral" | "gpt_oss" | "minimax_m2" => ("num_local_experts", "intermediate_size"),
        "qwen3_moe" => ("num_experts", "moe_intermediate_size"),
        "deepseek_v2" | "deepseek_v3" | "kimi_k2" => ("n_routed_experts", "moe_intermediate_size"),
        _ => return Ok(None),
    };
    let gpt_oss = model_type == "gpt_oss";
    let num_experts = fields.u32(experts, MAX_EXPERTS)?;
    let num_experts_per_tok = fields.u32("num_experts_per_tok", MAX_EXPERTS)?;
    if num_experts_per_tok > num_experts {
        let found = Value::from(num_experts_per_tok);
        return Err(fields.invalid("num_experts_per_tok", &found, "at most the number of experts"));
    }
    let num_dense_layers = fields.count("first_k_dense_replace", MAX_LAYERS)?;
    if num_dense_layers > num_hidden_layers {
        let found = Value::from(num_dense_layers);
        return Err(fields.invalid("first_k_dense_replace", &found, "at most num_hidden_layers"));
    }
    Ok(Some(Moe {
        num_experts,
        num_experts_per_tok,
        moe_intermediate_size: fields.u32(inter, MAX_WIDTH)?,
        num_shared_experts: fields.count("n_shared_experts", MAX_SHARED_EXPERTS)?,
        num_dense_layers,
        expert_bias: gpt_oss,
        // DeepSeek-V3 and its kin keep one correction per expert for their balanced routing.
        router_bias: gpt_oss || matches!(model_type, "deepseek_v3" | "kimi_k2" | "minimax_m2"),
        router_dtype: if model_type == "minimax_m2" { Dtype::Fp32 } else { Dtype::Bf16 },
        expert_dtype,
    }))
}

fn read_mla(fields: &Fields<'_>, model_type: &str) -> Result<Option<Mla>, HfConfigError> {
    if !matches!(model_type, "deepseek_v2" | "deepseek_v3" | "kimi_k2") {
        return Ok(None);
    }
    Ok(Some(Mla {
        kv_lora_rank: fields.u32("kv_lora_rank", MAX_HEAD_DIM)?,
        qk_rope_head_dim: fields.u32("qk_rope_head_dim", MAX_HEAD_DIM)?,
        qk_nope_head_dim: fields.u32("qk_nope_head_dim", MAX_HEAD_DIM)?,
        v_head_dim: fields.u32("v_head_dim", MAX_HEAD_DIM)?,
        q_lora_rank: fields.optional_u32("q_lora_rank", MAX_WIDTH)?,
    }))
}

fn read_sliding_window(
    fields: &Fields<'_>,
    model_type: &str,
    num_hidden_layers: u32,
) -> Result<Option<SlidingWindow>, HfConfigError> {
    let Some(window_tokens) = fields.optional_u32("sliding_window", MAX_TOKENS)? else { return Ok(None) };
    let layers: Vec<bool> = if let Some(types) = fields.array("layer_types")? {
        if types.len() != num_hidden_layers as usize {
            let found = Value::from(types.len());
            return Err(fields.invalid("layer_types", &found, "one entry per layer"));
        }
        types.iter().map(|kind| kind == "sliding_attention").collect()
    } else {
        let layers = 0..num_hidden_layers;
        match model_type {
            "mistral" | "mixtral" => layers.map(|_| true).collect(),
            "gpt_oss" => layers.map(|layer| layer % 2 == 0).collect(),
            "gemma3_text" => {
                let pattern = fields.optional_u32("sliding_window_pattern", MAX_LAYERS)?.unwrap_or(6);
                layers.map(|layer| (layer + 1) % pattern != 0).collect()
            }
            // Qwen writes a window into every configuration and switches it off beside it.
            _ if fields.bool("use_sliding_window", false)? => {
                let first = fields.count("max_window_layers", MAX_LAYERS)?;
                layers.map(|layer| layer >= first).collect()
            }
            _ => return Ok(None),
        }
    };
    Ok(layers.contains(&true).then_some(SlidingWindow { window_tokens, layers }))
}

/// Formats of the linear layers and of the experts.
struct Quantization {
    linear: Dtype,
    experts: Dtype,
}

impl Quantization {
    fn read(root: &Fields<'_>, model_type: &str) -> Result<Self, HfConfigError> {
        let Some(config) = root.object("quantization_config")? else {
            return Ok(Self { linear: Dtype::Bf16, experts: Dtype::Bf16 });
        };
        let method = config.string("quant_method")?.unwrap_or_default();
        let dtype = match method {
            "fp8" | "fbgemm_fp8" => Dtype::Fp8,
            "mxfp4" => Dtype::Mxfp4,
            "awq" | "gptq" => match config.optional_u32("bits", MAX_BITS)? {
                None | Some(4) => Dtype::Int4,
                Some(8) => Dtype::Int8,
                Some(bits) => return Err(config.invalid("bits", &bits.into(), "4 or 8")),
            },
            "modelopt" => match config.string("quant_algo")?.unwrap_or_default() {
                "FP8" => Dtype::Fp8,
                "NVFP4" => Dtype::Nvfp4,
                other => return Err(config.invalid("quant_algo", &other.into(), "FP8 or NVFP4")),
            },
            "compressed-tensors" => compressed_tensors_dtype(&config)?,
            other => {
                let expected = "fp8, fbgemm_fp8, mxfp4, awq, gptq, modelopt or compressed-tensors";
                return Err(config.invalid("quantization_config.quant_method", &other.into(), expected));
            }
        };
        // gpt-oss quantises its experts alone; others may list attention among what stays as it is.
        let ignored = config.array("ignore")?.unwrap_or_default();
        let ignores_attention =
            ignored.iter().any(|name| name.as_str().is_some_and(|name| name.contains("self_attn")));
        let linear = if model_type == "gpt_oss" || ignores_attention { Dtype::Bf16 } else { dtype };
        Ok(Self { linear, experts: dtype })
    }
}

/// The weight format of the first group of a compressed-tensors configuration.
fn compressed_tensors_dtype(config: &Fields<'_>) -> Result<Dtype, HfConfigError> {
    const EXPECTED: &str = "weights of 8 bits (int or float) or 4 bits (int, or float in groups of 16 or 32)";
    let groups = config.object("config_groups")?;
    let weights = groups.as_ref().and_then(|groups| groups.children().next());
    let Some(weights) = weights.map(|group| group.object("weights")).transpose()?.flatten() else {
        return Err(config.invalid("quantization_config.config_groups", &Value::Null, EXPECTED));
    };
    let bits = weights.u32("num_bits", MAX_BITS)?;
    let kind = weights.string("type")?.unwrap_or("int");
    Ok(match (bits, kind, weights.optional_u32("group_size", MAX_WIDTH)?) {
        (8, "float", _) => Dtype::Fp8,
        (8, "int", _) => Dtype::Int8,
        (4, "int", _) => Dtype::Int4,
        (4, "float", Some(32)) => Dtype::Mxfp4,
        (4, "float", _) => Dtype::Nvfp4,
        _ => return Err(weights.invalid("num_bits", &bits.into(), EXPECTED)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(edit: impl FnOnce(&mut Value)) -> Result<Model, HfConfigError> {
        let mut config: Value = serde_json::from_str(include_str!("models/llama-3.1-8b.json")).unwrap();
        edit(&mut config);
        parse_hf_config("test/model", &config.to_string())
    }

    #[test]
    fn errors_name_the_field_and_what_is_expected() {
        let error = parse_hf_config("m", "{\n  \"a\": }").unwrap_err().to_string();
        assert!(error.starts_with("config.json of m: line 2, column 8"), "{error}");
        let error = edited(|c| c["model_type"] = "mamba".into()).unwrap_err().to_string();
        assert!(error.contains("`model_type` is `mamba`; expected one of: llama, "), "{error}");
        let error = edited(|c| c["hidden_size"] = "big".into()).unwrap_err().to_string();
        assert!(error.contains("`hidden_size` is \"big\"; expected a positive integer"), "{error}");
        let error = edited(|c| c["head_dim"] = 100_000.into()).unwrap_err().to_string();
        assert!(
            error.contains("`head_dim` is 100000; expected a positive integer of at most 4096"),
            "{error}"
        );
        let error = edited(|c| c["num_hidden_layers"] = Value::Null).unwrap_err().to_string();
        assert!(error.contains("`num_hidden_layers` is missing; expected a positive integer"), "{error}");
        let error = edited(|c| c["num_key_value_heads"] = 5.into()).unwrap_err().to_string();
        assert!(error.contains("a divisor of num_attention_heads"), "{error}");
        let error = edited(|c| c["quantization_config"] = serde_json::json!({"quant_method": "hqq"}));
        assert!(error.unwrap_err().to_string().contains("`quantization_config.quant_method` is \"hqq\""));
    }

    #[test]
    fn absent_fields_take_hugging_faces_defaults() {
        let model = edited(|c| {
            c.as_object_mut().unwrap().remove("num_key_value_heads");
        })
        .unwrap();
        assert_eq!((model.num_key_value_heads, model.head_dim), (32, 128));
    }

    #[test]
    fn quantization_config_sets_the_weight_format() {
        let quantised = |config| edited(|c| c["quantization_config"] = config).unwrap().weight_dtype;
        assert_eq!(quantised(serde_json::json!({"quant_method": "fp8"})), Dtype::Fp8);
        assert_eq!(quantised(serde_json::json!({"quant_method": "awq", "bits": 4})), Dtype::Int4);
        let nvfp4 = serde_json::json!({"quant_method": "compressed-tensors",
            "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}});
        assert_eq!(quantised(nvfp4), Dtype::Nvfp4);
        // gpt-oss keeps attention in 16 bits.
        let gpt_oss = Model::find("gpt-oss-120b").unwrap();
        assert_eq!(gpt_oss.weight_dtype, Dtype::Bf16);
        assert_eq!(gpt_oss.moe.unwrap().expert_dtype, Dtype::Mxfp4);
    }

    #[test]
    fn windows_follow_each_architecture() {
        let gpt_oss = Model::find("gpt-oss-120b").unwrap();
        assert_eq!((gpt_oss.num_sliding_layers(), gpt_oss.num_full_attention_layers()), (18, 18));
        // Mistral-7B-v0.1 slides everywhere.
        let mistral = edited(|c| {
            c["model_type"] = "mistral".into();
            c["sliding_window"] = 4096.into();
        });
        assert_eq!(mistral.unwrap().num_sliding_layers(), 32);
        // Qwen states a window and does not use it.
        let qwen = edited(|c| {
            c["model_type"] = "qwen2".into();
            c["sliding_window"] = 32768.into();
            c["use_sliding_window"] = false.into();
        })
        .unwrap();
        assert_eq!(qwen.sliding_window, None);
        assert!(qwen.qkv_bias);
        // Gemma 3: one full layer in six; 26 layers hold 4 of them.
        let gemma = edited(|c| {
            c["model_type"] = "gemma3_text".into();
            c["num_hidden_layers"] = 26.into();
            c["sliding_window"] = 512.into();
        });
        assert_eq!(gemma.unwrap().num_full_attention_layers(), 4);
    }
}
