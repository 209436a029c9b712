//! Two runs, or two points of sweeps, side by side.

mod page;
mod subject;

use serde::Serialize;
use serde_json::Value;

pub use page::page;
pub use subject::{Subject, SubjectError};

use crate::report::HEADLINES;
use crate::study::statistics::Estimate;

/// What differs between `a` and `b`.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Fields of the scenario that differ.
    pub settings: Vec<Setting>,
    pub metrics: Vec<Metric>,
    pub method: Method,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Setting {
    pub field: String,
    /// `None` where it was not given.
    pub a: Option<Value>,
    pub b: Option<Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Metric {
    pub name: String,
    pub a: Estimate,
    pub b: Estimate,
    /// `b - a`.
    pub difference: Estimate,
}

/// What the interval of a difference comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// One run on a side: there is none.
    SingleRuns,
    /// Runs with the same seeds saw the same users: differences of pairs.
    Paired,
    /// Seeds differ: Welch's interval.
    Independent,
}

/// Which metrics to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Headlines,
    All,
}

/// Compares all metrics that both sides have. `confidence` is a share between 0 and 1.
pub fn compare(a: &Subject, b: &Subject, which: Which, confidence: f64) -> Comparison {
    let method = if a.seeds.len() < 2 || b.seeds.len() < 2 {
        Method::SingleRuns
    } else if a.seeds == b.seeds {
        Method::Paired
    } else {
        Method::Independent
    };
    let metric = |name: &String| {
        let (own_a, own_b) = (a.metrics.get(name)?, b.metrics.get(name)?);
        let difference = match method {
            Method::Paired => Estimate::of_pairs(own_b, own_a, confidence),
            Method::SingleRuns | Method::Independent => Estimate::of_difference(own_b, own_a, confidence),
        };
        Some(Metric {
            name: name.clone(),
            a: Estimate::of(own_a, confidence)?,
            b: Estimate::of(own_b, confidence)?,
            difference: difference?,
        })
    };
    let headlines = HEADLINES.iter().map(|&name| name.to_owned());
    let names: Vec<String> = match which {
        Which::Headlines => headlines.collect(),
        Which::All => a.metrics.keys().filter(|name| *name != "seed").cloned().collect(),
    };
    let mut metrics: Vec<Metric> = names.iter().filter_map(metric).collect();
    if metrics.is_empty() {
        // Sweeps that keep others.
        metrics = a.metrics.keys().filter_map(metric).collect();
    }
    Comparison { settings: settings(a, b), metrics, method }
}

fn settings(a: &Subject, b: &Subject) -> Vec<Setting> {
    let mut fields: Vec<&String> = a.settings.keys().chain(b.settings.keys()).collect();
    fields.sort();
    fields.dedup();
    fields
        .into_iter()
        .map(|field| Setting {
            field: field.clone(),
            a: a.settings.get(field).cloned(),
            b: b.settings.get(field).cloned(),
        })
        .filter(|setting| setting.a != setting.b)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn subject(seeds: &[u64], values: &[f64], block_size: u32) -> Subject {
        Subject {
            name: String::new(),
            seeds: seeds.to_vec(),
            metrics: BTreeMap::from([("prefix_cache.hit_rate".to_owned(), values.to_vec())]),
            settings: BTreeMap::from([
                ("engine.block_size".to_owned(), block_size.into()),
                ("gpu".to_owned(), "L40S".into()),
            ]),
        }
    }

    #[test]
    fn the_same_seeds_are_paired() {
        let a = subject(&[1, 2, 3], &[0.1, 0.2, 0.3], 16);
        let b = subject(&[1, 2, 3], &[0.2, 0.3, 0.4], 32);
        let comparison = compare(&a, &b, Which::Headlines, 0.95);
        assert_eq!(comparison.method, Method::Paired);
        let difference = comparison.metrics[0].difference;
        assert!((difference.mean - 0.1).abs() < 1e-12 && difference.half_width.unwrap() < 1e-12);
        assert!(difference.is_significant());
        let expected = Setting { field: "engine.block_size".into(), a: Some(16.into()), b: Some(32.into()) };
        assert_eq!(comparison.settings, [expected]);
    }

    #[test]
    fn other_seeds_are_not() {
        let a = subject(&[1, 2, 3], &[0.1, 0.2, 0.3], 16);
        let b = subject(&[4, 5], &[0.2, 0.3], 16);
        let comparison = compare(&a, &b, Which::All, 0.95);
        assert_eq!(comparison.method, Method::Independent);
        assert!(!comparison.metrics[0].difference.is_significant());
        let one = compare(&a, &subject(&[9], &[0.5], 16), Which::All, 0.95);
        assert_eq!((one.method, one.metrics[0].difference.half_width), (Method::SingleRuns, None));
    }
}
