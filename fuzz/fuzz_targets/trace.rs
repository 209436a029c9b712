//! A trace, in whatever format it looks like, is requests, or the first row that is none says so.
#![no_main]

use std::io::Cursor;

use kvsim::workload::Workload;
use kvsim::workload::trace::{ReuseConfig, Trace, TraceArrivals, TraceConfig, TraceInput};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(input) = TraceInput::new(Cursor::new(bytes.to_vec())) else { return };
    let config = TraceConfig {
        // For formats that record lengths only.
        reuse: Some(ReuseConfig::None),
        // And for those without times, every other input.
        arrivals: if bytes.len() % 2 == 0 { TraceArrivals::Recorded } else { TraceArrivals::Concurrency(2) },
        ..TraceConfig::new("trace")
    };
    let Ok(mut trace) = Trace::new(input, &config, None, 1) else { return };
    while let Ok(Some(arrival)) = trace.next() {
        assert!(!arrival.request.prompt.is_empty() && !arrival.request.output.is_empty());
        trace.finished(arrival.request.index, arrival.at);
    }
});
