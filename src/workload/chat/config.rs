//! What can be set about generated chat sessions.

use serde::{Deserialize, Serialize};

use super::images::ImagesConfig;
use crate::workload::distribution::MAX_LENGTH_TOKENS;
use crate::workload::generator::Generator;
use crate::workload::token_ids::MAX_SHARED_TEXTS;
use crate::workload::{ArrivalProcess, ConfigError, Distribution, WaitsFor, require, zipf};

/// With a patience of 0 s all retries come at the same time.
const MAX_RETRIES: u32 = 1_000;

/// Users who open chat sessions independently of each other, and in a session wait for each answer
/// before they write on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChatConfig {
    /// New sessions in a second, over all tenants; none where the arrival process sets its times.
    #[serde(default)]
    pub sessions_per_s: Option<f64>,
    #[serde(default)]
    pub arrival_process: ArrivalProcess,
    /// No session starts at or after this time; those under way go on to their end.
    #[serde(default)]
    pub duration_s: Option<f64>,
    /// No more sessions than this start.
    #[serde(default)]
    pub num_sessions: Option<u64>,
    /// So many sessions at a time: the next starts when one ends.
    #[serde(default)]
    pub max_concurrency: Option<u32>,
    pub tenants: Vec<TenantConfig>,
    /// Messages of a session, if `max_context_tokens` does not end it before.
    pub turns: Distribution,
    /// Length of what the user writes.
    pub message_tokens: Distribution,
    /// Length of what the model answers.
    pub answer_tokens: Distribution,
    /// From the end of an answer to the next message.
    pub think_time_s: Distribution,
    /// A session ends when with the next message and its answer it would be longer than this. One
    /// whose first turn is too long sends nothing.
    pub max_context_tokens: u32,
    /// Users wait for ever if left out.
    #[serde(default)]
    pub abandonment: Option<AbandonmentConfig>,
}

/// Users who go away when an answer takes too long; the server then aborts the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AbandonmentConfig {
    /// From the message until its user gives up, drawn anew for each message.
    pub patience_s: Distribution,
    #[serde(default)]
    pub waits_for: WaitsFor,
    /// So many times the user sends the message again, at once and with the same patience. Then the
    /// session ends.
    #[serde(default)]
    pub max_retries: u32,
}

/// A group of users whose sessions all start with the same system prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// The name in reports.
    pub name: String,
    /// The share of sessions is this weight in the sum of all weights.
    #[serde(default = "one")]
    pub weight: f64,
    /// 0 for none.
    pub system_prompt_tokens: u32,
    /// vLLM's request priority: a lower value is served first.
    #[serde(default)]
    pub priority: i32,
    /// Ask for prompt logprobs: such a request fills the prefix cache but does not look into it.
    #[serde(default)]
    pub prompt_logprobs: bool,
    /// Keeps the tenant's blocks apart from all others'.
    #[serde(default)]
    pub cache_salt: Option<String>,
    /// The name of a LoRA adapter. Tenants with the same name share it.
    #[serde(default)]
    pub lora: Option<String>,
    /// Start with the text of this tenant's system prompt, up to the own `system_prompt_tokens`.
    #[serde(default)]
    pub shares_system_prompt_with: Option<String>,
    /// Examples that follow the system prompt.
    #[serde(default)]
    pub few_shot: Option<FewShotConfig>,
    /// Images that come with messages; none if left out.
    #[serde(default)]
    pub images: Option<ImagesConfig>,
    /// Prompts are sent as embeddings that the client makes of the whole conversation, answers
    /// included (`prompt_embeds` of a completion).
    #[serde(default)]
    pub prompt_embeds: bool,
}

/// Sets of examples, of which a session's prompts contain one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FewShotConfig {
    pub num_prefixes: u64,
    /// Length of each set, drawn once.
    pub prefix_tokens: Distribution,
    /// How uneven the sets' popularity is; 0 is even.
    #[serde(default)]
    pub zipf_exponent: f64,
    /// The share of the tenant's sessions with examples.
    #[serde(default = "one")]
    pub share: f64,
}

const fn one() -> f64 {
    1.0
}

impl ChatConfig {
    /// Checks the values and how they fit together; the error names the path of the field.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.starts().validate()?;
        for (name, counts) in [
            ("turns", &self.turns),
            ("message_tokens", &self.message_tokens),
            ("answer_tokens", &self.answer_tokens),
        ] {
            counts.validate_count().map_err(|error| error.within(name))?;
        }
        self.think_time_s.validate_time().map_err(|error| error.within("think_time_s"))?;
        if let Some(abandonment) = &self.abandonment {
            let error = |error: ConfigError| error.within("abandonment.patience_s");
            abandonment.patience_s.validate_time().map_err(error)?;
            if abandonment.max_retries > MAX_RETRIES {
                let expected = format!("a whole number from 0 to {MAX_RETRIES}");
                return Err(ConfigError::new("abandonment.max_retries", abandonment.max_retries, expected));
            }
        }
        if !(1..=MAX_LENGTH_TOKENS).contains(&self.max_context_tokens) {
            let expected = format!("a whole number from 1 to {MAX_LENGTH_TOKENS}");
            return Err(ConfigError::new("max_context_tokens", self.max_context_tokens, expected));
        }
        self.validate_tenants()
    }

    /// The tenant whose text the system prompt of a tenant is.
    pub(super) fn system_prompt_of(&self, tenant: u32) -> usize {
        let shared = self.tenants[tenant as usize].shares_system_prompt_with.as_deref();
        let other = self.tenants.iter().position(|other| Some(other.name.as_str()) == shared);
        other.unwrap_or(tenant as usize)
    }

    /// The number of the first shared text that is a few-shot prefix of a tenant: system prompts
    /// come first, then the prefixes of one tenant after the other.
    pub(super) fn first_few_shot_text(&self, tenant: u32) -> u64 {
        let before = self.tenants[..tenant as usize].iter().filter_map(|tenant| tenant.few_shot.as_ref());
        self.tenants.len() as u64 + before.map(|few_shot| few_shot.num_prefixes).sum::<u64>()
    }

    fn validate_tenants(&self) -> Result<(), ConfigError> {
        if self.tenants.is_empty() {
            return Err(ConfigError::new("tenants", "none", "at least one"));
        }
        let few_shot_prefixes =
            self.tenants.iter().filter_map(|tenant| Some(tenant.few_shot.as_ref()?.num_prefixes));
        let texts = few_shot_prefixes.fold(self.tenants.len() as u64, u64::saturating_add);
        let expected = format!("at most {MAX_SHARED_TEXTS} system prompts and few-shot prefixes");
        require(texts <= MAX_SHARED_TEXTS, "tenants", texts, expected)?;
        let turn_tokens =
            u64::from(self.message_tokens.count_bounds().0) + u64::from(self.answer_tokens.count_bounds().0);
        for (index, tenant) in self.tenants.iter().enumerate() {
            let error = |field: &str, found: String, expected: String| {
                Err(ConfigError::new(format!("tenants[{index}].{field}"), found, expected))
            };
            if !(1e-9..=1e9).contains(&tenant.weight) {
                return error(
                    "weight",
                    tenant.weight.to_string(),
                    "a number above 0, at most 1000000000".into(),
                );
            }
            if self.tenants[..index].iter().any(|other| other.name == tenant.name) {
                return error("name", format!("`{}` again", tenant.name), "a name of its own".into());
            }
            if let Some(shared) = &tenant.shares_system_prompt_with
                && self.tenants.iter().all(|other| other.name != *shared)
            {
                return error("shares_system_prompt_with", format!("`{shared}`"), "a tenant's name".into());
            }
            if let Some(few_shot) = &tenant.few_shot {
                few_shot.validate().map_err(|error| error.within(&format!("tenants[{index}].few_shot")))?;
            }
            if let Some(images) = &tenant.images {
                images.validate().map_err(|error| error.within(&format!("tenants[{index}].images")))?;
                if tenant.prompt_embeds {
                    let expected = "no `images` beside it: embeddings are a prompt without images";
                    return error("prompt_embeds", "true".into(), expected.into());
                }
            }
            let left = u64::from(self.max_context_tokens).checked_sub(turn_tokens);
            if left.is_none_or(|left| u64::from(tenant.system_prompt_tokens) > left) {
                let expected = format!(
                    "room for a message and an answer, {turn_tokens} tokens or more, within \
                     `max_context_tokens`, {}",
                    self.max_context_tokens
                );
                return error("system_prompt_tokens", tenant.system_prompt_tokens.to_string(), expected);
            }
        }
        Ok(())
    }
}

impl FewShotConfig {
    fn validate(&self) -> Result<(), ConfigError> {
        let valid = (1..=MAX_SHARED_TEXTS).contains(&self.num_prefixes);
        let expected = format!("a whole number from 1 to {MAX_SHARED_TEXTS}");
        require(valid, "num_prefixes", self.num_prefixes, expected)?;
        self.prefix_tokens.validate_count().map_err(|error| error.within("prefix_tokens"))?;
        zipf::validate("zipf_exponent", self.zipf_exponent)?;
        require((0.0..=1.0).contains(&self.share), "share", self.share, "a number from 0 to 1")
    }
}
