//! The KV cache of one engine: blocks, the pool, one manager per kind of layer, the coordinator
//! that makes them agree, and the manager that the scheduler talks to.

mod block;
mod block_hash_map;
mod block_pool;
mod coordinator;
mod free_block_queue;
mod journal;
mod manager;
mod residency;
mod single_type;
mod spec;

pub use block::{BlockHashWithGroupId, BlockId, NULL_BLOCK};
pub use block_pool::BlockPool;
pub use coordinator::ShortestHit;
pub use journal::JournalEntry;
pub use manager::{AllocateSlots, KvCacheManager, PrefixCacheHit};
pub use residency::{BlockEviction, Residency};
pub(in crate::engine) use single_type::get_mamba_prefill_checkpoint_position;
pub use spec::KvCacheSpec;
