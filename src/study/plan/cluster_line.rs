//! A fleet behind its router, as the section of a scenario.

use super::result::Capacity;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::router::RouterPolicy;

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
}
