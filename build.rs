//! Tells the program what it was built from: `KVSIM_BUILD` is a checksum of all sources that decide what a
//! simulation comes to, so that journals of another program of the same version are not gone on with.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders and files of `src` that change no result of a sweep or a curve.
const OTHER: [&str; 6] = ["calibrate", "cli", "conformance", "main.rs", "serve", "validate"];

fn main() {
    println!("cargo:rerun-if-changed=src");
    println!("cargo:rerun-if-changed=Cargo.lock");
    let mut files = vec![PathBuf::from("Cargo.lock")];
    collect(Path::new("src"), &mut files);
    files.sort();
    // The same on every machine: paths have one separator, texts one line end.
    let mut checksum = Fnv1a::default();
    for file in files {
        file.iter().for_each(|part| checksum.add(part.to_string_lossy().as_bytes()));
        checksum.add(&fs::read(&file).unwrap_or_default());
    }
    println!("cargo:rustc-env=KVSIM_BUILD={:016x}", checksum.0);
}

/// FNV-1a of 64 bits, which needs no library here.
struct Fnv1a(u64);

impl Default for Fnv1a {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1a {
    fn add(&mut self, bytes: &[u8]) {
        for &byte in bytes.iter().filter(|&&byte| byte != b'\r') {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        if OTHER.iter().any(|other| path == Path::new("src").join(other)) {
            continue;
        }
        if path.is_dir() {
            collect(&path, files);
        } else {
            files.push(path);
        }
    }
}
