//! What a step costs beside its kernels.

use super::coefficients::HostCoefficients;

#[derive(Clone, Debug)]
pub(super) struct Host {
    fit: HostCoefficients,
}

/// Microseconds to the nearest nanosecond.
pub(super) fn to_ns(time_us: f64) -> u64 {
    (time_us * 1e3).round() as u64
}

impl Host {
    pub fn new(fit: HostCoefficients) -> Self {
        Self { fit }
    }

    /// Kernel time as it is within a step: neighbours compete for clocks and bandwidth.
    pub fn kernels_ns(&self, time_us: f64) -> u64 {
        to_ns(time_us * self.fit.gpu_scale)
    }

    /// GPU time of a step outside kernels.
    pub fn gpu_step_ns(&self) -> u64 {
        to_ns(self.fit.gpu_step_us)
    }

    /// Scheduling, input preparation and output handling on the CPU.
    pub fn host_ns(&self, num_requests: u32) -> u64 {
        to_ns(self.fit.host_step_us + self.fit.host_request_us * f64::from(num_requests))
    }
}
