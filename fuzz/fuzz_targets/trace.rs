//! The lines of a trace are requests, or the first that is not says so.
#![no_main]

use std::io::Cursor;
use std::path::PathBuf;

use kvsim::workload::Workload;
use kvsim::workload::trace::{Trace, TraceConfig, TraceFormat, decompress};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let config = TraceConfig {
        path: PathBuf::new(),
        format: TraceFormat::Mooncake,
        hash_id_tokens: None,
        max_requests: None,
        rate_scale: 1.0,
    };
    let Ok(input) = decompress(Cursor::new(bytes.to_vec())) else { return };
    let Ok(mut trace) = Trace::new(input, &config) else { return };
    while let Ok(Some(arrival)) = trace.next() {
        assert!(!arrival.request.prompt.is_empty() && !arrival.request.output.is_empty());
    }
});
