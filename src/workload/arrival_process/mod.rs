//! When independent users arrive.

mod clock;
mod config;
mod times;

pub use config::{ArrivalProcess, MmppState};
pub use times::ArrivalTimes;
