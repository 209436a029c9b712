//! Collectives between the ranks of one node, inside a CUDA graph.
//!
//! Over NVLink vLLM's own all-reduce sends everything to everyone at once while that is quick, and
//! in two steps beyond; large messages go to NCCL. With `ring = 2 (N - 1) / N bytes`
//!
//! ```text
//! t = t0 + rank_us (N - 1) + min((N - 1) bytes / direct, two_step_us + ring / bandwidth (N / 2)^q)
//!   + large_us (1 - exp(-(bytes / large_bytes)^2))
//! ```
//!
//! NCCL's other collectives send each byte to `N - 1` of `N` ranks once: `ring / 2`, one step. Over
//! PCIe path and algorithm change with the number of GPUs, so each has a law of its own.

use super::law::law;
use super::smooth_max::smooth_max;
use crate::catalog::Gpu;

law! {
    /// An all-reduce over NVLink; see the module. Efficiencies are shares of the link's one-way
    /// bandwidth.
    pub struct NvlinkAllReduceLaw[] {
        t0_us = 4.0 in [0.1, 20.0] else 0.0,
        rank_us = 0.1 in [0.0, 3.0] else 0.0,
        direct_efficiency = 0.4 in [0.05, 4.0] else 1.0,
        two_step_us = 3.0 in [0.0, 20.0] else 0.0,
        efficiency = 0.4 in [0.1, 1.0] else 1.0,
        rank_power = 0.0 in [-1.0, 1.0] else 0.0,
        large_us = 20.0 in [0.0, 200.0] else 0.0,
        large_megabytes = 5.0 in [0.5, 100.0] else 1.0,
    }
}

law! {
    /// A collective between `num_gpus` ranks: `pnorm(t0, bytes / rate)`.
    pub struct RateLaw[num_gpus: u32] {
        t0_us = 8.0 in [0.1, 100.0] else 0.0,
        /// Message bytes over time.
        gigabytes_per_s = 50.0 in [0.05, 2000.0] else 1.0,
        /// Below 1 where messages between the small and the large take a slower protocol.
        p = 1.0 in [0.4, 4.0] else 1.0,
    }
}

impl RateLaw {
    fn time_us(&self, bytes: f64) -> f64 {
        smooth_max(self.t0_us, bytes * 1e-3 / self.gigabytes_per_s, self.p)
    }
}

/// How an all-reduce takes its time.
#[derive(Clone, Debug, PartialEq)]
pub enum AllReduceLaw {
    Nvlink(NvlinkAllReduceLaw),
    /// One for each number of GPUs, in rising order.
    Pcie(Vec<RateLaw>),
}

/// An all-reduce over a fixed number of ranks.
#[derive(Clone, Debug)]
pub struct AllReduce {
    law: Ranked,
}

#[derive(Clone, Debug)]
enum Ranked {
    Nvlink { law: NvlinkAllReduceLaw, ranks: f64, link_bytes_per_us: f64 },
    Rate(RateLaw),
}

impl AllReduce {
    /// None on a single rank, and where no law is known.
    pub fn new(ranks: u32, gpu: &Gpu, law: &AllReduceLaw) -> Option<Self> {
        if ranks <= 1 {
            return None;
        }
        let law = match law {
            AllReduceLaw::Nvlink(law) => Ranked::Nvlink {
                law: *law,
                ranks: f64::from(ranks),
                link_bytes_per_us: gpu.nvlink_bytes_per_s.unwrap_or(gpu.pcie_bytes_per_s) * 1e-6,
            },
            AllReduceLaw::Pcie(laws) => Ranked::Rate(*nearest(ranks, laws)?),
        };
        Some(Self { law })
    }

    /// A message of `bytes` on every rank.
    pub fn time_us(&self, bytes: f64) -> f64 {
        match &self.law {
            Ranked::Rate(law) => law.time_us(bytes),
            Ranked::Nvlink { law, ranks, link_bytes_per_us } => {
                let others = ranks - 1.0;
                let direct = others * bytes / (link_bytes_per_us * law.direct_efficiency);
                let ring = 2.0 * others / ranks * bytes / (link_bytes_per_us * law.efficiency);
                let two_step = law.two_step_us + ring * (ranks / 2.0).powf(law.rank_power);
                let large = bytes / (law.large_megabytes * 1e6);
                law.t0_us
                    + law.rank_us * others
                    + direct.min(two_step)
                    + law.large_us * (1.0 - (-large * large).exp())
            }
        }
    }
}

/// A collective of NCCL over a fixed number of ranks.
#[derive(Clone, Debug)]
pub struct AllGather {
    law: RateLaw,
}

impl AllGather {
    /// None on a single rank, and where no law is known. Laws are in rising order of ranks.
    pub fn new<'a>(ranks: u32, laws: impl IntoIterator<Item = &'a RateLaw>) -> Option<Self> {
        if ranks <= 1 {
            return None;
        }
        Some(Self { law: *nearest(ranks, laws)? })
    }

    /// `bytes` in all, gathered onto every rank.
    pub fn time_us(&self, bytes: f64) -> f64 {
        self.law.time_us(bytes)
    }
}

/// The law for the next larger number of GPUs that was measured, or the largest.
fn nearest<'a>(ranks: u32, laws: impl IntoIterator<Item = &'a RateLaw>) -> Option<&'a RateLaw> {
    let mut last = None;
    for law in laws {
        last = Some(law);
        if law.num_gpus >= ranks {
            break;
        }
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates() -> [RateLaw; 2] {
        [(2, 5.0, 10.0), (8, 25.0, 1.0)].map(|(num_gpus, t0_us, gigabytes_per_s)| RateLaw {
            num_gpus,
            t0_us,
            gigabytes_per_s,
            p: 1.0,
        })
    }

    #[test]
    fn one_rank_has_nothing_to_reduce() {
        let gpu = Gpu::find("L40S").unwrap();
        assert!(AllReduce::new(1, gpu, &AllReduceLaw::Pcie(rates().to_vec())).is_none());
        assert!(AllGather::new(1, &rates()).is_none());
    }

    #[test]
    fn pcie_follows_the_number_of_gpus() {
        let gpu = Gpu::find("L40S").unwrap();
        let time =
            |ranks| AllReduce::new(ranks, gpu, &AllReduceLaw::Pcie(rates().to_vec())).unwrap().time_us(1e6);
        for (ranks, expected) in [(2, 105.0), (3, 1025.0), (8, 1025.0), (16, 1025.0)] {
            assert!((time(ranks) - expected).abs() < 1e-9, "{ranks}");
        }
    }

    /// Small messages go to every rank at once, large ones in two steps.
    #[test]
    fn nvlink_takes_the_quicker_way() {
        let gpu = Gpu::find("H100").unwrap();
        let law = NvlinkAllReduceLaw {
            t0_us: 4.0,
            rank_us: 0.5,
            direct_efficiency: 0.5,
            two_step_us: 3.0,
            efficiency: 0.5,
            ..NvlinkAllReduceLaw::neutral()
        };
        let time = |bytes| AllReduce::new(8, gpu, &AllReduceLaw::Nvlink(law)).unwrap().time_us(bytes);
        // 7 of 225 GB/s, and 2 x 7/8 of them.
        assert!((time(1e4) - (4.0 + 3.5 + 7.0 * 1e4 / 225e3)).abs() < 1e-9);
        assert!((time(1e6) - (4.0 + 3.5 + 3.0 + 1.75 * 1e6 / 225e3)).abs() < 1e-9);
    }
}
