//! One calibration: every operation of the plan is checked, then timed, while the clocks are watched.

use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::device::{Device, DeviceError, Identity, Kernel, Telemetry};
use super::measure::{Timed, Timing, TimingRules, time};
use super::operation::{GemmFormat, Operation};
use super::plan::{Effort, plan};
use super::reference::{Probe, largest_error, probes};

/// The same product, timed again and again, tells whether the device still runs as at the start.
const REFERENCE: Operation = Operation::Gemm { format: GemmFormat::Bf16, m: 512, n: 4096, k: 4096 };
/// Operations between two looks at the reference.
const BATCH: usize = 16;
/// A change of the reference above which a batch is timed again.
const MAX_DRIFT: f64 = 0.02;
/// So much device time brings clocks and temperature to where serving has them.
const WARM_UP_US: f64 = 300_000.0;
/// Sets of inputs exceed the L2 cache by so much, as far as memory and this count go.
const L2_MULTIPLE: u64 = 3;
const MAX_SETS: u64 = 256;
/// Where the driver does not tell the size of the L2 cache: larger than any GPU's today.
const UNKNOWN_L2_BYTES: u64 = 128 << 20;

/// What became of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    Timed(Timing),
    /// The kernel computes something else, here or on a small shape; it was not timed.
    Wrong,
    /// It cannot run here, or not in this time; the reason.
    LeftOut(String),
    /// The device refused; what it said.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    pub operation: Operation,
    /// None where the device has no kernel for it.
    pub kernel: Option<Kernel>,
    pub outcome: Outcome,
    /// The largest error against f64 (`reference`).
    pub error: Option<f64>,
    pub sets: u32,
    /// The sets together exceed the L2 cache so far that a launch finds nothing there.
    pub cold_l2: bool,
    /// Change of the reference product over the batch that this was timed in.
    pub drift: Option<f64>,
    /// Right after the last launch.
    pub telemetry: Telemetry,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SessionReport {
    pub identity: Identity,
    pub effort: Effort,
    /// In the order of the plan.
    pub measurements: Vec<Measurement>,
    /// Device time of all launches that were timed.
    pub device_s: f64,
    /// Batches that were timed again because the reference changed.
    pub repeated_batches: u32,
    pub reference_us: Option<f64>,
}

impl SessionReport {
    pub fn timed(&self) -> impl Iterator<Item = (&Measurement, &Kernel, &Timing)> {
        self.measurements.iter().filter_map(|measurement| match &measurement.outcome {
            Outcome::Timed(timing) => measurement.kernel.as_ref().map(|kernel| (measurement, kernel, timing)),
            _ => None,
        })
    }
}

/// A run of the harness on a device.
pub struct Session<'a> {
    device: &'a mut dyn Device,
    effort: Effort,
    rules: TimingRules,
    budget_us: f64,
    spent_us: f64,
    /// A stop of the wall clock, for devices whose launches are short but whose preparation is not.
    deadline: Option<Instant>,
    /// Of the reference.
    flops_per_us: Option<f64>,
    /// Kernels that were wrong on a small shape.
    distrusted: Vec<String>,
}

impl<'a> Session<'a> {
    pub fn new(device: &'a mut dyn Device, effort: Effort) -> Self {
        Self {
            device,
            effort,
            rules: effort.timing_rules(),
            budget_us: effort.budget_s() * 1e6,
            spent_us: 0.0,
            deadline: Instant::now().checked_add(Duration::from_secs_f64(effort.budget_s() * 4.0)),
            flops_per_us: None,
            distrusted: Vec::new(),
        }
    }

    /// Measures the whole plan. `progress` is told of each operation before it starts, with its
    /// place and the number of all.
    pub fn run(mut self, progress: &mut dyn FnMut(usize, usize, &Operation)) -> SessionReport {
        let operations = plan(self.effort);
        if self.effort != Effort::Check {
            self.check_small_shapes();
        }
        self.run_plan(&operations, progress)
    }

    pub(super) fn run_plan(
        mut self,
        operations: &[Operation],
        progress: &mut dyn FnMut(usize, usize, &Operation),
    ) -> SessionReport {
        // In random order: what changes with time then hits every shape alike.
        let mut order: Vec<usize> = (0..operations.len()).collect();
        order.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
        let reference_us = self.warm_up();
        let mut done: Vec<Option<Measurement>> = vec![None; operations.len()];
        let mut repeated_batches = 0;
        let mut started = 0;
        let mut before = reference_us;
        for batch in order.chunks(BATCH) {
            let mut may_repeat = true;
            loop {
                for &index in batch {
                    started += usize::from(may_repeat);
                    progress(started, operations.len(), &operations[index]);
                    done[index] = Some(self.measure(&operations[index]));
                }
                let after = before.and_then(|_| self.reference_us());
                let drift = before.zip(after).map(|(before, after)| after / before - 1.0);
                for &index in batch {
                    if let Some(measurement) = &mut done[index] {
                        measurement.drift = drift;
                    }
                }
                before = after.or(before);
                let drifted = drift.is_some_and(|drift| drift.abs() > MAX_DRIFT);
                if !(drifted && may_repeat && self.may_go_on()) {
                    break;
                }
                repeated_batches += 1;
                may_repeat = false;
            }
        }
        SessionReport {
            identity: self.device.identity().clone(),
            effort: self.effort,
            measurements: done.into_iter().flatten().collect(),
            device_s: self.spent_us / 1e6,
            repeated_batches,
            reference_us,
        }
    }

    /// A sample of a large output misses what one wrong tile at an edge does; small shapes show it.
    fn check_small_shapes(&mut self) {
        for operation in plan(Effort::Check) {
            let Ok(kernel) = self.device.kernel(&operation) else { continue };
            // What cannot run will say so in its own measurement.
            if let Ok(error) = self.prepare_and_check(&operation, 1)
                && error > kernel.dtype.tolerance()
            {
                self.distrusted.push(kernel.name);
            }
        }
    }

    /// Runs the reference until clocks have settled, and times it; none where it cannot run, or where
    /// times do not count.
    fn warm_up(&mut self) -> Option<f64> {
        if self.effort == Effort::Check {
            return None;
        }
        let target = self.spent_us + WARM_UP_US;
        let mut last = self.reference_us();
        while last.is_some() && self.spent_us < target {
            last = self.reference_us();
        }
        self.flops_per_us = last.map(|us| REFERENCE.flops() / us);
        last
    }

    /// On a slow device the largest shapes would hit the watchdog of the graphics driver, which takes
    /// the device away from everybody.
    fn takes_too_long(&self, operation: &Operation) -> Option<String> {
        let expected_us = operation.flops() / self.flops_per_us?;
        (expected_us > self.rules.max_launch_us).then(|| {
            format!("one launch would take some {:.0} s, by what a smaller product took", expected_us / 1e6)
        })
    }

    fn reference_us(&mut self) -> Option<f64> {
        match self.measure(&REFERENCE).outcome {
            Outcome::Timed(timing) => Some(timing.median_us),
            _ => None,
        }
    }

    fn may_go_on(&self) -> bool {
        self.spent_us < self.budget_us && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    fn measure(&mut self, operation: &Operation) -> Measurement {
        let mut measurement = Measurement {
            operation: *operation,
            kernel: None,
            outcome: Outcome::LeftOut("the time was up".to_owned()),
            error: None,
            sets: 0,
            cold_l2: false,
            drift: None,
            telemetry: Telemetry::default(),
        };
        let kernel = match self.device.kernel(operation) {
            Ok(kernel) => kernel,
            Err(reason) => {
                measurement.outcome = Outcome::LeftOut(reason);
                return measurement;
            }
        };
        measurement.kernel = Some(kernel.clone());
        if let Some(reason) = self.takes_too_long(operation) {
            measurement.outcome = Outcome::LeftOut(reason);
            return measurement;
        }
        if self.distrusted.contains(&kernel.name) {
            measurement.outcome = Outcome::Wrong;
        } else if self.may_go_on() {
            measurement.outcome = match self.check_and_time(operation, &kernel, &mut measurement) {
                Ok(outcome) => outcome,
                Err(error @ DeviceError::OutOfMemory { .. }) => Outcome::LeftOut(error.to_string()),
                Err(error) => Outcome::Failed(error.to_string()),
            };
            measurement.telemetry = self.device.telemetry();
        }
        measurement
    }

    fn check_and_time(
        &mut self,
        operation: &Operation,
        kernel: &Kernel,
        measurement: &mut Measurement,
    ) -> Result<Outcome, DeviceError> {
        let bytes = operation.bytes_read(kernel.dtype.bytes());
        let l2_bytes = self.device.identity().l2_bytes.unwrap_or(UNKNOWN_L2_BYTES);
        let wanted = if bytes == 0 { 1 } else { (L2_MULTIPLE * l2_bytes).div_ceil(bytes).clamp(1, MAX_SETS) };
        // One set, and half of the memory for more.
        let room = self.device.identity().memory_bytes.map_or(u64::MAX, |memory| memory / 2);
        let mut sets = wanted.min(room / bytes.max(1)).max(1) as u32;
        if self.effort == Effort::Check {
            sets = sets.min(2);
        }
        measurement.sets = sets;
        measurement.cold_l2 = u64::from(sets) * bytes >= L2_MULTIPLE * l2_bytes;
        let error = self.prepare_and_check(operation, sets)?;
        measurement.error = Some(error);
        if error > kernel.dtype.tolerance() {
            return Ok(Outcome::Wrong);
        }
        Ok(match time(self.device, &self.rules, &mut self.spent_us)? {
            Timed::Done(timing) => Outcome::Timed(timing),
            Timed::TooSlow(us) => Outcome::LeftOut(format!("one launch takes {:.1} s", us / 1e6)),
        })
    }

    /// Leaves the operation prepared; returns its largest error, on the first set and the last, where
    /// what a rotation gets wrong shows.
    fn prepare_and_check(&mut self, operation: &Operation, sets: u32) -> Result<f64, DeviceError> {
        self.device.prepare(operation, sets)?;
        let probes = probes(operation);
        let mut largest: f64 = 0.0;
        for set in if sets == 1 { vec![0] } else { vec![0, sets - 1] } {
            self.device.run(set)?;
            largest = largest.max(largest_error(&probes, &self.read(&probes)?));
        }
        Ok(largest)
    }

    fn read(&mut self, probes: &[Probe]) -> Result<Vec<Vec<f64>>, DeviceError> {
        probes.iter().map(|probe| self.device.read(probe.first, probe.expected.len())).collect()
    }
}
