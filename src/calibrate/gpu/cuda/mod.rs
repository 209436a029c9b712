//! NVIDIA GPUs through CUDA's driver, which is found at run time.

mod all_reduce;
mod cublaslt;
mod driver;
mod kernels;
mod library;
mod monitor;
mod nvrtc;
mod prepare;
mod step;

use std::rc::Rc;

use cudarc::driver::{result, sys};

use self::all_reduce::Nccl;
use self::cublaslt::CublasLt;
use self::driver::{Graph, Timer};
use self::kernels::Kernels;
use self::monitor::Monitor;
use self::prepare::{Output, Set};
use super::device::{Device, DeviceError, DeviceKind, ElementType, Identity, Kernel, Telemetry};
use super::operation::{GemmFormat, Operation};

/// CUDA 11.4: the oldest driver with every function that is called (`cuGraphInstantiateWithFlags`).
/// cudarc would panic over a missing one.
const OLDEST_DRIVER: i32 = 11_040;
/// Tensor cores multiply bf16 since Ampere, 8-bit floats since Ada.
const OLDEST_COMPUTE_CAPABILITY: u32 = 80;
const FP8_COMPUTE_CAPABILITY: u32 = 89;

pub(super) struct CudaDevice {
    identity: Identity,
    ordinal: i32,
    compute_capability: u32,
    kernels: Kernels,
    /// Or why there is none.
    cublaslt: Result<CublasLt, String>,
    nccl: Result<Rc<Nccl>, String>,
    num_gpus: u32,
    timer: Timer,
    monitor: Monitor,
    sets: Vec<Set>,
    /// The set of the last run.
    last: usize,
    /// The set that the next timed launch uses.
    next: usize,
}

/// An error of the driver in the harness's words.
fn refused(call: &'static str) -> impl Fn(result::DriverError) -> DeviceError {
    move |error| {
        let text = error.error_string().map(|text| text.to_string_lossy().into_owned());
        DeviceError::Call {
            call: call.to_owned(),
            message: text.unwrap_or_else(|_| format!("{:?}", error.0)),
        }
    }
}

/// Loads the driver; the message says what is missing.
fn load_driver() -> Result<i32, String> {
    // SAFETY: looks for the library, and runs its initialisers.
    if !unsafe { sys::is_culib_present() } {
        return Err("no NVIDIA driver (libcuda.so.1, nvcuda.dll) was found".to_owned());
    }
    let failed = |error: result::DriverError| match error.error_string() {
        Ok(text) => format!("the driver says: {}", text.to_string_lossy()),
        Err(_) => format!("the driver says: {:?}", error.0),
    };
    result::init().map_err(failed)?;
    let mut version = 0;
    // SAFETY: the pointer is valid for the call.
    unsafe { sys::cuDriverGetVersion(&raw mut version) }.result().map_err(failed)?;
    if version < OLDEST_DRIVER {
        return Err(format!("the driver is of CUDA {}; it must be 11.4 or newer", version_text(version)));
    }
    Ok(version)
}

fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

pub(super) fn list() -> Result<Vec<Identity>, String> {
    let version = load_driver()?;
    let count = result::device::get_count().map_err(|error| refused("counting GPUs")(error).to_string())?;
    (0..count)
        .map(|ordinal| identity(ordinal, version).map(|(identity, _)| identity).map_err(|e| e.to_string()))
        .collect()
}

/// The device's identity and compute capability.
fn identity(ordinal: i32, driver_version: i32) -> Result<(Identity, u32), DeviceError> {
    use sys::CUdevice_attribute as Attribute;
    let failed = refused("asking for a GPU's properties");
    let device = result::device::get(ordinal).map_err(&failed)?;
    let attribute = |wanted: Attribute| -> Result<u32, DeviceError> {
        // SAFETY: the device is one of the driver's.
        let value = unsafe { result::device::get_attribute(device, wanted) }.map_err(&failed)?;
        Ok(u32::try_from(value).unwrap_or(0))
    };
    let compute_capability = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? * 10
        + attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    // SAFETY: as above.
    let memory_bytes = unsafe { result::device::total_mem(device) }.map_err(&failed)?;
    let identity = Identity {
        name: result::device::get_name(device).map_err(&failed)?,
        backend: "cuda".to_owned(),
        driver: format!("CUDA {}", version_text(driver_version)),
        kind: DeviceKind::Gpu,
        memory_bytes: Some(memory_bytes as u64),
        l2_bytes: Some(u64::from(attribute(Attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)?)),
        num_sms: Some(attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?),
        shared_with: None,
        clock: "cuda events around a graph",
    };
    Ok((identity, compute_capability))
}

fn pci_bus_id(ordinal: i32) -> Option<String> {
    let device = result::device::get(ordinal).ok()?;
    let mut text = [0_u8; 32];
    // SAFETY: the buffer has the size that is passed.
    let status = unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), 32, device) };
    status.result().ok()?;
    Some(std::ffi::CStr::from_bytes_until_nul(&text).ok()?.to_string_lossy().into_owned())
}

impl CudaDevice {
    pub fn open(index: usize) -> Result<Self, String> {
        let version = load_driver()?;
        let ordinal = i32::try_from(index).unwrap_or(i32::MAX);
        Self::on(ordinal, version).map_err(|error| error.to_string())
    }

    fn on(ordinal: i32, version: i32) -> Result<Self, DeviceError> {
        let (mut identity, compute_capability) = identity(ordinal, version)?;
        if compute_capability < OLDEST_COMPUTE_CAPABILITY {
            return Err(DeviceError::Call {
                call: format!("{} has compute capability {compute_capability}", identity.name),
                message: "the kernels need 80 (Ampere) or newer; try --backend wgpu".to_owned(),
            });
        }
        let monitor = Monitor::new(pci_bus_id(ordinal));
        identity.shared_with = monitor.others();
        // SAFETY: the context is retained until the process ends.
        unsafe {
            let device = result::device::get(ordinal).map_err(refused("opening a GPU"))?;
            let context = result::primary_ctx::retain(device).map_err(refused("opening a GPU"))?;
            result::ctx::set_current(context).map_err(refused("opening a GPU"))?;
        }
        let kernels = Kernels::load(compute_capability)?;
        let cublaslt = CublasLt::open();
        let products = match &cublaslt {
            Ok(cublaslt) => format!("cuBLASLt {}", cublaslt.version),
            Err(_) => "no cuBLASLt".to_owned(),
        };
        identity.driver = format!("{}, kernels by {}, {products}", identity.driver, kernels.origin);
        let nccl = Nccl::open().map(Rc::new);
        if let Ok(nccl) = &nccl {
            identity.driver = format!("{}, NCCL {}", identity.driver, nccl.version);
        }
        let num_gpus = result::device::get_count().map_err(refused("counting GPUs"))?;
        let timer = Timer::new()?;
        Ok(Self {
            nccl,
            ordinal,
            num_gpus: u32::try_from(num_gpus).unwrap_or(1),
            identity,
            compute_capability,
            kernels,
            cublaslt,
            timer,
            monitor,
            sets: Vec::new(),
            last: 0,
            next: 0,
        })
    }

    fn num_sms(&self) -> u32 {
        self.identity.num_sms.unwrap_or(1)
    }

    fn enqueue(&self, sets: std::ops::Range<usize>, stream: sys::CUstream) -> Result<(), DeviceError> {
        for set in sets {
            for step in &self.sets[set % self.sets.len()].steps {
                step.enqueue(self, stream)?;
            }
        }
        Ok(())
    }
}

impl Device for CudaDevice {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn kernel(&self, operation: &Operation) -> Result<Kernel, String> {
        let (name, dtype) = match operation {
            Operation::Gemm { format: GemmFormat::Fp8, .. } => {
                if self.compute_capability < FP8_COMPUTE_CAPABILITY {
                    return Err("the tensor cores have no 8-bit floats".to_owned());
                }
                if let Err(message) = &self.cublaslt {
                    return Err(message.clone());
                }
                ("cublaslt", ElementType::Fp8)
            }
            Operation::Gemm { .. } if self.cublaslt.is_ok() => ("cublaslt", ElementType::Bf16),
            Operation::Gemm { .. } => ("kvsim_cuda_gemm", ElementType::Bf16),
            Operation::Attention(_) => ("kvsim_cuda_attention", ElementType::Bf16),
            Operation::KvCacheWrite { .. } => ("kvsim_cuda_kv_cache_write", ElementType::Bf16),
            Operation::AllReduce { num_gpus, .. } => {
                if self.num_gpus < *num_gpus {
                    return Err(format!("it needs {num_gpus} GPUs; there are {}", self.num_gpus));
                }
                if let Err(message) = &self.nccl {
                    return Err(message.clone());
                }
                ("NCCL", ElementType::Bf16)
            }
            Operation::DeviceCopy { .. } | Operation::HostCopy { .. } => ("cuda_memcpy", ElementType::F32),
            Operation::Launch => ("kvsim_cuda_nothing", ElementType::F32),
            Operation::GraphReplay { .. } => ("cuda_graph", ElementType::F32),
        };
        Ok(Kernel { name: name.to_owned(), dtype })
    }

    fn prepare(&mut self, operation: &Operation, sets: u32) -> Result<(), DeviceError> {
        // The old buffers go before there are new ones.
        self.sets.clear();
        (self.last, self.next) = (0, 0);
        self.sets = self.sets_of(operation, sets)?;
        // Everything, since tables are copied on another stream than inputs are filled on.
        result::ctx::synchronize().map_err(refused("filling the inputs"))
    }

    fn run(&mut self, set: u32) -> Result<(), DeviceError> {
        self.last = set as usize;
        self.enqueue(self.last..self.last + 1, self.timer.stream)?;
        self.timer.wait()
    }

    fn read(&mut self, first: u64, count: usize) -> Result<Vec<f64>, DeviceError> {
        let mut bytes = vec![0_u8; count * 4];
        let of_words = |bytes: &[u8]| -> Vec<f64> {
            bytes.as_chunks::<4>().0.iter().map(|word| f64::from(u32::from_le_bytes(*word))).collect()
        };
        // SAFETY: the sets own these buffers, and probes lie inside of them.
        unsafe {
            match self.sets[self.last].output {
                Output::None => Ok(Vec::new()),
                Output::Words(pointer) => {
                    result::memcpy_dtoh_sync(&mut bytes, pointer + first * 4)
                        .map_err(refused("reading a result"))?;
                    Ok(of_words(&bytes))
                }
                Output::HostWords(pointer) => {
                    bytes.copy_from_slice(std::slice::from_raw_parts(
                        pointer.add(first as usize * 4),
                        count * 4,
                    ));
                    Ok(of_words(&bytes))
                }
                Output::Bf16(pointer) => {
                    bytes.truncate(count * 2);
                    result::memcpy_dtoh_sync(&mut bytes, pointer + first * 2)
                        .map_err(refused("reading a result"))?;
                    let halves = bytes.as_chunks::<2>().0.iter();
                    let value = |half: &[u8; 2]| f32::from_bits(u32::from(u16::from_le_bytes(*half)) << 16);
                    Ok(halves.map(|half| f64::from(value(half))).collect())
                }
            }
        }
    }

    fn time_us(&mut self, launches: u32) -> Result<f64, DeviceError> {
        let sets = self.next..self.next + launches as usize;
        self.next = sets.end % self.sets.len().max(1);
        let as_a_stream = self.sets.iter().flat_map(|set| &set.steps).any(|step| step.stays_out_of_graphs());
        if as_a_stream {
            return self.timer.time_us(|stream| self.enqueue(sets, stream));
        }
        let graph = Graph::capture(self.timer.stream, |stream| self.enqueue(sets, stream))?;
        self.timer.time_us(|stream| graph.launch(stream))
    }

    fn telemetry(&mut self) -> Telemetry {
        self.monitor.telemetry()
    }
}
