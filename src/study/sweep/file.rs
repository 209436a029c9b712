//! The sweep's YAML file.

use std::path::Path;

use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use super::points::{Point, grid, listed, random};
use crate::report::metric_names;
use crate::scenario::{FieldError, FileKind, Node, NodeDeserializer, Value, split_path, suggest};

/// What is typed. Fields of scenarios are read from the tree, where their values know their places.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Typed {
    name: String,
    #[serde(default)]
    description: String,
    scenario: String,
    #[serde(default, rename = "set")]
    _set: Option<IgnoredAny>,
    grid: Option<IgnoredAny>,
    random: Option<RandomSection>,
    list: Option<IgnoredAny>,
    #[serde(default = "one")]
    replications: u32,
    #[serde(default = "usual_confidence")]
    confidence: f64,
    #[serde(default, rename = "baseline")]
    _baseline: Option<IgnoredAny>,
    metrics: Option<Vec<String>>,
    #[serde(default)]
    pareto: Option<Pareto>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RandomSection {
    count: usize,
    #[serde(default)]
    seed: u64,
    #[serde(rename = "fields")]
    _fields: IgnoredAny,
}

const fn one() -> u32 {
    1
}

const fn usual_confidence() -> f64 {
    0.95
}

/// Metrics of which less or more is better.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pareto {
    pub minimise: Vec<String>,
    pub maximise: Vec<String>,
}

impl Pareto {
    /// All its metrics.
    pub fn metrics(&self) -> impl Iterator<Item = &String> {
        self.minimise.iter().chain(&self.maximise)
    }
}

/// A field of a scenario and its value, at the place where it was typed.
pub(in crate::study) type Field = (String, Node);

/// A sweep as it was typed, its points made.
#[derive(Debug)]
pub(super) struct SweepFile {
    pub name: String,
    pub description: String,
    /// Relative to the sweep's file.
    pub scenario: String,
    /// For all points.
    pub set: Vec<Field>,
    /// What varies, in the order of the text.
    pub fields: Vec<String>,
    pub points: Vec<Point>,
    pub replications: u32,
    pub confidence: f64,
    /// The point that others are compared with.
    pub baseline: Option<usize>,
    /// `None`: the usual ones.
    pub metrics: Option<Vec<String>>,
    pub pareto: Option<Pareto>,
}

impl SweepFile {
    /// Reads the text of the file at `path`.
    ///
    /// # Errors
    /// The first problem of the sweep itself; whether the fields are those of a scenario is not
    /// known here.
    pub fn parse(text: &str, path: &Path) -> Result<Self, FieldError> {
        let root = Node::parse(text)?.out_of(path);
        if !matches!(root.value, Value::Map(_)) {
            return Err(FieldError {
                place: Some(root.place),
                ..FieldError::new("found no fields", "write YAML, each field on a line `name: value`")
            });
        }
        FileKind::Sweep.check(&root)?;
        let typed = Typed::deserialize(NodeDeserializer::new(&root))?;
        let wrong = |field: &str, problem: String, hint: &str| FieldError {
            place: root.locate(field).cloned(),
            ..FieldError::new(problem, hint)
        };
        check_name(&root, &typed.name)?;
        if !(1..=10_000).contains(&typed.replications) {
            let problem = format!("`replications` is {}", typed.replications);
            return Err(wrong("replications", problem, "give a whole number from 1 to 10000"));
        }
        if !(typed.confidence > 0.0 && typed.confidence < 1.0) {
            let problem = format!("`confidence` is {}", typed.confidence);
            return Err(wrong("confidence", problem, "give a share between 0 and 1, such as 0.95"));
        }
        let points = match (&typed.grid, &typed.random, &typed.list) {
            (Some(_), None, None) => grid(child(&root, "grid")),
            (None, Some(section), None) => random(child(&root, "random"), section.count, section.seed),
            (None, None, Some(_)) => listed(child(&root, "list")),
            (None, None, None) => {
                Err(wrong("", "no points".into(), "add one of `grid: ...`, `random: ...`, `list: ...`"))
            }
            _ => {
                let last = ["grid", "random", "list"].into_iter().rfind(|name| root.get(name).is_some());
                let problem = "found more than one of `grid`, `random` and `list`".to_owned();
                Err(wrong(last.unwrap_or_default(), problem, "keep one of them"))
            }
        }?;
        let set = root.get("set").map_or_else(|| Ok(Vec::new()), |node| fields_of(node, "set"))?;
        let fields = varied(&points);
        check_apart(&set, &points)?;
        if typed.replications > 1 && fields.iter().any(|field| field == "seed") {
            let problem = "the seed varies over the points, and over the replications of each".to_owned();
            return Err(wrong("replications", problem, "leave out `replications`, or `seed` of the points"));
        }
        let baseline = root.get("baseline").map(|node| find_baseline(node, &points)).transpose()?;
        for (field, names) in [
            ("metrics", typed.metrics.as_ref()),
            ("pareto.minimise", typed.pareto.as_ref().map(|pareto| &pareto.minimise)),
            ("pareto.maximise", typed.pareto.as_ref().map(|pareto| &pareto.maximise)),
        ] {
            check_metrics(&root, field, names.map_or(&[], Vec::as_slice))?;
        }
        if typed.metrics.as_ref().is_some_and(Vec::is_empty) {
            return Err(wrong(
                "metrics",
                "the list is empty".into(),
                "give names, or leave it out for the usual ones",
            ));
        }
        Ok(Self {
            name: typed.name,
            description: typed.description,
            scenario: typed.scenario,
            set,
            fields,
            points,
            replications: typed.replications,
            confidence: typed.confidence,
            baseline,
            metrics: typed.metrics,
            pareto: typed.pareto,
        })
    }
}

/// The name becomes a folder.
pub(in crate::study) fn check_name(root: &Node, name: &str) -> Result<(), FieldError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !name.is_empty() && !name.starts_with('.') && name.chars().all(is_plain) {
        return Ok(());
    }
    let problem = format!("`name` is {name:?}, which cannot name a folder");
    Err(FieldError {
        place: root.locate("name").cloned(),
        ..FieldError::new(problem, "use letters, digits, `_` and `-`")
    })
}

/// A child that the typed struct has seen.
fn child<'a>(node: &'a Node, name: &str) -> &'a Node {
    node.get(name).unwrap_or(node)
}

/// The fields of a map from their paths to values.
pub(in crate::study) fn fields_of(node: &Node, path: &str) -> Result<Vec<Field>, FieldError> {
    match &node.value {
        Value::Map(entries) if !entries.is_empty() => {
            Ok(entries.iter().map(|(key, value)| (key.name.clone(), value.clone())).collect())
        }
        _ => Err(FieldError {
            place: Some(node.place.clone()),
            field: path.to_owned(),
            ..FieldError::new(
                "found no fields",
                "give fields of the scenario by their paths, such as `engine.block_size: ...`",
            )
        }),
    }
}

/// All fields of the points in the order in which they appear.
pub(super) fn varied(points: &[Point]) -> Vec<String> {
    let mut fields: Vec<String> = Vec::new();
    for (field, _) in points.iter().flat_map(|point| &point.fields) {
        if !fields.contains(field) {
            fields.push(field.clone());
        }
    }
    fields
}

/// No field undoes one before it. What is set for all points comes first.
pub(in crate::study) fn check_apart(set: &[Field], points: &[Point]) -> Result<(), FieldError> {
    let check = |fields: &[&Field]| {
        for (index, (field, node)) in fields.iter().enumerate() {
            if let Some((earlier, _)) = fields[..index].iter().find(|(earlier, _)| is_within(earlier, field))
            {
                let problem = if field == earlier {
                    format!("`{field}` is there twice")
                } else {
                    format!("`{field}` undoes `{earlier}`, which lies within it")
                };
                return Err(FieldError {
                    place: Some(node.place.clone()),
                    ..FieldError::new(problem, "leave one of them out")
                });
            }
        }
        Ok(())
    };
    // Points of a grid all have the same fields.
    let mut checked: Vec<Vec<&String>> = Vec::new();
    for point in points {
        let names: Vec<&String> = point.fields.iter().map(|(field, _)| field).collect();
        if !checked.contains(&names) {
            check(&set.iter().chain(&point.fields).collect::<Vec<_>>())?;
            checked.push(names);
        }
    }
    Ok(())
}

/// `field` is `other`, or a part of it.
pub(super) fn is_within(field: &str, other: &str) -> bool {
    let mut parts = split_path(field);
    split_path(other).all(|part| parts.next() == Some(part))
}

/// The point with a name, or the only one with these values.
fn find_baseline(node: &Node, points: &[Point]) -> Result<usize, FieldError> {
    let wrong = |problem: String, hint: &str| FieldError {
        place: Some(node.place.clone()),
        field: "baseline".to_owned(),
        ..FieldError::new(problem, hint)
    };
    if let Value::String(name) = &node.value {
        let names: Vec<&str> = points.iter().filter_map(|point| point.name.as_deref()).collect();
        if names.is_empty() {
            let hint = "name items of a `list`, or give the values of one point: {engine.block_size: 16}";
            return Err(wrong(format!("no point has the name `{name}`"), hint));
        }
        return points
            .iter()
            .position(|point| point.name.as_deref() == Some(name))
            .ok_or_else(|| wrong(format!("no point has the name `{name}`"), &suggest(name, &names)));
    }
    let wanted = fields_of(node, "baseline")?;
    let has = |point: &Point, (field, value): &Field| {
        point.fields.iter().any(|(name, node)| name == field && node.to_json() == value.to_json())
    };
    let found: Vec<usize> =
        (0..points.len()).filter(|&index| wanted.iter().all(|field| has(&points[index], field))).collect();
    match found[..] {
        [index] => Ok(index),
        [] => Err(wrong("no point has these values".to_owned(), "give values that one of the points has")),
        _ => {
            let problem = format!("{} points have these values", found.len());
            Err(wrong(problem, "give the values of more fields, so that one point is left"))
        }
    }
}

/// All names are metrics of a summary.
fn check_metrics(root: &Node, field: &str, names: &[String]) -> Result<(), FieldError> {
    let known = metric_names();
    for (index, name) in names.iter().enumerate() {
        // Which item of a list is meant is not for us to say.
        let parts = split_path(name).map(|part| if part.parse::<usize>().is_ok() { "0" } else { part });
        if !known.contains(&parts.collect::<Vec<_>>().join(".")) {
            let mut nearest = known;
            let likeness = |known: &String| strsim::normalized_damerau_levenshtein(name, known);
            nearest.sort_by(|a, b| likeness(b).total_cmp(&likeness(a)));
            nearest.truncate(3);
            let hint = format!("did you mean `{}`? All are in a run's summary.json", nearest.join("`, `"));
            return Err(FieldError {
                place: root.locate(&format!("{field}[{index}]")).cloned(),
                field: field.to_owned(),
                ..FieldError::new(format!("there is no metric `{name}`"), hint)
            });
        }
    }
    Ok(())
}
