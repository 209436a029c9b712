//! What makes two prompts equal to the prefix cache: token ids, and the extra keys of a request.

mod extras;
mod token_runs;

pub use extras::{LoraRequest, MmItem, PromptEmbeds, PromptExtras};
pub use token_runs::{TokenRun, TokenRuns};
