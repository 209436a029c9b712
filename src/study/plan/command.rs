//! How to start a replica: `vllm serve` with the options of vLLM 0.33.0; and the router in front of it.

use super::result::Capacity;
use crate::catalog::Dtype;
use crate::engine::SchedulingPolicy;
use crate::engine::config::SpecMethod;
use crate::engine::connector::TierKind;
use crate::engine::hash::PrefixCachingHashAlgo;
use crate::scenario::{EngineSection, Scenario};
use crate::simulation::router::RouterConfig;

/// A fleet as the section of a scenario; `None` of a single replica. Settings of the router that are as
/// usual are left out.
pub(super) fn cluster_line(capacity: &Capacity) -> Option<String> {
    let fields = |router: &RouterConfig| serde_json::to_value(router).unwrap_or_default();
    let usual = fields(&RouterConfig::default());
    let mut router = fields(capacity.router()?);
    if let Some(map) = router.as_object_mut() {
        map.retain(|name, value| name == "policy" || Some(&*value) != usual.get(name));
    }
    Some(format!("cluster: {{replicas: {}, router: {}}}", capacity.fleet.replicas, flow(&router)))
}

/// YAML on one line.
fn flow(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Object(map) => {
            let fields: Vec<String> =
                map.iter().map(|(name, value)| format!("{name}: {}", flow(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        serde_json::Value::String(text) if text.bytes().all(|it| it.is_ascii_alphabetic() || it == b'_') => {
            text.clone()
        }
        other => other.to_string(),
    }
}

/// The command for what a scenario sets, with what the router in front of it needs, and what it cannot say.
pub(super) fn serve_command(scenario: &Scenario, router: Option<&RouterConfig>) -> (String, Vec<String>) {
    let engine = &scenario.file.engine;
    let usual = EngineSection::default();
    let mut notes = Vec::new();
    let mut words: Vec<String> = Vec::new();
    if let Some(seed) = &engine.python_hash_seed {
        words.push(format!("PYTHONHASHSEED={}", quoted(seed)));
    }
    words.extend(["vllm".to_owned(), "serve".to_owned(), quoted(model_name(&scenario.file.model))]);
    let mut option = |name: &str, value: Option<String>| {
        words.push(format!("--{name}"));
        words.extend(value);
    };
    let number = |value: u32| Some(value.to_string());
    if engine.tensor_parallel_size != 1 {
        option("tensor-parallel-size", number(engine.tensor_parallel_size));
    }
    for (name, size) in [
        ("pipeline-parallel-size", engine.pipeline_parallel_size),
        ("data-parallel-size", engine.data_parallel_size),
    ] {
        if size != 1 {
            option(name, number(size));
        }
    }
    if let Some(count) = engine.api_server_count {
        option("api-server-count", number(count));
    }
    if engine.enable_expert_parallel {
        option("enable-expert-parallel", None);
    }
    if engine.all2all_backend != usual.all2all_backend {
        option("all2all-backend", Some(engine.all2all_backend.name().to_owned()));
    }
    if engine.dp_sync_interval != usual.dp_sync_interval {
        option("dp-sync-interval", number(engine.dp_sync_interval));
    }
    if engine.decode_context_parallel_size != 1 {
        option("decode-context-parallel-size", number(engine.decode_context_parallel_size));
    }
    if engine.gpu_memory_utilization != usual.gpu_memory_utilization {
        option("gpu-memory-utilization", Some(engine.gpu_memory_utilization.to_string()));
    }
    for (name, value) in [
        ("max-model-len", engine.max_model_len),
        ("max-num-seqs", engine.max_num_seqs),
        ("max-num-batched-tokens", engine.max_num_batched_tokens),
        ("max-num-scheduled-tokens", engine.max_num_scheduled_tokens),
        ("num-gpu-blocks-override", engine.num_gpu_blocks_override),
        ("max-cudagraph-capture-size", engine.max_cudagraph_capture_size),
        ("prefix-match-unit", engine.prefix_match_unit),
        ("block-size", (engine.block_size != usual.block_size).then_some(engine.block_size)),
        (
            "long-prefill-token-threshold",
            (engine.long_prefill_token_threshold != usual.long_prefill_token_threshold)
                .then_some(engine.long_prefill_token_threshold),
        ),
    ] {
        if value.is_some() {
            option(name, value.and_then(number));
        }
    }
    // Switches: on if they are off by default, and the other way round.
    for (is, by_default, on, off) in [
        (
            engine.enable_chunked_prefill,
            usual.enable_chunked_prefill,
            "enable-chunked-prefill",
            "disable-chunked-prefill",
        ),
        (
            engine.enable_prefix_caching,
            usual.enable_prefix_caching,
            "enable-prefix-caching",
            "disable-prefix-caching",
        ),
        (engine.async_scheduling, usual.async_scheduling, "async-scheduling", "no-async-scheduling"),
        (
            engine.scheduler_reserve_full_isl,
            usual.scheduler_reserve_full_isl,
            "scheduler-reserve-full-isl",
            "no-scheduler-reserve-full-isl",
        ),
        (
            engine.long_prefill_token_threshold_adaptive,
            usual.long_prefill_token_threshold_adaptive,
            "long-prefill-token-threshold-adaptive",
            "no-long-prefill-token-threshold-adaptive",
        ),
        (
            engine.enable_expert_parallel,
            usual.enable_expert_parallel,
            "enable-expert-parallel",
            "no-enable-expert-parallel",
        ),
        (engine.enforce_eager, usual.enforce_eager, "enforce-eager", "no-enforce-eager"),
        (
            engine.enable_prompt_embeds,
            usual.enable_prompt_embeds,
            "enable-prompt-embeds",
            "disable-prompt-embeds",
        ),
    ] {
        if is != by_default {
            option(if is { on } else { off }, None);
        }
    }
    if engine.cudagraph_mode != usual.cudagraph_mode {
        let mode = engine.cudagraph_mode.name().to_uppercase();
        option("compilation-config.cudagraph_mode", Some(mode));
    }
    if !engine.fuse_allreduce_rms {
        option("compilation-config.pass_config.fuse_allreduce_rms", Some("false".to_owned()));
    }
    if engine.watermark != usual.watermark {
        option("watermark", Some(engine.watermark.to_string()));
    }
    if engine.prefix_caching_hash_algo != usual.prefix_caching_hash_algo {
        option("prefix-caching-hash-algo", Some(hash_algo(engine.prefix_caching_hash_algo).to_owned()));
    }
    if engine.scheduling_policy == SchedulingPolicy::Priority {
        option("scheduling-policy", Some("priority".to_owned()));
    }
    match engine.quantization {
        None | Some(Dtype::Bf16) => {}
        Some(Dtype::Fp8) => option("quantization", Some("fp8".to_owned())),
        Some(other) => {
            notes.push(format!("take a checkpoint whose weights are in {other:?}: vLLM does not make one"))
        }
    }
    if engine.kv_cache_dtype == Some(Dtype::Fp8) {
        option("kv-cache-dtype", Some("fp8".to_owned()));
    }
    if let Some(max_loras) = engine.max_loras {
        option("enable-lora", None);
        option("max-loras", number(max_loras));
    }
    let has_events = router.is_some_and(RouterConfig::reads_events);
    if engine.kv_events_config.enable_kv_cache_events || has_events {
        option("kv-events-config", Some(quoted(r#"{"enable_kv_cache_events": true}"#)));
    }
    if let Some(spec) = engine.speculative_config {
        let method = match spec.method {
            SpecMethod::Eagle => "eagle",
            SpecMethod::Ngram => "ngram",
        };
        let tokens = spec.num_speculative_tokens;
        let config = format!(r#"{{"method": "{method}", "num_speculative_tokens": {tokens}}}"#);
        option("speculative-config", Some(quoted(&config)));
        if spec.method == SpecMethod::Eagle {
            notes.push("add the drafter's `model` to --speculative-config".to_owned());
        }
    }
    let tiers = engine.kv_transfer_config.iter().flat_map(|transfer| &transfer.tiers);
    let host_gib: f64 =
        tiers.clone().filter(|tier| tier.kind == TierKind::Host).map(|tier| tier.size_gib).sum();
    if host_gib > 0.0 {
        option("kv-offloading-size", Some(host_gib.to_string()));
        option("kv-offloading-backend", Some("native".to_owned()));
    }
    if tiers.clone().any(|tier| tier.kind != TierKind::Host) {
        notes.push(
            "tiers behind host memory need a KV connector of their own (--kv-transfer-config)".to_owned(),
        );
    }
    notes.extend(
        router
            .and_then(|router| scenario.hash_mismatch(router))
            .map(|why| format!("the router never finds the hashes of the KV events: {why}")),
    );
    if engine.kv_cache_groups.is_some() {
        notes.push("kv_cache_groups are a property of the model: the command cannot set them".to_owned());
    }
    (words.join(" "), notes)
}

/// A model's folder where its config.json was given.
fn model_name(model: &str) -> &str {
    model.strip_suffix("config.json").map_or(model, |folder| match folder.trim_end_matches('/') {
        "" => ".",
        folder => folder,
    })
}

const fn hash_algo(algo: PrefixCachingHashAlgo) -> &'static str {
    match algo {
        PrefixCachingHashAlgo::Sha256 => "sha256",
        PrefixCachingHashAlgo::Sha256Cbor => "sha256_cbor",
        PrefixCachingHashAlgo::Xxhash => "xxhash",
        PrefixCachingHashAlgo::XxhashCbor => "xxhash_cbor",
    }
}

/// As a word of a POSIX shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Source;
    use crate::simulation::router::RouterPolicy;

    /// Options of `vllm serve` in vLLM 0.33.0, as its parser names them.
    const KNOWN: [&str; 30] = [
        "--tensor-parallel-size",
        "--decode-context-parallel-size",
        "--gpu-memory-utilization",
        "--max-model-len",
        "--max-num-seqs",
        "--max-num-batched-tokens",
        "--max-num-scheduled-tokens",
        "--num-gpu-blocks-override",
        "--prefix-match-unit",
        "--block-size",
        "--long-prefill-token-threshold",
        "--long-prefill-token-threshold-adaptive",
        "--disable-chunked-prefill",
        "--disable-prefix-caching",
        "--no-async-scheduling",
        "--no-scheduler-reserve-full-isl",
        "--enforce-eager",
        "--compilation-config.cudagraph_mode",
        "--compilation-config.pass_config.fuse_allreduce_rms",
        "--max-cudagraph-capture-size",
        "--enable-prompt-embeds",
        "--watermark",
        "--prefix-caching-hash-algo",
        "--scheduling-policy",
        "--quantization",
        "--kv-cache-dtype",
        "--kv-events-config",
        "--speculative-config",
        "--kv-offloading-size",
        "--kv-offloading-backend",
    ];

    fn command(engine: &str) -> (String, Vec<String>) {
        let text = format!(
            "name: x\nmodel: meta-llama/Llama-3.1-8B-Instruct\ngpu: H100\nengine: {engine}\nworkload: {{random: \
             {{requests_per_s: 1, num_requests: 1}}}}"
        );
        let scenario = Scenario::load(Source { text, ..Source::default() }).unwrap();
        serve_command(&scenario, None)
    }

    #[test]
    fn a_router_that_reads_events_needs_them() {
        let text = "name: x\nmodel: Llama-3.1-8B\ngpu: H100\nworkload: {random: {requests_per_s: 1, num_requests: 1}}";
        let scenario = Scenario::load(Source { text: text.to_owned(), ..Source::default() }).unwrap();
        let router =
            RouterConfig { policy: RouterPolicy::KvAware, block_size: 32, ..RouterConfig::default() };
        let (command, notes) = serve_command(&scenario, Some(&router));
        assert!(command.contains("--kv-events-config"), "{command}");
        assert!(notes[0].contains("set the router's block_size to 16"), "{notes:?}");
    }

    #[test]
    fn settings_of_a_router_are_yaml() {
        let router = RouterConfig {
            policy: RouterPolicy::PrefixAware,
            cache_threshold: 0.5,
            python_hash_seed: Some("12".to_owned()),
            ..RouterConfig::default()
        };
        let text = flow(&serde_json::to_value(&router).unwrap());
        let read: RouterConfig = serde_yaml::from_str(&text).unwrap();
        assert_eq!(read, router, "{text}");
    }

    #[test]
    fn defaults_are_left_out() {
        assert_eq!(command("{}").0, "vllm serve meta-llama/Llama-3.1-8B-Instruct");
    }

    #[test]
    fn every_option_is_one_of_vllm() {
        let (command, notes) = command(
            "{tensor_parallel_size: 2, gpu_memory_utilization: 0.95, max_model_len: 8192, max_num_seqs: 64, \
             max_num_batched_tokens: 2048, max_num_scheduled_tokens: 1024, num_gpu_blocks_override: 5000, \
             block_size: 32, long_prefill_token_threshold: 512, enable_prefix_caching: true, \
             async_scheduling: false, scheduler_reserve_full_isl: false, enforce_eager: true, \
             cudagraph_mode: full_decode_only, max_cudagraph_capture_size: 256, fuse_allreduce_rms: false, \
             enable_prompt_embeds: true, watermark: 0.01, prefix_caching_hash_algo: xxhash, \
             scheduling_policy: priority, quantization: fp8, kv_cache_dtype: fp8, \
             kv_events_config: {enable_kv_cache_events: true}, \
             speculative_config: {method: ngram, num_speculative_tokens: 3, acceptance_rate: 0.5}, \
             kv_transfer_config: {tiers: [{kind: host, size_gib: 64, read_gb_per_s: 50, write_gb_per_s: 50}]}}",
        );
        let options = command.split_whitespace().filter(|word| word.starts_with("--"));
        let unknown: Vec<&str> = options.filter(|option| !KNOWN.contains(option)).collect();
        assert!(unknown.is_empty(), "{unknown:?} in {command}");
        assert!(command.contains("--kv-offloading-size 64 --kv-offloading-backend native"), "{command}");
        assert!(command.contains(r#"--kv-events-config '{"enable_kv_cache_events": true}'"#), "{command}");
        assert!(notes.is_empty(), "{notes:?}");
    }

    #[test]
    fn what_a_command_cannot_say_is_a_note() {
        let (command, notes) = command("{quantization: int4}");
        assert!(!command.contains("quantization") && notes[0].contains("Int4"), "{command} {notes:?}");
    }
}
