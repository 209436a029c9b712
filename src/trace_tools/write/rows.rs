//! Writes the formats of others, one line a request; their readers in `workload/trace` describe them.

use std::fmt::{self, Write as _};
use std::io::Write;

use jiff::Timestamp;
use rustc_hash::FxHashMap;

use super::hash_ids::HashIdMaker;
use super::{Keeps, PromptsKept, RowWriter};
use crate::trace_tools::TraceError;
use crate::units::SimTime;
use crate::workload::trace::{TraceFormat, TraceRequest, TraceTokens};

/// Those of vLLM's blocks, so that what prompts share is as fine as there.
const DYNAMO_BLOCK_TOKENS: u32 = 16;
const NS_PER_MS: u64 = 1_000_000;

/// What a format other than kvsim's own keeps; `None` for one that is not written.
pub(super) fn keeps(format: TraceFormat) -> Option<Keeps> {
    let lengths = Keeps {
        time_unit_ns: 1,
        counts_from_first: false,
        prompts: PromptsKept::Length,
        sessions: false,
        think_times: false,
        rest: false,
    };
    let hash_ids = |id_tokens| Keeps { prompts: PromptsKept::HashIds(id_tokens), ..lengths };
    Some(match format {
        TraceFormat::Mooncake => Keeps { time_unit_ns: NS_PER_MS, ..hash_ids(512) },
        TraceFormat::QwenBailian => Keeps { sessions: true, ..hash_ids(16) },
        TraceFormat::Dynamo => Keeps {
            time_unit_ns: NS_PER_MS,
            counts_from_first: true,
            sessions: true,
            ..hash_ids(DYNAMO_BLOCK_TOKENS)
        },
        TraceFormat::Aiperf => Keeps { sessions: true, think_times: true, ..hash_ids(512) },
        TraceFormat::PrefixBlocks => hash_ids(16),
        TraceFormat::Azure => Keeps { time_unit_ns: 100, counts_from_first: true, ..lengths },
        TraceFormat::Burstgpt => Keeps { counts_from_first: true, sessions: true, ..lengths },
        _ => return None,
    })
}

pub(super) struct Rows<W> {
    format: TraceFormat,
    keeps: Keeps,
    out: W,
    hash_ids: Option<HashIdMaker>,
    num_requests: u64,
    /// The last chat of each session.
    last_chats: FxHashMap<u64, u64>,
    row: String,
}

impl<W: Write> Rows<W> {
    pub fn new(format: TraceFormat, keeps: Keeps, mut out: W) -> Result<Self, TraceError> {
        let columns = match format {
            TraceFormat::Azure => "TIMESTAMP,ContextTokens,GeneratedTokens\n",
            TraceFormat::Burstgpt => {
                "Timestamp,Session ID,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
            }
            TraceFormat::PrefixBlocks => "arrival_s,input_len,output_len,prefix_block_ids\n",
            _ => "",
        };
        out.write_all(columns.as_bytes())?;
        let hash_ids = match keeps.prompts {
            PromptsKept::HashIds(id_tokens) => Some(HashIdMaker::new(id_tokens)),
            PromptsKept::Tokens | PromptsKept::Length => None,
        };
        Ok(Self {
            format,
            keeps,
            out,
            hash_ids,
            num_requests: 0,
            last_chats: FxHashMap::default(),
            row: String::new(),
        })
    }

    /// The time of a request, in whole units of the format.
    fn time(&self, request: &TraceRequest) -> Result<Option<SimTime>, TraceError> {
        let unit = self.keeps.time_unit_ns;
        match request.at.map(SimTime::as_ns) {
            Some(ns) => Ok(Some(SimTime((ns / unit + u64::from(ns % unit >= unit.div_ceil(2))) * unit))),
            None if self.format == TraceFormat::Aiperf => Ok(None),
            None => {
                let name = self.format.name();
                Err(TraceError::Lacks {
                    line: request.line,
                    problem: format!("a request without a time, which each row of {name} has"),
                    instead:
                        "take `--to kvsim` or `--to aiperf`, which can do without, or a trace with times"
                            .into(),
                })
            }
        }
    }
}

impl<W: Write> RowWriter for Rows<W> {
    fn write(&mut self, request: &TraceRequest) -> Result<(), TraceError> {
        let at = self.time(request)?;
        let at_or_start = at.unwrap_or_default();
        let (input, output) = (request.prompt.len(), request.output.len());
        let ids = match (&mut self.hash_ids, &request.prompt) {
            (None, _) => &[],
            (Some(hash_ids), TraceTokens::Known(prompt)) => hash_ids.ids(prompt, &request.extras)?,
            (Some(_), TraceTokens::Length(_)) => {
                let name = self.format.name();
                return Err(TraceError::Lacks {
                    line: request.line,
                    problem: format!(
                        "a prompt of which only the length is known, while {name} tells what prompts share"
                    ),
                    instead:
                        "take `--to kvsim`, `azure` or `burstgpt`, or make up what they share: `kvsim trace \
                              generate` with a scenario that has this trace and `reuse`"
                            .into(),
                });
            }
        };
        let chat = self.num_requests;
        self.num_requests += 1;
        self.row.clear();
        let row = &mut self.row;
        // Writing to a string cannot fail.
        let _ = match self.format {
            TraceFormat::Mooncake => writeln!(
                row,
                "{{\"timestamp\": {}, \"input_length\": {input}, \"output_length\": {output}, \"hash_ids\": {ids:?}}}",
                Ms(at_or_start)
            ),
            TraceFormat::QwenBailian => {
                let parent = request.session.and_then(|session| self.last_chats.insert(session, chat));
                let parent = parent.map_or("-1".to_owned(), |parent| parent.to_string());
                writeln!(
                    row,
                    "{{\"chat_id\": {chat}, \"parent_chat_id\": {parent}, \"timestamp\": {}, \"input_length\": \
                     {input}, \"output_length\": {output}, \"type\": \"text\", \"turn\": {}, \"hash_ids\": {ids:?}}}",
                    Seconds(at_or_start),
                    u64::from(request.turn) + 1
                )
            }
            TraceFormat::Dynamo => {
                // An answer takes no time: how long it took is the server's business, not the trace's.
                let at = Ms(at_or_start);
                let _ = write!(
                    row,
                    "{{\"schema\": \"dynamo.request.trace.v1\", \"event_type\": \"request_end\", \
                     \"event_time_unix_ms\": {at}, \"event_source\": \"kvsim\", "
                );
                if let Some(session) = request.session {
                    let _ = write!(row, "\"agent_context\": {{\"session_id\": \"{session}\"}}, ");
                }
                writeln!(
                    row,
                    "\"request\": {{\"request_id\": \"{chat}\", \"model\": \"unknown\", \"input_tokens\": {input}, \
                     \"output_tokens\": {output}, \"request_received_ms\": {at}, \"total_time_ms\": 0, \"replay\": \
                     {{\"trace_block_size\": {DYNAMO_BLOCK_TOKENS}, \"input_length\": {input}, \
                     \"input_sequence_hashes\": {ids:?}}}}}}}"
                )
            }
            TraceFormat::Aiperf => {
                row.push('{');
                if let Some(at) = at {
                    let _ = write!(row, "\"timestamp\": {}, ", Ms(at));
                } else if let Some(think_time) = request.think_time {
                    let _ = write!(row, "\"delay\": {}, ", Ms(think_time));
                }
                if let Some(session) = request.session {
                    let _ = write!(row, "\"session_id\": \"{session}\", ");
                }
                writeln!(
                    row,
                    "\"input_length\": {input}, \"output_length\": {output}, \"hash_ids\": {ids:?}}}"
                )
            }
            TraceFormat::PrefixBlocks => {
                let _ = write!(row, "{},{input},{output},", Seconds(at_or_start));
                for (index, id) in ids.iter().enumerate() {
                    let space = if index > 0 { " " } else { "" };
                    let _ = write!(row, "{space}{id}");
                }
                writeln!(row)
            }
            TraceFormat::Azure => {
                let date = Timestamp::from_nanosecond(i128::from(at_or_start.as_ns())).unwrap_or_default();
                writeln!(row, "{},{input},{output}", date.strftime("%Y-%m-%d %H:%M:%S.%7f"))
            }
            _ => {
                let session = request.session.map_or(String::new(), |session| session.to_string());
                let kind = if request.session.is_some() { "Conversation log" } else { "API log" };
                let total = u64::from(input) + u64::from(output);
                writeln!(row, "{},{session},unknown,{input},{output},{total},{kind}", Seconds(at_or_start))
            }
        };
        self.out.write_all(self.row.as_bytes())?;
        Ok(())
    }

    fn finish(&mut self) -> Result<(), TraceError> {
        Ok(self.out.flush()?)
    }
}

/// Exact, with as many decimals as needed.
struct Decimal {
    ns: u64,
    unit_ns: u64,
    digits: usize,
}

struct Seconds(SimTime);
struct Ms(SimTime);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.ns / self.unit_ns)?;
        let fraction = self.ns % self.unit_ns;
        if fraction == 0 {
            return Ok(());
        }
        let digits = format!("{fraction:0width$}", width = self.digits);
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Decimal { ns: self.0.as_ns(), unit_ns: 1_000_000_000, digits: 9 }.fmt(f)
    }
}

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Decimal { ns: self.0.as_ns(), unit_ns: NS_PER_MS, digits: 6 }.fmt(f)
    }
}
