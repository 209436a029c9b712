//! What a step costs beside its kernels.
//!
//! On the GPU the kernels of a step take `gpu_scale` times what each takes alone, and
//! `prefill_scale` times in steps of so many tokens that arithmetic limits them and clocks drop.
//! Expert layers take `moe_scale` times that (served tokens choose other experts than a benchmark's)
//! and collectives `comms_scale` times (a server fuses them with the norms beside them). Between two
//! steps the GPU waits `gpu_step_us` for inputs, launch and sampled tokens. The CPU launches an
//! operator in `launch_us`; a step that is not in a CUDA graph takes at least as long as all of its
//! launches. On the CPU a step takes `host_step_us` and `host_request_us` for each of its requests;
//! asynchronous scheduling hides that behind the GPU. A step that is scheduled synchronously takes
//! `sync_step_us` and `sync_request_us` instead, with the GPU idle: messages to the workers, their
//! inputs and the way of the sampled tokens back are in it too. In front of the engine a request takes
//! `frontend_us` and `frontend_user_us` for each user whose tokens the same thread of the client reads: HTTP,
//! messages between processes, detokenising. Requests that come together are passed on one after the
//! other: the API server's event loop and its tokenising thread take `frontend_request_us` for each and
//! `frontend_token_us` for each token of its prompt. So of users who send at the same moment one is
//! served first, and they drift apart round by round.

use super::law::law;

law! {
    /// Step overhead, which no kernel table holds. What a profile does not say is about what
    /// `kvsim calibrate bench` found on the GPUs with end-to-end results. `host_step_us` and
    /// `host_request_us`, which asynchronous scheduling hides, are those that BLIS fitted to vLLM 0.15.1 on
    /// H100; the two of synchronous scheduling are what vLLM 0.12 took on H100, the one GPU with such results.
    #[serde(default)]
    pub struct HostLaw[] {
        /// All kernels together against the sum of each alone.
        gpu_scale = 1.0 in [0.5, 3.0] else 1.0,
        /// The same in steps of many tokens.
        prefill_scale = 1.08 in [0.5, 3.0] else 1.08,
        /// Expert layers against the other kernels.
        moe_scale = 1.0 in [0.2, 3.0] else 1.0,
        /// Collectives against the other kernels.
        comms_scale = 1.0 in [0.2, 3.0] else 1.0,
        /// GPU time between the kernels of two steps: input copies, launch, sampled tokens.
        gpu_step_us = 200.0 in [0.0, 100000.0] else 200.0,
        /// From one operator to the next on the CPU, Python and dispatch included.
        launch_us = 50.0 in [0.0, 1000.0] else 50.0,
        /// Scheduling and bookkeeping, which asynchronous scheduling hides.
        host_step_us = 126.0 in [0.0, 100000.0] else 126.0,
        host_request_us = 4.4 in [0.0, 10000.0] else 4.4,
        /// All that the GPU waits for between two synchronous steps.
        sync_step_us = 3000.0 in [0.0, 100000.0] else 3000.0,
        sync_request_us = 45.0 in [0.0, 10000.0] else 45.0,
        /// From the client to the engine's queue and back, for a client on the other side of HTTP.
        frontend_us = 8500.0 in [0.0, 1000000.0] else 8500.0,
        /// One request after another: what the server does before the engine knows of it.
        frontend_request_us = 1000.0 in [0.0, 1000000.0] else 1000.0,
        frontend_token_us = 1.0 in [0.0, 1000.0] else 1.0,
        /// Of each user whose tokens the same thread of the client reads.
        frontend_user_us = 200.0 in [0.0, 100000.0] else 200.0,
    }
}

/// Half of the way from one scale to the other: about where bf16 products become bound by
/// arithmetic on datacentre GPUs.
const PREFILL_TOKENS: f64 = 512.0;

impl Default for HostLaw {
    fn default() -> Self {
        Self::neutral()
    }
}

impl HostLaw {
    /// With what synchronous scheduling takes of the CPU.
    pub fn synchronous(self) -> Self {
        Self { host_step_us: self.sync_step_us, host_request_us: self.sync_request_us, ..self }
    }

    /// What a client waits for on average beside the engine and the requests of others, where one
    /// of its threads serves so many users at the same time.
    pub fn frontend_latency_ns(&self, num_users: u32) -> u64 {
        to_ns(self.frontend_us + self.frontend_user_us * f64::from(num_users))
    }

    /// How long the front end is busy with one request before the engine has it.
    pub fn frontend_busy_ns(&self, num_prompt_tokens: u32) -> u64 {
        to_ns(self.frontend_request_us + self.frontend_token_us * f64::from(num_prompt_tokens))
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

/// What takes how much longer within a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernels {
    Experts,
    Collectives,
    Others,
}

impl Host {
    pub fn new(law: HostLaw) -> Self {
        Self { law }
    }

    /// Kernel time as it is within a step of so many tokens: neighbours compete for clocks and
    /// bandwidth.
    pub fn kernels_ns(&self, kernels: Kernels, time_us: f64, num_tokens: u32) -> u64 {
        let tokens = f64::from(num_tokens);
        let share = tokens / (tokens + PREFILL_TOKENS);
        let scale = self.law.gpu_scale + (self.law.prefill_scale - self.law.gpu_scale) * share;
        let own = match kernels {
            Kernels::Experts => self.law.moe_scale,
            Kernels::Collectives => self.law.comms_scale,
            Kernels::Others => 1.0,
        };
        to_ns(time_us * scale * own)
    }

    /// GPU time of a step outside kernels, over all stages of a pipeline.
    pub fn gpu_step_ns(&self, num_stages: u32) -> u64 {
        to_ns(self.law.gpu_step_us * f64::from(num_stages))
    }

    /// What the CPU takes to launch so many operators.
    pub fn launches_ns(&self, num_launches: f64) -> u64 {
        to_ns(self.law.launch_us * num_launches)
    }

    /// Scheduling, input preparation and output handling on the CPU.
    pub fn host_ns(&self, num_requests: u32) -> u64 {
        to_ns(self.law.host_step_us + self.law.host_request_us * f64::from(num_requests))
    }
}
