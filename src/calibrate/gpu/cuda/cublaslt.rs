//! Products by cuBLASLt, the library behind PyTorch's linear layers.

use std::ffi::c_void;

use cudarc::cublaslt::sys::{
    cublasComputeType_t, cublasLtHandle_t, cublasLtMatmulAlgo_t, cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t, cublasLtMatmulHeuristicResult_t, cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t, cublasLtMatrixLayout_t, cudaDataType,
};
use cudarc::driver::sys::{CUdeviceptr, CUstream};
use libloading::Library;

use super::driver::Buffer;
use super::library::{CUBLAS_LT, function};
use crate::calibrate::gpu::device::DeviceError;
use crate::calibrate::gpu::operation::GemmFormat;

/// What the library may use beside its inputs; PyTorch gives it as much on Hopper and newer.
const WORKSPACE_BYTES: usize = 32 << 20;

/// Zero is success. Newer libraries may return what an enumeration of today does not have.
type Status = i32;
type MatmulFn = unsafe extern "C" fn(
    cublasLtHandle_t,
    cublasLtMatmulDesc_t,
    *const c_void,
    *const c_void,
    cublasLtMatrixLayout_t,
    *const c_void,
    cublasLtMatrixLayout_t,
    *const c_void,
    *const c_void,
    cublasLtMatrixLayout_t,
    *mut c_void,
    cublasLtMatrixLayout_t,
    *const cublasLtMatmulAlgo_t,
    *mut c_void,
    usize,
    CUstream,
) -> Status;
type HeuristicFn = unsafe extern "C" fn(
    cublasLtHandle_t,
    cublasLtMatmulDesc_t,
    cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t,
    cublasLtMatrixLayout_t,
    cublasLtMatmulPreference_t,
    i32,
    *mut cublasLtMatmulHeuristicResult_t,
    *mut i32,
) -> Status;
type CreateFn = unsafe extern "C" fn(*mut cublasLtHandle_t) -> Status;
type VersionFn = unsafe extern "C" fn() -> usize;
type CreateDescFn =
    unsafe extern "C" fn(*mut cublasLtMatmulDesc_t, cublasComputeType_t, cudaDataType) -> Status;
type SetDescFn = unsafe extern "C" fn(
    cublasLtMatmulDesc_t,
    cublasLtMatmulDescAttributes_t,
    *const c_void,
    usize,
) -> Status;
type CreateLayoutFn =
    unsafe extern "C" fn(*mut cublasLtMatrixLayout_t, cudaDataType, u64, u64, i64) -> Status;
type CreatePreferenceFn = unsafe extern "C" fn(*mut cublasLtMatmulPreference_t) -> Status;
type SetPreferenceFn = unsafe extern "C" fn(
    cublasLtMatmulPreference_t,
    cublasLtMatmulPreferenceAttributes_t,
    *const c_void,
    usize,
) -> Status;

pub(super) struct CublasLt {
    handle: cublasLtHandle_t,
    matmul: MatmulFn,
    heuristic: HeuristicFn,
    create_desc: CreateDescFn,
    set_desc: SetDescFn,
    create_layout: CreateLayoutFn,
    create_preference: CreatePreferenceFn,
    set_preference: SetPreferenceFn,
    workspace: Buffer,
    /// Such as `12.8.4`.
    pub version: String,
    _library: Library,
}

/// How a product of one shape is computed. A few hundred bytes of descriptors, which live as long as
/// the process: there are as many as shapes in a plan.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    desc: cublasLtMatmulDesc_t,
    weights: cublasLtMatrixLayout_t,
    activations: cublasLtMatrixLayout_t,
    output: cublasLtMatrixLayout_t,
    algorithm: cublasLtMatmulAlgo_t,
}

fn done(call: &str, status: Status) -> Result<(), DeviceError> {
    let name = match status {
        0 => return Ok(()),
        1 => "not initialised",
        3 => "allocation failed",
        7 => "invalid value",
        8 => "architecture mismatch",
        13 => "execution failed",
        14 => "internal error",
        NOT_SUPPORTED => "not supported",
        _ => "failed",
    };
    Err(DeviceError::Call { call: call.to_owned(), message: format!("{name} (status {status})") })
}

/// CUBLAS_STATUS_NOT_SUPPORTED.
const NOT_SUPPORTED: Status = 15;

impl CublasLt {
    /// The library, if it is found, for the current context.
    pub fn open() -> Result<Self, String> {
        let library = CUBLAS_LT.open()?;
        // SAFETY: the types are those of cublasLt.h, the same since CUDA 11.
        unsafe {
            let create: CreateFn = function(&library, "cublasLtCreate")?;
            let version: VersionFn = function(&library, "cublasLtGetVersion")?;
            let mut handle: cublasLtHandle_t = std::ptr::null_mut();
            done("cublasLtCreate", create(&raw mut handle)).map_err(|error| error.to_string())?;
            let number = version();
            Ok(Self {
                handle,
                matmul: function(&library, "cublasLtMatmul")?,
                heuristic: function(&library, "cublasLtMatmulAlgoGetHeuristic")?,
                create_desc: function(&library, "cublasLtMatmulDescCreate")?,
                set_desc: function(&library, "cublasLtMatmulDescSetAttribute")?,
                create_layout: function(&library, "cublasLtMatrixLayoutCreate")?,
                create_preference: function(&library, "cublasLtMatmulPreferenceCreate")?,
                set_preference: function(&library, "cublasLtMatmulPreferenceSetAttribute")?,
                workspace: Buffer::new(WORKSPACE_BYTES as u64).map_err(|error| error.to_string())?,
                version: format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100),
                _library: library,
            })
        }
    }

    /// The library's own choice for a linear layer. It counts by columns: our row of activations is its
    /// column, and the weights are transposed.
    pub fn plan(&self, format: GemmFormat, m: u32, n: u32, k: u32) -> Result<Plan, DeviceError> {
        use cublasLtMatmulDescAttributes_t::{CUBLASLT_MATMUL_DESC_FAST_ACCUM, CUBLASLT_MATMUL_DESC_TRANSA};
        let (m, n, k) = (u64::from(m), u64::from(n), u64::from(k));
        let inputs = match format {
            GemmFormat::Bf16 => cudaDataType::CUDA_R_16BF,
            GemmFormat::Fp8 => cudaDataType::CUDA_R_8F_E4M3,
        };
        let transposed: i32 = 1;
        // As vLLM multiplies 8-bit floats on Hopper: partial sums in the tensor core's own precision.
        let fast: i8 = 1;
        // SAFETY: every descriptor is created before it is used, attributes have their type's size.
        unsafe {
            let mut desc: cublasLtMatmulDesc_t = std::ptr::null_mut();
            let compute = cublasComputeType_t::CUBLAS_COMPUTE_32F;
            let created = (self.create_desc)(&raw mut desc, compute, cudaDataType::CUDA_R_32F);
            done("cublasLtMatmulDescCreate", created)?;
            let set = (self.set_desc)(desc, CUBLASLT_MATMUL_DESC_TRANSA, (&raw const transposed).cast(), 4);
            done("cublasLtMatmulDescSetAttribute", set)?;
            if format == GemmFormat::Fp8 {
                let set = (self.set_desc)(desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, (&raw const fast).cast(), 1);
                done("cublasLtMatmulDescSetAttribute", set)?;
            }
            let weights = self.layout(inputs, k, n)?;
            let activations = self.layout(inputs, k, m)?;
            let output = self.layout(cudaDataType::CUDA_R_16BF, n, m)?;
            let mut preference: cublasLtMatmulPreference_t = std::ptr::null_mut();
            done("cublasLtMatmulPreferenceCreate", (self.create_preference)(&raw mut preference))?;
            let attribute = cublasLtMatmulPreferenceAttributes_t::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
            let most = WORKSPACE_BYTES;
            let set =
                (self.set_preference)(preference, attribute, (&raw const most).cast(), size_of::<usize>());
            done("cublasLtMatmulPreferenceSetAttribute", set)?;
            let mut found = std::mem::MaybeUninit::<cublasLtMatmulHeuristicResult_t>::zeroed();
            let mut count = 0;
            let asked = (self.heuristic)(
                self.handle,
                desc,
                weights,
                activations,
                output,
                output,
                preference,
                1,
                found.as_mut_ptr(),
                &raw mut count,
            );
            done("cublasLtMatmulAlgoGetHeuristic", asked)?;
            if count == 0 {
                done("cublasLtMatmulAlgoGetHeuristic", NOT_SUPPORTED)?;
            }
            Ok(Plan { desc, weights, activations, output, algorithm: found.assume_init().algo })
        }
    }

    fn layout(
        &self,
        kind: cudaDataType,
        rows: u64,
        columns: u64,
    ) -> Result<cublasLtMatrixLayout_t, DeviceError> {
        let mut layout: cublasLtMatrixLayout_t = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let created = unsafe { (self.create_layout)(&raw mut layout, kind, rows, columns, rows as i64) };
        done("cublasLtMatrixLayoutCreate", created).map(|()| layout)
    }

    /// Puts a product on the stream.
    pub fn enqueue(
        &self,
        plan: &Plan,
        activations: CUdeviceptr,
        weights: CUdeviceptr,
        output: CUdeviceptr,
        stream: CUstream,
    ) -> Result<(), DeviceError> {
        let (one, zero) = (1.0_f32, 0.0_f32);
        // SAFETY: the buffers have the sizes of the plan's layouts.
        let status = unsafe {
            (self.matmul)(
                self.handle,
                plan.desc,
                (&raw const one).cast(),
                weights as *const c_void,
                plan.weights,
                activations as *const c_void,
                plan.activations,
                (&raw const zero).cast(),
                output as *const c_void,
                plan.output,
                output as *mut c_void,
                plan.output,
                &raw const plan.algorithm,
                self.workspace.pointer as *mut c_void,
                WORKSPACE_BYTES,
                stream,
            )
        };
        done("cublasLtMatmul", status)
    }
}
