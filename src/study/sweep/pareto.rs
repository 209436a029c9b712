//! Which points nobody would leave for another one.

use super::file::Pareto;
use super::plan::Row;

/// For each point, whether no other is better in one metric and at least as good in all others, by
/// the means over its runs. A point that lacks a metric is not on the front.
pub(super) fn front(pareto: &Pareto, points: &[Vec<Row>]) -> Vec<bool> {
    let mean = |rows: &[Row], name: &String| {
        let values: Option<Vec<f64>> = rows.iter().map(|row| row.metric(name)).collect();
        values
            .filter(|values| !values.is_empty())
            .map(|values| values.iter().sum::<f64>() / values.len() as f64)
    };
    // Of all less is better.
    let costs: Vec<Option<Vec<f64>>> = points
        .iter()
        .map(|rows| {
            let less = pareto.minimise.iter().map(|name| mean(rows, name));
            let more = pareto.maximise.iter().map(|name| mean(rows, name).map(|mean| -mean));
            less.chain(more).collect()
        })
        .collect();
    let is_beaten = |own: &Vec<f64>| {
        costs.iter().flatten().any(|other| {
            let mut pairs = other.iter().zip(own);
            pairs.clone().all(|(other, own)| other <= own) && pairs.any(|(other, own)| other < own)
        })
    };
    costs.iter().map(|own| own.as_ref().is_some_and(|own| !is_beaten(own))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;
    use crate::study::sweep::plan::Outcome;

    fn rows(values: &[[Option<f64>; 2]]) -> Vec<Row> {
        let row = |&[cost, gain]: &[Option<f64>; 2]| Row {
            point: 0,
            replication: 0,
            seed: Some(1),
            fields: Map::new(),
            outcome: Outcome::Metrics(Map::from_iter([
                ("cost".to_owned(), json!(cost)),
                ("gain".to_owned(), json!(gain)),
            ])),
        };
        values.iter().map(row).collect()
    }

    #[test]
    fn a_point_is_on_the_front_unless_another_is_better() {
        let pareto = Pareto { minimise: vec!["cost".into()], maximise: vec!["gain".into()] };
        let one = |cost, gain| rows(&[[Some(cost), Some(gain)]]);
        let points = [
            one(1.0, 1.0),
            one(2.0, 3.0),
            one(2.0, 2.0),
            one(3.0, 3.0),
            // Equal to the second: neither is better.
            one(2.0, 3.0),
            // Means of 1 and 2: beaten by nobody.
            rows(&[[Some(0.0), Some(1.0)], [Some(2.0), Some(3.0)]]),
            rows(&[[Some(0.0), None]]),
            rows(&[]),
        ];
        assert_eq!(front(&pareto, &points), [false, true, false, false, true, true, false, false]);
    }
}
