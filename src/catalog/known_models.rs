//! The built-in models.

/// A built-in model: its name, the other names it goes by, and its public configuration.
pub(super) struct KnownModel {
    pub name: &'static str,
    aliases: &'static [&'static str],
    pub config: &'static str,
}

/// The geometry of an instruction-tuned model is that of its base model.
static MODELS: [KnownModel; 12] = [
    KnownModel {
        name: "Llama-3-8B",
        aliases: &["Meta-Llama-3-8B", "Meta-Llama-3-8B-Instruct", "Llama-3-8B-Instruct"],
        config: include_str!("models/llama-3-8b.json"),
    },
    KnownModel {
        name: "Llama-3.1-8B",
        aliases: &[
            "Llama-3.1-8B-Instruct",
            "Llama-3.1-8B-Instruct-FP8",
            "Meta-Llama-3.1-8B",
            "Meta-Llama-3.1-8B-Instruct",
        ],
        config: include_str!("models/llama-3.1-8b.json"),
    },
    KnownModel {
        name: "Llama-3.1-70B",
        aliases: &["Llama-3.1-70B-Instruct", "Meta-Llama-3.1-70B", "Meta-Llama-3.1-70B-Instruct"],
        config: include_str!("models/llama-3.1-70b.json"),
    },
    KnownModel {
        name: "Llama-3.3-70B",
        aliases: &["Llama-3.3-70B-Instruct"],
        // Meta changed the weights, not the geometry.
        config: include_str!("models/llama-3.1-70b.json"),
    },
    KnownModel {
        name: "Qwen3-8B",
        aliases: &["Qwen3-8B-Base"],
        config: include_str!("models/qwen3-8b.json"),
    },
    KnownModel { name: "Qwen3-32B", aliases: &[], config: include_str!("models/qwen3-32b.json") },
    KnownModel {
        name: "Qwen3-30B-A3B",
        aliases: &["Qwen3-30B-A3B-Base", "Qwen3-30B-A3B-Instruct-2507", "Qwen3-30B-A3B-Thinking-2507"],
        config: include_str!("models/qwen3-30b-a3b.json"),
    },
    KnownModel { name: "gpt-oss-120b", aliases: &[], config: include_str!("models/gpt-oss-120b.json") },
    KnownModel {
        name: "DeepSeek-V3",
        aliases: &["DeepSeek-V3-Base", "DeepSeek-V3-0324", "DeepSeek-R1", "DeepSeek-R1-0528"],
        config: include_str!("models/deepseek-v3.json"),
    },
    KnownModel {
        name: "Qwen3-235B-A22B",
        aliases: &["Qwen3-235B-A22B-FP8"],
        config: include_str!("models/qwen3-235b-a22b.json"),
    },
    KnownModel {
        name: "MiniMax-M2",
        // Later versions changed the weights, not the geometry.
        aliases: &["MiniMax-M2.1", "MiniMax-M2.5"],
        config: include_str!("models/minimax-m2.json"),
    },
    KnownModel {
        // The language model alone.
        name: "Kimi-K2.5",
        aliases: &["Kimi-K2", "Kimi-K2-Thinking"],
        config: include_str!("models/kimi-k2.5.json"),
    },
];

pub(super) fn names() -> Vec<&'static str> {
    MODELS.iter().map(|model| model.name).collect()
}

pub(super) fn find(name: &str) -> Option<&'static KnownModel> {
    let wanted = name.rsplit('/').next().unwrap_or(name);
    let matches = |other: &str| other.eq_ignore_ascii_case(wanted);
    MODELS.iter().find(|model| matches(model.name) || model.aliases.iter().any(|alias| matches(alias)))
}

#[cfg(test)]
mod tests {
    use crate::catalog::Model;

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
}
