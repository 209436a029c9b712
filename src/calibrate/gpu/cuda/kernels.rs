//! Our kernels in CUDA C: compiled for the device at hand by NVRTC where that is found, else as they
//! come along in PTX, which the driver compiles.

use std::collections::HashMap;
use std::ffi::CString;
use std::io::Read;

use cudarc::driver::{result, sys};
use flate2::read::GzDecoder;

use super::nvrtc::Compiler;
use super::refused;
use crate::calibrate::gpu::device::DeviceError;

/// One source, since the parts use each other.
pub(super) const SOURCE: &str = concat!(
    include_str!("kernels/instructions.cu"),
    include_str!("kernels/fill.cu"),
    include_str!("kernels/gemm.cu"),
    include_str!("kernels/attention.cu"),
);

/// `SOURCE` compiled for compute capability 8.0, the oldest with bf16, in the PTX of CUDA 12.1: a
/// driver refuses PTX that is newer than itself. Its first line has the source's checksum.
const PTX_GZ: &[u8] = include_bytes!("ptx/sm_80.ptx.gz");

const NAMES: [&str; 12] = [
    "fill_words",
    "fill_bf16",
    "fill_fp8",
    "quantise_fp8",
    "nothing",
    "gemm_wide",
    "gemm_narrow",
    "add_parts",
    "kv_cache_write",
    "attention_16",
    "attention_64",
    "combine_attention",
];

pub(super) struct Kernels {
    functions: HashMap<&'static str, sys::CUfunction>,
    /// Where the code comes from, for the report.
    pub origin: String,
}

impl Kernels {
    /// Loads them into the current context. `compute_capability` is that of the device times ten.
    pub fn load(compute_capability: u32) -> Result<Self, DeviceError> {
        if let Ok(compiler) = Compiler::open() {
            let architecture = format!("compute_{compute_capability}");
            let compiled = compiler.compile(SOURCE, &architecture).ok();
            // A driver older than the compiler refuses what it made.
            if let Some(functions) = compiled.and_then(|ptx| functions_of(&ptx).ok()) {
                let origin = format!("NVRTC {} for {architecture}", compiler.version);
                return Ok(Self { functions, origin });
            }
        }
        Ok(Self {
            functions: functions_of(&shipped_ptx()?)?,
            origin: "shipped PTX for compute_80".to_owned(),
        })
    }

    pub fn get(&self, name: &str) -> Result<sys::CUfunction, DeviceError> {
        self.functions.get(name).copied().ok_or_else(|| DeviceError::Call {
            call: "looking for a kernel".to_owned(),
            message: format!("there is no {name}"),
        })
    }
}

fn functions_of(ptx: &CString) -> Result<HashMap<&'static str, sys::CUfunction>, DeviceError> {
    // SAFETY: the text ends with a zero; the module lives as long as the process.
    let module =
        unsafe { result::module::load_data(ptx.as_ptr().cast()) }.map_err(refused("loading kernels"))?;
    let get = |name: &'static str| {
        let c_name = CString::new(name).unwrap_or_default();
        // SAFETY: the module was loaded above.
        let function = unsafe { result::module::get_function(module, c_name) };
        function.map(|function| (name, function)).map_err(refused("looking for a kernel"))
    };
    NAMES.into_iter().map(get).collect()
}

fn shipped_ptx() -> Result<CString, DeviceError> {
    let mut text = Vec::new();
    let unpacked = GzDecoder::new(PTX_GZ).read_to_end(&mut text);
    unpacked
        .map_err(|error| error.to_string())
        .and_then(|_| CString::new(text).map_err(|e| e.to_string()))
        .map_err(|message| DeviceError::Call { call: "unpacking the shipped kernels".to_owned(), message })
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use flate2::Compression;
    use flate2::write::GzEncoder;
    use sha2::{Digest, Sha256};

    use super::*;

    fn first_line() -> String {
        let digest: String = Sha256::digest(SOURCE).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("// kvsim's kernels, from the CUDA C with the SHA-256 {digest}\n")
    }

    #[test]
    fn the_shipped_ptx_was_made_from_these_sources() {
        let ptx = shipped_ptx().unwrap().into_string().unwrap();
        assert!(
            ptx.starts_with(&first_line()),
            "the kernels have changed: make the PTX again as docs/calibration.md says"
        );
        assert!(ptx.contains(".version 8.1\n.target sm_80\n"));
        for name in NAMES {
            assert!(ptx.contains(&format!(".entry {name}(")), "{name}");
        }
    }

    /// The compiler, or why this is not tested.
    fn compiler() -> Option<Compiler> {
        Compiler::open().inspect_err(|error| eprintln!("not tested: {error}")).ok()
    }

    #[test]
    fn the_kernels_compile_for_every_generation() {
        let Some(compiler) = compiler() else { return };
        // Ampere, Hopper, Blackwell; the oldest compilers do not know the newest.
        let known = if compiler.version == "12.1" { &["80", "90"][..] } else { &["80", "90", "100"] };
        for generation in known {
            let ptx = compiler.compile(SOURCE, &format!("compute_{generation}")).unwrap();
            let ptx = ptx.into_string().unwrap();
            assert!(ptx.contains(&format!(".target sm_{generation}\n")));
            // No register spilled into memory by dynamic indices.
            assert!(!ptx.contains(".local"), "compute_{generation} uses local memory");
            for name in NAMES {
                assert!(ptx.contains(&format!(".entry {name}(")), "{name}");
            }
        }
        assert!(compiler.compile("this is no CUDA C", "compute_80").unwrap_err().contains("kvsim.cu(1)"));
    }

    #[test]
    #[ignore = "writes src/calibrate/gpu/cuda/ptx; needs the NVRTC of CUDA 12.1"]
    fn write_the_shipped_ptx() {
        let compiler = Compiler::open().unwrap();
        assert_eq!(compiler.version, "12.1");
        let ptx = compiler.compile(SOURCE, "compute_80").unwrap().into_string().unwrap();
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/calibrate/gpu/cuda/ptx/sm_80.ptx.gz");
        let file = std::fs::File::create(path).unwrap();
        let mut encoder = GzEncoder::new(file, Compression::best());
        encoder.write_all(format!("{}{ptx}", first_line()).as_bytes()).unwrap();
        encoder.finish().unwrap();
    }
}
