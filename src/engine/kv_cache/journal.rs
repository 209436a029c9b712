//! What happens to the pool, entry by entry, for those who follow it from outside: the decision log's
//! digests, and the block explorer.

use super::block::BlockId;
use crate::engine::hash::BlockHash;

/// In the order in which things happen. Those that name a request say what the entries after them
/// are done for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalEntry {
    /// A request looked for cached blocks: for `num_blocks` at most, which leaves out its last token.
    /// Its hits follow; the block after them missed.
    Lookup {
        request: u64,
        num_blocks: u32,
        hit_tokens: u32,
    },
    Hit(BlockId),
    /// It would take more blocks from the free queue than there are, or than are left to it, and
    /// waits or preempts somebody.
    Refuse {
        request: u64,
        required_blocks: i64,
        free_blocks: u32,
    },
    /// It gets its blocks: hits are touched first, then new ones are popped.
    Allocate {
        request: u64,
    },
    /// The ref_cnt went up by one.
    Touch(BlockId),
    /// The head of the free queue was handed out, with a ref_cnt of one.
    PopLeft(BlockId),
    /// Blocks `first..end` of the request's table are full, or will be after the step.
    CacheFullBlocks {
        request: u64,
        group_id: u32,
        first: u32,
        end: u32,
    },
    /// A block came under a hash.
    Insert {
        hash: BlockHash,
        group_id: u32,
        block: BlockId,
    },
    /// A block left a hash.
    Erase {
        hash: BlockHash,
        group_id: u32,
        block: BlockId,
    },
    /// It leaves `running`, its blocks are freed, and it waits again.
    Preempt {
        request: u64,
    },
    /// Its blocks are freed, the last one first. Those of others are freed without a name: by a window
    /// that moves on, or late, when no step in flight writes them.
    Free {
        request: u64,
    },
    /// The ref_cnt went down by one.
    Release(BlockId),
    /// A block left the middle of the free queue.
    Remove(BlockId),
    Prepend(BlockId),
    Append(BlockId),
    /// All hashes are gone.
    Clear,
}
