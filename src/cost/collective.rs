//! Collectives between the ranks of one node, inside a CUDA graph.
//!
//! Over NVLink an all-reduce has several ways ([`super::nvlink_all_reduce`]).
//!
//! In a layer the norm that follows is part of it, and small messages take kernels of FlashInfer
//! (`fuse_allreduce_rms`, on by default on Hopper and Blackwell). Nobody has published their times; they
//! are taken as the quickest of the ways above, up to the sizes that vLLM gives them
//! (`FI_ALLREDUCE_FUSION_MAX_SIZE_MB`).
//!
//! NCCL's other collectives send each byte to `N - 1` of `N` ranks once: `ring / 2`, one step. Over
//! PCIe path and algorithm change with the number of GPUs, so each has a law of its own.

use super::law::law;
use super::nvlink_all_reduce::{NvlinkAllReduce, NvlinkAllReduceLaw};
use super::smooth_max::smooth_max;
use crate::catalog::Gpu;

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
    Nvlink(NvlinkAllReduce),
    Rate(RateLaw),
}

impl AllReduce {
    /// None on a single rank, and where no law is known.
    pub fn new(ranks: u32, gpu: &Gpu, law: &AllReduceLaw) -> Option<Self> {
        if ranks <= 1 {
            return None;
        }
        let law = match law {
            AllReduceLaw::Nvlink(law) => Ranked::Nvlink(NvlinkAllReduce::new(ranks, gpu, law)),
            AllReduceLaw::Pcie(laws) => Ranked::Rate(*nearest(ranks, laws)?),
        };
        Some(Self { law })
    }

    /// Whether the norm that follows a message of `bytes` on every rank is in the same kernel.
    pub fn fuses_norm(&self, bytes: f64) -> bool {
        matches!(&self.law, Ranked::Nvlink(nvlink) if nvlink.fuses_norm(bytes))
    }

    /// A message of `bytes` on every rank that a norm follows.
    pub fn fused_us(&self, bytes: f64) -> f64 {
        match &self.law {
            Ranked::Nvlink(nvlink) => nvlink.fused_us(bytes),
            Ranked::Rate(law) => law.time_us(bytes),
        }
    }

    /// A message of `bytes` on every rank.
    pub fn time_us(&self, bytes: f64) -> f64 {
        match &self.law {
            Ranked::Nvlink(nvlink) => nvlink.time_us(bytes),
            Ranked::Rate(law) => law.time_us(bytes),
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
}
