//! The formats, and how to tell which one a file is in.

use serde::{Deserialize, Serialize};

use super::aiperf::{self, AiPerf};
use super::azure::{self, Azure};
use super::burstgpt::{self, BurstGpt};
use super::dynamo::{self, Dynamo};
use super::head::Head;
use super::in_order::InOrder;
use super::input::TraceInput;
use super::kvsim::{self, Kvsim};
use super::mooncake::{self, Mooncake};
use super::openai_chat::{self, OpenAiChat};
use super::prefix_blocks::{self, PrefixBlocks};
use super::qwen_bailian::{self, QwenBailian};
use super::skip_bad_rows::SkipBadRows;
use super::vllm_bench::{self, VllmBench};
use super::{ReadOptions, TraceReader, sharegpt, vllm_multi_turn};
use crate::units::SimTime;
use crate::workload::WorkloadError;

/// A format that can be read. Its name in scenarios is the variant's in snake case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TraceFormat {
    /// kvsim's own JSON lines, which can say everything.
    Kvsim,
    /// JSON lines of Qwen on Bailian: times, lengths, sessions and prefix hash ids.
    QwenBailian,
    /// Request traces of NVIDIA Dynamo.
    Dynamo,
    /// Traces of AIPerf.
    Aiperf,
    /// JSON lines of Mooncake: times, lengths and prefix hash ids.
    Mooncake,
    /// Results of `vllm bench serve`: times and lengths.
    VllmBench,
    /// Conversations of ShareGPT.
    Sharegpt,
    /// Conversations of vLLM's multi-turn benchmark.
    VllmMultiTurn,
    /// Logs of chat completions.
    OpenaiChat,
    /// CSV of Azure: times and lengths.
    Azure,
    /// CSV of BurstGPT: times and lengths.
    Burstgpt,
    /// CSV of measured requests: times, lengths and the blocks of prompts.
    PrefixBlocks,
}

impl TraceFormat {
    /// In the order in which a file's beginning is compared with them: the more special before the
    /// more general.
    pub const ALL: [Self; 12] = [
        Self::Kvsim,
        Self::QwenBailian,
        Self::Dynamo,
        Self::Aiperf,
        Self::Mooncake,
        Self::VllmBench,
        Self::Sharegpt,
        Self::VllmMultiTurn,
        Self::OpenaiChat,
        Self::Azure,
        Self::Burstgpt,
        Self::PrefixBlocks,
    ];

    /// The name that `format` in a scenario takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kvsim => "kvsim",
            Self::QwenBailian => "qwen_bailian",
            Self::Dynamo => "dynamo",
            Self::Aiperf => "aiperf",
            Self::Mooncake => "mooncake",
            Self::VllmBench => "vllm_bench",
            Self::Sharegpt => "sharegpt",
            Self::VllmMultiTurn => "vllm_multi_turn",
            Self::OpenaiChat => "openai_chat",
            Self::Azure => "azure",
            Self::Burstgpt => "burstgpt",
            Self::PrefixBlocks => "prefix_blocks",
        }
    }

    /// Whether the format never tells what prompts share, so that `reuse` has to.
    pub const fn has_lengths_only(self) -> bool {
        matches!(self, Self::Azure | Self::Burstgpt | Self::VllmBench)
    }

    /// Whether each request has its time, so that none is due when an answer ends.
    pub(super) const fn has_every_time(self) -> bool {
        matches!(
            self,
            Self::QwenBailian
                | Self::Dynamo
                | Self::Mooncake
                | Self::Azure
                | Self::Burstgpt
                | Self::PrefixBlocks
        )
    }

    /// Whether times are those of a clock, of which the first counts as the start.
    const fn has_clock_times(self) -> bool {
        matches!(self, Self::Azure | Self::Burstgpt | Self::VllmBench | Self::OpenaiChat | Self::Dynamo)
    }

    /// Logs are written when answers end, and answers may take this long.
    const fn sort_window(self) -> SimTime {
        match self {
            Self::OpenaiChat | Self::Dynamo => SimTime::from_ms(600_000),
            _ => SimTime::ZERO,
        }
    }

    fn matches(self, head: &Head) -> bool {
        match self {
            Self::Kvsim => kvsim::matches(head),
            Self::QwenBailian => qwen_bailian::matches(head),
            Self::Dynamo => dynamo::matches(head),
            Self::Aiperf => aiperf::matches(head),
            Self::Mooncake => mooncake::matches(head),
            Self::VllmBench => vllm_bench::matches(head),
            Self::Sharegpt => sharegpt::matches(head),
            Self::VllmMultiTurn => vllm_multi_turn::matches(head),
            Self::OpenaiChat => openai_chat::matches(head),
            Self::Azure => azure::matches(head),
            Self::Burstgpt => burstgpt::matches(head),
            Self::PrefixBlocks => prefix_blocks::matches(head),
        }
    }

    fn reader(self, input: TraceInput, options: &ReadOptions) -> Result<Box<dyn TraceReader>, WorkloadError> {
        Ok(match self {
            Self::Kvsim => Box::new(Kvsim::new(input)?),
            Self::QwenBailian => Box::new(QwenBailian::new(input, options)),
            Self::Dynamo => Box::new(Dynamo::new(input)),
            Self::Aiperf => Box::new(AiPerf::new(input, options)),
            Self::Mooncake => Box::new(Mooncake::new(input, options)),
            Self::VllmBench => Box::new(VllmBench::new(input)?),
            Self::Sharegpt => Box::new(sharegpt::reader(input, options)),
            Self::VllmMultiTurn => Box::new(vllm_multi_turn::reader(input, options)),
            Self::OpenaiChat => Box::new(OpenAiChat::new(input, options)),
            Self::Azure => Box::new(Azure::new(input)?),
            Self::Burstgpt => Box::new(BurstGpt::new(input)?),
            Self::PrefixBlocks => Box::new(PrefixBlocks::new(input, options)?),
        })
    }
}

/// Opens a trace in the format of the options, or else in the one that its beginning looks like. Its
/// requests come in the order of time, counted from the start of the trace.
///
/// # Errors
/// It cannot be read, or its format cannot be told.
pub fn open(
    mut input: TraceInput,
    options: &ReadOptions,
) -> Result<(TraceFormat, Box<dyn TraceReader>), WorkloadError> {
    if let Some(trace) = input.shared() {
        return Ok((trace.format(), Box::new(trace.reader())));
    }
    let format = match options.format {
        Some(format) => format,
        None => detect(&input.head()?.ok_or(WorkloadError::Empty)?)?,
    };
    let reader = format.reader(input, options)?;
    let window = options.sort_window.unwrap_or(format.sort_window());
    let reader = Box::new(InOrder::new(reader, window, format.has_clock_times()));
    Ok((format, if options.skip_bad_rows { Box::new(SkipBadRows::new(reader)) } else { reader }))
}

fn detect(head: &Head) -> Result<TraceFormat, WorkloadError> {
    TraceFormat::ALL.into_iter().find(|format| format.matches(head)).ok_or_else(|| {
        let names: Vec<&str> = TraceFormat::ALL.into_iter().map(TraceFormat::name).collect();
        WorkloadError::UnknownFormat { found: head.describe(), formats: names.join(", ") }
    })
}
