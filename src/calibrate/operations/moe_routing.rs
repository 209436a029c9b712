//! How the tokens of a benchmark choose experts, by the name of its routing.
//!
//! NVIDIA's AIConfigurator (`collector/helper.py`) gives every expert a load and times the rank that
//! comes out busiest. `balanced`: tokens take experts in turn. `power_law_EXPONENT`: loads are drawn
//! from a power law and scaled to the number of choices; what rounding or the limit of one choice for
//! each token leaves over goes to the ranks in turn, there to the expert with the fewest, or is taken
//! from the one with the most. It times the mean of five draws; here it is the mean load of more.
//!
//! These are wishes. A router that keeps some groups of experts, as DeepSeek-V3's does, grants those in
//! the groups it keeps ([`super::grouped_choices`]).

use std::collections::BTreeMap;

use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::grouped_choices::granted_loads;
use crate::cost::moe::ExpertLoads;

/// A benchmark of `num_experts` on `ranks`, of which one is timed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::calibrate) struct MoeRouting {
    /// `balanced`, `power_law_EXPONENT` or anything else for independent choices.
    pub name: String,
    pub tokens: u32,
    pub experts_per_token: u32,
    pub num_experts: u32,
    pub ranks: u32,
    /// Whether the router keeps groups of experts.
    pub is_grouped: bool,
}

/// Remembers what was worked out: many rows of a table share their routing.
#[derive(Debug, Default)]
pub(in crate::calibrate) struct RoutingMemo(BTreeMap<MoeRouting, ExpertLoads>);

impl RoutingMemo {
    pub fn loads(&mut self, routing: &MoeRouting) -> ExpertLoads {
        if let Some(loads) = self.0.get(routing) {
            return *loads;
        }
        let loads = routing.loads();
        self.0.insert(routing.clone(), loads);
        loads
    }
}

impl MoeRouting {
    /// The loads of the experts of the rank that is timed.
    pub fn loads(&self) -> ExpertLoads {
        if self.name == "balanced" {
            let choices = self.balanced();
            return ExpertLoads::listed(self.of_first_rank(&self.granted(&choices)));
        }
        let exponent = self.name.strip_prefix("power_law_").and_then(|text| text.parse().ok());
        let Some(exponent) = exponent else { return self.independent() };
        let draw = |seed: u64| {
            let loads = self.power_law(exponent, &mut ChaCha8Rng::seed_from_u64(seed));
            let loads =
                if self.is_grouped { self.granted(&dealt(&loads, self.tokens as usize)) } else { loads };
            ExpertLoads::listed(self.of_busiest_rank(&loads))
        };
        ExpertLoads::mean(&[0, 1, 2, 3, 4, 5, 6, 7].map(draw))
    }

    fn independent(&self) -> ExpertLoads {
        let (tokens, experts) = (f64::from(self.tokens), f64::from(self.num_experts));
        let choices = f64::from(self.experts_per_token);
        let missed = (1.0 - choices / experts).max(0.0).powf(tokens);
        let ranks = f64::from(self.ranks);
        ExpertLoads::independent(tokens * choices / ranks, experts * (1.0 - missed) / ranks)
    }

    fn experts_per_rank(&self) -> usize {
        (self.num_experts / self.ranks).max(1) as usize
    }

    fn of_first_rank(&self, loads: &[u64]) -> impl Iterator<Item = f64> {
        loads[..self.experts_per_rank()].iter().map(|&rows| rows as f64).collect::<Vec<_>>().into_iter()
    }

    fn of_busiest_rank(&self, loads: &[u64]) -> impl Iterator<Item = f64> {
        // The first of equals.
        let ranks = loads.chunks_exact(self.experts_per_rank()).rev();
        let busiest = ranks.max_by_key(|rank| rank.iter().sum::<u64>()).unwrap_or(loads);
        busiest.iter().map(|&rows| rows as f64).collect::<Vec<_>>().into_iter()
    }

    /// The loads by the experts that tokens wish for, a token's one after the other.
    fn granted(&self, choices: &[u32]) -> Vec<u64> {
        if self.is_grouped {
            return granted_loads(choices, self.experts_per_token as usize, self.num_experts as usize);
        }
        let mut loads = vec![0; self.num_experts as usize];
        choices.iter().for_each(|&expert| loads[expert as usize] += 1);
        loads
    }

    /// Each choice of a token has a stretch of the experts, which tokens go through in turn; fewer
    /// tokens than a stretch has spread over it.
    fn balanced(&self) -> Vec<u32> {
        let stretch = u64::from(self.num_experts.div_ceil(self.experts_per_token));
        let tokens = u64::from(self.tokens);
        let of_token = |token: u64| {
            let place = if tokens >= stretch { token } else { token * stretch / tokens };
            let expert = move |choice: u32| place + u64::from(choice) * stretch;
            (0..self.experts_per_token)
                .map(move |choice| (expert(choice) % u64::from(self.num_experts)) as u32)
        };
        (0..tokens).flat_map(of_token).collect()
    }

    fn power_law(&self, exponent: f64, random: &mut ChaCha8Rng) -> Vec<u64> {
        let rows = u64::from(self.tokens) * u64::from(self.experts_per_token);
        let (low, high): (f64, f64) = if rows > u64::from(self.num_experts) {
            (1.0, (0.8 * f64::from(self.tokens)).max(1.0))
        } else {
            (0.01, 2.0)
        };
        let power = 1.0 - exponent;
        let (low, high) = (low.powf(power), high.powf(power));
        let mut sample = || {
            let share: f64 = random.random_range(0.0..1.0);
            (low + (high - low) * share).powf(power.recip())
        };
        let shares: Vec<f64> = (0..self.num_experts).map(|_| sample()).collect();
        let scale = rows as f64 / shares.iter().sum::<f64>();
        let most = u64::from(self.tokens);
        let mut loads: Vec<u64> =
            shares.iter().map(|share| ((share * scale).round_ties_even() as u64).min(most)).collect();
        self.even_out(&mut loads, rows);
        loads
    }

    /// Adds or takes choices until there are `rows`, none of an expert more than tokens.
    fn even_out(&self, loads: &mut [u64], rows: u64) {
        let most = u64::from(self.tokens);
        let mut sum: u64 = loads.iter().sum();
        while sum != rows {
            let before = sum;
            for rank in loads.chunks_exact_mut(self.experts_per_rank()) {
                if sum < rows {
                    let fewest = rank.iter_mut().filter(|load| **load < most).min_by_key(|load| **load);
                    if let Some(load) = fewest {
                        *load += 1;
                        sum += 1;
                    }
                } else if sum > rows {
                    // The first of those with the most.
                    let largest = rank.iter().copied().max().unwrap_or(0);
                    let first = rank.iter_mut().find(|load| **load == largest && **load > 0);
                    if let Some(load) = first {
                        *load -= 1;
                        sum -= 1;
                    }
                }
            }
            if sum == before {
                break;
            }
        }
    }
}

/// Deals `loads` to tokens as the benchmark does: each expert as often as it is chosen, the fullest
/// first, as the first choice of every token, then the second. A token's choices stand together.
fn dealt(loads: &[u64], tokens: usize) -> Vec<u32> {
    let mut experts: Vec<u32> = (0..loads.len() as u32).collect();
    experts.sort_by_key(|&expert| std::cmp::Reverse(loads[expert as usize]));
    let times = |&expert: &u32| std::iter::repeat_n(expert, loads[expert as usize] as usize);
    let by_choice: Vec<u32> = experts.iter().flat_map(times).collect();
    (0..tokens).flat_map(|token| by_choice.iter().skip(token).step_by(tokens).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routing(name: &str, tokens: u32, experts: (u32, u32), ranks: u32) -> MoeRouting {
        let (experts_per_token, num_experts) = experts;
        MoeRouting { name: name.to_owned(), tokens, experts_per_token, num_experts, ranks, is_grouped: false }
    }

    #[test]
    fn balanced_tokens_fill_whole_blocks() {
        // 4,096 tokens with 8 of 256 experts: 128 rows each, two blocks of 64.
        let loads = routing("balanced", 4096, (8, 256), 1).loads();
        assert_eq!(
            (loads.hit, loads.rows, loads.blocks),
            (256.0, 32768.0, [4096.0, 2048.0, 1024.0, 512.0, 256.0])
        );
        // Two tokens hit 16 experts once: 0 and 16 of every 32.
        assert_eq!(routing("balanced", 2, (8, 256), 1).loads().hit, 16.0);
        // The first of 16 ranks has experts 0 to 15, which one of them chooses.
        assert_eq!(routing("balanced", 2, (8, 256), 16).loads().rows, 1.0);
        assert_eq!(routing("balanced", 4096, (8, 256), 8).loads().rows, 4096.0);
    }

    #[test]
    fn a_power_law_keeps_the_sum_and_times_the_busiest_rank() {
        for tokens in [1, 7, 64, 1000] {
            for exponent in ["1.01", "1.2"] {
                let name = format!("power_law_{exponent}");
                let whole = routing(&name, tokens, (8, 128), 1).loads();
                assert_eq!(whole.rows, f64::from(8 * tokens));
                assert!(whole.hit >= 8.0 && whole.hit <= 128.0);
                let busiest = routing(&name, tokens, (8, 128), 8).loads();
                assert!(busiest.rows >= f64::from(tokens) && busiest.rows <= 8.0 * f64::from(tokens));
                assert!(busiest.hit <= 16.0);
            }
        }
        let independent = routing("", 1, (8, 128), 1).loads();
        assert_eq!(independent, ExpertLoads::independent(8.0, 8.0));
    }

    /// What is missing goes to the emptiest experts of the ranks in turn, what is too much comes from
    /// the fullest.
    #[test]
    fn left_over_choices_go_round_the_ranks() {
        let routing = routing("power_law_1.2", 4, (2, 4), 2);
        let mut loads = [4, 0, 1, 0];
        routing.even_out(&mut loads, 8);
        assert_eq!(loads, [4, 2, 1, 1]);
        routing.even_out(&mut loads, 5);
        assert_eq!(loads, [2, 2, 0, 1]);
    }
}
