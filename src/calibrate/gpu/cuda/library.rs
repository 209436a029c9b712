//! CUDA's libraries beside the driver, looked for when they are needed: where the system's loader
//! looks, and in Python environments, where PyTorch brings them along.
//!
//! cudarc finds such libraries too, but under names that leave out NCCL's and those of CUDA 13, and it
//! panics where a function is missing.

use std::path::PathBuf;

use libloading::Library;

/// A library: the names of its files without `lib` and `.so`, and the folder of its Python package.
pub(super) struct Name {
    pub file: &'static str,
    /// Newest first.
    pub versions: &'static [u32],
}

pub(super) const NVRTC: Name = Name { file: "nvrtc", versions: &[13, 12] };
pub(super) const CUBLAS_LT: Name = Name { file: "cublasLt", versions: &[13, 12] };
pub(super) const NCCL: Name = Name { file: "nccl", versions: &[2] };

impl Name {
    /// Opens the first that is found; the message names what was looked for.
    pub fn open(&self) -> Result<Library, String> {
        let names: Vec<String> = if cfg!(windows) {
            self.versions.iter().map(|version| format!("{}64_{version}.dll", self.file)).collect()
        } else {
            self.versions.iter().map(|version| format!("lib{}.so.{version}", self.file)).collect()
        };
        let folders = python_folders();
        for name in &names {
            let inside = folders.iter().map(|folder| folder.join(name)).filter(|path| path.exists());
            for path in std::iter::once(PathBuf::from(name)).chain(inside) {
                // SAFETY: these are the vendor's libraries; loading them runs their initialisers.
                if let Ok(library) = unsafe { Library::new(&path) } {
                    return Ok(library);
                }
            }
        }
        Err(format!("no {} on the loader's path or in the active Python environment", names.join(" or ")))
    }
}

/// Folders of libraries in the active Python environment, if there is one:
/// `lib/python3.*/site-packages/nvidia/*/lib`.
fn python_folders() -> Vec<PathBuf> {
    let roots = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(std::env::var_os).map(PathBuf::from);
    let children = |folder: PathBuf| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        paths.sort();
        paths
    };
    roots
        .flat_map(|root| children(root.join("lib")))
        .flat_map(|python| children(python.join("site-packages").join("nvidia")))
        .map(|package| package.join("lib"))
        .collect()
}

/// A function of a library, or the message that it is missing.
///
/// # Safety
/// `F` must be the function's type.
pub(super) unsafe fn function<F: Copy>(library: &Library, name: &str) -> Result<F, String> {
    // SAFETY: the caller's promise.
    let symbol = unsafe { library.get::<F>(name.as_bytes()) };
    symbol.map(|symbol| *symbol).map_err(|_| format!("the library has no {name}; it is too old"))
}
