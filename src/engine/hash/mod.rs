//! Block hashes, bit-exact with vLLM.
