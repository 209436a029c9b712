//! Where the time of steps goes, and what waiting requests wait for: sums over a run.

use serde::{Deserialize, Serialize};

use crate::cost::StepShape;
use crate::cost::bounds::DatasheetBounds;
use crate::engine::scheduler::SchedulerOutput;
use crate::simulation::StepRecord;

/// One step of so many is compared: a run has many more than it takes to know a share.
const STEPS_FOR_A_SAMPLE: u64 = 32;

/// Blocks are short while this share of them is held by requests.
const NEARLY_ALL_BLOCKS: f64 = 0.9;

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepFigures {
    pub steps: u64,
    /// From the start to the last step, over all replications.
    pub span_ns: u64,
    pub gpu_ns: u64,
    pub host_ns: u64,
    /// Steps in which the host took longer than the GPU.
    pub host_bound_steps: u64,
    pub preemptions: u64,
    /// Blocks held by requests times nanoseconds, as a share of all blocks.
    pub used_ns: f64,
    pub peak_usage: f64,
    /// Time in which requests waited, and that in which blocks or places among the running were short.
    pub waiting_ns: u64,
    pub waiting_for_blocks_ns: u64,
    pub waiting_for_seqs_ns: u64,
    /// Of the GPU time, what each kind of operation took.
    pub gemm_ns: u64,
    pub attention_ns: u64,
    pub moe_ns: u64,
    pub comms_ns: u64,
    /// Launches, gaps between kernels, and small kernels: norms, activations, sampling.
    pub overheads_ns: u64,
    /// The GPU time of steps that were compared with the datasheet.
    pub sampled_gpu_ns: u64,
    /// The least times by the datasheet, and the GPU time of steps whose arithmetic takes longer than
    /// their memory traffic by these.
    pub compute_bound_ns: f64,
    pub memory_bound_ns: f64,
    pub compute_limited_ns: u64,
    /// GPU time of steps with more tokens or longer contexts than were measured for the cost profile.
    pub extrapolated_ns: u64,
}

impl StepFigures {
    pub fn plus(mut self, other: &Self) -> Self {
        for (sum, more) in [
            (&mut self.steps, other.steps),
            (&mut self.span_ns, other.span_ns),
            (&mut self.gpu_ns, other.gpu_ns),
            (&mut self.host_ns, other.host_ns),
            (&mut self.host_bound_steps, other.host_bound_steps),
            (&mut self.preemptions, other.preemptions),
            (&mut self.waiting_ns, other.waiting_ns),
            (&mut self.waiting_for_blocks_ns, other.waiting_for_blocks_ns),
            (&mut self.waiting_for_seqs_ns, other.waiting_for_seqs_ns),
            (&mut self.sampled_gpu_ns, other.sampled_gpu_ns),
            (&mut self.gemm_ns, other.gemm_ns),
            (&mut self.attention_ns, other.attention_ns),
            (&mut self.moe_ns, other.moe_ns),
            (&mut self.comms_ns, other.comms_ns),
            (&mut self.overheads_ns, other.overheads_ns),
            (&mut self.compute_limited_ns, other.compute_limited_ns),
            (&mut self.extrapolated_ns, other.extrapolated_ns),
        ] {
            *sum += more;
        }
        self.used_ns += other.used_ns;
        self.compute_bound_ns += other.compute_bound_ns;
        self.memory_bound_ns += other.memory_bound_ns;
        self.peak_usage = self.peak_usage.max(other.peak_usage);
        self
    }

    /// A time as a share of the run.
    pub fn of_span(&self, ns: f64) -> f64 {
        share(ns, self.span_ns as f64)
    }

    /// A part of the GPU's time as a share of it.
    pub fn of_gpu(&self, ns: u64) -> f64 {
        share(ns as f64, self.gpu_ns as f64)
    }

    /// A time of sampled steps as a share of their GPU time.
    pub fn of_sampled(&self, ns: f64) -> f64 {
        share(ns, self.sampled_gpu_ns as f64)
    }

    /// A time as a share of that in which requests waited.
    pub fn of_waiting(&self, ns: u64) -> f64 {
        share(ns as f64, self.waiting_ns as f64)
    }

    pub fn gpu_busy(&self) -> f64 {
        self.of_span(self.gpu_ns as f64)
    }

    pub fn usage_mean(&self) -> f64 {
        self.of_span(self.used_ns)
    }

    pub fn extrapolated(&self) -> f64 {
        self.of_gpu(self.extrapolated_ns)
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// Adds up [`StepFigures`] of one replica.
#[derive(Clone)]
pub(super) struct StepMeter {
    /// `None` with a constant cost, which knows no GPU.
    bounds: Option<DatasheetBounds>,
    usable_blocks: f64,
    max_num_seqs: u32,
    shape: StepShape,
    last_step_ns: u64,
    pub figures: StepFigures,
}

impl StepMeter {
    pub fn new(bounds: Option<DatasheetBounds>, usable_blocks: u32, max_num_seqs: u32) -> Self {
        Self {
            bounds,
            usable_blocks: f64::from(usable_blocks),
            max_num_seqs,
            shape: StepShape::default(),
            last_step_ns: 0,
            figures: StepFigures::default(),
        }
    }

    /// A step was planned.
    pub fn on_schedule(&mut self, record: &StepRecord, output: &SchedulerOutput) {
        let Some(bounds) = &self.bounds else { return };
        if record.gpu_ns == 0 || !record.index.is_multiple_of(STEPS_FOR_A_SAMPLE) {
            return;
        }
        self.shape.clear();
        let mut decodes = (output.num_steady, output.steady_known_tokens);
        for entry in &output.scheduled {
            if entry.num_tokens == 1 {
                decodes.0 += 1;
                decodes.1 += u64::from(entry.num_computed_tokens + 1);
            } else {
                self.shape.add_prefill(entry.num_tokens, entry.num_computed_tokens, entry.samples);
            }
        }
        self.shape.add_decodes(decodes.0, decodes.1);
        let figures = &mut self.figures;
        figures.sampled_gpu_ns += record.gpu_ns;
        let bounds = bounds.of(&self.shape);
        figures.compute_bound_ns += bounds.compute_ns;
        figures.memory_bound_ns += bounds.memory_ns;
        if bounds.compute_ns > bounds.memory_ns {
            figures.compute_limited_ns += record.gpu_ns;
        }
    }

    /// A step's output was processed.
    pub fn on_step(&mut self, step: &StepRecord) {
        let finished_ns = step.finished_at.as_ns();
        let passed_ns = finished_ns - self.last_step_ns;
        self.last_step_ns = finished_ns;
        let figures = &mut self.figures;
        figures.span_ns = finished_ns;
        figures.used_ns += step.used_block_ns as f64 / self.usable_blocks;
        figures.peak_usage = figures.peak_usage.max(f64::from(step.peak_used_blocks) / self.usable_blocks);
        if step.num_scheduled_requests == 0 {
            return;
        }
        figures.steps += 1;
        figures.gpu_ns += step.gpu_ns;
        figures.host_ns += step.host_ns;
        figures.gemm_ns += step.time.gemm_ns;
        figures.attention_ns += step.time.attention_ns;
        figures.moe_ns += step.time.moe_ns;
        figures.comms_ns += step.time.comms_ns;
        figures.extrapolated_ns += step.time.extrapolated_ns;
        figures.overheads_ns += step.time.launch_ns + step.time.elementwise_ns + step.time.sampler_ns;
        figures.host_bound_steps += u64::from(step.host_ns > step.gpu_ns);
        figures.preemptions += u64::from(step.num_preempted);
        if step.num_waiting > 0 {
            figures.waiting_ns += passed_ns;
            let free = f64::from(step.num_free_blocks) / self.usable_blocks;
            // Those that ended with the step had their places until now.
            if step.num_running.max(step.num_scheduled_requests) >= self.max_num_seqs {
                figures.waiting_for_seqs_ns += passed_ns;
            } else if free < 1.0 - NEARLY_ALL_BLOCKS || step.num_preempted > 0 {
                figures.waiting_for_blocks_ns += passed_ns;
            }
        }
    }
}
