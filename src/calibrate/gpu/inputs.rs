//! Random inputs that host and device make alike: element `i` of input `seed` is a function of both
//! numbers, so a reference can be computed for any element of any shape without copying the inputs.
//!
//! Values are multiples of 1/128 in [-1, 1): exact in bf16, f16 and f32. Those for e4m3 are multiples
//! of 1/8.

/// Which input of an operation. The kernels that fill know only the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Input {
    Activations = 1,
    Weights = 2,
    Queries = 3,
    /// The new tokens' keys, and their values.
    NewKeys = 4,
    NewValues = 5,
    KvCache = 6,
    CopySource = 7,
}

/// Mixes seed and index into 32 even bits. The multipliers are digits of the golden ratio, e and pi.
pub(super) fn word(input: Input, index: u32) -> u32 {
    let mut x = index.wrapping_mul(0x9E37_79B1) ^ (input as u32).wrapping_mul(0xB7E1_5163);
    x ^= x >> 15;
    x = x.wrapping_mul(0x243F_6A89);
    x ^= x >> 13;
    x = x.wrapping_mul(0xB7E1_5163);
    x ^ (x >> 16)
}

pub(super) fn value(input: Input, index: u64) -> f64 {
    f64::from((word(input, index as u32) >> 24) as u8 as i8) / 128.0
}

/// As [`value`], rounded to e4m3: to three bits of mantissa, ties to even. What is smaller than
/// 2^-6 is a multiple of 2^-9 already.
pub(super) fn value_rounded_to_fp8(input: Input, index: u64) -> f64 {
    let exact = value(input, index);
    if exact.abs() < 2f64.powi(-6) {
        return exact;
    }
    let step = 2f64.powi(exact.abs().log2().floor() as i32 - 3);
    (exact / step).round_ties_even() * step
}

pub(super) fn value_fp8(input: Input, index: u64) -> f64 {
    f64::from(((word(input, index as u32) >> 24) as u8 as i8) >> 4) / 8.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_even_and_independent() {
        let n = 1 << 16;
        for input in [Input::Activations, Input::KvCache] {
            let values: Vec<f64> = (0..n).map(|i| value(input, i)).collect();
            let mean = values.iter().sum::<f64>() / n as f64;
            let square = values.iter().map(|v| v * v).sum::<f64>() / n as f64;
            // A uniform variable on [-1, 1): mean -1/256, second moment 1/3; five standard errors.
            assert!((mean + 1.0 / 256.0).abs() < 0.012, "mean {mean}");
            assert!((square - 1.0 / 3.0).abs() < 0.006, "second moment {square}");
            for lag in [1, 2, 64, 128, 4096] {
                let pairs = values.iter().zip(&values[lag..]);
                let correlation = pairs.map(|(a, b)| a * b).sum::<f64>() / (n as f64 / 3.0);
                assert!(correlation.abs() < 0.02, "lag {lag}: {correlation}");
            }
        }
    }

    #[test]
    fn activations_are_rounded_to_four_significant_bits() {
        for i in 0..1000 {
            let (exact, rounded) =
                (value(Input::Activations, i), value_rounded_to_fp8(Input::Activations, i));
            assert!((exact - rounded).abs() <= exact.abs() / 16.0);
            let scaled = rounded * 512.0;
            assert!(
                scaled.fract() == 0.0
                    && (scaled.abs() as u32).checked_ilog2().is_none_or(|bits| {
                        bits < 4 || (scaled.abs() as u32).trailing_zeros() >= bits - 3
                    }),
                "{rounded}"
            );
        }
    }

    #[test]
    fn fp8_values_are_exact_in_e4m3() {
        // Three bits of mantissa: multiples of 1/8 below 1 and -1 itself.
        for i in 0..1000 {
            let v = value_fp8(Input::Weights, i);
            assert!((-1.0..=0.875).contains(&v) && (v * 8.0).fract() == 0.0);
        }
    }
}
