//! vLLM's engine core for one replica: pure and deterministic.
//!
//! Mirrors vLLM 0.33.0. Names are vLLM's; a comment names the file and function whose behaviour is
//! mirrored. The engine knows nothing of cost, files or threads.

pub mod hash;
