//! Replicas that come and go: from what is typed to what the simulation does.

use super::build::Typed;
use super::cluster_section::{ClusterEventSection, ClusterSection};
use super::pool::Pool;
use super::{Scenario, ScenarioError};
use crate::simulation::{Action, ActionKind, Autoscaler, AutoscalerConfig, LifecycleConfig, PoolScaler};
use crate::units::SimTime;
use crate::workload::ConfigError;

/// The latest time of an event, and the longest start.
const MAX_S: f64 = 1e9;

/// # Errors
/// The first problem, at its place.
pub(super) fn check_lifecycle(
    typed: &Typed,
    cluster: &ClusterSection,
    pools: &[Pool],
) -> Result<(), ScenarioError> {
    for (index, event) in cluster.events.iter().enumerate() {
        check_event(typed, &format!("cluster.events[{index}]"), event, pools)?;
    }
    if cluster.autoscaler.is_some() && cluster.pools.is_some() {
        return Err(typed
            .wrong("cluster.autoscaler", "an autoscaler beside `pools`")
            .hint("give each pool that is to be scaled an `autoscaler` of its own"));
    }
    if let Some(autoscaler) = &cluster.autoscaler {
        check_autoscaler(typed, "cluster", autoscaler, cluster.replicas)?;
    }
    for (at, pool) in cluster.pools.iter().flatten().enumerate() {
        if let Some(autoscaler) = &pool.autoscaler {
            check_autoscaler(typed, &format!("cluster.pools[{at}]"), autoscaler, pool.replicas)?;
        }
    }
    Ok(())
}

/// Of the cluster or a pool at a path, with so many replicas at first.
fn check_autoscaler(
    typed: &Typed,
    path: &str,
    autoscaler: &AutoscalerConfig,
    replicas: Option<u32>,
) -> Result<(), ScenarioError> {
    autoscaler.validate().map_err(|ConfigError { field, found, expected }| {
        typed
            .wrong(&format!("{path}.autoscaler.{field}"), format!("`{field}` is {found}"))
            .hint(format!("give {expected}"))
    })?;
    let (min, max) = (autoscaler.min_replicas, autoscaler.max_replicas);
    let at_first = replicas.unwrap_or(min);
    if !(min..=max).contains(&at_first) {
        let message = format!("`replicas` is {at_first}, and the autoscaler has {min} to {max}");
        return Err(typed
            .wrong(&format!("{path}.replicas"), message)
            .hint("give as many as there are at first"));
    }
    Ok(())
}

fn check_event(
    typed: &Typed,
    path: &str,
    event: &ClusterEventSection,
    pools: &[Pool],
) -> Result<(), ScenarioError> {
    let num_replicas = pools.iter().map(|pool| pool.num_replicas).sum();
    let within = |field: &str, value: f64| {
        if (0.0..=MAX_S).contains(&value) {
            return Ok(());
        }
        Err(typed
            .wrong(&format!("{path}.{field}"), format!("`{field}` is {value}"))
            .hint(format!("give seconds, 0 to {MAX_S}")))
    };
    within("at_s", event.at_s)?;
    within("start_up_s", event.start_up_s.unwrap_or(0.0))?;
    let kinds = [
        ("fail", event.fail),
        ("restart", event.restart),
        ("drain", event.drain),
        ("fail_node", event.fail_node),
    ];
    let mut given = kinds.iter().filter_map(|&(name, replica)| Some((name, replica?)));
    let (Some((name, replica)), None) = (given.next(), given.next()) else {
        return Err(typed.wrong(path, "an event is one thing that happens to a replica or a node").hint(
            "give one of: fail, restart, drain, with the number of a replica, or fail_node with that of a node",
        ));
    };
    if name == "fail_node" {
        let num_nodes = nodes(pools).count();
        if num_nodes == 0 || replica as usize >= num_nodes {
            let hint = match num_nodes {
                0 => "give replicas_per_node, which says who is on one machine".to_owned(),
                _ => format!("give 0 to {}: nodes are counted from 0", num_nodes - 1),
            };
            return Err(typed
                .wrong(&format!("{path}.{name}"), format!("there is no node {replica}"))
                .hint(hint));
        }
    } else if replica >= num_replicas {
        return Err(typed
            .wrong(&format!("{path}.{name}"), format!("there is no replica {replica}"))
            .hint(format!("give 0 to {}: replicas are counted from 0", num_replicas - 1)));
    }
    if event.start_up_s.is_some() && name != "restart" {
        return Err(typed
            .wrong(&format!("{path}.start_up_s"), format!("a `{name}` takes no time to start"))
            .hint("leave start_up_s out, or give it to a `restart`"));
    }
    Ok(())
}

/// The first replica of each machine and how many it has; none of pools that do not say it.
fn nodes(pools: &[Pool]) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut first = 0;
    pools.iter().flat_map(move |pool| {
        let (begin, end) = (first, first + pool.num_replicas as usize);
        first = end;
        let size = pool.replicas_per_node.map_or(usize::MAX, |replicas| replicas as usize);
        let is_known = pool.replicas_per_node.is_some();
        (begin..end).step_by(size).filter(move |_| is_known).map(move |at| (at, size.min(end - at)))
    })
}

impl Scenario {
    /// What happens to replicas at given times.
    pub(super) fn replica_actions(&self) -> impl Iterator<Item = Action> + '_ {
        let events = self.file.cluster.iter().flat_map(|cluster| &cluster.events);
        events.filter_map(|event| {
            let start_up = SimTime::from_secs_f64(event.start_up_s.unwrap_or(0.0));
            let kind = match (event.fail, event.restart, event.drain) {
                (Some(replica), ..) => ActionKind::Fail { replica: replica as usize },
                (_, Some(replica), _) => ActionKind::Restart { replica: replica as usize, start_up },
                (.., Some(replica)) => ActionKind::Drain { replica: replica as usize },
                (None, None, None) => {
                    let (first, num_replicas) = nodes(&self.pools).nth(event.fail_node? as usize)?;
                    ActionKind::FailNode { first, num_replicas }
                }
            };
            Some(Action { at: SimTime::from_secs_f64(event.at_s), kind })
        })
    }

    /// `None` when all replicas are there all the time.
    pub(super) fn lifecycle(&self) -> Option<LifecycleConfig> {
        let cluster = self.file.cluster.as_ref().filter(|cluster| cluster.has_lifecycle())?;
        let mut autoscalers = Vec::new();
        let mut first = 0;
        for pool in &self.pools {
            let replicas = first..first + pool.num_replicas as usize;
            first = replicas.end;
            autoscalers.extend(pool.autoscaler.clone().map(|config| {
                let autoscaler = Autoscaler::new(config, pool.num_first as usize);
                PoolScaler { autoscaler, replicas }
            }));
        }
        Some(LifecycleConfig { is_there: self.is_there(), on_failure: cluster.on_failure, autoscalers })
    }

    /// Whether each replica is there from the start.
    pub(super) fn is_there(&self) -> Vec<bool> {
        let of_pool =
            |pool: &Pool| (0..pool.num_replicas).map(|nth| nth < pool.num_first).collect::<Vec<_>>();
        self.pools.iter().flat_map(of_pool).collect()
    }
}
