//! Hit rate over the size of the cache.
//!
//! ```text
//! requests --> Pass (stack distances, all block sizes at once) --> Curve --> files, plot, table
//! sizes -----> simulations (a sweep of block size x cache size) ----^
//! ```
//!
//! The one pass answers for every size at once, for an LRU cache of whole prefixes that serves one
//! request after the other ([`crate::reuse`]). The simulations answer for the engine, at a few sizes.

mod breakdown;
mod cache_size;
mod curve;
mod error;
mod marks;
mod page;
mod pass;
mod plot;
mod request;
mod simulate;
mod table;
#[cfg(test)]
mod tests;
mod write;

pub use breakdown::{Breakdown, Group, Grouping};
pub use cache_size::{CacheShape, CacheSize};
pub use curve::{BlockSizeCurve, Curve, Point, SimulatedPoint};
pub use error::CurveError;
pub use marks::{Mark, marks};
pub use pass::{Pass, Sampling};
pub use request::{CurveRequest, Progress, Simulate};
pub use table::terminal_table;
