//! What a scenario means, and whether a server could start with it: vLLM's own rules at start-up.

use std::path::Path;

use super::ScenarioError;
use super::build::Typed;
use super::data_parallel::check_data_parallel;
use super::engine_section::{EngineSection, TierSection, TransferSection};
use super::error::{ErrorKind, suggest};
use super::file::{CostSection, HashingConstant, HashingSection, ScenarioFile};
use super::kv_cache_groups::{blocks_for_one_request, longest_model_len};
use super::server_size::{self, ModelError};
use crate::catalog::{Gpu, KvCacheSize, Model, SizingError, UnknownName, size_kv_cache};
use crate::cost::{HashingLaw, HashingProfile, Profile};
use crate::engine::EngineConfig;
use crate::engine::kv_cache::KvCacheSpec;
use crate::report::GoodputLimits;
use crate::text_file::TextFileError;
use crate::workload::{ConfigError, WorkloadConfig};

/// The longest time of an action, and of a constant step.
const MAX_AT_S: f64 = 1e9;
const MAX_STEP_NS: u64 = 1_000_000_000_000;
const MAX_PER_TOKEN_NS: u64 = 1_000_000_000;

/// A length without an end can be more than this.
const MAX_LENGTH: u64 = i32::MAX as u64;

pub(super) struct Checked {
    pub model: Model,
    pub gpu: &'static Gpu,
    pub engine: EngineConfig,
    pub kv_cache_size: KvCacheSize,
    pub profile: Profile,
    pub hashing: HashingLaw,
}

/// # Errors
/// The first problem, at its place.
pub(super) fn check(typed: &Typed, file: &ScenarioFile) -> Result<Checked, ScenarioError> {
    check_name(typed, &file.name)?;
    let model = file.engine.served(find_model(typed, &file.model)?);
    let gpu = Gpu::find(&file.gpu).map_err(|error| unknown_name(typed, "gpu", &error, ""))?;
    let (engine, kv_cache_size) = check_engine(typed, &file.engine, &model, gpu)?;
    check_workload(typed, file, engine.max_model_len)?;
    let profile = check_cost(typed, file.cost.as_ref(), gpu)?;
    let hashing = check_hashing(typed, file)?;
    for (index, action) in file.actions.iter().enumerate() {
        if !(0.0..=MAX_AT_S).contains(&action.at_s) {
            return Err(typed
                .wrong(&format!("actions[{index}].at_s"), format!("`at_s` is {}", action.at_s))
                .hint(format!("give seconds from the start, 0 to {MAX_AT_S}")));
        }
    }
    check_goodput(typed, file.goodput.as_ref())?;
    Ok(Checked { model, gpu, engine, kv_cache_size, profile, hashing })
}

fn check_goodput(typed: &Typed, limits: Option<&GoodputLimits>) -> Result<(), ScenarioError> {
    let Some(limits) = limits else { return Ok(()) };
    if limits.all().iter().all(|(_, at_most_ms)| at_most_ms.is_none()) {
        return Err(typed
            .wrong("goodput", "`goodput` limits nothing")
            .hint("give one or more of ttft_ms, tpot_ms and e2e_ms, such as `goodput: {ttft_ms: 500}`"));
    }
    for (name, at_most_ms) in limits.all() {
        if let Some(at_most_ms) = at_most_ms.filter(|at_most_ms| *at_most_ms <= 0.0) {
            return Err(typed
                .wrong(&format!("goodput.{name}"), format!("`{name}` is {at_most_ms}"))
                .hint("give milliseconds above 0"));
        }
    }
    Ok(())
}

/// The name becomes a folder.
fn check_name(typed: &Typed, name: &str) -> Result<(), ScenarioError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        return Err(typed
            .wrong("name", format!("`name` is {name:?}, which cannot name a folder"))
            .hint("use letters, digits, `_` and `-`"));
    }
    Ok(())
}

fn unknown_name(typed: &Typed, field: &str, error: &UnknownName, or: &str) -> ScenarioError {
    let hint = suggest(&error.name, &error.known) + or;
    typed.wrong(field, format!("unknown {} `{}`", error.kind, error.name)).hint(hint).kind(ErrorKind::Typing)
}

/// A built-in model, or the `config.json` at a path relative to the scenario.
fn find_model(typed: &Typed, name: &str) -> Result<Model, ScenarioError> {
    let folder = typed.source.path.parent().unwrap_or(Path::new(""));
    server_size::find_model(name, folder).map_err(|error| match error {
        ModelError::Unknown(error) => {
            unknown_name(typed, "model", &error, "; or give the path of a Hugging Face config.json")
        }
        ModelError::File(error @ TextFileError::Read { .. }) => typed
            .wrong("model", error)
            .hint("give the path of a Hugging Face config.json, relative to the scenario")
            .kind(ErrorKind::Typing),
        // It says itself what to do.
        ModelError::File(error @ TextFileError::NotUtf8 { .. }) => {
            typed.wrong("model", error).kind(ErrorKind::Typing)
        }
        ModelError::Config(error) => typed.wrong_as("model", &error.to_string()).kind(ErrorKind::Typing),
    })
}

fn check_engine(
    typed: &Typed,
    section: &EngineSection,
    model: &Model,
    gpu: &Gpu,
) -> Result<(EngineConfig, KvCacheSize), ScenarioError> {
    let mut engine = section.to_config(model, gpu);
    if !(1..=model.max_position_embeddings).contains(&engine.max_model_len) {
        let message = format!(
            "max_model_len is {}, but {} was made for {} tokens",
            engine.max_model_len, model.name, model.max_position_embeddings
        );
        return Err(typed
            .wrong("engine.max_model_len", message)
            .hint(format!("give 1 to {}", model.max_position_embeddings)));
    }
    let memory = section.memory_config(&engine);
    // An override says how many blocks there are, not that the weights fit.
    let size = size_kv_cache(model, gpu, &memory).map_err(|error| sizing_error(typed, &error))?;
    engine.num_gpu_blocks = section.num_gpu_blocks_override.unwrap_or(size.num_gpu_blocks);
    check_data_parallel(typed, section)?;
    check_context_parallel(typed, section, model)?;
    // `ModelConfig._verify_with_expert_parallelism`.
    if section.enable_expert_parallel && model.moe.is_none() {
        return Err(typed
            .wrong("engine.enable_expert_parallel", format!("{} has no experts", model.name))
            .hint("leave enable_expert_parallel out, or take a mixture-of-experts model"));
    }
    engine.validate().map_err(|error| {
        let field = format!("engine.{}", field_name(error.field));
        typed.wrong(&field, format!("{}: {}", error.field, error.problem)).hint(error.hint)
    })?;
    check_one_request_fits(typed, section, &engine)?;
    check_drafts(typed, section)?;
    if let Some(transfer) = &section.kv_transfer_config {
        check_tiers(typed, transfer, &engine)?;
    }
    Ok((engine, size))
}

/// The engine's name for a setting to the one that is typed.
fn field_name(field: &str) -> &str {
    match field {
        "num_gpu_blocks" => "num_gpu_blocks_override",
        "speculative" => "speculative_config",
        "policy" => "scheduling_policy",
        other => other,
    }
}

fn sizing_error(typed: &Typed, error: &SizingError) -> ScenarioError {
    let field = match error {
        SizingError::Utilization(_) => "engine.gpu_memory_utilization".to_owned(),
        SizingError::Zero(field) => format!("engine.{field}"),
        SizingError::Heads { .. } => "engine.tensor_parallel_size".to_owned(),
        SizingError::Stages { .. } => "engine.pipeline_parallel_size".to_owned(),
        SizingError::DoesNotFit { .. } => "model".to_owned(),
    };
    typed.wrong_as(&field, &error.to_string())
}

/// `ParallelConfig` and `ModelConfig.verify_with_parallel_config`: ranks share the context of KV
/// heads that they would otherwise hold twice.
fn check_context_parallel(
    typed: &Typed,
    section: &EngineSection,
    model: &Model,
) -> Result<(), ScenarioError> {
    let (tp, dcp) = (section.tensor_parallel_size, section.decode_context_parallel_size);
    let wrong = |hint: String| {
        let field = "engine.decode_context_parallel_size";
        let message = format!("decode_context_parallel_size is {dcp} with tensor_parallel_size {tp}");
        Err(typed.wrong(field, message).hint(hint))
    };
    if dcp == 0 || !tp.is_multiple_of(dcp) {
        return wrong("give a divisor of tensor_parallel_size".to_owned());
    }
    let (heads, kv_heads) = (model.num_attention_heads, model.num_key_value_heads);
    if dcp > 1 && model.mla.is_none() && (dcp > tp / kv_heads || !(heads / kv_heads).is_multiple_of(dcp)) {
        return wrong(format!(
            "{} has {kv_heads} KV heads, each for {} query heads: give a divisor of the latter that is at most \
             tensor_parallel_size / {kv_heads}, or 1",
            model.name,
            heads / kv_heads
        ));
    }
    Ok(())
}

/// vLLM starts only if one request of `max_model_len` tokens fits beside the null block
/// (`_check_enough_kv_cache_memory` in `v1/core/kv_cache_planning.py`).
fn check_one_request_fits(
    typed: &Typed,
    section: &EngineSection,
    engine: &EngineConfig,
) -> Result<(), ScenarioError> {
    let needed = blocks_for_one_request(engine, engine.max_model_len);
    let usable = u64::from(engine.num_gpu_blocks - 1);
    if needed <= usable {
        return Ok(());
    }
    let message = format!(
        "a request of max_model_len ({}) tokens needs {needed} blocks, but the cache has {usable}",
        engine.max_model_len
    );
    let shorter = match longest_model_len(engine, engine.max_model_len, usable) {
        0 => String::new(),
        longest => format!("set max_model_len to at most {longest}, or "),
    };
    Err(match section.num_gpu_blocks_override {
        Some(_) => typed
            .wrong("engine.num_gpu_blocks_override", message)
            .hint(format!("{shorter}give at least {} blocks", needed + 1)),
        None => typed
            .wrong("engine.max_model_len", message)
            .hint(format!("{shorter}give the cache more memory: a larger GPU, more tensor_parallel_size")),
    })
}

fn check_drafts(typed: &Typed, section: &EngineSection) -> Result<(), ScenarioError> {
    match section.speculative_config {
        Some(spec) if !(0.0..=1.0).contains(&spec.acceptance_rate) => {
            let field = "engine.speculative_config.acceptance_rate";
            let message = format!("`acceptance_rate` is {}", spec.acceptance_rate);
            Err(typed.wrong(field, message).hint("give a chance from 0 to 1"))
        }
        _ => Ok(()),
    }
}

fn check_tiers(
    typed: &Typed,
    transfer: &TransferSection,
    engine: &EngineConfig,
) -> Result<(), ScenarioError> {
    check_mamba_states(typed, engine)?;
    if transfer.tiers.is_empty() {
        return Err(typed
            .wrong("engine.kv_transfer_config.tiers", "there is no tier")
            .hint("give at least one, or leave kv_transfer_config out"));
    }
    transfer.tiers.iter().enumerate().try_for_each(|(index, tier)| {
        let path = format!("engine.kv_transfer_config.tiers[{index}]");
        check_tier(typed, &path, tier)?;
        check_place(typed, &path, &transfer.tiers[..index], tier)
    })
}

/// vLLM's offloading wants states of one block size (`resolve_mamba_align_size`). The states inside of blocks
/// that it offloads where hashes are finer than blocks (`supports_partial_tail`) are not modelled.
fn check_mamba_states(typed: &Typed, engine: &EngineConfig) -> Result<(), ScenarioError> {
    let mut sizes = engine.kv_cache_groups.iter().filter(|spec| spec.is_mamba()).map(KvCacheSpec::block_size);
    let Some(size) = sizes.next() else { return Ok(()) };
    if let Some(other) = sizes.find(|&other| other != size) {
        return Err(typed
            .wrong(
                "engine.kv_transfer_config",
                format!("Mamba groups have blocks of {size} and {other} tokens"),
            )
            .hint("give all Mamba groups the same block_size, or leave kv_transfer_config out"));
    }
    let is_uniform = engine.kv_cache_groups.iter().all(|spec| engine.group_block_size(spec) == size);
    let (_, hash_block_size) = engine.resolve_kv_cache_block_sizes();
    if is_uniform && hash_block_size < size {
        return Err(typed
            .wrong("engine.prefix_match_unit", "tiers do not hold Mamba states inside of blocks")
            .hint(format!("leave prefix_match_unit or kv_transfer_config out, or give {size}")));
    }
    Ok(())
}

fn check_tier(typed: &Typed, path: &str, tier: &TierSection) -> Result<(), ScenarioError> {
    let speed = 1e-6..=1e6;
    let totals = [
        ("total_read_gb_per_s", tier.total_read_gb_per_s),
        ("total_write_gb_per_s", tier.total_write_gb_per_s),
    ];
    if let Some((field, _)) = totals.iter().find(|(_, total)| tier.shared.is_some() && total.is_none()) {
        return Err(typed.wrong(path, format!("a shared tier without `{field}`")).hint(format!(
            "give {field}: what all replicas together can have of it, in 10^9 bytes per second"
        )));
    }
    let given = totals.into_iter().filter_map(|(field, total)| Some((field, total?, speed.clone())));
    let fields = [
        ("size_gib", tier.size_gib, 0.0..=1e9),
        ("read_gb_per_s", tier.read_gb_per_s, speed.clone()),
        ("write_gb_per_s", tier.write_gb_per_s, speed.clone()),
        ("latency_us", tier.latency_us, 0.0..=1e9),
    ];
    for (field, value, range) in fields.into_iter().chain(given) {
        if !range.contains(&value) {
            return Err(typed
                .wrong(&format!("{path}.{field}"), format!("`{field}` is {value}"))
                .hint(format!("give a number from {} to {}", range.start(), range.end())));
        }
    }
    Ok(())
}

/// What evicted blocks fall into is shared by no fewer, and there is one store of a kind for all.
fn check_place(
    typed: &Typed,
    path: &str,
    before: &[TierSection],
    tier: &TierSection,
) -> Result<(), ScenarioError> {
    let Some(last) = before.last() else {
        return match tier.write_through {
            true => Err(typed
                .wrong(&format!("{path}.write_through"), "write_through of the first tier")
                .hint("leave it out: the engine itself writes to the first tier")),
            false => Ok(()),
        };
    };
    if last.shared > tier.shared {
        return Err(typed
            .wrong(path, "a tier behind one that more replicas share")
            .hint("put tiers of a replica first, then those of a node, then those of the cluster"));
    }
    let is_same = |other: &TierSection| (other.kind, other.shared) == (tier.kind, tier.shared);
    if tier.shared.is_some() && before.iter().any(is_same) {
        return Err(typed
            .wrong(path, "two tiers of one kind that the same replicas share")
            .hint("give one, with the sum of their sizes"));
    }
    Ok(())
}

fn check_workload(typed: &Typed, file: &ScenarioFile, max_model_len: u32) -> Result<(), ScenarioError> {
    let workload = &file.workload;
    let section = format!("workload.{}", workload.kind());
    workload.validate().map_err(|ConfigError { field, found, expected }| {
        typed
            .wrong(&format!("{section}.{field}"), format!("`{field}` is {found}"))
            .hint(format!("give {expected}"))
    })?;
    let check_requests = |section: &str, workload: &WorkloadConfig| {
        check_lengths(typed, section, workload, max_model_len)?;
        check_prompt_embeds(typed, section, workload, file.engine.enable_prompt_embeds)
    };
    let WorkloadConfig::Mix(mix) = workload else { return check_requests(&section, workload) };
    mix.parts.iter().enumerate().try_for_each(|(index, part)| {
        let kind = part.workload.kind();
        check_requests(&format!("{section}.parts[{index}].workload.{kind}"), &part.workload)
    })
}

/// vLLM refuses a request that may become longer than the model's context.
fn check_lengths(
    typed: &Typed,
    section: &str,
    workload: &WorkloadConfig,
    max_model_len: u32,
) -> Result<(), ScenarioError> {
    let most = workload.max_request_tokens().unwrap_or(0);
    if most <= u64::from(max_model_len) {
        return Ok(());
    }
    Err(match workload {
        WorkloadConfig::Chat(_) | WorkloadConfig::Agents(_) => {
            let message = format!(
                "sessions grow to max_context_tokens ({most}), which is more than max_model_len ({max_model_len})"
            );
            typed
                .wrong(&format!("{section}.max_context_tokens"), message)
                .hint(format!("give {max_model_len} or less"))
        }
        _ => {
            let most = if most > MAX_LENGTH { "any number of".to_owned() } else { most.to_string() };
            let message = format!(
                "a prompt and its answer can have {most} tokens, but max_model_len is {max_model_len}"
            );
            typed.wrong(section, message).hint("give shorter lengths, and a `max` to those without one")
        }
    })
}

/// vLLM refuses embeddings unless told to take them.
fn check_prompt_embeds(
    typed: &Typed,
    section: &str,
    workload: &WorkloadConfig,
    enable_prompt_embeds: bool,
) -> Result<(), ScenarioError> {
    let WorkloadConfig::Chat(chat) = workload else { return Ok(()) };
    match chat.tenants.iter().position(|tenant| tenant.prompt_embeds) {
        Some(index) if !enable_prompt_embeds => Err(typed
            .wrong(
                &format!("{section}.tenants[{index}].prompt_embeds"),
                "the server takes no prompt embeddings",
            )
            .hint("set engine.enable_prompt_embeds to true, or leave prompt_embeds out")),
        _ => Ok(()),
    }
}

/// The GPU's profile. Constants have bounds that keep the sum of all steps within 64 bits.
fn check_cost(typed: &Typed, cost: Option<&CostSection>, gpu: &Gpu) -> Result<Profile, ScenarioError> {
    let built_in = Profile::built_in(gpu).cloned().map_err(|error| typed.wrong_as("gpu", &error.to_string()));
    let constant = match cost {
        None => return built_in,
        Some(CostSection::Profile(file)) => return read_profile(typed, file),
        Some(CostSection::Constant(constant)) => constant,
    };
    for (field, value, most) in [
        ("step_ns", constant.step_ns, MAX_STEP_NS),
        ("per_token_ns", constant.per_token_ns, MAX_PER_TOKEN_NS),
    ] {
        if value > most {
            return Err(typed
                .wrong(&format!("cost.constant.{field}"), format!("`{field}` is {value}"))
                .hint(format!("give nanoseconds, at most {most}")));
        }
    }
    built_in
}

/// Of the engine's algorithm; exact times stay exact unless told otherwise.
fn check_hashing(typed: &Typed, file: &ScenarioFile) -> Result<HashingLaw, ScenarioError> {
    let is_constant = matches!(file.cost, Some(CostSection::Constant(_)));
    let algorithm = file.engine.prefix_caching_hash_algo;
    let of = |profile: &HashingProfile, field: &str| {
        profile.algorithms.get(&algorithm).map(|fit| fit.law).ok_or_else(|| {
            typed.wrong(field, format!("{algorithm} was not measured")).hint(
                "measure it with tests/vllm/measure_hashing.py, or take another prefix_caching_hash_algo",
            )
        })
    };
    match &file.block_hashing {
        Some(HashingSection::Free) => Ok(HashingLaw::neutral()),
        None if is_constant => Ok(HashingLaw::neutral()),
        None | Some(HashingSection::Measured) => {
            let built_in = HashingProfile::built_in();
            of(built_in.map_err(|error| typed.wrong("block_hashing", error))?, "block_hashing")
        }
        Some(HashingSection::Constant(constant)) => {
            for (field, value) in [("block_ns", constant.block_ns), ("token_ns", constant.token_ns)] {
                if !(0.0..=1e6).contains(&value) {
                    return Err(typed
                        .wrong(&format!("block_hashing.constant.{field}"), format!("`{field}` is {value}"))
                        .hint("give nanoseconds, 0 to 1000000"));
                }
            }
            let HashingConstant { block_ns, token_ns } = *constant;
            Ok(HashingLaw { block_ns, token_ns, ..HashingLaw::neutral() })
        }
        Some(HashingSection::Profile(path)) => {
            let field = "block_hashing.profile";
            let path = typed.source.path.parent().unwrap_or(Path::new("")).join(path);
            let text = std::fs::read_to_string(&path).map_err(|error| {
                typed
                    .wrong(field, format!("cannot read the profile {}: {error}", path.display()))
                    .hint("give the path of a profile that `kvsim calibrate hashing` wrote, relative to the scenario")
            })?;
            let profile = HashingProfile::from_yaml(&text).map_err(|error| {
                typed
                    .wrong(field, format!("{}: {error}", path.display()))
                    .hint("correct the profile, or write it again with `kvsim calibrate hashing`")
            })?;
            of(&profile, field)
        }
    }
}

fn read_profile(typed: &Typed, file: &str) -> Result<Profile, ScenarioError> {
    let path = typed.source.path.parent().unwrap_or(Path::new("")).join(file);
    let text = std::fs::read_to_string(&path).map_err(|error| {
        typed
            .wrong("cost.profile", format!("cannot read the profile {}: {error}", path.display()))
            .hint("give the path of a profile that `kvsim calibrate` wrote, relative to the scenario")
    })?;
    Profile::from_yaml(&text).map_err(|error| {
        typed
            .wrong("cost.profile", format!("{}: {error}", path.display()))
            .hint("correct the profile, or write it again with `kvsim calibrate`")
    })
}
