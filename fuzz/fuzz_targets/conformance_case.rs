//! A case file is run or refused with an error.
#![no_main]

use kvsim::conformance::{Case, CaseRequest, run_case};
use libfuzzer_sys::fuzz_target;

/// What is accepted is run only up to this size, so that many are tried.
const MAX_TOKENS: u64 = 2_000;
const MAX_BLOCKS: u32 = 1 << 12;

fuzz_target!(|text: &str| {
    let Ok(case) = Case::parse(text) else { return };
    let tokens = |request: &CaseRequest| {
        let output = request.output.len().max(request.max_tokens.min(case.config.max_model_len));
        u64::from(request.prompt.len()) + u64::from(output)
    };
    if case.requests.iter().map(tokens).sum::<u64>() <= MAX_TOKENS && case.config.num_gpu_blocks <= MAX_BLOCKS
    {
        let _ = run_case(&case);
    }
});
