//! Collectives between the ranks of one node, inside a CUDA graph.

use crate::catalog::Gpu;

use super::coefficients::AllReduceCoefficients;

/// An all-reduce over a fixed number of ranks: a fixed time and a rate.
#[derive(Clone, Debug)]
pub(super) struct AllReduce {
    t0_us: f64,
    us_per_byte: f64,
}

impl AllReduce {
    /// None on a single rank.
    pub fn new(tp: u32, gpu: &Gpu, coefficients: &AllReduceCoefficients) -> Option<Self> {
        if tp <= 1 {
            return None;
        }
        let others = f64::from(tp - 1);
        match coefficients {
            AllReduceCoefficients::Nvlink(fit) => {
                let link = gpu.nvlink_bytes_per_s.unwrap_or(gpu.pcie_bytes_per_s) * 1e-6 * fit.efficiency;
                // A ring sends every byte twice but for a rank's own share.
                let ring = 2.0 * others / f64::from(tp);
                Some(Self { t0_us: fit.t0_us + fit.rank_us * others, us_per_byte: ring / link })
            }
            // The law for the next larger number of GPUs that was measured, or the largest.
            AllReduceCoefficients::Pcie(fits) => {
                let fit = fits.iter().find(|fit| fit.num_gpus >= tp).or(fits.last())?;
                Some(Self { t0_us: fit.t0_us, us_per_byte: 1e-3 / fit.gigabytes_per_s })
            }
        }
    }

    /// A message of `bytes` on every rank.
    pub fn time_us(&self, bytes: f64) -> f64 {
        self.t0_us + bytes * self.us_per_byte
    }

    /// Gathers `bytes` in all onto every rank: half of what an all-reduce does.
    pub fn all_gather_us(&self, bytes: f64) -> f64 {
        self.t0_us + bytes * self.us_per_byte / 2.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Coefficients;

    fn all_reduce(gpu: &str, tp: u32) -> Option<AllReduce> {
        let gpu = Gpu::find(gpu).unwrap();
        AllReduce::new(tp, gpu, &Coefficients::built_in(gpu).unwrap().all_reduce)
    }

    #[test]
    fn one_rank_has_nothing_to_reduce() {
        assert!(all_reduce("H100", 1).is_none());
    }

    /// Measured on L40S: 56 ms for 512 MiB on two GPUs, 431 ms on four.
    #[test]
    fn pcie_follows_the_number_of_gpus() {
        let time = |tp| all_reduce("L40S", tp).unwrap().time_us(536_870_912.0);
        assert!((time(2) / 55_952.0 - 1.0).abs() < 0.01);
        assert!((time(4) / 430_924.0 - 1.0).abs() < 0.01);
        assert_eq!(time(3), time(4));
        assert_eq!(time(16), time(8));
    }
}
