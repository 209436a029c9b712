//! Whether simulations order routing strategies as measurements do.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Load, Metric, Outcome};

/// The figures by which strategies are ordered.
const METRICS: [Metric; 4] = [Metric::OutputTokS, Metric::TtftMeanMs, Metric::TtftP90Ms, Metric::TpotMeanMs];

/// One load behind several routing strategies.
#[derive(Clone, Debug, Serialize)]
pub struct Ranking {
    pub source: String,
    pub gpu: String,
    pub model: String,
    pub figures: BTreeMap<Metric, RankedFigure>,
}

/// Spearman's rank correlations, 1 where both sides have the same order.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankedFigure {
    /// Of the strategies, by their means over all rates.
    pub of_strategies: f64,
    /// Of the strategies at each rate, the mean over the rates.
    pub of_strategies_by_rate: f64,
    /// Of all runs, each a strategy at a rate.
    pub of_runs: f64,
    /// Pairs of strategies that the measurement tells apart, and how many of them are simulated in that
    /// order.
    pub num_pairs: usize,
    pub num_pairs_in_order: usize,
    pub strategies: Vec<StrategyMeans>,
}

/// Means over all rates.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StrategyMeans {
    pub routing: String,
    pub measured: f64,
    pub predicted: f64,
}

/// A strategy at a rate: measured and predicted.
type Figures = BTreeMap<(String, usize), (f64, f64)>;

/// Of every load that was measured behind several routing strategies.
pub fn rank(outcomes: &[Outcome]) -> Vec<Ranking> {
    let mut loads: BTreeMap<[&str; 3], Vec<&Outcome>> = BTreeMap::new();
    for outcome in outcomes {
        if let (Ok(Load::Ladder { .. }), settings) = (&outcome.run.load, &outcome.run.settings) {
            loads.entry([&outcome.run.source, &settings.gpu, &settings.model]).or_default().push(outcome);
        }
    }
    let ranking = |([source, gpu, model], outcomes): ([&str; 3], Vec<&Outcome>)| {
        let figures: BTreeMap<Metric, RankedFigure> =
            METRICS.into_iter().filter_map(|metric| Some((metric, figure(&outcomes, metric)?))).collect();
        let [source, gpu, model] = [source, gpu, model].map(str::to_owned);
        (!figures.is_empty()).then_some(Ranking { source, gpu, model, figures })
    };
    loads.into_iter().filter_map(ranking).collect()
}

fn figure(outcomes: &[&Outcome], metric: Metric) -> Option<RankedFigure> {
    let mut figures = Figures::new();
    for outcome in outcomes {
        let Ok(Load::Ladder { stage, .. }) = &outcome.run.load else { continue };
        let routing = outcome.run.settings.routing.clone().unwrap_or_default();
        if let Some(both) = outcome.comparisons.get(&metric) {
            figures.insert((routing, *stage), (both.measured, both.predicted));
        }
    }
    let mut by_strategy: BTreeMap<&str, BTreeMap<usize, (f64, f64)>> = BTreeMap::new();
    let mut by_rate: BTreeMap<usize, Vec<(f64, f64)>> = BTreeMap::new();
    for ((routing, stage), &both) in &figures {
        by_strategy.entry(routing).or_default().insert(*stage, both);
        by_rate.entry(*stage).or_default().push(both);
    }
    let strategies: Vec<&BTreeMap<usize, (f64, f64)>> = by_strategy.values().collect();
    let means: Vec<(f64, f64)> =
        strategies.iter().map(|at_rates| means(at_rates.values().copied())).collect();
    let pairs = (0..strategies.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
    let pairs: Vec<bool> =
        pairs.filter_map(|(a, b)| is_in_order(&differences(strategies[a], strategies[b]))).collect();
    let at_rates: Vec<f64> = by_rate.values().filter_map(|both| spearman(both)).collect();
    let with_means = by_strategy.keys().zip(&means).map(|(&routing, &(measured, predicted))| StrategyMeans {
        routing: routing.to_owned(),
        measured,
        predicted,
    });
    let runs: Vec<(f64, f64)> = figures.values().copied().collect();
    Some(RankedFigure {
        of_strategies: spearman(&means)?,
        of_strategies_by_rate: at_rates.iter().sum::<f64>() / at_rates.len().max(1) as f64,
        of_runs: spearman(&runs)?,
        num_pairs: pairs.len(),
        num_pairs_in_order: pairs.iter().filter(|&&in_order| in_order).count(),
        strategies: with_means.collect(),
    })
}

/// Of measured and of predicted figures.
fn means(both: impl Iterator<Item = (f64, f64)>) -> (f64, f64) {
    let (count, measured, predicted) =
        both.fold((0.0, 0.0, 0.0), |sum, both| (sum.0 + 1.0, sum.1 + both.0, sum.2 + both.1));
    (measured / count, predicted / count)
}

/// One strategy less the other at each rate that both have, measured and predicted.
fn differences(a: &BTreeMap<usize, (f64, f64)>, b: &BTreeMap<usize, (f64, f64)>) -> Vec<(f64, f64)> {
    let difference =
        |(rate, of_a): (&usize, &(f64, f64))| b.get(rate).map(|of_b| (of_a.0 - of_b.0, of_a.1 - of_b.1));
    a.iter().filter_map(difference).collect()
}

/// Whether the mean predicted difference has the sign of the measured one; `None` if that is less than
/// twice its standard error, so that another measurement could turn it round.
fn is_in_order(differences: &[(f64, f64)]) -> Option<bool> {
    let count = differences.len() as f64;
    let (measured, predicted) = means(differences.iter().copied());
    let squares: f64 = differences.iter().map(|difference| (difference.0 - measured).powi(2)).sum();
    let standard_error = (squares / (count - 1.0) / count).sqrt();
    (measured.abs() > 2.0 * standard_error).then_some(measured * predicted > 0.0)
}

/// The correlation of the ranks; equals share the mean of theirs. `None` where one side has no order.
fn spearman(pairs: &[(f64, f64)]) -> Option<f64> {
    let ranks = |values: Vec<f64>| -> Vec<f64> {
        let rank = |value: &f64| {
            let below = values.iter().filter(|other| *other < value).count() as f64;
            let equal = values.iter().filter(|other| *other == value).count() as f64;
            below + (equal + 1.0) / 2.0
        };
        values.iter().map(rank).collect()
    };
    let left = ranks(pairs.iter().map(|pair| pair.0).collect());
    let right = ranks(pairs.iter().map(|pair| pair.1).collect());
    let mean = (pairs.len() as f64 + 1.0) / 2.0;
    let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let norm = (product(&left, &left) * product(&right, &right)).sqrt();
    (norm > 0.0).then(|| product(&left, &right) / norm)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_within_their_noise_have_no_order() {
        let measured = |measured: [f64; 4]| measured.map(|measured| (measured, 1.0));
        // Mean 2, standard error sqrt(8 / 3 / 4) = 0.82.
        assert_eq!(is_in_order(&measured([0.0, 2.0, 2.0, 4.0])), Some(true));
        assert_eq!(is_in_order(&measured([0.0, -2.0, -2.0, -4.0])), Some(false));
        // Mean 1, standard error 0.82.
        assert_eq!(is_in_order(&measured([-1.0, 1.0, 1.0, 3.0])), None);
        // One rate says nothing of its noise.
        assert_eq!((is_in_order(&[(5.0, 1.0)]), is_in_order(&[])), (None, None));
        let at = |rates: &[(usize, f64)]| rates.iter().map(|&(rate, x)| (rate, (x, x + 1.0))).collect();
        assert_eq!(differences(&at(&[(1, 5.0), (2, 7.0)]), &at(&[(2, 4.0), (3, 1.0)])), [(3.0, 3.0)]);
    }

    #[test]
    fn ranks_correlate_as_in_the_textbook() {
        let with = |right: [f64; 4]| spearman(&[1.0, 2.0, 3.0, 4.0].map(|x| (x, right[x as usize - 1])));
        assert_eq!(with([10.0, 20.0, 300.0, 4_000.0]), Some(1.0));
        assert_eq!(with([4.0, 3.0, 2.0, 1.0]), Some(-1.0));
        // One swap of neighbours among four: 1 - 6 * 2 / (4 * 15).
        assert!((with([2.0, 1.0, 3.0, 4.0]).unwrap() - 0.8).abs() < 1e-12);
        // Two equals share rank 1.5: deviations -1, -1, 0.5, 1.5 against -1.5, -0.5, 0.5, 1.5.
        let tied = 4.5 / (4.5_f64 * 5.0).sqrt();
        assert!((with([1.0, 1.0, 3.0, 4.0]).unwrap() - tied).abs() < 1e-12);
        assert_eq!((with([1.0; 4]), spearman(&[(1.0, 1.0)])), (None, None));
    }
}
