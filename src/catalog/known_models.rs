//! The built-in models.

/// A built-in model and its public configuration.
pub(super) struct KnownModel {
    /// Names that it goes by, and where the checkpoint of each lies on Hugging Face. The first is that of
    /// the geometry; the others have the same one.
    checkpoints: &'static [(&'static str, &'static str)],
    pub config: &'static str,
}

/// The geometry of an instruction-tuned model is that of its base model.
static MODELS: [KnownModel; 12] = [
    KnownModel {
        checkpoints: &[
            ("Llama-3-8B", "meta-llama/Meta-Llama-3-8B"),
            ("Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-8B-Instruct"),
            ("Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B"),
            ("Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-8B-Instruct"),
        ],
        config: include_str!("models/llama-3-8b.json"),
    },
    KnownModel {
        checkpoints: &[
            ("Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
            ("Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
            ("Llama-3.1-8B-Instruct-FP8", "nvidia/Llama-3.1-8B-Instruct-FP8"),
            ("Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
            ("Meta-Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
        ],
        config: include_str!("models/llama-3.1-8b.json"),
    },
    KnownModel {
        checkpoints: &[
            ("Llama-3.1-70B", "meta-llama/Llama-3.1-70B"),
            ("Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"),
            ("Meta-Llama-3.1-70B", "meta-llama/Llama-3.1-70B"),
            ("Meta-Llama-3.1-70B-Instruct", "meta-llama/Llama-3.1-70B-Instruct"),
        ],
        config: include_str!("models/llama-3.1-70b.json"),
    },
    KnownModel {
        // Only the instruction-tuned one was published.
        checkpoints: &[
            ("Llama-3.3-70B", "meta-llama/Llama-3.3-70B-Instruct"),
            ("Llama-3.3-70B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"),
        ],
        // Meta changed the weights, not the geometry.
        config: include_str!("models/llama-3.1-70b.json"),
    },
    KnownModel {
        checkpoints: &[("Qwen3-8B", "Qwen/Qwen3-8B"), ("Qwen3-8B-Base", "Qwen/Qwen3-8B-Base")],
        config: include_str!("models/qwen3-8b.json"),
    },
    KnownModel {
        checkpoints: &[("Qwen3-32B", "Qwen/Qwen3-32B")],
        config: include_str!("models/qwen3-32b.json"),
    },
    KnownModel {
        checkpoints: &[
            ("Qwen3-30B-A3B", "Qwen/Qwen3-30B-A3B"),
            ("Qwen3-30B-A3B-Base", "Qwen/Qwen3-30B-A3B-Base"),
            ("Qwen3-30B-A3B-Instruct-2507", "Qwen/Qwen3-30B-A3B-Instruct-2507"),
            ("Qwen3-30B-A3B-Thinking-2507", "Qwen/Qwen3-30B-A3B-Thinking-2507"),
        ],
        config: include_str!("models/qwen3-30b-a3b.json"),
    },
    KnownModel {
        checkpoints: &[("gpt-oss-120b", "openai/gpt-oss-120b")],
        config: include_str!("models/gpt-oss-120b.json"),
    },
    KnownModel {
        checkpoints: &[
            ("DeepSeek-V3", "deepseek-ai/DeepSeek-V3"),
            ("DeepSeek-V3-Base", "deepseek-ai/DeepSeek-V3-Base"),
            ("DeepSeek-V3-0324", "deepseek-ai/DeepSeek-V3-0324"),
            ("DeepSeek-R1", "deepseek-ai/DeepSeek-R1"),
            ("DeepSeek-R1-0528", "deepseek-ai/DeepSeek-R1-0528"),
        ],
        config: include_str!("models/deepseek-v3.json"),
    },
    KnownModel {
        checkpoints: &[
            ("Qwen3-235B-A22B", "Qwen/Qwen3-235B-A22B"),
            ("Qwen3-235B-A22B-FP8", "Qwen/Qwen3-235B-A22B-FP8"),
        ],
        config: include_str!("models/qwen3-235b-a22b.json"),
    },
    KnownModel {
        // Later versions changed the weights, not the geometry.
        checkpoints: &[
            ("MiniMax-M2", "MiniMaxAI/MiniMax-M2"),
            ("MiniMax-M2.1", "MiniMaxAI/MiniMax-M2.1"),
            ("MiniMax-M2.5", "MiniMaxAI/MiniMax-M2.5"),
        ],
        config: include_str!("models/minimax-m2.json"),
    },
    KnownModel {
        // The language model alone.
        checkpoints: &[
            ("Kimi-K2.5", "moonshotai/Kimi-K2.5"),
            ("Kimi-K2", "moonshotai/Kimi-K2-Instruct"),
            ("Kimi-K2-Thinking", "moonshotai/Kimi-K2-Thinking"),
        ],
        config: include_str!("models/kimi-k2.5.json"),
    },
];

impl KnownModel {
    pub fn name(&self) -> &'static str {
        self.checkpoints[0].0
    }
}

pub(super) fn names() -> Vec<&'static str> {
    MODELS.iter().map(KnownModel::name).collect()
}

pub(super) fn find(name: &str) -> Option<&'static KnownModel> {
    checkpoint(name).map(|(model, _)| model)
}

/// Where the checkpoint of a built-in model lies on Hugging Face. A name with an organisation is one already.
pub fn repository(name: &str) -> Option<&'static str> {
    if name.contains('/') {
        return None;
    }
    checkpoint(name).map(|(_, repository)| repository)
}

/// The checkpoint of this name has weights in FP8.
pub(super) fn is_fp8(name: &str) -> bool {
    name.to_ascii_lowercase().ends_with("-fp8")
}

fn checkpoint(name: &str) -> Option<(&'static KnownModel, &'static str)> {
    let wanted = name.rsplit('/').next().unwrap_or(name);
    let all = MODELS.iter().flat_map(|model| model.checkpoints.iter().map(move |it| (model, it)));
    let mut matching = all.filter(|(_, (name, _))| name.eq_ignore_ascii_case(wanted));
    matching.next().map(|(model, &(_, repository))| (model, repository))
}

#[cfg(test)]
mod tests {
    use crate::catalog::{Dtype, Model};

    #[test]
    fn every_embedded_configuration_parses() {
        for name in super::names() {
            assert_eq!(Model::find(name).unwrap().name, name);
        }
    }

    #[test]
    fn names_match_with_organisation_and_in_any_case() {
        for name in ["llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Meta-Llama-3.1-8B"] {
            assert_eq!(Model::find(name).unwrap().name, "Llama-3.1-8B");
        }
        let error = Model::find("Llama-4").unwrap_err().to_string();
        assert!(error.starts_with("unknown model `Llama-4`; use one of: Llama-3-8B, "), "{error}");
    }

    #[test]
    fn quantised_checkpoints_are_quantised() {
        let weights = |name: &str| Model::find(name).unwrap().weight_dtype;
        assert_eq!(weights("Llama-3.1-8B-Instruct"), Dtype::Bf16);
        assert_eq!(weights("nvidia/Llama-3.1-8B-Instruct-FP8"), Dtype::Fp8);
        let experts = Model::find("Qwen/Qwen3-235B-A22B-FP8").unwrap();
        assert_eq!((experts.weight_dtype, experts.moe.unwrap().expert_dtype), (Dtype::Fp8, Dtype::Fp8));
    }

    #[test]
    fn checkpoints_have_repositories() {
        for (name, repository) in [
            ("Llama-3-8B", Some("meta-llama/Meta-Llama-3-8B")),
            ("llama-3.1-8b-instruct", Some("meta-llama/Llama-3.1-8B-Instruct")),
            ("Llama-3.3-70B", Some("meta-llama/Llama-3.3-70B-Instruct")),
            ("neuralmagic/Llama-3.1-8B", None),
            ("somebody's", None),
        ] {
            assert_eq!(super::repository(name), repository, "{name}");
        }
    }
}
