//! A part of an operation, and how it gets onto a stream.

use std::rc::Rc;

use cudarc::driver::{result, sys};

use super::all_reduce::AllReduce;
use super::cublaslt::Plan;
use super::driver::{Graph, HostMemory};
use super::{CudaDevice, refused};
use crate::calibrate::gpu::device::DeviceError;

/// A part of an operation.
pub(super) enum Step {
    /// Arguments as the kernel takes them, each in the lower bytes of a word.
    Kernel {
        function: sys::CUfunction,
        grid: [u32; 3],
        threads: u32,
        arguments: Vec<u64>,
    },
    Product {
        plan: Plan,
        activations: sys::CUdeviceptr,
        weights: sys::CUdeviceptr,
        output: sys::CUdeviceptr,
    },
    DeviceCopy {
        from: sys::CUdeviceptr,
        to: sys::CUdeviceptr,
        bytes: usize,
    },
    Upload {
        from: Rc<HostMemory>,
        to: sys::CUdeviceptr,
    },
    Download {
        from: sys::CUdeviceptr,
        to: *mut u8,
        bytes: usize,
    },
    Graph(Rc<Graph>),
    AllReduce(Rc<AllReduce>),
}

impl Step {
    /// What is timed launch by launch: copies over the host link, which vLLM puts on a stream, and what
    /// measures launching itself.
    pub fn stays_out_of_graphs(&self) -> bool {
        match self {
            Self::Upload { .. } | Self::Download { .. } | Self::Graph(_) | Self::AllReduce(_) => true,
            Self::Kernel { arguments, .. } => arguments.is_empty(),
            Self::Product { .. } | Self::DeviceCopy { .. } => false,
        }
    }

    /// Puts the step on a stream.
    pub fn enqueue(&self, device: &CudaDevice, stream: sys::CUstream) -> Result<(), DeviceError> {
        // SAFETY: the set that the step belongs to owns what it points to, with the sizes it names.
        unsafe {
            match self {
                Self::Kernel { function, grid: [x, y, z], threads, arguments } => {
                    let mut values = arguments.clone();
                    let mut pointers: Vec<_> =
                        values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
                    result::launch_kernel(*function, (*x, *y, *z), (*threads, 1, 1), 0, stream, &mut pointers)
                        .map_err(refused("launching a kernel"))
                }
                Self::Product { plan, activations, weights, output } => match &device.cublaslt {
                    Ok(cublaslt) => cublaslt.enqueue(plan, *activations, *weights, *output, stream),
                    Err(message) => {
                        Err(DeviceError::Call { call: "cuBLASLt".to_owned(), message: message.clone() })
                    }
                },
                Self::DeviceCopy { from, to, bytes } => {
                    result::memcpy_dtod_async(*to, *from, *bytes, stream).map_err(refused("copying"))
                }
                Self::Upload { from, to } => {
                    result::memcpy_htod_async(*to, from.bytes(), stream).map_err(refused("copying"))
                }
                Self::Download { from, to, bytes } => {
                    let to = std::slice::from_raw_parts_mut(*to, *bytes);
                    result::memcpy_dtoh_async(to, *from, stream).map_err(refused("copying"))
                }
                Self::Graph(graph) => graph.launch(stream),
                Self::AllReduce(all_reduce) => all_reduce.enqueue(),
            }
        }
    }
}
