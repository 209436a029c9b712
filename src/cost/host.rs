//! What a step costs beside its kernels.
//!
//! On the GPU the kernels of a step take `gpu_scale` times what each takes alone, and between two
//! steps it waits `gpu_step_us` for inputs, launch and sampled tokens. On the CPU a step takes
//! `host_step_us` and `host_request_us` for each of its requests; asynchronous scheduling hides
//! that behind the GPU. In front of the engine a request takes `frontend_us` and
//! `frontend_token_us` for each token of its prompt: HTTP, tokenising, messages between processes.

use serde::{Deserialize, Serialize};

/// Microseconds, but for the scale.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostCoefficients {
    /// All kernels together against the sum of each alone.
    pub gpu_scale: f64,
    /// GPU time between the kernels of two steps: input copies, launch, sampled tokens.
    pub gpu_step_us: f64,
    /// Scheduling and bookkeeping, which asynchronous scheduling hides.
    pub host_step_us: f64,
    pub host_request_us: f64,
    /// From the client to the engine's queue and back, for a client on the other side of HTTP.
    #[serde(default)]
    pub frontend_us: f64,
    #[serde(default)]
    pub frontend_token_us: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Host {
    fit: HostCoefficients,
}

/// Microseconds to the nearest nanosecond.
pub(super) fn to_ns(time_us: f64) -> u64 {
    (time_us * 1e3).round() as u64
}

impl HostCoefficients {
    /// What a client waits for beside the engine.
    pub fn frontend_ns(&self, num_prompt_tokens: u32) -> u64 {
        to_ns(self.frontend_us + self.frontend_token_us * f64::from(num_prompt_tokens))
    }
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
