//! A fleet behind its router, as the section of a scenario.

use serde_json::Value;

use super::result::Capacity;
use crate::scenario::Scenario;
use crate::simulation::router::RouterConfig;

/// A fleet as the section of a scenario; `None` of a single replica. Settings of the router that are as
/// usual are left out.
pub(super) fn cluster_line(capacity: &Capacity) -> Option<String> {
    let router = capacity.router()?;
    let Some(pools) = &capacity.pools else {
        let replicas = capacity.fleet.replicas;
        return Some(format!("cluster: {{replicas: {replicas}, router: {}}}", flow(&router_fields(router))));
    };
    let mut cluster = pools.clone();
    cluster["router"] = router_fields(router);
    Some(format!("cluster: {}", flow(&cluster)))
}

fn router_fields(router: &RouterConfig) -> Value {
    let fields = |router: &RouterConfig| serde_json::to_value(router).unwrap_or_default();
    let usual = fields(&RouterConfig::default());
    let mut router = fields(router);
    if let Some(map) = router.as_object_mut() {
        map.retain(|name, value| name == "policy" || Some(&*value) != usual.get(name));
    }
    router
}

/// What a scenario whose replicas have roles says of them, but for the router.
pub(super) fn pools_of(fleet: &Scenario) -> Option<Value> {
    let cluster = fleet.file.cluster.as_ref().filter(|_| fleet.roles().is_some())?;
    let mut fields = serde_json::to_value(cluster).ok()?;
    if let Some(router) = &cluster.decode_router {
        fields["decode_router"] = router_fields(router);
    }
    drop_nulls(&mut fields);
    Some(fields)
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// YAML on one line.
fn flow(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let fields: Vec<String> =
                map.iter().map(|(name, value)| format!("{name}: {}", flow(value))).collect();
            format!("{{{}}}", fields.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::String(text) if text.bytes().all(|it| it.is_ascii_alphabetic() || it == b'_') => text.clone(),
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
