//! Collectives between the ranks of one node, inside a CUDA graph.
//!
//! Over NVLink vLLM has three ways of an all-reduce and takes them by the size of the message, the
//! number of ranks and the compute capability (`all_reduce_utils.py`, `custom_all_reduce.cuh`): its own
//! kernel, which sends everything to everyone or in two steps; the switch, which adds up symmetric
//! memory; NCCL. With `ring = 2 (N - 1) / N bytes`
//!
//! ```text
//! to everyone    t0 + rank_us (N - 1) + max((N - 1) bytes / direct, bytes / peer)
//! in two steps   t0 + rank_us (N - 1) + two_step_us + max(ring / direct, 2 bytes / N / peer)
//! by the switch  switch_us + bytes / switch (N / 2)^q
//! NCCL           nccl_us (1 - exp(-bytes / 1 MB)) + ring / nccl (N / 2)^r
//! ```
//!
//! Its own kernel has a fixed number of threads, each of which waits for its piece from every rank
//! before it asks for the next: fast links do not bring more from one rank than that allows.
//!
//! In a layer the norm that follows is part of it, and small messages take kernels of FlashInfer
//! (`fuse_allreduce_rms`, on by default on Hopper and Blackwell). Nobody has published their times; they
//! are taken as the quickest of the ways above, up to the sizes that vLLM gives them
//! (`FI_ALLREDUCE_FUSION_MAX_SIZE_MB`).
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
        direct_efficiency = 0.7 in [0.05, 1.5] else 1.0,
        /// Of what comes from one rank; 0 for no limit of its own.
        peer_efficiency = 0.4 in [0.02, 1.5] else 0.0,
        /// Where no timing says it, about what it is on A100.
        two_step_us = 9.0 in [0.0, 40.0] else 9.0,
        switch_us = 9.0 in [0.1, 40.0] else 9.0,
        switch_efficiency = 0.5 in [0.05, 1.5] else 0.5,
        switch_rank_power = 0.0 in [-1.0, 1.0] else 0.0,
        nccl_us = 60.0 in [1.0, 400.0] else 60.0,
        nccl_efficiency = 0.7 in [0.1, 1.2] else 1.0,
        nccl_rank_power = -0.2 in [-1.0, 1.0] else 0.0,
    }
}

/// The way that an all-reduce takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    TwoSteps,
    Switch,
    Nccl,
}

/// Messages from about here on pay the whole start of NCCL.
const NCCL_START_BYTES: f64 = 1e6;
const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;

impl Way {
    /// What vLLM does with `bytes` on every rank.
    fn of_vllm(compute_capability: u32, ranks: u32, bytes: f64) -> Self {
        if ranks > 8 {
            return Self::Nccl;
        }
        // Up to here its own kernel, and up to there the switch, in MiB.
        let (own_mib, switch_mib) = match (compute_capability, ranks) {
            (90, 2) => (8.0, 64.0),
            (90, 4) => (8.0, 32.0),
            (90, 6) => (0.5, 64.0),
            (90, 8) => (0.25, 64.0),
            (100, 2) => (2.0, 8.0),
            (100, 4) => (2.0, 32.0),
            (100, 6 | 8) => (1.0, 128.0),
            (103, 2) => (4.0, 4.0),
            (103, 4) => (4.0, 32.0),
            (103, 6) => (8.0, 32.0),
            (103, 8) => (4.0, 64.0),
            _ => (8.0, 0.0),
        };
        let direct_bytes = match ranks {
            2 => f64::INFINITY,
            3 | 4 => 512.0 * KIB,
            _ => 256.0 * KIB,
        };
        if bytes < own_mib * MIB {
            if bytes < direct_bytes { Self::Direct } else { Self::TwoSteps }
        } else if bytes <= switch_mib * MIB {
            Self::Switch
        } else {
            Self::Nccl
        }
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

/// Up to how many bytes vLLM has FlashInfer add up and norm at once.
fn fused_max_bytes(compute_capability: u32, ranks: u32) -> f64 {
    let mib = match (compute_capability, ranks) {
        (90 | 100, 2) | (103, 2 | 4) => 64.0,
        (100, 4) => 32.0,
        (103, 8) => 4.0,
        (90, 4) => 2.0,
        (100, 8) => 1.0,
        (90, 8) => 0.5,
        _ => 0.0,
    };
    mib * MIB
}

/// An all-reduce over a fixed number of ranks.
#[derive(Clone, Debug)]
pub struct AllReduce {
    law: Ranked,
}

#[derive(Clone, Debug)]
enum Ranked {
    Nvlink { law: NvlinkAllReduceLaw, ranks: u32, compute_capability: u32, link_bytes_per_us: f64 },
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
                ranks,
                compute_capability: gpu.compute_capability,
                link_bytes_per_us: gpu.nvlink_bytes_per_s.unwrap_or(gpu.pcie_bytes_per_s) * 1e-6,
            },
            AllReduceLaw::Pcie(laws) => Ranked::Rate(*nearest(ranks, laws)?),
        };
        Some(Self { law })
    }

    /// Whether the norm that follows a message of `bytes` on every rank is in the same kernel.
    pub fn fuses_norm(&self, bytes: f64) -> bool {
        matches!(&self.law, Ranked::Nvlink { ranks, compute_capability, .. }
            if bytes <= fused_max_bytes(*compute_capability, *ranks))
    }

    /// A message of `bytes` on every rank that a norm follows.
    pub fn fused_us(&self, bytes: f64) -> f64 {
        let alone = self.time_us(bytes);
        match &self.law {
            Ranked::Nvlink { law, ranks, link_bytes_per_us, .. } if self.fuses_norm(bytes) => {
                let way = |way| nvlink_us(law, way, f64::from(*ranks), bytes, *link_bytes_per_us);
                alone.min(way(Way::Direct)).min(way(Way::Switch))
            }
            _ => alone,
        }
    }

    /// A message of `bytes` on every rank.
    pub fn time_us(&self, bytes: f64) -> f64 {
        match &self.law {
            Ranked::Rate(law) => law.time_us(bytes),
            Ranked::Nvlink { law, ranks, compute_capability, link_bytes_per_us } => {
                let way = Way::of_vllm(*compute_capability, *ranks, bytes);
                nvlink_us(law, way, f64::from(*ranks), bytes, *link_bytes_per_us)
            }
        }
    }
}

fn nvlink_us(law: &NvlinkAllReduceLaw, way: Way, ranks: f64, bytes: f64, link_bytes_per_us: f64) -> f64 {
    let others = ranks - 1.0;
    let ring = 2.0 * others / ranks * bytes;
    let own_us = law.t0_us + law.rank_us * others;
    // `others_bytes` from all other ranks, `peer_bytes` of them from one.
    let read_us = |others_bytes: f64, peer_bytes: f64| {
        let all = others_bytes / (link_bytes_per_us * law.direct_efficiency);
        let peer = link_bytes_per_us * law.peer_efficiency;
        if peer > 0.0 { all.max(peer_bytes / peer) } else { all }
    };
    match way {
        Way::Direct => own_us + read_us(others * bytes, bytes),
        Way::TwoSteps => own_us + law.two_step_us + read_us(ring, 2.0 * bytes / ranks),
        Way::Switch => {
            let rate = link_bytes_per_us * law.switch_efficiency;
            law.switch_us + bytes / rate * (ranks / 2.0).powf(law.switch_rank_power)
        }
        Way::Nccl => {
            let rate = link_bytes_per_us * law.nccl_efficiency;
            let start_us = law.nccl_us * (1.0 - (-bytes / NCCL_START_BYTES).exp());
            start_us + ring / rate * (ranks / 2.0).powf(law.nccl_rank_power)
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

    /// The bounds of vLLM 0.33.0.
    #[test]
    fn the_way_follows_size_ranks_and_gpu() {
        for (capability, ranks, bytes, way) in [
            (90, 8, 255.0 * KIB, Way::Direct),
            (90, 8, 256.0 * KIB, Way::Switch),
            (90, 8, 64.0 * MIB, Way::Switch),
            (90, 8, 65.0 * MIB, Way::Nccl),
            (90, 4, 512.0 * KIB, Way::TwoSteps),
            (90, 2, 7.0 * MIB, Way::Direct),
            (80, 8, 256.0 * KIB, Way::TwoSteps),
            (80, 8, 8.0 * MIB, Way::Nccl),
            (100, 8, MIB, Way::Switch),
            (103, 2, 4.0 * MIB, Way::Switch),
            (90, 16, KIB, Way::Nccl),
        ] {
            assert_eq!(Way::of_vllm(capability, ranks, bytes), way, "{capability} {ranks} {bytes}");
        }
    }

    /// 512 KiB on eight B200 take vLLM's own kernel two steps, and the switch less.
    #[test]
    fn a_norm_behind_it_takes_the_quickest_way_for_small_messages() {
        let law = NvlinkAllReduceLaw {
            t0_us: 7.0,
            two_step_us: 16.0,
            switch_us: 14.0,
            switch_efficiency: 0.5,
            direct_efficiency: 0.5,
            ..NvlinkAllReduceLaw::neutral()
        };
        let gpu = Gpu::find("B200").unwrap();
        let all_reduce = AllReduce::new(8, gpu, &AllReduceLaw::Nvlink(law)).unwrap();
        let bytes = 512.0 * KIB;
        assert!((all_reduce.time_us(bytes) - (23.0 + 1.75 * bytes / 450e3)).abs() < 1e-9);
        assert!((all_reduce.fused_us(bytes) - (7.0 + 7.0 * bytes / 450e3)).abs() < 1e-9);
        let large = 2.0 * MIB;
        assert_eq!(all_reduce.fused_us(large), all_reduce.time_us(large));
    }

    #[test]
    fn each_way_takes_what_the_module_says() {
        let law = NvlinkAllReduceLaw {
            t0_us: 4.0,
            rank_us: 0.5,
            direct_efficiency: 0.5,
            peer_efficiency: 0.1,
            two_step_us: 3.0,
            switch_us: 8.0,
            switch_efficiency: 0.5,
            switch_rank_power: 0.5,
            nccl_us: 50.0,
            nccl_efficiency: 0.5,
            nccl_rank_power: -0.5,
        };
        // From one of two ranks comes a tenth of the link at most.
        assert!((nvlink_us(&law, Way::Direct, 2.0, 1e6, 450e3) - (4.0 + 0.5 + 1e6 / 45e3)).abs() < 1e-9);
        let time = |way, bytes| nvlink_us(&law, way, 8.0, bytes, 450e3);
        assert!((time(Way::Direct, 1e4) - (4.0 + 3.5 + 7.0 * 1e4 / 225e3)).abs() < 1e-9);
        assert!((time(Way::TwoSteps, 1e6) - (4.0 + 3.5 + 3.0 + 1.75 * 1e6 / 225e3)).abs() < 1e-9);
        assert!((time(Way::Switch, 1e6) - (8.0 + 2.0 * 1e6 / 225e3)).abs() < 1e-9);
        assert!((time(Way::Nccl, 1e8) - (50.0 + 0.5 * 1.75e8 / 225e3)).abs() < 1e-9);
    }
}
