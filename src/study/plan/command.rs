//! How to start a replica: `vllm serve` with the options of vLLM 0.33.0.

use serde_json::json;

use super::offloading::offloading;
use crate::catalog::{Dtype, Model, repository};
use crate::engine::SchedulingPolicy;
use crate::engine::config::{KvLoadFailurePolicy, SpecMethod};
use crate::engine::hash::PrefixCachingHashAlgo;
use crate::engine::kv_cache::KvCacheSpec;
use crate::scenario::{EngineSection, Pool, Roles, Scenario};
use crate::simulation::router::RouterConfig;
use crate::simulation::{Endpoints, Role};

/// The command of a replica, or one of each role, with what the router in front of them needs, and what they
/// cannot say.
pub(super) fn serve_commands(scenario: &Scenario, router: Option<&RouterConfig>) -> (String, Vec<String>) {
    let Some(Roles { prefill, decode }) = scenario.roles() else {
        return serve_command(scenario, &scenario.pools[0], router);
    };
    let (mut commands, mut notes) = (Vec::new(), Vec::new());
    for (at, name) in [(prefill, "prefill"), (decode, "decode")] {
        let pool = &scenario.pools[at];
        let (command, of_role) = serve_command(scenario, pool, router);
        commands.push(format!("{command}  # {name}, on {}", pool.gpu.name));
        notes.extend(of_role);
    }
    notes.push(
        "a proxy in front sends a prompt to a prefill replica and then, with the kv_transfer_params of its answer, to a \
         decode replica; replicas on one machine need a VLLM_NIXL_SIDE_CHANNEL_PORT each"
            .to_owned(),
    );
    notes.dedup();
    (commands.join("\n"), notes)
}

fn serve_command(scenario: &Scenario, pool: &Pool, router: Option<&RouterConfig>) -> (String, Vec<String>) {
    let (engine, role) = (&pool.section, pool.role);
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
    // All checkpoints of windows and states are kept in a simulation; vLLM by default keeps some of them.
    let has_checkpoints =
        |spec: &KvCacheSpec| matches!(spec, KvCacheSpec::SlidingWindow { .. } | KvCacheSpec::Mamba { .. });
    if engine.enable_prefix_caching && pool.engine.kv_cache_groups.iter().any(has_checkpoints) {
        let (scheduler_block_size, _) = pool.engine.resolve_kv_cache_block_sizes();
        option("prefix-cache-retention-interval", number(scheduler_block_size));
    }
    if engine.scheduling_policy == SchedulingPolicy::Priority {
        option("scheduling-policy", Some("priority".to_owned()));
    }
    match engine.quantization {
        None => {}
        Some(dtype) if dtype == own_dtype(&scenario.file.model) => {}
        Some(Dtype::Fp8) => option("quantization", Some("fp8".to_owned())),
        Some(other) => notes
            .push(format!("take a checkpoint whose weights are in {}: vLLM does not make one", name(other))),
    }
    match engine.kv_cache_dtype {
        None => {}
        Some(Dtype::Bf16) => option("kv-cache-dtype", Some("bfloat16".to_owned())),
        Some(Dtype::Fp8) => option("kv-cache-dtype", Some("fp8".to_owned())),
        Some(Dtype::Nvfp4) => option("kv-cache-dtype", Some("nvfp4".to_owned())),
        Some(other) => notes.push(format!("vLLM has no plain KV cache of {}", name(other))),
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
        let more = match spec.disable_lookahead_block_hashes {
            true => r#", "disable_lookahead_block_hashes": true"#,
            false => "",
        };
        let config = format!(r#"{{"method": "{method}", "num_speculative_tokens": {tokens}{more}}}"#);
        option("speculative-config", Some(quoted(&config)));
        if spec.method == SpecMethod::Eagle {
            notes.push("add the drafter's `model` to --speculative-config".to_owned());
        }
    }
    if let Some(role) = role {
        option("kv-transfer-config", Some(quoted(&nixl(role, scenario))));
    }
    if let Some(transfer) = &engine.kv_transfer_config {
        let offloading = offloading(transfer);
        offloading.options.into_iter().for_each(|(name, value)| option(name, Some(quoted(&value))));
        notes.extend(offloading.notes);
    }
    if router.is_some_and(|router| router.endpoints == Endpoints::Ranks) && engine.data_parallel_size > 1 {
        notes.push(
            "the router has to name the rank of each request (the header X-data-parallel-rank), or each rank of a \
             mixture-of-experts model a port of its own (--data-parallel-multi-port-external-lb)"
                .to_owned(),
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

/// The connector that reads blocks from other replicas.
fn nixl(role: Role, scenario: &Scenario) -> String {
    let role = match role {
        Role::Prefill => "kv_producer",
        Role::Decode => "kv_consumer",
    };
    let link = scenario.file.cluster.as_ref().and_then(|cluster| cluster.kv_link);
    let mut config = json!({"kv_connector": "NixlConnector", "kv_role": role});
    if link.is_some_and(|link| link.kv_load_failure_policy == KvLoadFailurePolicy::Recompute) {
        config["kv_load_failure_policy"] = json!("recompute");
    }
    if let Some(link) = link.filter(|link| link.kv_lease_duration_s != 30.0) {
        config["kv_connector_extra_config"] = json!({"kv_lease_duration": link.kv_lease_duration_s});
    }
    config.to_string()
}

/// Format of the weights of a built-in model's checkpoint; most others are in bf16.
fn own_dtype(model: &str) -> Dtype {
    Model::find(model)
        .map_or(Dtype::Bf16, |model| model.moe.map_or(model.weight_dtype, |moe| moe.expert_dtype))
}

fn name(dtype: Dtype) -> String {
    format!("{dtype:?}").to_lowercase()
}

/// Where vLLM finds a built-in model; the folder where a config.json was given.
fn model_name(model: &str) -> &str {
    if let Some(repository) = repository(model) {
        return repository;
    }
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
    const KNOWN: [&str; 32] = [
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
        "--kv-transfer-config",
        "--prefix-cache-retention-interval",
    ];

    fn command(engine: &str) -> (String, Vec<String>) {
        command_of("meta-llama/Llama-3.1-8B-Instruct", engine)
    }

    fn command_of(model: &str, engine: &str) -> (String, Vec<String>) {
        let text = format!(
            "name: x\nmodel: {model}\ngpu: H100\nengine: {engine}\nworkload: {{random: {{requests_per_s: 1, \
             num_requests: 1}}}}"
        );
        let scenario = Scenario::load(Source { text, ..Source::default() }).unwrap();
        serve_commands(&scenario, None)
    }

    #[test]
    fn a_router_that_reads_events_needs_them() {
        let text = "name: x\nmodel: Llama-3.1-8B\ngpu: H100\nworkload: {random: {requests_per_s: 1, num_requests: 1}}";
        let scenario = Scenario::load(Source { text: text.to_owned(), ..Source::default() }).unwrap();
        let router =
            RouterConfig { policy: RouterPolicy::KvAware, block_size: 32, ..RouterConfig::default() };
        let (command, notes) = serve_commands(&scenario, Some(&router));
        assert!(command.contains("--kv-events-config"), "{command}");
        assert!(notes[0].contains("set the router's block_size to 16"), "{notes:?}");
    }

    #[test]
    fn each_role_has_a_command_with_its_connector() {
        let text = "name: x\nmodel: Llama-3.1-8B\ngpu: H100\nworkload: {random: {requests_per_s: 1, num_requests: 1}}\n\
            cluster: {kv_link: {gb_per_s: 50, kv_lease_duration_s: 60}, pools: [\
            {name: p, replicas: 1, role: prefill, engine: {max_num_batched_tokens: 8192}}, \
            {name: d, replicas: 2, role: decode, gpu: H200}]}";
        let scenario = Scenario::load(Source { text: text.to_owned(), ..Source::default() }).unwrap();
        let (commands, notes) = serve_commands(&scenario, None);
        let config = |role: &str| {
            format!(
                r#"--kv-transfer-config '{{"kv_connector":"NixlConnector","kv_role":"{role}","kv_connector_extra_config":{{"kv_lease_duration":60.0}}}}'"#
            )
        };
        let lines: Vec<&str> = commands.lines().collect();
        let serve = "vllm serve meta-llama/Llama-3.1-8B";
        let prefill = format!(
            "{serve} --max-num-batched-tokens 8192 {}  # prefill, on H100-SXM",
            config("kv_producer")
        );
        assert_eq!(lines, [prefill, format!("{serve} {}  # decode, on H200", config("kv_consumer"))]);
        assert!(notes.len() == 1 && notes[0].contains("kv_transfer_params"), "{notes:?}");
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
    fn checkpoints_are_kept_as_in_the_simulation() {
        let groups = "{kv_cache_groups: [{kind: full}, {kind: sliding_window, sliding_window: 1024}]}";
        assert!(command(groups).0.contains("--prefix-cache-retention-interval 16"), "{groups}");
        let groups = "{kv_cache_groups: [{kind: full}, {kind: chunked_local, chunk_size: 8192}]}";
        assert!(!command(groups).0.contains("retention"), "{groups}");
    }

    #[test]
    fn models_are_named_as_vllm_finds_them() {
        assert_eq!(model_name("Llama-3-8B"), "meta-llama/Meta-Llama-3-8B");
        assert_eq!(model_name("models/mine/config.json"), "models/mine");
        assert_eq!(model_name("somebody/Llama-3.1-8B"), "somebody/Llama-3.1-8B");
    }

    #[test]
    fn no_option_is_there_twice() {
        let (command, notes) = command_of(
            "Qwen3-30B-A3B",
            "{data_parallel_size: 2, enable_expert_parallel: true, quantization: bf16, kv_cache_dtype: int8}",
        );
        let mut options: Vec<&str> =
            command.split_whitespace().filter(|word| word.starts_with("--")).collect();
        let all = options.len();
        options.sort_unstable();
        options.dedup();
        assert_eq!(options.len(), all, "{command}");
        assert!(notes.len() == 1 && notes[0].contains("int8"), "{notes:?}");
    }

    #[test]
    fn what_a_command_cannot_say_is_a_note() {
        let (command, notes) = command("{quantization: int4}");
        assert!(!command.contains("quantization") && notes[0].contains("int4"), "{command} {notes:?}");
    }
}
