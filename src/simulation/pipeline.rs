//! When the GPUs of a replica are free: one stage, or several that a step passes one after the other.

use crate::cost::StepTime;
use crate::units::SimTime;

/// The stages of pipeline parallelism; each has an equal part of the layers, the last the head too.
#[derive(Clone, Debug)]
pub(super) struct Pipeline {
    free_at: Vec<SimTime>,
    /// When the tokens are there that a step computes on: a request is in every so-manieth step at
    /// most, and the first stage waits for what the last one sampled.
    sampled_at: Vec<SimTime>,
}

/// When a step begins on the first stage and leaves the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Passage {
    pub started_at: SimTime,
    pub done_at: SimTime,
}

impl Pipeline {
    /// `num_stages` is at least one.
    pub fn new(num_stages: u32) -> Self {
        let stages = vec![SimTime::ZERO; num_stages.max(1) as usize];
        Self { free_at: stages.clone(), sampled_at: stages }
    }

    /// A step that the host has ready at `ready`; `step` counts the calls of the scheduler.
    pub fn run(&mut self, step: u64, ready: SimTime, time: StepTime) -> Passage {
        let num_stages = self.free_at.len() as u64;
        let sampled_at = &mut self.sampled_at[(step % num_stages) as usize];
        let started_at = ready.max(*sampled_at).max(self.free_at[0]);
        let stage_ns = (time.gpu_ns() - time.head_ns) / num_stages;
        let last_ns = time.gpu_ns() - stage_ns * (num_stages - 1);
        let mut at = started_at;
        for (stage, free_at) in (1..).zip(&mut self.free_at) {
            at = at.max(*free_at) + SimTime(if stage == num_stages { last_ns } else { stage_ns });
            *free_at = at;
        }
        *sampled_at = at;
        Passage { started_at, done_at: at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(gpu_ns: u64, head_ns: u64) -> StepTime {
        StepTime { other_ns: gpu_ns, head_ns, ..StepTime::default() }
    }

    #[test]
    fn one_stage_takes_steps_one_after_the_other() {
        let mut gpu = Pipeline::new(1);
        let first = gpu.run(1, SimTime(10), time(100, 20));
        assert_eq!((first.started_at, first.done_at), (SimTime(10), SimTime(110)));
        let second = gpu.run(2, SimTime(50), time(30, 0));
        assert_eq!((second.started_at, second.done_at), (SimTime(110), SimTime(140)));
    }

    #[test]
    fn stages_work_on_different_steps() {
        let mut gpus = Pipeline::new(2);
        // 40 on each stage, and 20 more on the last.
        assert_eq!(gpus.run(1, SimTime(0), time(100, 20)).done_at, SimTime(100));
        // The first stage is free at 40, the second at 100.
        let second = gpus.run(2, SimTime(0), time(100, 20));
        assert_eq!((second.started_at, second.done_at), (SimTime(40), SimTime(160)));
        // The requests of the first step are here again: their tokens came at 100.
        assert_eq!(gpus.run(3, SimTime(0), time(100, 20)).started_at, SimTime(100));
    }
}
