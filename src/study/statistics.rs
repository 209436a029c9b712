//! Confidence intervals of means, by Student's t distribution.

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The mean of independent values, and how well they tell it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    pub mean: f64,
    /// The interval is `mean - half_width ..= mean + half_width`; `None` from fewer than two values.
    pub half_width: Option<f64>,
}

impl Estimate {
    /// `None` without values. `confidence` is a share between 0 and 1, such as 0.95.
    pub fn of(values: &[f64], confidence: f64) -> Option<Self> {
        let sample = Sample::of(values)?;
        let half_width = (values.len() > 1).then(|| {
            let degrees = values.len() as f64 - 1.0;
            quantile(confidence, degrees) * sample.squared_error.sqrt()
        });
        Some(Self { mean: sample.mean, half_width })
    }

    /// The mean of the differences `a - b` of pairs: runs with the same random numbers, whose common
    /// part falls out.
    pub fn of_pairs(a: &[f64], b: &[f64], confidence: f64) -> Option<Self> {
        let differences: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
        Self::of(&differences, confidence)
    }

    /// The difference of the means of `a` and `b`, which have nothing in common: Welch's interval,
    /// with the degrees of freedom of Welch and Satterthwaite.
    pub fn of_difference(a: &[f64], b: &[f64], confidence: f64) -> Option<Self> {
        let (sample_a, sample_b) = (Sample::of(a)?, Sample::of(b)?);
        let squared_error = sample_a.squared_error + sample_b.squared_error;
        let half_width = (a.len() > 1 && b.len() > 1).then(|| {
            if squared_error == 0.0 {
                return 0.0;
            }
            let share = |sample: &Sample, len: usize| sample.squared_error.powi(2) / (len as f64 - 1.0);
            let degrees = squared_error.powi(2) / (share(&sample_a, a.len()) + share(&sample_b, b.len()));
            quantile(confidence, degrees) * squared_error.sqrt()
        });
        Some(Self { mean: sample_a.mean - sample_b.mean, half_width })
    }

    /// The interval leaves out zero: what is estimated is not nothing.
    pub fn is_significant(&self) -> bool {
        self.half_width.is_some_and(|half_width| self.mean.abs() > half_width)
    }
}

struct Sample {
    mean: f64,
    /// Of the mean: the sample's variance over its size; 0 from one value.
    squared_error: f64,
}

impl Sample {
    fn of(values: &[f64]) -> Option<Self> {
        let (&first, len) = (values.first()?, values.len() as f64);
        // From the first value on, so that equal values have exactly that mean and no variance.
        let mean = first + values.iter().map(|value| value - first).sum::<f64>() / len;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self { mean, squared_error: if len > 1.0 { squares / (len - 1.0) / len } else { 0.0 } })
    }
}

/// What |t| does not exceed in a share of `confidence` of all cases.
fn quantile(confidence: f64, degrees_of_freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, degrees_of_freedom).map_or(f64::NAN, |t| t.inverse_cdf(0.5 + confidence / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64) {
        assert!((value - expected).abs() < 6e-4, "{value} is not {expected}");
    }

    /// Of the tables of every textbook.
    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (confidence, degrees, expected) in [
            (0.95, 1.0, 12.706),
            (0.95, 2.0, 4.303),
            (0.95, 4.0, 2.776),
            (0.95, 9.0, 2.262),
            (0.95, 30.0, 2.042),
            (0.90, 4.0, 2.132),
            (0.99, 4.0, 4.604),
        ] {
            near(quantile(confidence, degrees), expected);
        }
    }

    #[test]
    fn an_interval_follows_from_mean_and_deviation() {
        // Mean 3, variance 2.5: the half width is 2.776 * sqrt(2.5 / 5).
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.95).unwrap();
        assert_eq!(estimate.mean, 3.0);
        near(estimate.half_width.unwrap(), 1.9629);
        assert_eq!(Estimate::of(&[7.5], 0.95), Some(Estimate { mean: 7.5, half_width: None }));
        assert_eq!(Estimate::of(&[0.1; 3], 0.95), Some(Estimate { mean: 0.1, half_width: Some(0.0) }));
        assert_eq!(Estimate::of(&[], 0.95), None);
    }

    #[test]
    fn pairs_leave_out_what_they_have_in_common() {
        let (a, b) = ([11.0, 22.0, 33.0], [10.0, 20.0, 30.0]);
        let paired = Estimate::of_pairs(&a, &b, 0.95).unwrap();
        assert_eq!(paired.mean, 2.0);
        near(paired.half_width.unwrap(), 4.3027 / 3.0_f64.sqrt());
        let apart = Estimate::of_difference(&a, &b, 0.95).unwrap();
        assert_eq!(apart.mean, 2.0);
        // Variances 121 and 100 of three values each: an error of sqrt(221 / 3) with 221 ^ 2 /
        // (121 ^ 2 / 2 + 100 ^ 2 / 2) = 3.96 degrees of freedom.
        assert!((23.5..24.5).contains(&apart.half_width.unwrap()), "{apart:?}");
        assert!(!apart.is_significant());
        assert!(!Estimate { mean: 1.0, half_width: None }.is_significant());
        assert!(Estimate { mean: -1.0, half_width: Some(0.5) }.is_significant());
    }
}
