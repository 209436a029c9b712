//! All-reduces over NVLink, inside a CUDA graph.
//!
//! vLLM has three ways of an all-reduce and takes them by the size of the message, the
//! number of ranks and the compute capability (`all_reduce_utils.py`, `custom_all_reduce.cuh`): its own
//! kernel, which sends everything to everyone or in two steps; symmetric memory; NCCL. With
//! `ring = 2 (N - 1) / N bytes` and `cast = (1 + 1 / N) bytes`
//!
//! ```text
//! to everyone    t0 + rank_us (N - 1) + max((N - 1) bytes / direct, bytes / peer)
//! in two steps   t0 + rank_us (N - 1) + wait_us (N + 2) + max(ring / direct, 2 bytes / N / peer)
//! symmetric      symmetric_us + 4 bytes / memory + max(ring / symmetric, 2 bytes / N / symmetric peer)
//!                where the switch adds up: symmetric_us + 4 bytes / memory + cast / symmetric
//! NCCL           nccl_us (1 - exp(-bytes / 1 MB)) + (ring or cast) / nccl (N / 2)^r
//! ```
//!
//! Its own kernel has a fixed number of threads, each of which waits for its piece from every rank
//! before it asks for the next: fast links do not bring more from one rank than that allows. In two
//! steps it fetches the sums of the ranks one after the other, with two barriers. Symmetric memory is
//! copied to and from. Switches from Hopper on can add up and send to all: every rank then sends its
//! message once and a share of the sum, `cast`. vLLM has them do it from four ranks on, on Blackwell
//! from six (`_WORLD_SIZES_MULTIMEM`), NCCL from three.

use super::law::law;
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
        /// A wait of the second step; where no timing says it, what it is on A100, and by the times of
        /// vLLM's pull request 24111 for six H100.
        wait_us = 0.9 in [0.0, 4.0] else 0.9,
        symmetric_us = 9.0 in [0.1, 40.0] else 9.0,
        symmetric_efficiency = 0.65 in [0.05, 1.5] else 0.65,
        /// Of what comes from one rank; 0 for no limit of its own.
        symmetric_peer_efficiency = 0.4 in [0.02, 1.5] else 0.0,
        nccl_us = 60.0 in [1.0, 400.0] else 60.0,
        nccl_efficiency = 0.7 in [0.1, 1.2] else 1.0,
        nccl_rank_power = 0.0 in [-1.0, 1.0] else 0.0,
    }
}

/// The way that an all-reduce takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    TwoSteps,
    Symmetric,
    Nccl,
}

/// Messages from about here on pay the whole start of NCCL.
const NCCL_START_BYTES: f64 = 1e6;
/// Of the memory's bandwidth.
const COPY_EFFICIENCY: f64 = 0.9;
const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;

impl Way {
    /// What vLLM does with `bytes` on every rank.
    fn of_vllm(compute_capability: u32, ranks: u32, bytes: f64) -> Self {
        if ranks > 8 {
            return Self::Nccl;
        }
        // Up to here its own kernel, and up to there symmetric memory, in MiB.
        let (own_mib, symmetric_mib) = match (compute_capability, ranks) {
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
        } else if bytes <= symmetric_mib * MIB {
            Self::Symmetric
        } else {
            Self::Nccl
        }
    }
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

/// Between `ranks` GPUs of a kind.
#[derive(Clone, Debug)]
pub(super) struct NvlinkAllReduce {
    law: NvlinkAllReduceLaw,
    compute_capability: u32,
    ranks: u32,
    link_bytes_per_us: f64,
    /// Copying to symmetric memory and back: two reads and two writes.
    copy_us_per_byte: f64,
}

impl NvlinkAllReduce {
    pub fn new(ranks: u32, gpu: &Gpu, law: &NvlinkAllReduceLaw) -> Self {
        Self {
            law: *law,
            compute_capability: gpu.compute_capability,
            ranks,
            link_bytes_per_us: gpu.nvlink_bytes_per_s.unwrap_or(gpu.pcie_bytes_per_s) * 1e-6,
            copy_us_per_byte: 4e6 / (COPY_EFFICIENCY * gpu.hbm_bytes_per_s),
        }
    }

    /// Whether the norm that follows a message of `bytes` on every rank is in the same kernel.
    pub fn fuses_norm(&self, bytes: f64) -> bool {
        bytes <= fused_max_bytes(self.compute_capability, self.ranks)
    }

    /// A message of `bytes` on every rank that a norm follows.
    pub fn fused_us(&self, bytes: f64) -> f64 {
        let alone = self.time_us(bytes);
        if self.fuses_norm(bytes) {
            alone.min(self.way_us(Way::Direct, bytes)).min(self.way_us(Way::Symmetric, bytes))
        } else {
            alone
        }
    }

    /// A message of `bytes` on every rank.
    pub fn time_us(&self, bytes: f64) -> f64 {
        self.way_us(Way::of_vllm(self.compute_capability, self.ranks, bytes), bytes)
    }

    fn way_us(&self, way: Way, bytes: f64) -> f64 {
        let law = &self.law;
        let ranks = f64::from(self.ranks);
        let others = ranks - 1.0;
        let ring = 2.0 * others / ranks * bytes;
        let cast = (1.0 + 1.0 / ranks) * bytes;
        let own_us = law.t0_us + law.rank_us * others;
        // Bytes over the link, and from one of the other ranks; 0 is no limit.
        let limit_us = |bytes: f64, efficiency: f64| {
            if efficiency > 0.0 { bytes / (self.link_bytes_per_us * efficiency) } else { 0.0 }
        };
        let own_read_us = |all: f64, peer: f64| {
            limit_us(all, law.direct_efficiency).max(limit_us(peer, law.peer_efficiency))
        };
        match way {
            Way::Direct => own_us + own_read_us(others * bytes, bytes),
            Way::TwoSteps => own_us + law.wait_us * (ranks + 2.0) + own_read_us(ring, 2.0 * bytes / ranks),
            Way::Symmetric => {
                let moved_us = if self.ranks >= self.symmetric_cast_ranks() {
                    limit_us(cast, law.symmetric_efficiency)
                } else {
                    let peer_us = limit_us(2.0 * bytes / ranks, law.symmetric_peer_efficiency);
                    limit_us(ring, law.symmetric_efficiency).max(peer_us)
                };
                law.symmetric_us + self.copy_us_per_byte * bytes + moved_us
            }
            Way::Nccl => {
                let start_us = law.nccl_us * (1.0 - (-bytes / NCCL_START_BYTES).exp());
                let moved = if self.has_adding_switch() && self.ranks > 2 { cast } else { ring };
                start_us + limit_us(moved, law.nccl_efficiency) * (ranks / 2.0).powf(law.nccl_rank_power)
            }
        }
    }

    /// Whether the switch adds up: from Hopper's on.
    fn has_adding_switch(&self) -> bool {
        self.compute_capability >= 90
    }

    /// From how many ranks on vLLM has the switch add up symmetric memory.
    fn symmetric_cast_ranks(&self) -> u32 {
        if self.compute_capability >= 100 { 6 } else { 4 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_reduce(gpu: &str, ranks: u32, law: NvlinkAllReduceLaw) -> NvlinkAllReduce {
        let gpu = Gpu {
            nvlink_bytes_per_s: Some(450e9),
            hbm_bytes_per_s: 4e12 / 0.9,
            ..Gpu::find(gpu).unwrap().clone()
        };
        NvlinkAllReduce::new(ranks, &gpu, &law)
    }

    /// The bounds of vLLM 0.33.0.
    #[test]
    fn the_way_follows_size_ranks_and_gpu() {
        for (capability, ranks, bytes, way) in [
            (90, 8, 255.0 * KIB, Way::Direct),
            (90, 8, 256.0 * KIB, Way::Symmetric),
            (90, 8, 64.0 * MIB, Way::Symmetric),
            (90, 8, 65.0 * MIB, Way::Nccl),
            (90, 4, 512.0 * KIB, Way::TwoSteps),
            (90, 2, 7.0 * MIB, Way::Direct),
            (80, 8, 256.0 * KIB, Way::TwoSteps),
            (80, 8, 8.0 * MIB, Way::Nccl),
            (100, 8, MIB, Way::Symmetric),
            (103, 2, 4.0 * MIB, Way::Symmetric),
            (90, 16, KIB, Way::Nccl),
        ] {
            assert_eq!(Way::of_vllm(capability, ranks, bytes), way, "{capability} {ranks} {bytes}");
        }
    }

    /// 512 KiB on eight B200 take vLLM's own kernel two steps, and to everyone less.
    #[test]
    fn a_norm_behind_it_takes_the_quickest_way_for_small_messages() {
        let law = NvlinkAllReduceLaw {
            t0_us: 7.0,
            wait_us: 1.6,
            symmetric_us: 14.0,
            ..NvlinkAllReduceLaw::neutral()
        };
        let all_reduce = all_reduce("B200", 8, law);
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
            wait_us: 0.3,
            symmetric_us: 8.0,
            symmetric_efficiency: 0.5,
            symmetric_peer_efficiency: 0.1,
            nccl_us: 50.0,
            nccl_efficiency: 0.5,
            nccl_rank_power: -0.5,
        };
        let check = |gpu: &str, ranks: u32, way: Way, bytes: f64, expected_us: f64| {
            let time_us = all_reduce(gpu, ranks, law).way_us(way, bytes);
            assert!((time_us - expected_us).abs() < 1e-9, "{gpu} {ranks} {way:?}: {time_us}");
        };
        // From one of two ranks comes a tenth of the link at most.
        check("H100", 2, Way::Direct, 1e6, 4.0 + 0.5 + 1e6 / 45e3);
        check("H100", 8, Way::Direct, 1e4, 4.0 + 3.5 + 7.0 * 1e4 / 225e3);
        check("H100", 8, Way::TwoSteps, 1e6, 4.0 + 3.5 + 3.0 + 1.75 * 1e6 / 225e3);
        // Four passes over memory at 4 TB/s; a tenth of the link from one rank, or half of it in all.
        check("H100", 8, Way::Symmetric, 1e6, 8.0 + 1.0 + 1.125 * 1e6 / 225e3);
        check("H100", 2, Way::Symmetric, 1e6, 8.0 + 1.0 + 1e6 / 45e3);
        check("B200", 4, Way::Symmetric, 1e6, 8.0 + 1.0 + 0.5 * 1e6 / 45e3);
        check("H100", 8, Way::Nccl, 1e8, 50.0 + 0.5 * 1.125e8 / 225e3);
        check("A100", 8, Way::Nccl, 1e8, 50.0 + 0.5 * 1.75e8 / 225e3);
        check("H100", 2, Way::Nccl, 1e8, 50.0 + 1e8 / 225e3);
    }
}
