//! The points of a sweep: a grid, a number of them at random, or a list.

use std::collections::HashSet;

use super::file::{Field, fields_of};
use super::values::{MAX_POINTS, Values};
use crate::scenario::{FieldError, Node, Value};
use crate::workload::rng::stream;

/// Draws of a point that was drawn before, in a row, after which there seem to be no others.
const VAIN_DRAWS: usize = 10_000;

/// One choice of values.
#[derive(Clone, Debug)]
pub(in crate::study) struct Point {
    /// In a list, where one was given.
    pub name: Option<String>,
    pub fields: Vec<Field>,
}

fn wrong(node: &Node, path: &str, problem: String, hint: &str) -> FieldError {
    FieldError { place: Some(node.place.clone()), field: path.to_owned(), ..FieldError::new(problem, hint) }
}

/// The values of each field of a map.
fn values_of(node: &Node, path: &str) -> Result<Vec<(String, Values)>, FieldError> {
    let values = |(field, node): Field| {
        let values = Values::parse(&node, &format!("{path}.{field}"))?;
        Ok((field, values))
    };
    fields_of(node, path)?.into_iter().map(values).collect()
}

/// Every combination; the last field changes first.
pub(in crate::study) fn grid(node: &Node) -> Result<Vec<Point>, FieldError> {
    let mut points = vec![Point { name: None, fields: Vec::new() }];
    for (field, values) in values_of(node, "grid")? {
        let path = format!("grid.{field}");
        let Values::Listed(values) = values else {
            let at = node.get(&field).unwrap_or(node);
            return Err(wrong(
                at,
                &path,
                "the range has no `count`".into(),
                "add `count: ...` or, if it is linear, `step: ...`",
            ));
        };
        if points.len() * values.len() > MAX_POINTS {
            let problem = format!("the grid has more than {MAX_POINTS} points");
            return Err(wrong(node, &path, problem, "give fewer values, or take `random`"));
        }
        let with = |point: &Point, value: &Node| {
            let mut point = point.clone();
            point.fields.push((field.clone(), value.clone()));
            point
        };
        points = points.iter().flat_map(|point| values.iter().map(move |value| with(point, value))).collect();
    }
    Ok(points)
}

/// `count` different points, each value independent of the others.
pub(super) fn random(node: &Node, count: usize, seed: u64) -> Result<Vec<Point>, FieldError> {
    let values = values_of(node.get("fields").unwrap_or(node), "random.fields")?;
    let count_node = node.get("count").unwrap_or(node);
    if !(1..=MAX_POINTS).contains(&count) {
        let hint = format!("give a whole number from 1 to {MAX_POINTS}");
        return Err(wrong(count_node, "random.count", format!("`count` is {count}"), &hint));
    }
    // A stream for each field: one more field leaves the others as they are.
    let mut rngs: Vec<_> =
        values.iter().map(|(field, _)| stream(seed, &format!("sweep {field}"), 0)).collect();
    let mut points: Vec<Point> = Vec::new();
    let mut known = HashSet::new();
    let mut vain = 0;
    while points.len() < count {
        let draw = |((field, values), rng): (&(String, Values), &mut _)| (field.clone(), values.draw(rng));
        let fields: Vec<Field> = values.iter().zip(&mut rngs).map(draw).collect();
        let key: Vec<String> = fields.iter().map(|(_, node)| node.to_json().to_string()).collect();
        if known.insert(key) {
            points.push(Point { name: None, fields });
            vain = 0;
        } else {
            vain += 1;
            if vain > VAIN_DRAWS {
                let problem = format!("there seem to be only {} different points", points.len());
                return Err(wrong(
                    count_node,
                    "random.count",
                    problem,
                    "give a smaller `count`, or take `grid`",
                ));
            }
        }
    }
    Ok(points)
}

/// The points as they are typed, with an optional `name` each.
pub(in crate::study) fn listed(node: &Node) -> Result<Vec<Point>, FieldError> {
    let Value::List(items) = &node.value else {
        return Err(wrong(
            node,
            "list",
            "found no list".into(),
            "give a line with `- {field: value, ...}` for each point",
        ));
    };
    if items.is_empty() {
        return Err(wrong(node, "list", "the list is empty".into(), "give at least one point"));
    }
    let mut points: Vec<Point> = Vec::new();
    for (index, item) in items.iter().enumerate() {
        let path = format!("list[{index}]");
        let mut fields = fields_of(item, &path)?;
        let name = fields.iter().position(|(field, _)| field == "name").map(|at| fields.remove(at).1);
        let name = match name {
            None => None,
            Some(Node { value: Value::String(name), place }) => {
                if points.iter().any(|point| point.name.as_ref() == Some(&name)) {
                    let error = FieldError::new(
                        format!("`{name}` is there twice"),
                        "give each point a name of its own",
                    );
                    return Err(FieldError { place: Some(place), field: path, ..error });
                }
                Some(name)
            }
            Some(node) => {
                let hint = "give text, in quotes if it looks like a number";
                return Err(wrong(&node, &format!("{path}.name"), "found no text".into(), hint));
            }
        };
        points.push(Point { name, fields });
    }
    Ok(points)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(points: &[Point]) -> Vec<String> {
        let field = |(name, node): &Field| format!("{name}={}", node.to_json());
        points.iter().map(|point| point.fields.iter().map(field).collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn a_grid_has_every_combination() {
        let node = Node::parse("a.b: [1, x]\nc: {powers_of_two: {from: 2, to: 4}}").unwrap();
        let expected = ["a.b=1 c=2", "a.b=1 c=4", "a.b=\"x\" c=2", "a.b=\"x\" c=4"];
        assert_eq!(texts(&grid(&node).unwrap()), expected);
        let error = grid(&Node::parse("a: {linear: {from: 0, to: 1}}").unwrap()).unwrap_err();
        assert_eq!((error.field.as_str(), error.problem.as_str()), ("grid.a", "the range has no `count`"));
    }

    #[test]
    fn random_points_are_different_and_repeatable() {
        let node = Node::parse("fields: {a: [1, 2, 3], b: {linear: {from: 0, to: 1}}}").unwrap();
        let points = texts(&random(&node, 50, 7).unwrap());
        assert_eq!(points, texts(&random(&node, 50, 7).unwrap()));
        assert_ne!(points, texts(&random(&node, 50, 8).unwrap()));
        assert_eq!(points.iter().collect::<HashSet<_>>().len(), 50);
        let few = Node::parse("fields: {a: [1, 2, 3]}").unwrap();
        let mut all = texts(&random(&few, 3, 0).unwrap());
        all.sort();
        assert_eq!(all, ["a=1", "a=2", "a=3"]);
        assert_eq!(random(&few, 4, 0).unwrap_err().problem, "there seem to be only 3 different points");
    }

    #[test]
    fn one_more_field_leaves_the_others_as_they_are() {
        let first = |text: &str| texts(&random(&Node::parse(text).unwrap(), 5, 1).unwrap());
        let one = first("fields: {a: {linear: {from: 0, to: 1}}}");
        let two = first("fields: {a: {linear: {from: 0, to: 1}}, b: {linear: {from: 0, to: 1}}}");
        assert!(one.iter().zip(&two).all(|(one, two)| two.starts_with(one.as_str())));
    }

    #[test]
    fn listed_points_may_have_names() {
        let node = Node::parse("- {name: today, a: 1}\n- {b: 2}").unwrap();
        let points = listed(&node).unwrap();
        assert_eq!(points[0].name.as_deref(), Some("today"));
        assert_eq!(texts(&points), ["a=1", "b=2"]);
        assert!(listed(&Node::parse("- {name: x, a: 1}\n- {name: x, a: 2}").unwrap()).is_err());
        assert!(listed(&Node::parse("- {name: 5, a: 1}").unwrap()).is_err());
        assert!(listed(&Node::parse("[]").unwrap()).is_err());
        assert!(listed(&Node::parse("a: 1").unwrap()).is_err());
    }
}
