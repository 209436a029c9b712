//! The plan's YAML file.

use std::path::Path;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::settings::{Prices, Settings};
use super::targets::{GoodputTarget, PercentileTarget, Target};
use crate::catalog::Gpu;
use crate::scenario::{FieldError, FileKind, Node, NodeDeserializer, Value, suggest};
use crate::simulation::router::RouterConfig;
use crate::study::sweep::{Field, Point, check_apart, check_name, fields_of, grid, listed};
use crate::workload::ConfigError;

/// Longest limit, in milliseconds.
const MAX_MS: f64 = 1e9;
const MAX_PRICE: f64 = 1e6;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(rename = "scenario")]
    _scenario: IgnoredAny,
    #[serde(default, rename = "set")]
    _set: Option<IgnoredAny>,
    #[serde(default)]
    targets: Vec<PercentileTarget>,
    #[serde(default)]
    goodput: Vec<GoodputTarget>,
    prices_per_hour: Prices,
    grid: Option<IgnoredAny>,
    list: Option<IgnoredAny>,
    #[serde(default = "usual_headroom")]
    headroom: f64,
    #[serde(default = "usual_reach")]
    reach: f64,
    #[serde(default = "one")]
    lost_replicas: u32,
    #[serde(default = "usual_confidence")]
    confidence: f64,
    #[serde(default = "usual_precision")]
    precision: f64,
    #[serde(default = "usual_replications")]
    max_replications: u32,
    #[serde(default = "usual_warmup")]
    warmup: f64,
    #[serde(default = "usual_routers")]
    routers: Vec<RouterConfig>,
}

fn usual_routers() -> Vec<RouterConfig> {
    vec![RouterConfig::default()]
}

const fn usual_headroom() -> f64 {
    0.2
}

const fn usual_reach() -> f64 {
    0.25
}

const fn one() -> u32 {
    1
}

const fn usual_confidence() -> f64 {
    0.95
}

const fn usual_precision() -> f64 {
    0.05
}

const fn usual_replications() -> u32 {
    8
}

const fn usual_warmup() -> f64 {
    0.2
}

/// The scenario of a plan.
#[derive(Debug)]
pub(super) enum Base {
    /// Relative to the plan's file.
    File(String),
    /// It stands in the plan.
    Inline(Node),
}

/// A plan as it was typed, its candidates made.
#[derive(Debug)]
pub(super) struct PlanFile {
    pub name: String,
    pub description: String,
    pub base: Base,
    /// For all candidates.
    pub set: Vec<Field>,
    pub candidates: Vec<Point>,
    /// Tenants are not looked up yet.
    pub settings: Settings,
    /// What the targets of tenants are at.
    root: Node,
}

impl PlanFile {
    /// # Errors
    /// The first problem of the plan itself; whether the fields are those of a scenario is not known
    /// here.
    pub fn parse(text: &str, path: &Path) -> Result<Self, FieldError> {
        let plain = Node::parse(text)?;
        let root = plain.clone().out_of(path);
        if !matches!(root.value, Value::Map(_)) {
            return Err(FieldError {
                place: Some(root.place),
                ..FieldError::new("found no fields", "write YAML, each field on a line `name: value`")
            });
        }
        FileKind::Plan.check(&root)?;
        let typed = Typed::deserialize(NodeDeserializer::new(&root))?;
        check_name(&root, &typed.name)?;
        let candidates = match (root.get("grid"), root.get("list")) {
            (Some(node), None) if typed.grid.is_some() => grid(node),
            (None, Some(node)) if typed.list.is_some() => listed(node),
            (None, None) => Ok(vec![Point { name: None, fields: Vec::new() }]),
            _ => Err(wrong(&root, "list", "found both `grid` and `list`".into(), "keep one of them")),
        }?;
        let set = root.get("set").map_or_else(|| Ok(Vec::new()), |node| fields_of(node, "set"))?;
        check_apart(&set, &candidates)?;
        let base = match root.get("scenario") {
            Some(Node { value: Value::String(path), .. }) => Base::File(path.clone()),
            // Its places are those of the file that it is in.
            _ => match plain.get("scenario") {
                Some(node @ Node { value: Value::Map(_), .. }) => Base::Inline(node.clone()),
                _ => {
                    let hint = "give the path of a scenario, or the fields of one";
                    return Err(wrong(&root, "scenario", "found no scenario".into(), hint));
                }
            },
        };
        check_targets(&root, &typed)?;
        check_routers(&root, &typed.routers)?;
        check_prices(&root, &typed.prices_per_hour)?;
        check_numbers(&root, &typed)?;
        let percentiles = typed.targets.iter().map(Target::of_percentile);
        let targets = percentiles.chain(typed.goodput.iter().map(Target::of_goodput)).collect();
        Ok(Self {
            name: typed.name,
            description: typed.description,
            base,
            set,
            candidates,
            settings: Settings {
                targets,
                prices: catalogue_names(typed.prices_per_hour),
                headroom: typed.headroom,
                reach: typed.reach,
                lost_replicas: typed.lost_replicas,
                confidence: typed.confidence,
                precision: typed.precision,
                max_replications: typed.max_replications,
                warmup: typed.warmup,
                routers: typed.routers,
            },
            root,
        })
    }

    /// Looks up the tenants that targets are for.
    ///
    /// # Errors
    /// The workload has no such tenant.
    pub fn find_tenants(&mut self, tenants: &[String]) -> Result<(), FieldError> {
        for (index, target) in self.settings.targets.iter_mut().enumerate() {
            let Some(name) = &target.tenant else { continue };
            let Some(found) = tenants.iter().position(|tenant| tenant == name) else {
                let names: Vec<&str> = tenants.iter().map(String::as_str).collect();
                let hint = match &names[..] {
                    [] => "leave `tenant` out: the workload has no tenants".to_owned(),
                    names => suggest(name, names),
                };
                let percentiles = match self.root.get("targets").map(|node| &node.value) {
                    Some(Value::List(items)) => items.len(),
                    _ => 0,
                };
                let field = match index.checked_sub(percentiles) {
                    Some(index) => format!("goodput[{index}].tenant"),
                    None => format!("targets[{index}].tenant"),
                };
                return Err(wrong(&self.root, &field, format!("there is no tenant `{name}`"), &hint));
            };
            target.tenant_index = Some(found as u32);
        }
        Ok(())
    }

    /// The price of a GPU.
    ///
    /// # Errors
    /// It has none.
    pub fn check_price(&self, gpu: &Gpu) -> Result<(), FieldError> {
        if self.settings.prices.gpu.contains_key(gpu.name) {
            return Ok(());
        }
        let problem = format!("{} has no price", gpu.name);
        let hint = format!("add `{}: ...`, the price of one of these GPUs for an hour", gpu.name);
        Err(wrong(&self.root, "prices_per_hour.gpu", problem, &hint))
    }
}

fn wrong(root: &Node, field: &str, problem: String, hint: &str) -> FieldError {
    FieldError {
        place: root.locate(field).cloned(),
        field: field.to_owned(),
        ..FieldError::new(problem, hint)
    }
}

fn check_targets(root: &Node, typed: &Typed) -> Result<(), FieldError> {
    if typed.targets.is_empty() && typed.goodput.is_empty() {
        let hint = "add `targets: [{metric: ttft, percentile: 90, at_most_ms: 500}]` or `goodput: [...]`";
        return Err(wrong(root, "", "the plan promises nothing".into(), hint));
    }
    let limit = |field: String, value: f64| {
        let is_valid = value > 0.0 && value <= MAX_MS;
        let problem = format!("found {value}");
        if is_valid { Ok(()) } else { Err(wrong(root, &field, problem, "give milliseconds, above 0")) }
    };
    for (index, target) in typed.targets.iter().enumerate() {
        limit(format!("targets[{index}].at_most_ms"), target.at_most_ms)?;
        if !(target.percentile > 0.0 && target.percentile < 100.0) {
            let field = format!("targets[{index}].percentile");
            let hint = "give a number above 0 and below 100: no number of runs can promise 100 %";
            return Err(wrong(root, &field, format!("found {}", target.percentile), hint));
        }
    }
    for (index, target) in typed.goodput.iter().enumerate() {
        if !(target.share > 0.0 && target.share < 1.0) {
            let field = format!("goodput[{index}].share");
            let hint = "give a share above 0 and below 1, such as 0.95";
            return Err(wrong(root, &field, format!("found {}", target.share), hint));
        }
        let limits = [("ttft_ms", target.ttft_ms), ("tpot_ms", target.tpot_ms), ("e2e_ms", target.e2e_ms)];
        for (name, value) in limits {
            value.map_or(Ok(()), |value| limit(format!("goodput[{index}].{name}"), value))?;
        }
        if limits.iter().all(|(_, value)| value.is_none()) {
            let hint = "add `ttft_ms`, `tpot_ms` or `e2e_ms`";
            return Err(wrong(root, &format!("goodput[{index}]"), "it limits nothing".into(), hint));
        }
    }
    Ok(())
}

/// With the rules that a scenario has for its own.
fn check_routers(root: &Node, routers: &[RouterConfig]) -> Result<(), FieldError> {
    if routers.is_empty() {
        let hint = "give at least one, such as `{policy: round_robin}`, or leave it out";
        return Err(wrong(root, "routers", "the list is empty".into(), hint));
    }
    for (index, router) in routers.iter().enumerate() {
        router.validate().map_err(|ConfigError { field, found, expected }| {
            let field = format!("routers[{index}].{field}");
            wrong(root, &field, format!("found {found}"), &format!("give {expected}"))
        })?;
        if let Some(same) = routers[..index].iter().position(|other| other == router) {
            let problem = format!("it is the same as routers[{same}]");
            return Err(wrong(root, &format!("routers[{index}]"), problem, "leave one of them out"));
        }
    }
    Ok(())
}

fn check_prices(root: &Node, prices: &Prices) -> Result<(), FieldError> {
    let names: Vec<&str> = Gpu::all().iter().map(|gpu| gpu.name).collect();
    let price = |field: String, value: f64| {
        let is_valid = (0.0..=MAX_PRICE).contains(&value);
        let hint = format!("give the price of an hour, 0 to {MAX_PRICE}");
        if is_valid { Ok(()) } else { Err(wrong(root, &field, format!("found {value}"), &hint)) }
    };
    for (name, &value) in &prices.gpu {
        if Gpu::find(name).is_err() {
            let problem = format!("unknown GPU `{name}`");
            return Err(wrong(root, &format!("prices_per_hour.gpu.{name}"), problem, &suggest(name, &names)));
        }
        price(format!("prices_per_hour.gpu.{name}"), value)?;
    }
    prices.tier_gib.values().try_for_each(|&value| price("prices_per_hour.tier_gib".to_owned(), value))
}

/// GPUs may be typed by any of their names.
fn catalogue_names(mut prices: Prices) -> Prices {
    let name = |typed: String| Gpu::find(&typed).map_or(typed, |gpu| gpu.name.to_owned());
    prices.gpu = prices.gpu.into_iter().map(|(typed, price)| (name(typed), price)).collect();
    prices
}

fn check_numbers(root: &Node, typed: &Typed) -> Result<(), FieldError> {
    for (field, value, range, hint) in [
        ("headroom", typed.headroom, 0.0..=100.0, "give a share of the load, such as 0.2"),
        ("reach", typed.reach, 0.0..=1e6, "give a share of the cost, such as 0.25"),
        ("confidence", typed.confidence, 0.5..=0.9999, "give a share such as 0.95, at most 0.9999"),
        ("precision", typed.precision, 0.001..=1.0, "give a share from 0.001 to 1, such as 0.05"),
        ("warmup", typed.warmup, 0.0..=0.9, "give a share of the time from 0 to 0.9"),
        ("lost_replicas", f64::from(typed.lost_replicas), 0.0..=1e4, "give a whole number up to 10000"),
        (
            "max_replications",
            f64::from(typed.max_replications),
            2.0..=1e3,
            "give a whole number from 2 to 1000",
        ),
    ] {
        if !range.contains(&value) {
            return Err(wrong(root, field, format!("found {value}"), hint));
        }
    }
    Ok(())
}
