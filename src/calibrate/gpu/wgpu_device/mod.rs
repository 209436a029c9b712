//! GPUs of every maker through wgpu: kernels in WGSL, without matrix units, which WGSL lacks.

mod context;
mod prepare;

use self::context::Context;
use self::prepare::{OutputElement, Set};
use super::device::{Device, DeviceError, DeviceKind, ElementType, Identity, Kernel, Telemetry};
use super::operation::{GemmFormat, Operation};

/// Shared memory that the attention kernel needs: tiles of queries, keys and weights.
const ATTENTION_SHARED_BYTES: u32 = 16 * 33 * 4 + 32 * 33 * 4;
const ATTENTION_SHARED_WORDS: u32 = 16 * 32 + 32 + 3 * 16;

pub(super) struct WgpuDevice {
    identity: Identity,
    context: Context,
    sets: Vec<Set>,
    /// The set of the last run.
    last: usize,
    /// The set that the next timed launch uses.
    next: usize,
}

/// The adapters that compute, hardware first.
fn adapters() -> Vec<wgpu::Adapter> {
    // OpenGL has neither clock nor f16, and would show Vulkan's devices again.
    let backends = wgpu::Backends::PRIMARY;
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = backends;
    let instance = wgpu::Instance::new(descriptor);
    let mut adapters = pollster::block_on(instance.enumerate_adapters(backends));
    adapters.sort_by_key(|adapter| match adapter.get_info().device_type {
        wgpu::DeviceType::DiscreteGpu => 0,
        wgpu::DeviceType::IntegratedGpu | wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => 1,
        wgpu::DeviceType::Cpu => 2,
    });
    adapters
}

pub(super) fn list() -> Result<Vec<Identity>, String> {
    let found: Vec<Identity> = adapters().iter().map(|adapter| identity(adapter, "")).collect();
    if found.is_empty() { Err("no adapter; is the GPU's driver installed?".to_owned()) } else { Ok(found) }
}

fn identity(adapter: &wgpu::Adapter, clock: &'static str) -> Identity {
    let info = adapter.get_info();
    Identity {
        name: info.name,
        backend: info.backend.to_string(),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        kind: if info.device_type == wgpu::DeviceType::Cpu { DeviceKind::Software } else { DeviceKind::Gpu },
        // None of these can be asked for.
        memory_bytes: None,
        l2_bytes: None,
        num_sms: None,
        shared_with: None,
        clock,
    }
}

impl WgpuDevice {
    pub fn open(index: usize) -> Result<Self, String> {
        let adapters = adapters();
        let adapter = adapters.get(index).ok_or("the adapter is gone")?;
        let context = Context::new(adapter)?;
        let identity = identity(adapter, context.clock());
        Ok(Self { identity, context, sets: Vec::new(), last: 0, next: 0 })
    }
}

impl Device for WgpuDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn kernel(&self, operation: &Operation) -> Result<Kernel, String> {
        let dtype = if self.context.f16 { ElementType::F16 } else { ElementType::F32 };
        let (name, dtype) = match operation {
            Operation::Gemm { format: GemmFormat::Fp8, .. } => {
                return Err("WGSL has no 8-bit floats".to_owned());
            }
            Operation::AllReduce { .. } => return Err("wgpu has no collectives".to_owned()),
            Operation::GraphReplay { .. } => return Err("wgpu has no graphs".to_owned()),
            Operation::HostCopy { pinned: false, .. } => {
                return Err("wgpu copies from host memory of its own only, which is pinned".to_owned());
            }
            Operation::Attention(_) => {
                let words =
                    ATTENTION_SHARED_BYTES * self.context.element_bytes() as u32 + 4 * ATTENTION_SHARED_WORDS;
                let most = self.context.limits.max_compute_workgroup_storage_size;
                if words > most {
                    return Err(format!("it needs {words} bytes of shared memory, and there are {most}"));
                }
                ("kvsim_wgsl_attention", dtype)
            }
            Operation::Gemm { .. } => ("kvsim_wgsl_gemm", dtype),
            Operation::KvCacheWrite { .. } => ("kvsim_wgsl_kv_cache_write", dtype),
            Operation::DeviceCopy { .. } => ("kvsim_wgsl_copy", ElementType::F32),
            Operation::HostCopy { .. } => ("wgpu_copy_buffer_to_buffer", ElementType::F32),
            Operation::Launch => ("kvsim_wgsl_nothing", ElementType::F32),
        };
        Ok(Kernel { name: name.to_owned(), dtype })
    }

    fn prepare(&mut self, operation: &Operation, sets: u32) -> Result<(), DeviceError> {
        // The old buffers go before there are new ones.
        self.sets.clear();
        (self.last, self.next) = (0, 0);
        self.sets = self.context.sets_of(operation, sets)?;
        self.context.check("making buffers")
    }

    fn run(&mut self, set: u32) -> Result<(), DeviceError> {
        self.last = set as usize;
        self.context.submit(self.sets[self.last].steps.iter()).map(|_| ())
    }

    fn read(&mut self, first: u64, count: usize) -> Result<Vec<f64>, DeviceError> {
        let Some(output) = &self.sets[self.last].output else { return Ok(Vec::new()) };
        let size = if output.element == OutputElement::F16 { 2 } else { 4 };
        let bytes = self.context.read(&output.buffer, first * size as u64, count * size)?;
        Ok(bytes
            .chunks_exact(size)
            .map(|bytes| match (output.element, bytes) {
                (OutputElement::F16, &[a, b]) => f16_to_f64(u16::from_le_bytes([a, b])),
                (OutputElement::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
                (OutputElement::Word, &[a, b, c, d]) => f64::from(u32::from_le_bytes([a, b, c, d])),
                _ => f64::NAN,
            })
            .collect())
    }

    fn time_us(&mut self, launches: u32) -> Result<f64, DeviceError> {
        let launches = launches as usize;
        let sets = self.sets.iter().cycle().skip(self.next).take(launches);
        self.next = (self.next + launches) % self.sets.len().max(1);
        self.context.submit(sets.flat_map(|set| set.steps.iter()))
    }

    fn telemetry(&mut self) -> Telemetry {
        Telemetry::default()
    }
}

fn f16_to_f64(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1F), f64::from(bits & 0x3FF) / 1024.0);
    let size = match exponent {
        0 => fraction * 2f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1.0 + fraction) * 2f64.powi(exponent - 15),
    };
    if bits >> 15 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::f16_to_f64;

    #[test]
    fn f16_is_read_as_ieee_754_says() {
        assert_eq!(f16_to_f64(0x3C00), 1.0);
        assert_eq!(f16_to_f64(0xC500), -5.0);
        assert_eq!(f16_to_f64(0x0001), 2f64.powi(-24));
        assert_eq!(f16_to_f64(0x7BFF), 65504.0);
        assert_eq!(f16_to_f64(0xFC00), f64::NEG_INFINITY);
        assert!(f16_to_f64(0x7E00).is_nan());
    }
}
