//! An all-reduce over the GPUs of this machine by NCCL, one process driving all of them.

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use cudarc::driver::{result, sys};
use libloading::Library;

use super::driver::Buffer;
use super::library::{NCCL, function};
use super::refused;
use crate::calibrate::gpu::device::DeviceError;
use crate::calibrate::gpu::inputs::{Input, value};

type Communicator = *mut c_void;
/// Zero is success.
type Status = c_int;
type VersionFn = unsafe extern "C" fn(*mut c_int) -> Status;
type InitAllFn = unsafe extern "C" fn(*mut Communicator, c_int, *const c_int) -> Status;
type GroupFn = unsafe extern "C" fn() -> Status;
type DestroyFn = unsafe extern "C" fn(Communicator) -> Status;
type AllReduceFn = unsafe extern "C" fn(
    *const c_void,
    *mut c_void,
    usize,
    c_int,
    c_int,
    Communicator,
    sys::CUstream,
) -> Status;

/// `ncclBfloat16` and `ncclSum` of nccl.h.
const BFLOAT16: c_int = 9;
const SUM: c_int = 0;

pub(super) struct Nccl {
    init_all: InitAllFn,
    group_start: GroupFn,
    group_end: GroupFn,
    all_reduce: AllReduceFn,
    destroy: DestroyFn,
    /// Such as `2.27.3`.
    pub version: String,
    _library: Library,
}

fn done(call: &str, status: Status) -> Result<(), DeviceError> {
    if status == 0 {
        return Ok(());
    }
    Err(DeviceError::Call { call: call.to_owned(), message: format!("NCCL status {status}") })
}

impl Nccl {
    /// The library, if it is found.
    pub fn open() -> Result<Self, String> {
        let library = NCCL.open()?;
        let mut number = 0;
        // SAFETY: the types are those of nccl.h, the same since NCCL 2.
        unsafe {
            let version: VersionFn = function(&library, "ncclGetVersion")?;
            version(&raw mut number);
            Ok(Self {
                init_all: function(&library, "ncclCommInitAll")?,
                group_start: function(&library, "ncclGroupStart")?,
                group_end: function(&library, "ncclGroupEnd")?,
                all_reduce: function(&library, "ncclAllReduce")?,
                destroy: function(&library, "ncclCommDestroy")?,
                version: format!("{}.{}.{}", number / 10_000, number / 100 % 100, number % 100),
                _library: library,
            })
        }
    }
}

/// One GPU's part.
struct Rank {
    communicator: Communicator,
    context: sys::CUcontext,
    stream: sys::CUstream,
    from: Buffer,
    to: Buffer,
}

/// The measured GPU is the first rank, on the stream that is timed.
pub(super) struct AllReduce {
    nccl: Rc<Nccl>,
    ranks: Vec<Rank>,
    count: usize,
}

impl AllReduce {
    pub fn new(
        nccl: Rc<Nccl>,
        ordinal: i32,
        stream: sys::CUstream,
        num_gpus: u32,
        bytes: u64,
    ) -> Result<Self, DeviceError> {
        let others = (0..).filter(|&other| other != ordinal);
        let ordinals: Vec<i32> = std::iter::once(ordinal).chain(others).take(num_gpus as usize).collect();
        let mut communicators: Vec<Communicator> = vec![std::ptr::null_mut(); ordinals.len()];
        // SAFETY: there is room for as many communicators as there are ordinals.
        let status = unsafe {
            (nccl.init_all)(communicators.as_mut_ptr(), ordinals.len() as c_int, ordinals.as_ptr())
        };
        done("ncclCommInitAll", status)?;
        let message: Vec<u16> =
            (0..bytes / 2).map(|i| ((value(Input::Activations, i) as f32).to_bits() >> 16) as u16).collect();
        let mut made = Self { nccl, ranks: Vec::new(), count: message.len() };
        // The measured GPU last, so that its context stays current.
        for (index, (&ordinal, &communicator)) in ordinals.iter().zip(&communicators).enumerate().rev() {
            let stream = (index == 0).then_some(stream);
            made.ranks.insert(0, Rank::new(ordinal, communicator, stream, &message)?);
        }
        Ok(made)
    }

    pub fn output(&self) -> sys::CUdeviceptr {
        self.ranks[0].to.pointer
    }

    /// Puts an all-reduce on the streams of all GPUs.
    pub fn enqueue(&self) -> Result<(), DeviceError> {
        // SAFETY: buffers have `count` elements, communicators and streams live.
        unsafe {
            done("ncclGroupStart", (self.nccl.group_start)())?;
            for Rank { communicator, stream, from, to, .. } in &self.ranks {
                let (from, to) = (from.pointer as *const c_void, to.pointer as *mut c_void);
                let status =
                    (self.nccl.all_reduce)(from, to, self.count, BFLOAT16, SUM, *communicator, *stream);
                done("ncclAllReduce", status)?;
            }
            done("ncclGroupEnd", (self.nccl.group_end)())
        }
    }
}

impl Rank {
    fn new(
        ordinal: i32,
        communicator: Communicator,
        stream: Option<sys::CUstream>,
        message: &[u16],
    ) -> Result<Self, DeviceError> {
        // SAFETY: the context is retained until the process ends; the buffer has the message's size.
        unsafe {
            let device = result::device::get(ordinal).map_err(refused("opening a GPU"))?;
            let context = result::primary_ctx::retain(device).map_err(refused("opening a GPU"))?;
            result::ctx::set_current(context).map_err(refused("opening a GPU"))?;
            let stream = match stream {
                Some(stream) => stream,
                None => result::stream::create(result::stream::StreamKind::NonBlocking)
                    .map_err(refused("creating a stream"))?,
            };
            let bytes = message.len() as u64 * 2;
            let (from, to) = (Buffer::new(bytes)?, Buffer::new(bytes)?);
            result::memcpy_htod_sync(from.pointer, message).map_err(refused("copying a message"))?;
            Ok(Self { communicator, context, stream, from, to })
        }
    }
}

impl Drop for AllReduce {
    fn drop(&mut self) {
        // From the last to the first, whose context stays current.
        while let Some(rank) = self.ranks.pop() {
            // SAFETY: nothing runs any more: every use of the harness ends with a wait.
            unsafe {
                let _ = result::ctx::set_current(rank.context);
                let _ = result::stream::synchronize(rank.stream);
                (self.nccl.destroy)(rank.communicator);
            }
            // Freed here, in its own context.
            drop(rank);
        }
    }
}
