//! How long messages, conversations and pauses are.

use std::fmt;

use rand::seq::IndexedRandom;
use rand::{Rng, RngExt};
use rand_distr::{Distribution as _, Exp1, StandardNormal};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};

use super::{ConfigError, require};
use crate::units::SimTime;

/// The largest length of one part in tokens: prompt and answer of a request together then still fit
/// the 32 bits of a token position.
pub(crate) const MAX_LENGTH_TOKENS: u32 = i32::MAX as u32;

/// A distribution of a whole number (tokens, turns) or of a time in seconds. `min` and `max` clamp
/// what was drawn, so the mean of the clamped distribution differs from the one typed.
///
/// In YAML one key with its parameters: `{lognormal: {median: 120, sigma: 0.9, max: 4000}}`; a bare
/// number is always this value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields, remote = "Self")]
pub enum Distribution {
    /// Always this value.
    Fixed(f64),
    /// Every value from `min` to `max`, both included, is equally likely.
    Uniform {
        min: f64,
        max: f64,
    },
    /// `exp(N(mu, sigma^2))`, with `mu` given by either the median or the mean.
    Lognormal {
        median: Option<f64>,
        mean: Option<f64>,
        sigma: f64,
        min: Option<f64>,
        max: Option<f64>,
    },
    Exponential {
        mean: f64,
        min: Option<f64>,
        max: Option<f64>,
    },
    /// 1, 2, 3, ...: after each the chance to go on is the same. Whole numbers only.
    Geometric {
        mean: f64,
        min: Option<f64>,
        max: Option<f64>,
    },
    /// Each of these values is equally likely; one that stands twice is twice as likely.
    Values(Vec<f64>),
    /// A bin in proportion to its weight, and in it every value equally likely.
    Histogram(Vec<Bin>),
}

/// A bin of [`Distribution::Histogram`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bin {
    /// Both included.
    pub min: f64,
    pub max: f64,
    pub weight: f64,
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Distribution {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneKeyOrNumber)
    }
}

struct OneKeyOrNumber;

impl<'de> Visitor<'de> for OneKeyOrNumber {
    type Value = Distribution;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, or a distribution such as {fixed: 100} or {uniform: {min: 1, max: 9}}")
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Distribution, E> {
        Ok(Distribution::Fixed(value as f64))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Distribution, E> {
        Ok(Distribution::Fixed(value as f64))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Distribution, E> {
        Ok(Distribution::Fixed(value))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Distribution, A::Error> {
        // The derived reading, which `remote = "Self"` makes an inherent function.
        let distribution = Distribution::deserialize(MapAccessDeserializer::new(&mut map))?;
        match map.next_key::<String>()? {
            None => Ok(distribution),
            Some(other) => Err(A::Error::custom(format!("found a second distribution, `{other}`"))),
        }
    }
}

impl Distribution {
    /// Draws a whole number, at least 1 and at most 2^31 - 1.
    pub fn sample_count(&self, rng: &mut impl Rng) -> u32 {
        let value = match *self {
            // Rounding a real number would make the two ends half as likely as the rest.
            Self::Uniform { min, max } => whole_between(min, max, rng),
            Self::Histogram(ref bins) => {
                let bin = pick_bin(bins, rng);
                whole_between(bin.min, bin.max, rng)
            }
            _ => self.sample(rng),
        };
        // `as` saturates.
        (value.round() as u32).clamp(1, MAX_LENGTH_TOKENS)
    }

    /// Draws a time.
    pub fn sample_time(&self, rng: &mut impl Rng) -> SimTime {
        SimTime::from_secs_f64(self.sample(rng))
    }

    fn sample(&self, rng: &mut impl Rng) -> f64 {
        match *self {
            Self::Fixed(value) => value,
            Self::Uniform { min, max } => rng.random_range(min..=max),
            Self::Lognormal { median, mean, sigma, min, max } => {
                let scale = median.or_else(|| Some(mean? * (-sigma * sigma / 2.0).exp())).unwrap_or(1.0);
                let normal: f64 = StandardNormal.sample(rng);
                clamp(scale * (sigma * normal).exp(), min, max)
            }
            Self::Exponential { mean, min, max } => {
                let exponential: f64 = Exp1.sample(rng);
                clamp(mean * exponential, min, max)
            }
            Self::Geometric { mean, min, max } => {
                // An exponential variable rounded up is geometric; its rate makes the chance to
                // stop, 1 - exp(-rate), equal to 1 / mean. At mean 1 the rate is infinite.
                let exponential: f64 = Exp1.sample(rng);
                let rate = -(-1.0 / mean).ln_1p();
                clamp((exponential / rate).ceil().max(1.0), min, max)
            }
            Self::Values(ref values) => values.choose(rng).copied().unwrap_or_default(),
            Self::Histogram(ref bins) => {
                let bin = pick_bin(bins, rng);
                rng.random_range(bin.min..=bin.max)
            }
        }
    }

    /// The smallest and the largest whole number that [`Self::sample_count`] can give.
    pub(crate) fn count_bounds(&self) -> (u32, u32) {
        let (min, max) = match *self {
            Self::Fixed(value) => (Some(value), Some(value)),
            Self::Uniform { min, max } => (Some(min), Some(max)),
            Self::Lognormal { min, max, .. }
            | Self::Exponential { min, max, .. }
            | Self::Geometric { min, max, .. } => (min, max),
            Self::Values(ref values) => bounds(values.iter().map(|&value| (value, value))),
            Self::Histogram(ref bins) => bounds(bins.iter().map(|bin| (bin.min, bin.max))),
        };
        let count = |value: f64| (value.round() as u32).clamp(1, MAX_LENGTH_TOKENS);
        (count(min.unwrap_or(1.0)), count(max.unwrap_or(f64::INFINITY)))
    }

    /// Checks a distribution of whole numbers.
    pub fn validate_count(&self) -> Result<(), ConfigError> {
        self.validate(1.0, f64::from(MAX_LENGTH_TOKENS), true)
    }

    /// Checks a distribution of times in seconds.
    pub fn validate_time(&self) -> Result<(), ConfigError> {
        if let Self::Geometric { .. } = self {
            return Err(ConfigError::new(
                "geometric",
                "a distribution of whole numbers",
                "one of times: `fixed`, `uniform`, `lognormal` or `exponential`",
            ));
        }
        self.validate(0.0, 1e9, false)
    }

    /// Values lie between `low` and `high`; those typed as values are whole if `whole`.
    fn validate(&self, low: f64, high: f64, whole: bool) -> Result<(), ConfigError> {
        let kind = if whole { "whole number" } else { "number" };
        let value = |field: &str, value: f64| {
            let valid = (low..=high).contains(&value) && (!whole || value.fract() == 0.0);
            require(valid, field, value, format!("a {kind} from {low} to {high}"))
        };
        let bounds = |name: &str, min: Option<f64>, max: Option<f64>| {
            let (min, max) = (min.unwrap_or(low), max.unwrap_or(high));
            value(&format!("{name}.min"), min)?;
            value(&format!("{name}.max"), max)?;
            require(min <= max, &format!("{name}.max"), max, format!("at least `min`, {min}"))
        };
        // Parameters that are no values: a mean need not be whole, nor lie above `low`.
        let positive = |field: &str, value: f64| {
            let valid = value > 0.0 && value <= high;
            require(valid, field, value, format!("a number above 0, at most {high}"))
        };
        match *self {
            Self::Fixed(fixed) => value("fixed", fixed),
            Self::Uniform { min, max } => bounds("uniform", Some(min), Some(max)),
            Self::Lognormal { median, mean, sigma, min, max } => {
                match (median, mean) {
                    (Some(median), None) => positive("lognormal.median", median)?,
                    (None, Some(mean)) => positive("lognormal.mean", mean)?,
                    (None, None) => {
                        return Err(ConfigError::new("lognormal", "neither", "`median` or `mean`"));
                    }
                    (Some(_), Some(_)) => {
                        return Err(ConfigError::new("lognormal", "both", "either `median` or `mean`"));
                    }
                }
                let valid = (0.0..=10.0).contains(&sigma);
                require(valid, "lognormal.sigma", sigma, "a number from 0 to 10")?;
                bounds("lognormal", min, max)
            }
            Self::Exponential { mean, min, max } => {
                positive("exponential.mean", mean)?;
                bounds("exponential", min, max)
            }
            Self::Geometric { mean, min, max } => {
                let valid = (1.0..=high).contains(&mean);
                require(valid, "geometric.mean", mean, format!("a number from 1 to {high}"))?;
                bounds("geometric", min, max)
            }
            Self::Values(ref values) => {
                require(!values.is_empty(), "values", "none", "at least one")?;
                let mut each = values.iter().enumerate();
                each.try_for_each(|(index, &typed)| value(&format!("values[{index}]"), typed))
            }
            Self::Histogram(ref bins) => {
                require(!bins.is_empty(), "histogram", "no bin", "at least one")?;
                bins.iter().enumerate().try_for_each(|(index, bin)| {
                    bounds(&format!("histogram[{index}]"), Some(bin.min), Some(bin.max))?;
                    let valid = (1e-9..=1e9).contains(&bin.weight);
                    let field = format!("histogram[{index}].weight");
                    require(valid, &field, bin.weight, "a number above 0, at most 1000000000")
                })
            }
        }
    }
}

/// Every whole number from `min` to `max` is equally likely.
fn whole_between(min: f64, max: f64, rng: &mut impl Rng) -> f64 {
    f64::from(rng.random_range(min as u32..=max as u32))
}

fn pick_bin<'a>(bins: &'a [Bin], rng: &mut impl Rng) -> &'a Bin {
    &bins[pick_weighted(bins.iter().map(|bin| bin.weight), rng.random())]
}

/// The index at this point, from 0 to 1, of all weights laid end to end. There is one at least.
pub(crate) fn pick_weighted(weights: impl ExactSizeIterator<Item = f64> + Clone, point: f64) -> usize {
    let last = weights.len() - 1;
    let mut left = point * weights.clone().sum::<f64>();
    let picked = weights.into_iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    // Rounding can leave the point at the very end.
    picked.unwrap_or(last)
}

fn bounds(ranges: impl Iterator<Item = (f64, f64)> + Clone) -> (Option<f64>, Option<f64>) {
    let min = ranges.clone().map(|(min, _)| min).reduce(f64::min);
    (min, ranges.map(|(_, max)| max).reduce(f64::max))
}

fn clamp(value: f64, min: Option<f64>, max: Option<f64>) -> f64 {
    value.max(min.unwrap_or(f64::NEG_INFINITY)).min(max.unwrap_or(f64::INFINITY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::rng;

    const SAMPLES: usize = 100_000;

    /// Checks the sample mean of counts against the exact mean and standard deviation: 5 standard
    /// errors.
    fn assert_count_mean(distribution: &Distribution, mean: f64, deviation: f64) {
        distribution.validate_count().unwrap();
        let mut rng = rng::stream(3, "test", 0);
        let sum: f64 = (0..SAMPLES).map(|_| f64::from(distribution.sample_count(&mut rng))).sum();
        let (sampled, error) = (sum / SAMPLES as f64, deviation / (SAMPLES as f64).sqrt());
        assert!((sampled - mean).abs() <= 5.0 * error, "{distribution:?}: {sampled}, not {mean}");
    }

    #[test]
    fn means_are_those_of_the_law() {
        use Distribution::*;
        assert_count_mean(&Fixed(17.0), 17.0, 0.0);
        // Variance of a whole number from a to b: ((b - a + 1)^2 - 1) / 12.
        assert_count_mean(&Uniform { min: 1.0, max: 3.0 }, 2.0, (8.0_f64 / 12.0).sqrt());
        // Variance of a geometric: (1 - p) / p^2.
        assert_count_mean(&Geometric { mean: 4.0, min: None, max: None }, 4.0, 12.0_f64.sqrt());
        assert_count_mean(&Geometric { mean: 1.0, min: None, max: None }, 1.0, 0.0);
        assert_count_mean(&Exponential { mean: 5000.0, min: None, max: None }, 5000.0, 5000.0);
        // Mean of a lognormal: median * exp(sigma^2 / 2); variance: mean^2 * (exp(sigma^2) - 1).
        let (sigma, mean) = (0.5_f64, 1000.0 * (0.125_f64).exp());
        let deviation = mean * ((sigma * sigma).exp() - 1.0).sqrt();
        let by_median = Lognormal { median: Some(1000.0), mean: None, sigma, min: None, max: None };
        let by_mean = Lognormal { median: None, mean: Some(mean), sigma, min: None, max: None };
        assert_count_mean(&by_median, mean, deviation);
        assert_count_mean(&by_mean, mean, deviation);
    }

    #[test]
    fn listed_values_and_bins_come_as_often_as_they_should() {
        use Distribution::{Histogram, Values};
        // 2 with 1/4, 6 with 3/4: mean 5, variance 3.
        assert_count_mean(&Values(vec![6.0, 2.0, 6.0, 6.0]), 5.0, 3.0_f64.sqrt());
        // 1 to 3 with 1/4, 10 with 3/4: mean 8, second moment (14/3 + 300) / 4.
        let bin = |min, max, weight| Bin { min, max, weight };
        let bins = Histogram(vec![bin(1.0, 3.0, 1.0), bin(10.0, 10.0, 3.0)]);
        assert_count_mean(&bins, 8.0, ((14.0 / 3.0 + 300.0) / 4.0 - 64.0_f64).sqrt());
        assert_eq!(bins.count_bounds(), (1, 10));
        assert_eq!(Values(vec![6.0, 2.0]).count_bounds(), (2, 6));
        assert_eq!(Distribution::Fixed(3.0).count_bounds(), (3, 3));
        let open = Distribution::Exponential { mean: 3.0, min: None, max: None };
        assert_eq!(open.count_bounds(), (1, MAX_LENGTH_TOKENS));
    }

    #[test]
    fn a_geometric_stops_with_the_same_chance_after_each() {
        let distribution = Distribution::Geometric { mean: 4.0, min: None, max: None };
        let mut rng = rng::stream(3, "test", 0);
        let draws: Vec<u32> = (0..SAMPLES).map(|_| distribution.sample_count(&mut rng)).collect();
        let share = |value| draws.iter().filter(|&&draw| draw == value).count() as f64 / SAMPLES as f64;
        // 5 standard errors of a share of 0.25 are 0.0068.
        assert!((share(1) - 0.25).abs() < 0.007 && (share(2) - 0.25 * 0.75).abs() < 0.007);
    }

    #[test]
    fn min_and_max_clamp() {
        let distribution = Distribution::Exponential { mean: 10.0, min: Some(5.0), max: Some(20.0) };
        let mut rng = rng::stream(3, "test", 0);
        let draws: Vec<u32> = (0..1000).map(|_| distribution.sample_count(&mut rng)).collect();
        assert_eq!((draws.iter().min(), draws.iter().max()), (Some(&5), Some(&20)));
    }

    #[test]
    fn a_mistake_is_named_with_its_path() {
        use Distribution::*;
        let message = |checked: Result<(), ConfigError>| checked.unwrap_err().to_string();
        assert_eq!(
            message(Fixed(0.0).validate_count()),
            "`fixed`: found 0, expected a whole number from 1 to 2147483647"
        );
        assert_eq!(
            message(Uniform { min: 2.5, max: 3.0 }.validate_count()),
            "`uniform.min`: found 2.5, expected a whole number from 1 to 2147483647"
        );
        assert_eq!(
            message(Uniform { min: 4.0, max: 3.0 }.validate_time()),
            "`uniform.max`: found 3, expected at least `min`, 4"
        );
        assert_eq!(
            message(Exponential { mean: f64::NAN, min: None, max: None }.validate_time()),
            "`exponential.mean`: found NaN, expected a number above 0, at most 1000000000"
        );
        assert_eq!(
            message(Geometric { mean: 0.5, min: None, max: None }.validate_count()),
            "`geometric.mean`: found 0.5, expected a number from 1 to 2147483647"
        );
        assert!(Geometric { mean: 2.0, min: None, max: None }.validate_time().is_err());
        let lognormal = |median, mean, sigma| Lognormal { median, mean, sigma, min: None, max: None };
        assert_eq!(
            message(lognormal(None, None, 1.0).validate_time()),
            "`lognormal`: found neither, expected `median` or `mean`"
        );
        assert!(lognormal(Some(1.0), Some(1.0), 1.0).validate_time().is_err());
        assert_eq!(message(Values(vec![]).validate_count()), "`values`: found none, expected at least one");
        assert_eq!(
            message(Values(vec![1.0, 2.5]).validate_count()),
            "`values[1]`: found 2.5, expected a whole number from 1 to 2147483647"
        );
        let bin = |min, max, weight| Bin { min, max, weight };
        assert_eq!(
            message(Histogram(vec![bin(3.0, 2.0, 1.0)]).validate_time()),
            "`histogram[0].max`: found 2, expected at least `min`, 3"
        );
        assert!(Histogram(vec![bin(1.0, 2.0, 0.0)]).validate_time().is_err());
        assert_eq!(
            message(lognormal(Some(1.0), None, -1.0).validate_time()),
            "`lognormal.sigma`: found -1, expected a number from 0 to 10"
        );
    }

    #[test]
    fn yaml_is_one_key_with_its_parameters() {
        let read = |yaml: &str| serde_yaml::from_str::<Distribution>(yaml);
        assert_eq!(read("fixed: 200").unwrap(), Distribution::Fixed(200.0));
        assert_eq!(
            read("{lognormal: {median: 120, sigma: 0.9, max: 4000}}").unwrap(),
            Distribution::Lognormal {
                median: Some(120.0),
                mean: None,
                sigma: 0.9,
                min: None,
                max: Some(4000.0)
            }
        );
        assert!(read("{exponential: {mean: 3, maximum: 4}}").is_err());
        assert_eq!(read("200").unwrap(), Distribution::Fixed(200.0));
        assert_eq!(read("2.5").unwrap(), Distribution::Fixed(2.5));
        assert_eq!(read("{values: [1, 2]}").unwrap(), Distribution::Values(vec![1.0, 2.0]));
        assert!(read("{histogram: [{min: 1, max: 2, weight: 1}]}").is_ok());
        for wrong in ["200 tokens", "[1, 2]", "{normal: 3}", "{fixed: 1, uniform: {min: 1, max: 2}}"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        let fixed = Distribution::Fixed(7.0);
        assert_eq!(serde_json::to_string(&fixed).unwrap(), r#"{"fixed":7.0}"#);
    }
}
