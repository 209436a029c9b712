//! `kvsim calibrate gpu` as a user meets it, where there is no GPU: with a stand-in for CUDA's driver
//! that runs the real kernels on the CPU (`tests/cuda_on_cpu`), and with nothing at all.

use std::path::Path;
use std::process::{Command, Output};

fn calibrate(arguments: &[&str], libraries: &Path, environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kvsim"))
        .args(["calibrate", "gpu"])
        .args(arguments)
        .env("LD_LIBRARY_PATH", libraries)
        .env_remove("VIRTUAL_ENV")
        .env_remove("CONDA_PREFIX")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The stand-ins for the driver and, if wanted, for cuBLASLt and NCCL; None without a C++ compiler.
#[cfg(all(target_os = "linux", feature = "cuda"))]
fn stand_ins(folder: &Path, with_libraries: bool) -> Option<std::path::PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = root.join("tests/cuda_on_cpu");
    let kernels = root.join("src/calibrate/gpu/cuda/kernels");
    let compile = |source: &str, library: &str, more: &[&str]| {
        Command::new("c++")
            .args(["-std=c++17", "-O2", "-w", "-shared", "-fPIC", "-I"])
            .arg(&kernels)
            .arg(sources.join(source))
            .arg("-o")
            .arg(folder.join(library))
            .arg("-L")
            .arg(folder)
            .args(more)
            .status()
    };
    let Ok(status) = compile("libcuda.cpp", "libcuda.so.1", &["-Wl,-soname,libcuda.so.1"]) else {
        eprintln!("not tested: there is no C++ compiler (c++)");
        return None;
    };
    assert!(status.success());
    if with_libraries {
        assert!(compile("libraries.cpp", "libcublasLt.so.12", &["-l:libcuda.so.1"]).unwrap().success());
        std::fs::copy(folder.join("libcublasLt.so.12"), folder.join("libnccl.so.2")).unwrap();
    }
    Some(folder.to_owned())
}

/// The rows of the table that is printed: operation, kernel, type, right, of, error.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn rows(output: &str) -> Vec<Vec<String>> {
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
    let table = output.lines().skip_while(|line| !line.trim_start().starts_with("operation")).skip(1);
    table.take_while(|line| !line.contains(": ")).map(words).collect()
}

#[cfg(all(target_os = "linux", feature = "cuda"))]
#[test]
fn own_kernels_compute_what_they_must() {
    let dir = tempfile::tempdir().unwrap();
    let Some(libraries) = stand_ins(dir.path(), false) else { return };
    let output = calibrate(&["--check", "--backend", "cuda"], &libraries, &[]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(out.starts_with(
        "CUDA on the CPU (cuda, CUDA 12.8, kernels by shipped PTX for compute_80, no cuBLASLt)"
    ));
    for operation in ["gemm", "decode_attention", "prefill_attention", "mixed_attention", "kv_cache_write"] {
        let row = rows(&out).into_iter().find(|row| row[0] == operation && row[2] == "bfloat16");
        let row = row.unwrap_or_else(|| panic!("no {operation} in {out}"));
        assert_eq!(row[3], row[4], "{operation}: not all were right\n{out}");
    }
    assert!(out.contains("left out: gemm: no libcublasLt.so.13 or libcublasLt.so.12"), "{out}");
}

#[cfg(all(target_os = "linux", feature = "cuda"))]
#[test]
fn libraries_are_used_where_they_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let Some(libraries) = stand_ins(dir.path(), true) else { return };
    let output = calibrate(&["--check", "--backend", "cuda"], &libraries, &[("KVSIM_FAKE_GPUS", "2")]);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    assert!(out.lines().next().is_some_and(|line| line.ends_with("cuBLASLt 12.8.4, NCCL 2.27.3)")), "{out}");
    for (operation, kernel, dtype) in [
        ("gemm", "cublaslt", "bfloat16"),
        ("gemm", "cublaslt", "fp8"),
        ("nccl_all_reduce", "NCCL", "bfloat16"),
    ] {
        let row = rows(&out).into_iter().find(|row| row[..3] == [operation, kernel, dtype]);
        let row = row.unwrap_or_else(|| panic!("no {operation} of {kernel} in {dtype} in {out}"));
        assert_eq!(row[3], row[4], "{out}");
    }
}

#[cfg(all(target_os = "linux", feature = "cuda"))]
#[test]
fn drivers_that_cannot_be_used_say_why() {
    let dir = tempfile::tempdir().unwrap();
    let Some(libraries) = stand_ins(dir.path(), false) else { return };
    for (variable, value, reason) in [
        ("KVSIM_FAKE_DRIVER_VERSION", "11030", "CUDA: the driver is of CUDA 11.3; it must be 11.4 or newer"),
        ("KVSIM_FAKE_NO_DEVICE", "1", "CUDA: the driver says: no CUDA-capable device is detected"),
    ] {
        let output = calibrate(&["--backend", "cuda"], &libraries, &[(variable, value)]);
        assert_eq!(output.status.code(), Some(3));
        assert_eq!(text(&output.stderr), format!("error: no GPU was found to calibrate\n  {reason}\n"));
        assert_eq!(text(&output.stdout), "");
    }
    let output = calibrate(&["--backend", "cuda", "--device", "1"], &libraries, &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("there are 1 devices, counted from 0; there is no 1"));
}

#[test]
fn no_gpu_is_one_clear_message_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("tables");
    // Hides what this machine may have.
    let hidden =
        [("CUDA_VISIBLE_DEVICES", ""), ("VK_DRIVER_FILES", "/nowhere"), ("VK_ICD_FILENAMES", "/nowhere")];
    let output = calibrate(&["--quick", "--out", target.to_str().unwrap()], dir.path(), &hidden);
    assert_eq!(output.status.code(), Some(3));
    let err = text(&output.stderr);
    assert!(err.starts_with("error: no GPU was found to calibrate\n  CUDA: "), "{err}");
    assert!(err.contains("\n  wgpu (Vulkan, Metal, Direct3D 12): "), "{err}");
    assert!(!target.exists());
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_build_without_a_backend_names_the_command_that_adds_it() {
    let dir = tempfile::tempdir().unwrap();
    let output = calibrate(&["--backend", "cuda"], dir.path(), &[]);
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(
        text(&output.stderr),
        "error: no GPU was found to calibrate\n  CUDA: kvsim was built without it; build it in with \
         `cargo build --release --features cuda`\n"
    );
}

#[cfg(feature = "wgpu")]
#[test]
fn a_renderer_on_the_cpu_is_no_gpu_but_good_for_a_check() {
    let dir = tempfile::tempdir().unwrap();
    let list = calibrate(&["--list", "--backend", "wgpu"], dir.path(), &[]);
    let line = text(&list.stdout);
    if !line.contains("which computes on the CPU") || list.status.code() != Some(3) {
        eprintln!("not tested: there is no renderer on the CPU alone: {line}");
        return;
    }
    let output = calibrate(&["--quick", "--backend", "wgpu"], dir.path(), &[]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).contains("its times would say nothing about a GPU"));
    let output = calibrate(&["--check", "--backend", "wgpu"], dir.path(), &[]);
    let out = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{out}{}", text(&output.stderr));
    for operation in ["gemm", "decode_attention", "prefill_attention", "mixed_attention", "kv_cache_write"] {
        let row = rows(&out).into_iter().find(|row| row[0] == operation);
        let row = row.unwrap_or_else(|| panic!("no {operation} in {out}"));
        assert_eq!(row[3], row[4], "{operation}: not all were right\n{out}");
    }
}
