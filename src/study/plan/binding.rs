//! What holds a replica back, by the simulation's own figures.

use serde::{Deserialize, Serialize};

use super::measured::Measured;
use super::step_figures::StepFigures;

/// Requests wait in so much of the time that waiting is the problem.
const WAITING: f64 = 0.1;
/// Most of the time that this is about.
const MOST: f64 = 0.5;
/// A GPU that rests more than this is not what is short.
const GPU_RESTS: f64 = 0.3;
/// A share of the steps' GPU time at which communication or overheads are the first thing to change.
const LARGE_PART: f64 = 0.35;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Binding {
    /// Blocks: requests wait for them, or are preempted.
    KvCapacity,
    /// Places among the running requests.
    MaxNumSeqs,
    /// Planning on the CPU takes longer than the steps.
    Host,
    /// Arithmetic.
    Compute,
    MemoryBandwidth,
    /// Between the ranks of a replica.
    Communication,
    /// Launches and gaps between kernels.
    Overheads,
    /// Requests that come close together wait for each other though the GPU rests at other times.
    Queueing,
}

impl Binding {
    pub const fn name(self) -> &'static str {
        match self {
            Self::KvCapacity => "KV capacity",
            Self::MaxNumSeqs => "max_num_seqs",
            Self::Host => "host",
            Self::Compute => "compute",
            Self::MemoryBandwidth => "memory bandwidth",
            Self::Communication => "communication",
            Self::Overheads => "step overheads",
            Self::Queueing => "queueing",
        }
    }

    /// What holds back the replicas at a load that is just too much. Where they have roles it is those whose
    /// requests wait more, or whose GPUs are busier, of which the reason speaks.
    pub fn of_load(measured: &Measured) -> (Self, String) {
        let (Some(prefill), Some(decode)) = (&measured.prefill_steps, &measured.decode_steps) else {
            return Self::of(&measured.steps);
        };
        let waiting = |steps: &StepFigures| steps.of_span(steps.waiting_ns as f64);
        let order = (waiting(prefill) - waiting(decode)).abs() > WAITING;
        let is_prefill =
            if order { waiting(prefill) > waiting(decode) } else { prefill.gpu_busy() >= decode.gpu_busy() };
        let (who, steps) = if is_prefill { ("prefill", prefill) } else { ("decode", decode) };
        let (binding, reason) = Self::of(steps);
        (binding, format!("of the replicas that {who}: {reason}"))
    }

    /// What the figures of a load that is just too much say, with the reason in words.
    pub fn of(figures: &StepFigures) -> (Self, String) {
        let percent = |share: f64| format!("{:.0} %", 100.0 * share);
        let waiting = figures.of_span(figures.waiting_ns as f64);
        let host = figures.host_bound_steps as f64 / figures.steps.max(1) as f64;
        if host > MOST {
            let reason = format!("the host takes longer than the GPU in {} of the steps", percent(host));
            return (Self::Host, reason);
        }
        let for_blocks = figures.of_waiting(figures.waiting_for_blocks_ns);
        if waiting > WAITING && for_blocks > MOST {
            let reason = format!(
                "requests wait {} of the time, {} of that with over 90 % of the blocks in use; {} preemptions",
                percent(waiting),
                percent(for_blocks),
                figures.preemptions
            );
            return (Self::KvCapacity, reason);
        }
        let for_seqs = figures.of_waiting(figures.waiting_for_seqs_ns);
        if waiting > WAITING && for_seqs > MOST {
            let reason = format!(
                "requests wait {} of the time, {} of that with max_num_seqs requests running",
                percent(waiting),
                percent(for_seqs)
            );
            return (Self::MaxNumSeqs, reason);
        }
        let busy = figures.gpu_busy();
        if busy < 1.0 - GPU_RESTS {
            return (Self::Queueing, format!("the GPU is busy only {} of the time", percent(busy)));
        }
        for (binding, part_ns, what) in [
            (Self::Communication, figures.comms_ns, "communication between ranks"),
            (Self::Overheads, figures.overheads_ns, "launches, gaps and small kernels"),
        ] {
            let part = figures.of_gpu(part_ns);
            if part > LARGE_PART {
                return (binding, format!("{what}: {} of the GPU's time", percent(part)));
            }
        }
        // A constant cost knows no GPU.
        if figures.compute_bound_ns == 0.0 {
            return (Self::Compute, format!("the GPU is busy {} of the time", percent(busy)));
        }
        let compute = figures.of_sampled(figures.compute_bound_ns);
        let memory = figures.of_sampled(figures.memory_bound_ns);
        let attention = percent(figures.of_gpu(figures.attention_ns));
        let products = percent(figures.of_gpu(figures.gemm_ns + figures.moe_ns));
        let reason = format!(
            "the GPU is busy {} of the time, at {} of its arithmetic and {} of its memory bandwidth; products \
             take {products} of its time and attention {attention}",
            percent(busy),
            percent(compute),
            percent(memory)
        );
        (if memory > compute { Self::MemoryBandwidth } else { Self::Compute }, reason)
    }
}
