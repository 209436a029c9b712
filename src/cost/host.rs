//! What a step costs beside its kernels.

use super::law::law;

law! {
    /// Step overhead. No kernel table holds it, so what is built in was set on other runs: the first
    /// two numbers on recorded vLLM 0.19 servings on RTX PRO 6000 and RTX 4090, the last two are
    /// those that BLIS fitted to vLLM 0.15.1 on H100.
    pub struct HostLaw[] {
        /// All kernels together against the sum of each alone.
        gpu_scale = 1.04 in [0.5, 3.0] else 1.04,
        /// GPU time between the kernels of two steps: input copies, launch, sampled tokens.
        gpu_step_us = 200.0 in [0.0, 100000.0] else 200.0,
        /// Scheduling and bookkeeping, which asynchronous scheduling hides.
        host_step_us = 126.0 in [0.0, 100000.0] else 126.0,
        host_request_us = 4.4 in [0.0, 10000.0] else 4.4,
    }
}

impl Default for HostLaw {
    fn default() -> Self {
        Self::neutral()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Host {
    law: HostLaw,
}

/// Microseconds to the nearest nanosecond.
pub(super) fn to_ns(time_us: f64) -> u64 {
    (time_us * 1e3).round() as u64
}

impl Host {
    pub fn new(law: HostLaw) -> Self {
        Self { law }
    }

    /// Kernel time as it is within a step: neighbours compete for clocks and bandwidth.
    pub fn kernels_ns(&self, time_us: f64) -> u64 {
        to_ns(time_us * self.law.gpu_scale)
    }

    /// GPU time of a step outside kernels.
    pub fn gpu_step_ns(&self) -> u64 {
        to_ns(self.law.gpu_step_us)
    }

    /// Scheduling, input preparation and output handling on the CPU.
    pub fn host_ns(&self, num_requests: u32) -> u64 {
        to_ns(self.law.host_step_us + self.law.host_request_us * f64::from(num_requests))
    }
}
