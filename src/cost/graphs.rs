//! Which steps are replayed from CUDA graphs, with how many tokens, and how much the CPU has to
//! launch for the others.
//!
//! A step in a full graph is one launch. Beside attention a piecewise graph is two for each layer: the
//! attention operator and the graph between two of them. A step without a graph launches every
//! operator from Python, and where their kernels are short the GPU waits for the CPU
//! (`CUDAGraphMode` and `CudagraphDispatcher` in vLLM).

use serde::{Deserialize, Serialize};

/// What is captured, under vLLM's names (`cudagraph_mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CudagraphMode {
    None,
    /// All but attention.
    Piecewise,
    /// Every batch whole.
    Full,
    /// Batches of decodes alone, whole.
    FullDecodeOnly,
    /// Batches of decodes whole, mixed ones all but attention.
    #[default]
    FullAndPiecewise,
}

impl CudagraphMode {
    /// As it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Piecewise => "piecewise",
            Self::Full => "full",
            Self::FullDecodeOnly => "full_decode_only",
            Self::FullAndPiecewise => "full_and_piecewise",
        }
    }
}

/// The graphs of an engine core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaGraphs {
    pub mode: CudagraphMode,
    /// Larger steps have none.
    pub max_capture_size: u32,
}

/// How a step is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launch {
    Full,
    Piecewise,
    Eager,
}

impl CudaGraphs {
    /// Every step in a graph that costs nothing to launch.
    #[cfg(test)]
    pub const FULL: Self = Self { mode: CudagraphMode::Full, max_capture_size: u32::MAX };

    pub fn launch(self, num_tokens: u32, is_decode: bool) -> Launch {
        if num_tokens > self.max_capture_size {
            return Launch::Eager;
        }
        match (self.mode, is_decode) {
            (CudagraphMode::Full, _)
            | (CudagraphMode::FullDecodeOnly | CudagraphMode::FullAndPiecewise, true) => Launch::Full,
            (CudagraphMode::Piecewise, _) | (CudagraphMode::FullAndPiecewise, false) => Launch::Piecewise,
            (CudagraphMode::None, _) | (CudagraphMode::FullDecodeOnly, false) => Launch::Eager,
        }
    }

    /// The tokens that a step is padded to: the next size that is captured, 1, 2, 4, then every 8 up to
    /// 256 and every 16 beyond (`_set_cudagraph_sizes` in vLLM's `config/vllm.py`).
    pub fn padded(self, num_tokens: u32, launch: Launch) -> u32 {
        let padded = match num_tokens {
            _ if launch == Launch::Eager => num_tokens,
            0..=2 => num_tokens,
            3..=4 => 4,
            5..=256 => num_tokens.next_multiple_of(8),
            _ => num_tokens.checked_next_multiple_of(16).unwrap_or(num_tokens),
        };
        padded.min(self.max_capture_size).max(num_tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_and_the_size_decide() {
        let launch =
            |mode, tokens, is_decode| CudaGraphs { mode, max_capture_size: 512 }.launch(tokens, is_decode);
        use CudagraphMode::{Full, FullAndPiecewise, FullDecodeOnly, None, Piecewise};
        for (mode, decode, mixed) in [
            (None, Launch::Eager, Launch::Eager),
            (Piecewise, Launch::Piecewise, Launch::Piecewise),
            (Full, Launch::Full, Launch::Full),
            (FullDecodeOnly, Launch::Full, Launch::Eager),
            (FullAndPiecewise, Launch::Full, Launch::Piecewise),
        ] {
            assert_eq!((launch(mode, 512, true), launch(mode, 512, false)), (decode, mixed), "{mode:?}");
            assert_eq!(launch(mode, 513, true), Launch::Eager);
        }
    }

    #[test]
    fn steps_are_padded_to_captured_sizes() {
        let graphs = CudaGraphs { mode: CudagraphMode::default(), max_capture_size: 300 };
        for (tokens, padded) in
            [(1, 1), (2, 2), (3, 4), (5, 8), (9, 16), (250, 256), (257, 272), (289, 300), (300, 300)]
        {
            assert_eq!(graphs.padded(tokens, Launch::Full), padded);
        }
        assert_eq!(graphs.padded(301, Launch::Eager), 301);
        assert_eq!(graphs.padded(9, Launch::Eager), 9);
    }
}
