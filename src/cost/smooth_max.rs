//! The p-norm that joins two limits, such as compute and memory, without a sharp corner.

/// `(a^p + b^p)^(1/p)` for non-negative `a` and `b`: nearly the larger where they differ, above it
/// where they meet. Larger `p`, sharper corner.
pub(super) fn smooth_max(a: f64, b: f64, p: f64) -> f64 {
    let (small, large) = if a < b { (a, b) } else { (b, a) };
    // Scaled by the larger, so that no power overflows. This also answers (0, 0).
    if small <= 0.0 {
        return large;
    }
    large * (1.0 + (small / large).powf(p)).powf(1.0 / p)
}

#[cfg(test)]
mod tests {
    use super::smooth_max;

    #[test]
    fn is_the_p_norm() {
        assert_eq!(smooth_max(3.0, 4.0, 2.0), 5.0);
        assert_eq!(smooth_max(0.0, 7.0, 1.5), 7.0);
        assert_eq!(smooth_max(0.0, 0.0, 3.0), 0.0);
        assert!((smooth_max(1e200, 1e200, 2.0) / 1e200 - 2f64.sqrt()).abs() < 1e-12);
    }
}
