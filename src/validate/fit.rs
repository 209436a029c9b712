//! Host terms and global efficiencies of a GPU from end-to-end results, its kernels left alone.
//!
//! A damped Gauss-Newton search over the logarithms of predicted over measured. A residual weighs
//! less the further it is out (Cauchy), for tables hold runs that went wrong; each number is pulled
//! towards what it is without any measurement, so that what the runs do not tell stays there.
//!
//! Which requests meet in a step changes at once with the time that they take in front of the engine, so
//! the cost has several valleys along it. The search begins with a quick and a slow front end as well and
//! keeps the lowest.

use rayon::prelude::*;

use super::bench_run::{BenchRun, Load};
use super::simulate::Server;
use super::{BenchError, Metric};
use crate::cost::Profile;
use crate::cost::host::HostLaw;

/// Where residuals begin to weigh less.
const CAUCHY_SCALE: f64 = 0.1;
const MAX_ITERATIONS: usize = 15;
const MAX_STEPS: usize = 4;
/// Less gain than this ends the search.
const MIN_GAIN: f64 = 1e-3;
/// Where the front end begins, beside where it is: `frontend_us`, `frontend_request_us`, `frontend_token_us`.
const FRONT_ENDS: [[f64; 3]; 2] = [[3e3, 300.0, 0.3], [8e3, 2e3, 3.0]];
const NUM_STARTS: usize = 1 + FRONT_ENDS.len();
/// The figures that are fitted: those that most sources have.
const FITTED: [Metric; 4] = [Metric::TtftMeanMs, Metric::TpotMeanMs, Metric::E2eMeanMs, Metric::MakespanS];

/// A number of the host's with what is known of it beforehand.
struct Term {
    get: fn(&mut HostLaw) -> &mut f64,
    /// The mean and spread of what it is on servers in general.
    prior: f64,
    spread: f64,
    least: f64,
    /// For the numerical derivative.
    step: f64,
}

const TERMS: [Term; 12] = [
    Term { get: |host| &mut host.gpu_scale, prior: 1.0, spread: 0.1, least: 0.5, step: 0.02 },
    Term { get: |host| &mut host.prefill_scale, prior: 1.05, spread: 0.2, least: 0.5, step: 0.02 },
    Term { get: |host| &mut host.moe_scale, prior: 1.0, spread: 0.2, least: 0.3, step: 0.03 },
    Term { get: |host| &mut host.comms_scale, prior: 1.0, spread: 0.3, least: 0.3, step: 0.05 },
    Term { get: |host| &mut host.gpu_step_us, prior: 200.0, spread: 200.0, least: 0.0, step: 50.0 },
    Term { get: |host| &mut host.launch_us, prior: 50.0, spread: 20.0, least: 0.0, step: 5.0 },
    Term { get: |host| &mut host.sync_step_us, prior: 3e3, spread: 2e3, least: 0.0, step: 200.0 },
    Term { get: |host| &mut host.sync_request_us, prior: 45.0, spread: 30.0, least: 0.0, step: 5.0 },
    Term { get: |host| &mut host.frontend_us, prior: 5e3, spread: 1e4, least: 0.0, step: 2e3 },
    Term { get: |host| &mut host.frontend_request_us, prior: 1e3, spread: 2e3, least: 0.0, step: 500.0 },
    Term { get: |host| &mut host.frontend_token_us, prior: 1.0, spread: 3.0, least: 0.0, step: 0.5 },
    Term { get: |host| &mut host.frontend_user_us, prior: 0.0, spread: 500.0, least: 0.0, step: 100.0 },
];

/// What was found, and how well it fits.
#[derive(Clone, Debug)]
pub struct HostFit {
    pub host: HostLaw,
    pub num_runs: usize,
    /// Median |error| in per cent over all fitted figures, before and after.
    pub before_percent: f64,
    pub after_percent: f64,
}

/// Fits the host terms of `start` to runs on its GPU; runs that cannot be simulated are left out.
/// `progress` is told of each simulation that is done, and how many there are at most.
///
/// # Errors
/// No run to fit to.
pub fn fit_host(
    runs: &[BenchRun],
    start: &Profile,
    progress: &(dyn Fn(usize) + Sync),
) -> Result<HostFit, BenchError> {
    let problem = Problem::new(runs, start, progress);
    let before = problem.residuals(&start.host);
    if before.is_empty() {
        let why = problem.refused.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        return Err(BenchError::Fit {
            problem: format!("no run on {} can be simulated and has a latency{why}", start.gpu),
            hint: "give results with a closed loop or with every request's arrival",
        });
    }
    let before_percent = median_percent(&before);
    let mut starts = vec![start.host];
    starts.extend(FRONT_ENDS.map(|[frontend_us, frontend_request_us, frontend_token_us]| HostLaw {
        frontend_us,
        frontend_request_us,
        frontend_token_us,
        ..start.host
    }));
    let found: Vec<Found> = starts.into_par_iter().map(|host| problem.search(host)).collect();
    let best = found.into_iter().min_by(|a, b| a.cost.total_cmp(&b.cost));
    let Found { host, residuals, .. } = best.unwrap_or_default();
    let after_percent = median_percent(&residuals);
    Ok(HostFit { host, num_runs: problem.servers.len(), before_percent, after_percent })
}

/// Where a search ended.
#[derive(Clone, Debug, Default)]
struct Found {
    host: HostLaw,
    residuals: Vec<f64>,
    cost: f64,
}

/// Median |predicted / measured - 1| of logarithms.
fn median_percent(residuals: &[f64]) -> f64 {
    let mut errors: Vec<f64> = residuals.iter().map(|residual| 100.0 * residual.exp_m1().abs()).collect();
    errors.sort_by(f64::total_cmp);
    errors.get(errors.len() / 2).copied().unwrap_or(0.0)
}

/// A server, what it was asked, and what was measured.
type Measured<'a> = (Server, &'a Load, Vec<(Metric, f64)>);

struct Problem<'a> {
    start: &'a Profile,
    servers: Vec<Measured<'a>>,
    /// Why the first run is not there that cannot be simulated.
    refused: Option<String>,
    progress: &'a (dyn Fn(usize) + Sync),
}

impl<'a> Problem<'a> {
    fn new(runs: &'a [BenchRun], start: &'a Profile, progress: &'a (dyn Fn(usize) + Sync)) -> Self {
        let mut servers: Vec<Measured<'_>> = Vec::new();
        let mut keys: Vec<String> = Vec::new();
        let mut refused = None;
        // Ranks that share experts wait for each other and for collectives, which are no host terms.
        for run in runs.iter().filter(|run| !run.settings.shares_experts()) {
            // A ladder depends on a router too, of which not all is known.
            let Ok(load @ (Load::Recorded(_) | Load::ClosedLoop(_))) = &run.load else { continue };
            let figures = FITTED.into_iter().filter_map(|metric| Some((metric, *run.measured.get(&metric)?)));
            let figures: Vec<(Metric, f64)> = figures.filter(|&(_, measured)| measured > 0.0).collect();
            // The same run several times is simulated once.
            let key = format!("{:?} {load:?}", run.settings);
            if let Some(index) = keys.iter().position(|other| *other == key) {
                servers[index].2.extend(figures);
                continue;
            }
            let server = match Server::new(run, Some(load)) {
                Ok(server) => server,
                Err(why) => {
                    refused.get_or_insert_with(|| format!("{}: {}", run.id, why));
                    continue;
                }
            };
            if server.scenario.gpu.name == start.gpu && !figures.is_empty() {
                servers.push((server, load, figures));
                keys.push(key);
            }
        }
        Self { start, servers, refused, progress }
    }

    /// Downhill from there.
    fn search(&self, mut host: HostLaw) -> Found {
        let mut residuals = self.residuals(&host);
        let mut cost = self.cost(&host, &residuals);
        let mut damping = 1e-3;
        for _ in 0..MAX_ITERATIONS {
            let jacobian = self.jacobian(&host, &residuals);
            let mut gain = 0.0;
            // Ever shorter steps until one is downhill.
            for _ in 0..MAX_STEPS {
                let step = self.step(&host, &residuals, &jacobian, damping);
                let mut next = host;
                for (term, change) in TERMS.iter().zip(step) {
                    let value = (term.get)(&mut next);
                    *value = (*value + change).max(term.least);
                }
                let next_residuals = self.residuals(&next);
                let next_cost = self.cost(&next, &next_residuals);
                if next_cost < cost {
                    gain = (cost - next_cost) / cost;
                    (host, residuals, cost) = (next, next_residuals, next_cost);
                    damping *= 0.3;
                    break;
                }
                damping = (damping * 10.0).max(1e-2);
            }
            if gain < MIN_GAIN {
                break;
            }
        }
        Found { host, residuals, cost }
    }

    /// ln(predicted / measured) of every figure, in the order of the runs.
    fn residuals(&self, host: &HostLaw) -> Vec<f64> {
        let profile = Profile { host: *host, ..self.start.clone() };
        let of_run = |(server, load, figures): &Measured<'_>| {
            let parts = server.run(load, &profile).unwrap_or_default();
            let prediction = parts.into_iter().next().unwrap_or_default();
            (self.progress)(
                self.servers.len() * NUM_STARTS * (1 + MAX_ITERATIONS * (TERMS.len() + MAX_STEPS)),
            );
            let residual = |(metric, measured): &(Metric, f64)| {
                // What the simulation cannot say is neither right nor wrong.
                prediction.metrics.get(metric).map_or(0.0, |predicted| (predicted / measured).ln())
            };
            figures.iter().map(residual).collect::<Vec<f64>>()
        };
        let by_run: Vec<Vec<f64>> = self.servers.par_iter().map(of_run).collect();
        by_run.concat()
    }

    fn jacobian(&self, host: &HostLaw, residuals: &[f64]) -> Vec<Vec<f64>> {
        let column = |term: &Term| {
            let mut moved = *host;
            *(term.get)(&mut moved) += term.step;
            let there = self.residuals(&moved);
            there.iter().zip(residuals).map(|(there, here)| (there - here) / term.step).collect()
        };
        TERMS.iter().map(column).collect()
    }

    fn cost(&self, host: &HostLaw, residuals: &[f64]) -> f64 {
        let cauchy = |residual: &f64| (residual / CAUCHY_SCALE).powi(2).ln_1p();
        let mut host = *host;
        let prior = |term: &Term| ((*(term.get)(&mut host) - term.prior) / term.spread).powi(2);
        residuals.iter().map(cauchy).sum::<f64>() + TERMS.iter().map(prior).sum::<f64>()
    }

    /// The solution of the damped normal equations.
    fn step(
        &self,
        host: &HostLaw,
        residuals: &[f64],
        jacobian: &[Vec<f64>],
        damping: f64,
    ) -> [f64; TERMS.len()] {
        const N: usize = TERMS.len();
        let weights: Vec<f64> = residuals.iter().map(|r| 1.0 / (CAUCHY_SCALE.powi(2) + r.powi(2))).collect();
        let mut host = *host;
        let mut matrix = [[0.0; N]; N];
        let mut right = [0.0; N];
        for i in 0..N {
            for j in 0..N {
                let products = jacobian[i].iter().zip(&jacobian[j]).zip(&weights);
                matrix[i][j] = products.map(|((a, b), w)| a * b * w).sum();
            }
            let products = jacobian[i].iter().zip(residuals).zip(&weights);
            right[i] = -products.map(|((a, r), w)| a * r * w).sum::<f64>();
            let tightness = TERMS[i].spread.powi(-2);
            matrix[i][i] += tightness;
            right[i] -= (*(TERMS[i].get)(&mut host) - TERMS[i].prior) * tightness;
            matrix[i][i] *= 1.0 + damping;
        }
        solve(matrix, right)
    }
}

/// Gaussian elimination; the matrix is positive definite, so pivots are not sought.
fn solve<const N: usize>(mut matrix: [[f64; N]; N], mut right: [f64; N]) -> [f64; N] {
    for pivot in 0..N {
        let pivot_row = matrix[pivot];
        for row in pivot + 1..N {
            let factor = matrix[row][pivot] / pivot_row[pivot];
            matrix[row].iter_mut().zip(pivot_row).for_each(|(value, above)| *value -= factor * above);
            right[row] -= factor * right[pivot];
        }
    }
    let mut solution = [0.0; N];
    for row in (0..N).rev() {
        let known: f64 = (row + 1..N).map(|column| matrix[row][column] * solution[column]).sum();
        solution[row] = (right[row] - known) / matrix[row][row];
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_equations_are_solved() {
        let solution = solve([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]], [6.0, 10.0, 8.0]);
        for (value, expected) in solution.iter().zip([1.0, 2.0, 3.0]) {
            assert!((value - expected).abs() < 1e-12, "{solution:?}");
        }
    }
}
