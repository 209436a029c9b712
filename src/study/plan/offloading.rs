//! What `vllm serve` says of tiers behind the GPU's cache, in vLLM 0.33.0.

use serde_json::{Map, Value, json};

use crate::engine::config::KvLoadFailurePolicy;
use crate::engine::connector::{EvictionOrder, TierKind};
use crate::scenario::{TierSection, TransferSection};

/// Stands for the folder of a disk tier, which only the reader knows.
const FOLDER: &str = "/kv-cache";

#[derive(Debug, Default, PartialEq)]
pub(super) struct Offloading {
    /// Names without dashes, and values.
    pub options: Vec<(&'static str, String)>,
    /// What the options cannot say.
    pub notes: Vec<String>,
}

/// Options for tiers. vLLM's own are host memory of each replica and, behind it, a folder; all else takes a
/// connector of somebody else.
pub(super) fn offloading(transfer: &TransferSection) -> Offloading {
    let mut result = Offloading::default();
    let mut notes = Vec::new();
    let mut config = Map::new();
    if transfer.kv_load_failure_policy == KvLoadFailurePolicy::Recompute {
        config.insert("kv_load_failure_policy".to_owned(), "recompute".into());
    }
    let is_own = |tier: &TierSection| tier.shared.is_none();
    let (host, others) = match transfer.tiers.split_first() {
        Some((host, others)) if host.kind == TierKind::Host && is_own(host) => (Some(host), others),
        _ => (None, &transfer.tiers[..]),
    };
    let mut extra = Map::new();
    if let Some(host) = host {
        // The tiers of a simulation hold answers too.
        extra.insert("offload_prompt_only".to_owned(), false.into());
        result.options.push(("kv-offloading-size", host.size_gib.to_string()));
        result.options.push(("kv-offloading-backend", "native".to_owned()));
        if host.eviction == EvictionOrder::Fifo {
            notes
                .push("vLLM's host memory evicts what was used longest ago: take `eviction: lru`".to_owned());
        }
    }
    match others {
        [] => {}
        [disk] if host.is_some() && disk.kind == TierKind::Disk => {
            extra.insert("spec_name".to_owned(), "TieringOffloadingSpec".into());
            extra.insert("secondary_tiers".to_owned(), json!([{"type": "fs", "root_dir": FOLDER}]));
            notes.push(format!(
                "put the folder of the disk in the place of {FOLDER}; vLLM deletes nothing there, so {} GiB are a \
                 matter of your own",
                disk.size_gib
            ));
            if !disk.write_through {
                notes.push(
                    "vLLM's disk tier gets a copy of all that comes into host memory: simulate it with \
                     `write_through: true`"
                        .to_owned(),
                );
            }
        }
        _ => notes.push(
            "vLLM has no tier of its own for all of these: they take a KV connector such as LMCache's or \
             Mooncake's (--kv-transfer-config)"
                .to_owned(),
        ),
    }
    if !extra.is_empty() {
        config.insert("kv_connector_extra_config".to_owned(), extra.into());
    }
    if !config.is_empty() {
        result.options.push(("kv-transfer-config", Value::Object(config).to_string()));
    }
    result.notes = notes;
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(yaml: &str) -> Offloading {
        offloading(&serde_yaml::from_str::<TransferSection>(yaml).unwrap())
    }

    const HOST: &str = "{kind: host, size_gib: 64, read_gb_per_s: 50, write_gb_per_s: 50}";

    #[test]
    fn host_memory_is_an_option() {
        let native = || ("kv-offloading-backend", "native".to_owned());
        let size = || ("kv-offloading-size", "64".to_owned());
        let found = of(&format!("{{tiers: [{HOST}]}}"));
        let answers = r#""kv_connector_extra_config":{"offload_prompt_only":false}"#;
        let config = ("kv-transfer-config", format!("{{{answers}}}"));
        assert_eq!(found, Offloading { options: vec![size(), native(), config], notes: Vec::new() });
        let found = of(&format!("{{kv_load_failure_policy: recompute, tiers: [{HOST}]}}"));
        let policy = ("kv-transfer-config", format!(r#"{{"kv_load_failure_policy":"recompute",{answers}}}"#));
        assert_eq!(found, Offloading { options: vec![size(), native(), policy], notes: Vec::new() });
    }

    #[test]
    fn a_disk_behind_it_is_a_folder() {
        let disk = "{kind: disk, size_gib: 500, read_gb_per_s: 5, write_gb_per_s: 5, write_through: true}";
        let found = of(&format!("{{tiers: [{HOST}, {disk}]}}"));
        let config: Value = serde_json::from_str(&found.options[2].1).unwrap();
        assert_eq!(config["kv_connector_extra_config"]["spec_name"], "TieringOffloadingSpec");
        assert_eq!(config["kv_connector_extra_config"]["secondary_tiers"][0]["type"], "fs");
        assert!(found.notes.len() == 1 && found.notes[0].contains("500 GiB"), "{found:?}");
    }

    #[test]
    fn other_stores_take_another_connector() {
        let remote = "{kind: remote, size_gib: 500, read_gb_per_s: 5, write_gb_per_s: 5}";
        let found = of(&format!("{{tiers: [{remote}]}}"));
        assert!(found.options.is_empty() && found.notes[0].contains("LMCache"), "{found:?}");
        let fifo = HOST.replace("}", ", eviction: fifo}");
        assert!(of(&format!("{{tiers: [{fifo}]}}")).notes[0].contains("eviction: lru"));
    }
}
