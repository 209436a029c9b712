//! What the harness asks of a device.

use thiserror::Error;

use super::operation::Operation;

/// A GPU that can run the kernels. At most one operation is prepared at a time.
pub trait Device {
    fn identity(&self) -> &Identity;

    /// The kernel that would run, or why there is none.
    ///
    /// # Errors
    /// The reason, for the user.
    fn kernel(&self, operation: &Operation) -> Result<Kernel, String>;

    /// Drops what was prepared before, and makes `sets` sets of inputs, filled as `inputs` says.
    ///
    /// # Errors
    /// There is not enough memory, or the device refused.
    fn prepare(&mut self, operation: &Operation, sets: u32) -> Result<(), DeviceError>;

    /// Launches the operation once on a set and waits for it.
    ///
    /// # Errors
    /// The device refused.
    fn run(&mut self, set: u32) -> Result<(), DeviceError>;

    /// Reads `count` elements of the output of the last [`Self::run`], from element `first` on.
    ///
    /// # Errors
    /// The device refused.
    fn read(&mut self, first: u64, count: usize) -> Result<Vec<f64>, DeviceError>;

    /// Launches the operation `launches` times, on one set after the other, in one submission, and
    /// returns the microseconds that all took by the device's clock.
    ///
    /// # Errors
    /// The device refused.
    fn time_us(&mut self, launches: u32) -> Result<f64, DeviceError>;

    /// Clocks and temperature now, as far as they can be read.
    fn telemetry(&mut self) -> Telemetry;
}

/// Which device it is. Goes into the tables.
#[derive(Clone, Debug, PartialEq)]
pub struct Identity {
    /// As the driver says it.
    pub name: String,
    /// `cuda`, `vulkan`, `metal`, `dx12`.
    pub backend: String,
    pub driver: String,
    pub kind: DeviceKind,
    pub memory_bytes: Option<u64>,
    pub l2_bytes: Option<u64>,
    pub num_sms: Option<u32>,
    /// Another process computes on it.
    pub shared_with: Option<String>,
    /// How launches are timed, for the column `timing`.
    pub clock: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    Gpu,
    /// A renderer on the CPU: good to test the harness, useless as a measurement.
    Software,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// For the column `kernel`.
    pub name: String,
    pub dtype: ElementType,
}

/// How an element of an output is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    Bf16,
    F16,
    F32,
    /// Inputs of 8 bits (e4m3), output in bf16.
    Fp8,
}

impl ElementType {
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
            Self::F32 => "float32",
            Self::Fp8 => "fp8",
        }
    }

    pub fn bytes(self) -> u64 {
        match self {
            Self::Fp8 => 1,
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// The largest error of an element against f64 that is rounding and no mistake, as a share of
    /// the element's size plus the typical size of an element. Some three times what correct kernels
    /// show: sums are kept in 32 bits, probabilities and outputs are rounded to the type.
    pub fn tolerance(self) -> f64 {
        match self {
            Self::Bf16 | Self::Fp8 => 1.5e-2,
            Self::F16 => 3e-3,
            Self::F32 => 1e-4,
        }
    }
}

#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum DeviceError {
    #[error("not enough device memory ({bytes} bytes)")]
    OutOfMemory { bytes: u64 },
    #[error("{call}: {message}")]
    Call { call: String, message: String },
}

/// What a driver tells of the state of its device. Nothing where it does not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Telemetry {
    pub sm_clock_mhz: Option<u32>,
    pub memory_clock_mhz: Option<u32>,
    pub temperature_c: Option<u32>,
    pub power_w: Option<f64>,
    /// The driver's reasons for lower clocks, such as `sw_power_cap`; empty if it runs free.
    pub throttle_reasons: Vec<String>,
}
