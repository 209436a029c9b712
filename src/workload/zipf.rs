//! Popularity: the item of rank `k` is asked for in proportion to `k` to the power of `-exponent`.

use rand::Rng;
use rand_distr::Distribution as _;

use super::{ConfigError, require};

/// Draws ranks, from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipf {
    num_items: u64,
    law: Option<rand_distr::Zipf<f64>>,
}

/// Checks an exponent; the error names the field.
pub(crate) fn validate(field: &str, exponent: f64) -> Result<(), ConfigError> {
    require((0.0..=10.0).contains(&exponent), field, exponent, "a number from 0, which is even, to 10")
}

impl Zipf {
    /// Of at least one item and a valid exponent.
    pub fn new(num_items: u64, exponent: f64) -> Self {
        Self { num_items, law: rand_distr::Zipf::new(num_items as f64, exponent).ok() }
    }

    pub fn sample(&self, rng: &mut impl Rng) -> u64 {
        // The library counts from 1, and may round up to one past the end.
        let rank = self.law.map_or(1.0, |law| law.sample(rng)) as u64;
        rank.clamp(1, self.num_items.max(1)) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::rng;

    #[test]
    fn ranks_come_in_proportion_to_their_power() {
        const DRAWS: usize = 100_000;
        for (num_items, exponent) in [(1, 1.0), (5, 0.0), (50, 0.7), (50, 1.0), (50, 1.3)] {
            let zipf = Zipf::new(num_items, exponent);
            let mut rng = rng::stream(5, "test", 0);
            let mut counts = vec![0.0; num_items as usize];
            for _ in 0..DRAWS {
                counts[zipf.sample(&mut rng) as usize] += 1.0;
            }
            let weight = |rank: u64| (rank as f64).powf(-exponent);
            let sum: f64 = (1..=num_items).map(weight).sum();
            let chi_squared: f64 = (1..=num_items)
                .zip(&counts)
                .map(|(rank, count)| {
                    let expected = DRAWS as f64 * weight(rank) / sum;
                    (count - expected).powi(2) / expected
                })
                .sum();
            // Mean n - 1, variance 2 (n - 1).
            let freedom = (num_items - 1) as f64;
            assert!(
                chi_squared <= freedom + 5.0 * (2.0 * freedom).sqrt(),
                "{num_items} {exponent}: {chi_squared}"
            );
        }
    }
}
