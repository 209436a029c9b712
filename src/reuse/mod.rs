//! Who reuses whose KV blocks: the stream of block touches of a trace, and how far back in an LRU
//! stack each touched block lies.
//!
//! ```text
//! TraceRequest --ComputedTokens--> tokens --BlockChains--> chain of blocks --PrefixStack--> reuse
//! ```
//!
//! [`Lookups`] is all of it at one block size, and [`Shards`] the same from a sample of the blocks.
//!
//! One request looks up the full blocks of its prompt and then touches them and those of its answer.
//! The order is that of a server that serves one request after the other: the lookup sees what all
//! requests before have left. A request's blocks are freed from the last to the first, as vLLM does,
//! so that of two blocks of one request the earlier one stays longer.

mod append_fenwick;
mod block_chains;
mod chain_hashes;
mod computed_tokens;
mod distance_counts;
mod lookups;
mod prefix_stack;
mod shards;
#[cfg(test)]
mod tests;

pub use block_chains::{BlockChains, TooManyBlocks};
pub use computed_tokens::ComputedTokens;
pub use distance_counts::DistanceCounts;
pub use lookups::{Found, Lookups};
pub use prefix_stack::{Part, PrefixStack, Reuse};
pub use shards::{NUM_PARTS, SampledBlock, Shards};
