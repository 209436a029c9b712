//! How the tokens of a benchmark choose experts, by the name of its routing.

use crate::cost::moe::ExpertLoads;

/// The loads of all experts for `tokens` that choose `experts_per_token` of `num_experts` each: even
/// (`balanced`), as NVIDIA's AIConfigurator samples them (`power_law_EXPONENT`), or independent.
pub(in crate::calibrate) fn loads(
    routing: &str,
    tokens: u32,
    experts_per_token: u32,
    num_experts: u32,
) -> ExpertLoads {
    let (tokens, choices) = (f64::from(tokens), f64::from(experts_per_token));
    let rows = tokens * choices;
    let shares = if routing == "balanced" {
        vec![1.0; num_experts as usize]
    } else if let Some(exponent) = routing.strip_prefix("power_law_").and_then(|text| text.parse().ok()) {
        power_law(exponent, tokens, rows, num_experts)
    } else {
        let missed = (1.0 - choices / f64::from(num_experts)).max(0.0).powf(tokens);
        return ExpertLoads::independent(rows, f64::from(num_experts) * (1.0 - missed));
    };
    ExpertLoads::listed(whole(&shares, rows, tokens))
}

/// Quantiles of a power law, in place of its samples. With more choices than experts they lie between
/// one token and four fifths of all, else between 0.01 and 2, as in the sampler of the benchmark.
fn power_law(exponent: f64, tokens: f64, rows: f64, num_experts: u32) -> Vec<f64> {
    let experts = f64::from(num_experts);
    let (low, high): (f64, f64) = if rows > experts { (1.0, (0.8 * tokens).max(1.0)) } else { (0.01, 2.0) };
    let power = 1.0 - exponent;
    let quantile = |expert: u32| {
        let share = (f64::from(expert) + 0.5) / experts;
        let (low, high) = (low.powf(power), high.powf(power));
        (low + (high - low) * share).powf(power.recip())
    };
    (0..num_experts).map(quantile).collect()
}

/// Shares of `rows` as whole numbers, none above `most`: what is left over goes to the largest parts.
fn whole(shares: &[f64], rows: f64, most: f64) -> Vec<f64> {
    let sum: f64 = shares.iter().sum();
    let exact: Vec<f64> = shares.iter().map(|share| (share / sum * rows).min(most)).collect();
    let mut loads: Vec<f64> = exact.iter().map(|load| load.floor()).collect();
    let mut by_part: Vec<usize> = (0..loads.len()).collect();
    by_part.sort_by(|&a, &b| (exact[b] - loads[b]).total_cmp(&(exact[a] - loads[a])).then(a.cmp(&b)));
    let mut left = rows - loads.iter().sum::<f64>();
    // Those who are full take no more, so it may take several rounds.
    while left >= 1.0 {
        let before = left;
        for &expert in &by_part {
            if left >= 1.0 && loads[expert] < most {
                loads[expert] += 1.0;
                left -= 1.0;
            }
        }
        if left == before {
            break;
        }
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_tokens_fill_whole_blocks() {
        // 4,096 tokens with 8 of 256 experts: 128 rows each, two blocks of 64.
        let loads = loads("balanced", 4096, 8, 256);
        assert_eq!((loads.hit, loads.rows, loads.blocks), (256.0, 32768.0, [2048.0, 1024.0, 512.0, 256.0]));
        // Two tokens hit 16 experts once.
        assert_eq!(super::loads("balanced", 2, 8, 256).hit, 16.0);
    }

    #[test]
    fn a_power_law_hits_fewer_experts_and_keeps_the_sum() {
        for tokens in [1, 7, 64, 1000] {
            for exponent in ["1.01", "1.2"] {
                let loads = loads(&format!("power_law_{exponent}"), tokens, 8, 128);
                assert_eq!(loads.rows, f64::from(8 * tokens));
                assert!(loads.hit >= 8.0 && loads.hit <= 128.0);
            }
        }
        assert_eq!(loads("", 1, 8, 128), ExpertLoads::independent(8.0, 8.0));
    }
}
