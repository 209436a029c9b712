//! From what was typed to what it means.

use std::path::Path;

use super::engine_args::EngineArgs;
use super::file::{ActionArgs, ScenarioFile, WorkloadArgs};
use super::kv_cache_groups::{blocks_for_one_request, groups_of, longest_model_len};
use super::{Scenario, ScenarioError, Source, error};
use crate::catalog::{
    Gpu, KvCacheSize, MemoryConfig, Model, SizingError, UnknownName, parse_hf_config, size_kv_cache,
};
use crate::engine::EngineConfig;
use crate::workload::ConfigError;

/// The latest time of an action.
const MAX_AT_S: f64 = 1e9;

pub(super) fn resolve(source: Source, file: ScenarioFile) -> Result<Scenario, ScenarioError> {
    check_name(&source, &file.name)?;
    let model = file.engine.with_formats(find_model(&source, &file.model)?);
    let gpu = Gpu::find(&file.gpu).map_err(|error| unknown_name(&source, "gpu", &error, ""))?;
    let (engine, kv_cache_size) = resolve_engine(&source, &file.engine, &model, gpu)?;
    check_workload(&source, &file.workload, engine.max_model_len)?;
    check_actions(&source, &file.actions)?;
    Ok(Scenario {
        name: file.name,
        seed: file.seed,
        model,
        gpu,
        tensor_parallel_size: file.engine.tensor_parallel_size,
        engine,
        kv_cache_size,
        workload: file.workload,
        cost: file.cost,
        actions: file.actions.into_iter().map(ActionArgs::to_action).collect(),
        source,
    })
}

/// The name becomes a folder.
fn check_name(source: &Source, name: &str) -> Result<(), ScenarioError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.starts_with('.') || !name.chars().all(is_plain) {
        let hint = "give a name of letters, digits, `-`, `_` and `.`: it becomes the report's folder";
        return Err(source.field_error("name", format!("found `{name}`"), hint));
    }
    Ok(())
}

fn unknown_name(source: &Source, field: &str, error: &UnknownName, or: &str) -> ScenarioError {
    let problem = format!("there is no {} `{}`", error.kind, error.name);
    source.field_error(field, problem, error::suggest(&error.name, &error.known) + or)
}

/// A built-in model, or a `config.json` or the folder that holds one.
fn find_model(source: &Source, typed: &str) -> Result<Model, ScenarioError> {
    let path = source.resolve_path("model", Path::new(typed));
    let path = if path.is_dir() { path.join("config.json") } else { path };
    if !typed.ends_with(".json") && !path.is_file() {
        let or = ", or the path of a Hugging Face `config.json`";
        return Model::find(typed).map_err(|error| unknown_name(source, "model", &error, or));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| {
        let problem = format!("cannot read {}: {error}", path.display());
        source.field_error("model", problem, "check the path, or use a built-in model such as Llama-3.1-8B")
    })?;
    parse_hf_config(typed, &text).map_err(|error| source.field_message("model", &error.to_string()))
}

fn resolve_engine(
    source: &Source,
    args: &EngineArgs,
    model: &Model,
    gpu: &'static Gpu,
) -> Result<(EngineConfig, KvCacheSize), ScenarioError> {
    let max_model_len = max_model_len(source, args, model)?;
    let limits = args.batch_limits(gpu, max_model_len);
    let memory = MemoryConfig {
        gpu_memory_utilization: args.gpu_memory_utilization,
        tensor_parallel_size: args.tensor_parallel_size,
        block_size: args.block_size,
        max_num_batched_tokens: limits.max_num_batched_tokens,
        max_num_seqs: limits.max_num_seqs,
        estimate_cudagraphs: true,
    };
    let size = size_kv_cache(model, gpu, &memory).map_err(|error| sizing_error(source, &error))?;
    let (tp, dcp) = (args.tensor_parallel_size, args.decode_context_parallel_size);
    if dcp == 0 || !tp.is_multiple_of(dcp) {
        let hint = format!("give a divisor of tensor_parallel_size, {tp}");
        return Err(source.field_error("engine.decode_context_parallel_size", format!("found {dcp}"), hint));
    }
    let kv_cache_groups = match &args.kv_cache_groups {
        Some(groups) => groups.iter().map(|group| group.to_spec(args.block_size)).collect(),
        None => groups_of(model, args.block_size),
    };
    let engine = EngineConfig {
        async_scheduling: args.async_scheduling,
        block_size: args.block_size,
        prefix_match_unit: args.prefix_match_unit,
        num_gpu_blocks: args.num_gpu_blocks_override.unwrap_or(size.num_gpu_blocks),
        max_num_seqs: limits.max_num_seqs,
        max_num_batched_tokens: limits.max_num_batched_tokens,
        max_num_scheduled_tokens: args.max_num_scheduled_tokens,
        max_model_len,
        enable_chunked_prefill: args.enable_chunked_prefill,
        long_prefill_token_threshold: args.long_prefill_token_threshold,
        long_prefill_token_threshold_adaptive: args.long_prefill_token_threshold_adaptive,
        scheduler_reserve_full_isl: args.scheduler_reserve_full_isl,
        watermark: args.watermark,
        enable_prefix_caching: args.enable_prefix_caching,
        prefix_caching_hash_algo: args.prefix_caching_hash_algo,
        policy: args.scheduling_policy,
        enable_kv_cache_events: args.kv_events_config.enable_kv_cache_events,
        kv_cache_groups,
        decode_context_parallel_size: dcp,
        speculative: None,
        max_loras: None,
        kv_connector: None,
        kv_cache_metrics: args.kv_cache_metrics,
    };
    engine.validate().map_err(|error| {
        let field = match error.field {
            "num_gpu_blocks" => "num_gpu_blocks_override",
            field => field,
        };
        source.field_error(&format!("engine.{field}"), error.problem, error.hint)
    })?;
    check_pool(source, args, &engine)?;
    Ok((engine, size))
}

/// vLLM refuses more than the model was made for (`_get_and_verify_max_len` in `config/model.py`).
fn max_model_len(source: &Source, args: &EngineArgs, model: &Model) -> Result<u32, ScenarioError> {
    let limit = model.max_position_embeddings;
    match args.max_model_len {
        None => Ok(limit),
        Some(len) if (1..=limit).contains(&len) => Ok(len),
        Some(len) => {
            let hint = format!("give 1 to {limit}, what {} can attend to", model.name);
            Err(source.field_error("engine.max_model_len", format!("found {len} tokens"), hint))
        }
    }
}

fn sizing_error(source: &Source, error: &SizingError) -> ScenarioError {
    let field = match error {
        SizingError::Utilization(_) => "engine.gpu_memory_utilization".to_owned(),
        SizingError::Zero(field) => format!("engine.{field}"),
        SizingError::Heads { .. } => "engine.tensor_parallel_size".to_owned(),
        SizingError::DoesNotFit { .. } => "gpu".to_owned(),
    };
    source.field_message(&field, &error.to_string())
}

/// vLLM starts only if one request of `max_model_len` fits, beside the null block
/// (`_check_enough_kv_cache_memory` in `v1/core/kv_cache_planning.py`).
fn check_pool(source: &Source, args: &EngineArgs, engine: &EngineConfig) -> Result<(), ScenarioError> {
    let needed = blocks_for_one_request(engine, engine.max_model_len);
    let usable = u64::from(engine.num_gpu_blocks - 1);
    if needed <= usable {
        return Ok(());
    }
    let (field, remedy) = match args.num_gpu_blocks_override {
        Some(_) => ("engine.num_gpu_blocks_override", format!("raise it to {}", needed + 1)),
        None => (
            "engine.max_model_len",
            "raise gpu_memory_utilization or tensor_parallel_size, take a GPU with more memory".to_owned(),
        ),
    };
    let problem = format!(
        "one request of max_model_len, {} tokens, needs {needed} blocks, and {usable} can be used",
        engine.max_model_len
    );
    let hint = format!("{remedy}, or set max_model_len to at most {}", longest_model_len(engine, usable));
    Err(source.field_error(field, problem, hint))
}

fn check_workload(source: &Source, workload: &WorkloadArgs, max_model_len: u32) -> Result<(), ScenarioError> {
    let (section, result) = match workload {
        WorkloadArgs::Trace(config) => ("workload.trace", config.validate()),
        WorkloadArgs::Chat(config) => ("workload.chat", config.validate()),
    };
    result.map_err(|ConfigError { field, found, expected }| {
        let field = format!("{section}.{field}");
        source.field_error(&field, format!("found {found}"), format!("give {expected}"))
    })?;
    if let WorkloadArgs::Chat(config) = workload
        && config.max_context_tokens > max_model_len
    {
        let problem = format!(
            "conversations of {} tokens do not fit engine.max_model_len, {max_model_len}",
            config.max_context_tokens
        );
        let hint = format!("lower it to {max_model_len}, or raise max_model_len");
        return Err(source.field_error("workload.chat.max_context_tokens", problem, hint));
    }
    Ok(())
}

fn check_actions(source: &Source, actions: &[ActionArgs]) -> Result<(), ScenarioError> {
    for (index, action) in actions.iter().enumerate() {
        if !(0.0..=MAX_AT_S).contains(&action.at_s) {
            let field = format!("actions[{index}].at_s");
            let hint = format!("give seconds from the start, 0 to {MAX_AT_S}");
            return Err(source.field_error(&field, format!("found {}", action.at_s), hint));
        }
    }
    Ok(())
}
