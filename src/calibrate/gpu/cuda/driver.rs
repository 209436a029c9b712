//! The few things of CUDA's driver that the harness uses, owned and freed.

use std::ffi::c_void;

use cudarc::driver::{result, sys};

use super::refused;
use crate::calibrate::gpu::device::DeviceError;

/// Device memory. The context that it was allocated in lives as long as the process.
pub(super) struct Buffer {
    pub pointer: sys::CUdeviceptr,
}

impl Buffer {
    pub fn new(bytes: u64) -> Result<Self, DeviceError> {
        let size = usize::try_from(bytes.max(16)).unwrap_or(usize::MAX);
        // SAFETY: a context is current; the memory is freed once, by `drop`.
        match unsafe { result::malloc_sync(size) } {
            Ok(pointer) => Ok(Self { pointer }),
            Err(result::DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                Err(DeviceError::OutOfMemory { bytes })
            }
            Err(error) => Err(refused("allocating")(error)),
        }
    }

    /// A buffer with these words in it.
    pub fn of_words(words: &[u32]) -> Result<Self, DeviceError> {
        let buffer = Self::new(words.len() as u64 * 4)?;
        // SAFETY: the buffer has this size.
        unsafe { result::memcpy_htod_sync(buffer.pointer, words) }.map_err(refused("copying a table"))?;
        Ok(buffer)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`. An error of an earlier launch may show again; nothing to do.
        let _ = unsafe { result::free_sync(self.pointer) };
    }
}

/// Memory of the host that copies start or end in.
pub(super) enum HostMemory {
    Pinned { pointer: *mut c_void, bytes: usize },
    Pageable(Vec<u8>),
}

impl HostMemory {
    pub fn new(bytes: usize, pinned: bool) -> Result<Self, DeviceError> {
        if !pinned {
            return Ok(Self::Pageable(vec![0; bytes]));
        }
        // SAFETY: a context is current; freed once, by `drop`.
        let pointer = unsafe { result::malloc_host(bytes, 0) }.map_err(refused("pinning host memory"))?;
        Ok(Self::Pinned { pointer, bytes })
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: so many bytes were allocated, and none is written while this is borrowed.
            Self::Pinned { pointer, bytes } => unsafe {
                std::slice::from_raw_parts(pointer.cast_const().cast(), *bytes)
            },
            Self::Pageable(content) => content,
        }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: as above, and it is borrowed alone.
            Self::Pinned { pointer, bytes } => unsafe {
                std::slice::from_raw_parts_mut(pointer.cast(), *bytes)
            },
            Self::Pageable(content) => content,
        }
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        if let Self::Pinned { pointer, .. } = self {
            // SAFETY: allocated by `new`.
            let _ = unsafe { result::free_host(*pointer) };
        }
    }
}

/// A stream with two events around what is timed.
pub(super) struct Timer {
    pub stream: sys::CUstream,
    start: sys::CUevent,
    end: sys::CUevent,
}

impl Timer {
    pub fn new() -> Result<Self, DeviceError> {
        let event = || {
            result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).map_err(refused("creating an event"))
        };
        let stream = result::stream::create(result::stream::StreamKind::NonBlocking);
        Ok(Self { stream: stream.map_err(refused("creating a stream"))?, start: event()?, end: event()? })
    }

    /// The microseconds that the work takes which `enqueue` puts on the stream.
    pub fn time_us(
        &self,
        enqueue: impl FnOnce(sys::CUstream) -> Result<(), DeviceError>,
    ) -> Result<f64, DeviceError> {
        // SAFETY: stream and events live as long as the process.
        unsafe {
            result::event::record(self.start, self.stream).map_err(refused("recording an event"))?;
            enqueue(self.stream)?;
            result::event::record(self.end, self.stream).map_err(refused("recording an event"))?;
            result::event::synchronize(self.end).map_err(refused("running a kernel"))?;
            let ms = result::event::elapsed(self.start, self.end).map_err(refused("reading the clock"))?;
            Ok(f64::from(ms) * 1e3)
        }
    }

    pub fn wait(&self) -> Result<(), DeviceError> {
        // SAFETY: as above.
        unsafe { result::stream::synchronize(self.stream) }.map_err(refused("running a kernel"))
    }
}

/// Work that was recorded, to be launched as a whole.
pub(super) struct Graph {
    graph: sys::CUgraph,
    exec: sys::CUgraphExec,
}

impl Graph {
    /// Records what `enqueue` puts on the stream, and brings it to the device.
    pub fn capture(
        stream: sys::CUstream,
        enqueue: impl FnOnce(sys::CUstream) -> Result<(), DeviceError>,
    ) -> Result<Self, DeviceError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream lives; each handle is destroyed once, by `drop`.
        unsafe {
            result::stream::begin_capture(stream, mode).map_err(refused("recording a graph"))?;
            let enqueued = enqueue(stream);
            // Ends also what failed, or the stream would stay in capture mode.
            let graph = result::stream::end_capture(stream).map_err(refused("recording a graph"));
            enqueued?;
            let graph = graph?;
            let exec = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags_enum(0));
            let exec = exec.map_err(|error| {
                let _ = result::graph::destroy(graph);
                refused("making a graph")(error)
            })?;
            let made = Self { graph, exec };
            result::graph::upload(exec, stream).map_err(refused("making a graph"))?;
            result::stream::synchronize(stream).map_err(refused("making a graph"))?;
            Ok(made)
        }
    }

    pub fn launch(&self, stream: sys::CUstream) -> Result<(), DeviceError> {
        // SAFETY: both live.
        unsafe { result::graph::launch(self.exec, stream) }.map_err(refused("launching a graph"))
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: made by `capture`, and nobody else has them.
        unsafe {
            let _ = result::graph::exec_destroy(self.exec);
            let _ = result::graph::destroy(self.graph);
        }
    }
}
