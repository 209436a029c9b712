//! Bounded, robust least squares: Levenberg and Marquardt's method on the logarithm of predicted over
//! measured, with a loss that is square for small and linear for large errors, so that a few odd
//! timings do not bend a law.

/// Log errors beyond this count linearly.
const LOSS_SCALE: f64 = 0.05;
const MAX_ITERATIONS: usize = 120;

/// What is to be fitted: bounds of each parameter, and the log errors at given values.
pub(super) struct Problem<'a> {
    pub low: Vec<f64>,
    pub high: Vec<f64>,
    /// One for each row; square roots multiply the residuals.
    pub weights: Vec<f64>,
    /// `ln(predicted / measured)` of every row at some values.
    pub log_errors: &'a dyn Fn(&[f64], &mut Vec<f64>),
}

/// Values within the bounds, and the loss there: a weighted mean, near `|log error|` for large ones.
#[derive(Clone, Debug)]
pub(super) struct Optimum {
    pub values: Vec<f64>,
    pub loss: f64,
}

impl Problem<'_> {
    /// The optimum that is found from `start`.
    pub fn solve(&self, start: &[f64]) -> Optimum {
        let mut values: Vec<f64> =
            start.iter().enumerate().map(|(i, value)| value.clamp(self.low[i], self.high[i])).collect();
        let mut residuals = Vec::new();
        self.residuals(&values, &mut residuals);
        let mut cost = sum_of_squares(&residuals);
        let mut damping = 1e-2;
        let mut small_steps = 0;
        let mut trial_residuals = Vec::new();
        for _ in 0..MAX_ITERATIONS {
            let (normal, gradient) = self.normal_equations(&values, &residuals);
            let free: Vec<usize> = (0..values.len())
                .filter(|&i| {
                    let pushed_out = (values[i] <= self.low[i] && gradient[i] > 0.0)
                        || (values[i] >= self.high[i] && gradient[i] < 0.0);
                    !pushed_out
                })
                .collect();
            let mut improved = false;
            while damping < 1e9 {
                let step = damped_step(&normal, &gradient, &free, damping);
                let mut trial = values.clone();
                for (&i, delta) in free.iter().zip(step) {
                    trial[i] = (values[i] + delta).clamp(self.low[i], self.high[i]);
                }
                self.residuals(&trial, &mut trial_residuals);
                let trial_cost = sum_of_squares(&trial_residuals);
                if trial_cost < cost {
                    let gain = (cost - trial_cost) / cost.max(f64::MIN_POSITIVE);
                    small_steps = if gain < 1e-5 { small_steps + 1 } else { 0 };
                    (values, cost) = (trial, trial_cost);
                    std::mem::swap(&mut residuals, &mut trial_residuals);
                    damping = (damping / 3.0).max(1e-9);
                    improved = true;
                    break;
                }
                damping *= 4.0;
            }
            if !improved || small_steps >= 3 {
                break;
            }
        }
        let total: f64 = self.weights.iter().sum();
        Optimum { values, loss: cost / (2.0 * LOSS_SCALE * total.max(f64::MIN_POSITIVE)) }
    }

    fn residuals(&self, values: &[f64], residuals: &mut Vec<f64>) {
        (self.log_errors)(values, residuals);
        for (residual, weight) in residuals.iter_mut().zip(&self.weights) {
            // A law that fails on a row is far off, not undefined.
            let error = if residual.is_finite() { residual.clamp(-5.0, 5.0) } else { 5.0 };
            let scaled = error / LOSS_SCALE;
            let loss = 2.0 * LOSS_SCALE * LOSS_SCALE * ((1.0 + scaled * scaled).sqrt() - 1.0);
            *residual = (weight * loss).sqrt().copysign(error);
        }
    }

    /// `J^T J` and `J^T r`, with `J` by finite differences.
    fn normal_equations(&self, values: &[f64], residuals: &[f64]) -> (Vec<Vec<f64>>, Vec<f64>) {
        let mut moved = Vec::new();
        let columns: Vec<Vec<f64>> = (0..values.len())
            .map(|i| {
                let size = values[i].abs().max(1e-2 * (self.high[i] - self.low[i]));
                let mut step = 1e-5 * size;
                if values[i] + step > self.high[i] {
                    step = -step;
                }
                let mut at = values.to_vec();
                at[i] += step;
                self.residuals(&at, &mut moved);
                moved.iter().zip(residuals).map(|(moved, residual)| (moved - residual) / step).collect()
            })
            .collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let normal = columns.iter().map(|a| columns.iter().map(|b| dot(a, b)).collect()).collect();
        let gradient = columns.iter().map(|column| dot(column, residuals)).collect();
        (normal, gradient)
    }
}

fn sum_of_squares(residuals: &[f64]) -> f64 {
    residuals.iter().map(|residual| residual * residual).sum()
}

/// Solves `(N + damping diag(N)) step = -gradient` for the free parameters, by Cholesky's method.
fn damped_step(normal: &[Vec<f64>], gradient: &[f64], free: &[usize], damping: f64) -> Vec<f64> {
    let n = free.len();
    let mut lower = vec![vec![0.0; n]; n];
    for row in 0..n {
        for column in 0..=row {
            let mut sum = normal[free[row]][free[column]];
            if row == column {
                sum += damping * sum + 1e-12;
            }
            let known = lower[row][..column].iter().zip(&lower[column]);
            sum -= known.map(|(a, b)| a * b).sum::<f64>();
            lower[row][column] = if row == column {
                // Rounding can make a singular matrix slightly indefinite.
                sum.max(1e-12).sqrt()
            } else {
                sum / lower[column][column]
            };
        }
    }
    let mut step: Vec<f64> = free.iter().map(|&i| -gradient[i]).collect();
    for row in 0..n {
        for inner in 0..row {
            step[row] -= lower[row][inner] * step[inner];
        }
        step[row] /= lower[row][row];
    }
    for row in (0..n).rev() {
        for inner in row + 1..n {
            step[row] -= lower[inner][row] * step[inner];
        }
        step[row] /= lower[row][row];
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solve(outlier: f64) -> Optimum {
        // t = a + b x, measured at 1 to 20 with a = 2, b = 3.
        let rows: Vec<(f64, f64)> = (1..=20)
            .map(|x| (f64::from(x), (2.0 + 3.0 * f64::from(x)) * if x == 7 { outlier } else { 1.0 }))
            .collect();
        let log_errors = |values: &[f64], errors: &mut Vec<f64>| {
            errors.clear();
            errors.extend(rows.iter().map(|(x, time)| ((values[0] + values[1] * x) / time).ln()));
        };
        let problem = Problem {
            low: vec![0.0, 0.1],
            high: vec![10.0, 10.0],
            weights: vec![1.0; rows.len()],
            log_errors: &log_errors,
        };
        problem.solve(&[8.0, 0.5])
    }

    #[test]
    fn finds_the_law_behind_the_rows() {
        let optimum = solve(1.0);
        assert!((optimum.values[0] - 2.0).abs() < 1e-3 && (optimum.values[1] - 3.0).abs() < 1e-3);
        assert!(optimum.loss < 1e-6);
    }

    #[test]
    fn one_odd_timing_does_not_bend_it() {
        let values = solve(5.0).values;
        assert!((values[0] - 2.0).abs() < 0.1 && (values[1] - 3.0).abs() < 0.05, "{values:?}");
    }

    #[test]
    fn stays_within_the_bounds() {
        let log_errors = |values: &[f64], errors: &mut Vec<f64>| {
            errors.clear();
            errors.push((values[0] / 9.0).ln());
        };
        let problem =
            Problem { low: vec![1.0], high: vec![4.0], weights: vec![1.0], log_errors: &log_errors };
        assert_eq!(problem.solve(&[2.0]).values, [4.0]);
    }
}
