//! What `kvsim trace` does: tells of a trace, and makes others of it.

mod check;
mod error;
mod generate;
pub mod info;
mod population;
mod rate;
mod sample;
mod sessions;
mod write;

pub use check::{Totals, read_back};
pub use error::TraceError;
pub use generate::{AnswerTimes, Generator, TurnTimes};
pub use population::Population;
pub use rate::scale_rate;
pub use sample::{SampleSize, SessionTable, sample};
pub use sessions::SessionFinder;
pub use write::{Losses, PromptsKept, TraceWriter, WRITABLE, prompts_kept};
