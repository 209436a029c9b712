//! What a format cannot say of a trace.

use std::collections::BTreeMap;

use crate::units::SimTime;
use crate::workload::trace::{KvsimHeader, TraceRequest, TraceTokens};

/// What a format keeps of a request.
#[derive(Clone, Copy, Debug)]
pub struct Keeps {
    /// Times are whole multiples of this.
    pub time_unit_ns: u64,
    /// Times are those of a clock: the first request is the start.
    pub counts_from_first: bool,
    pub prompts: PromptsKept,
    /// Sessions and turns.
    pub sessions: bool,
    /// Those of requests without a time.
    pub think_times: bool,
    /// All else: the tokens of answers, tenants, priorities and so on.
    pub rest: bool,
}

/// What a format keeps of the tokens of prompts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PromptsKept {
    Tokens,
    /// One id for so many tokens.
    HashIds(u32),
    Length,
}

impl Keeps {
    pub const EVERYTHING: Self = Self {
        time_unit_ns: 1,
        counts_from_first: false,
        prompts: PromptsKept::Tokens,
        sessions: true,
        think_times: true,
        rest: true,
    };
}

/// What was lost, counted.
#[derive(Clone, Debug)]
pub struct Losses {
    keeps: Keeps,
    counts: BTreeMap<Loss, u64>,
    answer_tokens: u64,
    first_at: Option<SimTime>,
}

/// In the order in which they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    Time,
    ThinkTime,
    Prompt,
    Answer,
    Session,
    Tenant,
    Priority,
    SkipReading,
    Salt,
    Adapter,
    Images,
    Embeddings,
    Patience,
    Note,
}

impl Losses {
    pub(super) fn new(keeps: Keeps) -> Self {
        Self { keeps, counts: BTreeMap::new(), answer_tokens: 0, first_at: None }
    }

    pub(super) fn count_header(&mut self, header: &KvsimHeader) {
        if !self.keeps.rest && !header.notes.is_empty() {
            self.counts.insert(Loss::Note, header.notes.len() as u64);
        }
        // A tenant without others tells nothing of a request, but its name is lost.
        if !self.keeps.rest && !header.tenants.is_empty() {
            self.counts.insert(Loss::Tenant, header.tenants.len() as u64);
        }
    }

    pub(super) fn count(&mut self, request: &TraceRequest) {
        let keeps = self.keeps;
        let known = |tokens: &TraceTokens| matches!(tokens, TraceTokens::Known(_));
        let extras = &request.extras;
        let lost = [
            (Loss::Time, request.at.is_some_and(|at| !at.as_ns().is_multiple_of(keeps.time_unit_ns))),
            (Loss::Prompt, keeps.prompts == PromptsKept::Length && known(&request.prompt)),
            (Loss::Session, !keeps.sessions && request.session.is_some()),
            (
                Loss::ThinkTime,
                request.think_time.is_some() && !(keeps.rest || (keeps.think_times && request.at.is_none())),
            ),
            (Loss::Answer, !keeps.rest && known(&request.output)),
            (Loss::Priority, !keeps.rest && request.priority != 0),
            (Loss::SkipReading, !keeps.rest && request.skip_reading_prefix_cache),
            (Loss::Salt, !keeps.rest && extras.cache_salt.is_some()),
            (Loss::Adapter, !keeps.rest && extras.lora.is_some()),
            (Loss::Images, !keeps.rest && !extras.mm.is_empty()),
            (Loss::Embeddings, !keeps.rest && extras.prompt_embeds.is_some()),
            (Loss::Patience, !keeps.rest && request.patience.is_some()),
        ];
        self.first_at = self.first_at.or(request.at);
        for (loss, is_lost) in lost {
            if is_lost {
                *self.counts.entry(loss).or_default() += 1;
            }
        }
        if !keeps.rest && known(&request.output) {
            self.answer_tokens += u64::from(request.output.len());
        }
    }

    /// One sentence for each lost thing, with its count.
    pub fn lines(&self) -> Vec<String> {
        let first_s =
            self.first_at.filter(|_| self.keeps.counts_from_first).unwrap_or_default().as_secs_f64();
        let start = (first_s > 0.0).then(|| format!("the {first_s} s before the first request"));
        start.into_iter().chain(self.counts.iter().map(|(&loss, &count)| self.line(loss, count))).collect()
    }

    fn line(&self, loss: Loss, count: u64) -> String {
        let apart = match self.keeps.prompts {
            PromptsKept::HashIds(_) => "; their blocks stay apart from others",
            _ => "",
        };
        let requests = format!("{count} request{}", if count == 1 { "" } else { "s" });
        match loss {
            Loss::Time => {
                let unit_ms = self.keeps.time_unit_ns as f64 / 1e6;
                format!("times finer than {unit_ms} ms: {requests}, rounded to the nearest")
            }
            Loss::ThinkTime => format!("think times: {requests}"),
            Loss::Prompt => format!("what prompts share: {requests}, only lengths are kept"),
            Loss::Answer => format!(
                "which tokens answers have: {requests} with {} tokens, only lengths are kept",
                self.answer_tokens
            ),
            Loss::Session => format!("sessions and turns: {requests}"),
            Loss::Tenant => format!("names of tenants: {count}, and which requests are theirs"),
            Loss::Priority => format!("priorities: {requests}"),
            Loss::SkipReading => format!("not to look into the prefix cache: {requests}"),
            Loss::Salt => format!("cache salts: {requests}{apart}"),
            Loss::Adapter => format!("LoRA adapters: {requests}{apart}"),
            Loss::Images => format!("images and other items: {requests}{apart}"),
            Loss::Embeddings => format!("prompt embeddings: {requests}{apart}"),
            Loss::Patience => format!("patience: {requests}"),
            Loss::Note => format!("notes on how the trace was made: {count}"),
        }
    }
}
