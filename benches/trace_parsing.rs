//! How fast traces are read: 1 GB of JSON lines, made here, through the readers of Mooncake's and of
//! kvsim's own format, beside serde_json into an untyped value in the same run. One core; nothing is
//! kept but the row.
//!
//! Prints MB/s (millions of bytes) of processor time, where Linux tells that, so that what else the
//! machine does counts less; and the process's peak memory so far.

use std::hint::black_box;
use std::io::{self, Read};
use std::time::Instant;

use kvsim::workload::trace::{KvsimHeader, KvsimWriter, ReadOptions, TraceInput, open};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const TOTAL_BYTES: usize = 1_000_000_000;
/// So much is made and read again and again: making it must not be what is measured.
const PIECE_BYTES: usize = 50_000_000;

/// The same lines again and again, up to a number of bytes, behind a first line.
struct Repeated {
    first: Vec<u8>,
    piece: Vec<u8>,
    at: usize,
    left: usize,
}

impl Read for Repeated {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if !self.first.is_empty() {
            let len = self.first.as_slice().read(out)?;
            self.first.drain(..len);
            return Ok(len);
        }
        if self.at == self.piece.len() {
            self.at = 0;
        }
        let end = self.piece.len().min(self.at + self.left);
        let len = (&self.piece[self.at..end]).read(out)?;
        self.at += len;
        self.left -= len;
        Ok(len)
    }
}

/// Rows as in the recorded conversation trace: two dozen hash ids, most of them of five or six digits.
/// All have one time, so that they can be repeated.
fn mooncake() -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut text = Vec::with_capacity(PIECE_BYTES + 4096);
    while text.len() < PIECE_BYTES {
        let input_length = rng.random_range(200..24_000_u32);
        let first = rng.random_range(0..180_000_u32);
        let ids: Vec<String> = (0..input_length.div_ceil(512))
            .map(|index| if index == 0 { 0 } else { first + index }.to_string())
            .collect();
        let output_length = rng.random_range(1..800_u32);
        let row = format!(
            "{{\"timestamp\": 27482, \"input_length\": {input_length}, \"output_length\": {output_length}, \
             \"hash_ids\": [{}]}}\n",
            ids.join(", ")
        );
        text.extend_from_slice(row.as_bytes());
    }
    text
}

/// The same requests in kvsim's own format, without the first line.
fn kvsim(mooncake: &[u8]) -> Vec<u8> {
    let input = TraceInput::new(io::Cursor::new(mooncake.to_vec())).expect("it lies in memory");
    let (_, mut reader) = open(input, &ReadOptions::default()).expect("it is Mooncake's format");
    let mut writer = KvsimWriter::new(Vec::new(), &KvsimHeader::default()).expect("it lies in memory");
    while let Some(mut request) = reader.next_request().expect("the rows are good") {
        request.session = Some(request.line % 1000);
        writer.write(&request).expect("it lies in memory");
    }
    let text = writer.finish().expect("it lies in memory");
    let first_line = text.iter().position(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    text[first_line..].to_vec()
}

fn repeated(first: &[u8], piece: &[u8]) -> Repeated {
    Repeated {
        first: first.to_vec(),
        piece: piece.to_vec(),
        at: 0,
        left: TOTAL_BYTES / piece.len() * piece.len(),
    }
}

/// Processor time of this thread; the time that has passed where that is not known.
fn now_s() -> f64 {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let passed = START.get_or_init(Instant::now).elapsed().as_secs_f64();
    let on_cpu = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    on_cpu.and_then(|text| text.split(' ').next()?.parse::<f64>().ok()).map_or(passed, |ns| ns / 1e9)
}

fn report(name: &str, bytes: usize, rows: u64, started_s: f64) {
    let seconds = now_s() - started_s;
    let peak = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = peak.lines().find_map(|line| line.strip_prefix("VmHWM:")).map_or("unknown", str::trim);
    println!(
        "{name:<44} {:>6.0} MB/s, {:>5.2} million rows/s, peak memory {peak}",
        bytes as f64 / 1e6 / seconds,
        rows as f64 / 1e6 / seconds
    );
}

fn read(name: &str, first: &[u8], piece: &[u8]) {
    let source = repeated(first, piece);
    let bytes = source.left;
    let started_s = now_s();
    let input = TraceInput::new(source).expect("it lies in memory");
    let (_, mut reader) = open(input, &ReadOptions::default()).expect("its format is known");
    let mut rows = 0;
    while let Some(request) = reader.next_request().expect("the rows are good") {
        black_box(&request);
        rows += 1;
    }
    report(name, bytes, rows, started_s);
}

fn read_untyped(name: &str, piece: &[u8]) {
    let source = repeated(b"", piece);
    let bytes = source.left;
    let started_s = now_s();
    let mut input = io::BufReader::with_capacity(256 * 1024, source);
    let (mut line, mut rows) = (Vec::new(), 0);
    while io::BufRead::read_until(&mut input, b'\n', &mut line).expect("it lies in memory") > 0 {
        let value: serde_json::Value = serde_json::from_slice(&line).expect("the rows are good");
        black_box(&value);
        line.clear();
        rows += 1;
    }
    report(name, bytes, rows, started_s);
}

fn main() {
    // `cargo test` runs benches too, with this option; there is nothing to measure then.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }
    let mooncake = mooncake();
    read("Mooncake", b"", &mooncake);
    read_untyped("Mooncake, serde_json into an untyped value", &mooncake);
    let kvsim = kvsim(&mooncake);
    drop(mooncake);
    read("kvsim", b"{\"kvsim_trace\": 1}\n", &kvsim);
    read_untyped("kvsim, serde_json into an untyped value", &kvsim);
}
