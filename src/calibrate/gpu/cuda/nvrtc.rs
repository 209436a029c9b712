//! NVIDIA's run-time compiler.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};

use libloading::Library;

use super::library::{NVRTC, function};

type Program = *mut c_void;
/// Zero is success. Newer libraries may return what an enumeration of today does not have.
type Status = c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> Status;
type Text = unsafe extern "C" fn(Program, *mut c_char) -> Status;
type Create = unsafe extern "C" fn(
    *mut Program,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> Status;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> Status;
type Destroy = unsafe extern "C" fn(*mut Program) -> Status;
type Version = unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status;

const SUCCESS: Status = 0;

pub(super) struct Compiler {
    create: Create,
    compile: Compile,
    destroy: Destroy,
    ptx: (Size, Text),
    log: (Size, Text),
    /// Such as `12.9`.
    pub version: String,
    /// Keeps the functions valid.
    _library: Library,
}

impl Compiler {
    /// The compiler, if one is found.
    pub fn open() -> Result<Self, String> {
        let library = NVRTC.open()?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the types are those of nvrtc.h, the same since CUDA 8.
        unsafe {
            let version: Version = function(&library, "nvrtcVersion")?;
            version(&raw mut major, &raw mut minor);
            Ok(Self {
                create: function(&library, "nvrtcCreateProgram")?,
                compile: function(&library, "nvrtcCompileProgram")?,
                destroy: function(&library, "nvrtcDestroyProgram")?,
                ptx: (function(&library, "nvrtcGetPTXSize")?, function(&library, "nvrtcGetPTX")?),
                log: (
                    function(&library, "nvrtcGetProgramLogSize")?,
                    function(&library, "nvrtcGetProgramLog")?,
                ),
                version: format!("{major}.{minor}"),
                _library: library,
            })
        }
    }

    /// PTX of a source for an architecture, such as `compute_90`.
    ///
    /// # Errors
    /// The compiler's log.
    pub fn compile(&self, source: &str, architecture: &str) -> Result<CString, String> {
        let source = CString::new(source).map_err(|error| error.to_string())?;
        let option = CString::new(format!("--gpu-architecture={architecture}"));
        let option = option.map_err(|error| error.to_string())?;
        let mut program: Program = null_mut();
        // SAFETY: all pointers outlive the calls, and the program is destroyed once.
        unsafe {
            let created =
                (self.create)(&raw mut program, source.as_ptr(), c"kvsim.cu".as_ptr(), 0, null(), null());
            if created != SUCCESS {
                return Err(format!("NVRTC status {created}"));
            }
            let compiled = (self.compile)(program, 1, &raw const *[option.as_ptr()].as_ptr());
            let text = if compiled == SUCCESS { self.ptx } else { self.log };
            let text = read_text(program, text);
            (self.destroy)(&raw mut program);
            let text = text?;
            if compiled == SUCCESS {
                Ok(text)
            } else {
                Err(format!("NVRTC status {compiled}: {}", text.to_string_lossy()))
            }
        }
    }
}

unsafe fn read_text(program: Program, (size, text): (Size, Text)) -> Result<CString, String> {
    let mut bytes = 0;
    // SAFETY: the program lives, and the buffer has the size that the library asks for.
    unsafe {
        let result = size(program, &raw mut bytes);
        if result != SUCCESS {
            return Err(format!("NVRTC status {result}"));
        }
        let mut buffer = vec![0_u8; bytes.max(1)];
        let result = text(program, buffer.as_mut_ptr().cast());
        if result != SUCCESS {
            return Err(format!("NVRTC status {result}"));
        }
        let text = CStr::from_bytes_until_nul(&buffer).map_err(|error| error.to_string())?;
        Ok(text.to_owned())
    }
}
