//! How far predictions are from measurements.

use super::fit::rounded;
use crate::cost::FitError;

/// Median and 90th percentile of `|ratio - 1|` and median of `ratio - 1`, in per cent, of
/// `predicted / measured`.
pub(super) fn errors(ratios: &[f64]) -> FitError {
    let percent = |quantile: f64, mut values: Vec<f64>| {
        values.sort_by(f64::total_cmp);
        rounded(100.0 * interpolated(&values, quantile))
    };
    FitError {
        median_percent: percent(0.5, ratios.iter().map(|ratio| (ratio - 1.0).abs()).collect()),
        p90_percent: percent(0.9, ratios.iter().map(|ratio| (ratio - 1.0).abs()).collect()),
        bias_percent: percent(0.5, ratios.iter().map(|ratio| ratio - 1.0).collect()),
    }
}

/// A quantile of sorted values, between neighbours in proportion.
fn interpolated(sorted: &[f64], quantile: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = quantile * last as f64;
    let below = at.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (at - below as f64) * (sorted[above] - sorted[below])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_in_per_cent_with_the_sign_of_the_prediction() {
        let error = errors(&[0.9, 1.2, 1.1, 1.3, 1.0]);
        assert_eq!(error.median_percent, 10.0);
        assert_eq!(error.bias_percent, 10.0);
        assert_eq!(error.p90_percent, 26.0);
        assert_eq!(errors(&[]).median_percent, 0.0);
    }
}
