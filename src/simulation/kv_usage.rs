//! Blocks held by requests, over time.

use crate::units::SimTime;

/// Adds up block times between two looks at it. Blocks are held from the planning of the step that
/// needs them on; the null block is never.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct KvUsage {
    since: SimTime,
    used_blocks: u32,
    used_block_ns: u64,
    peak_used_blocks: u32,
}

impl KvUsage {
    /// So many blocks are held from `now` on.
    #[inline]
    pub fn set(&mut self, now: SimTime, used_blocks: u32) {
        self.used_block_ns += u64::from(self.used_blocks) * now.since(self.since).as_ns();
        self.since = now;
        self.used_blocks = used_blocks;
        self.peak_used_blocks = self.peak_used_blocks.max(used_blocks);
    }

    /// Blocks times nanoseconds up to the last change, and the most blocks, since the last call.
    pub fn take(&mut self) -> (u64, u32) {
        let peak = std::mem::replace(&mut self.peak_used_blocks, self.used_blocks);
        (std::mem::take(&mut self.used_block_ns), peak)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_count_for_as_long_as_they_are_held() {
        let mut usage = KvUsage::default();
        usage.set(SimTime(10), 3);
        usage.set(SimTime(10), 5);
        usage.set(SimTime(30), 2);
        assert_eq!(usage.take(), (100, 5));
        usage.set(SimTime(31), 0);
        assert_eq!(usage.take(), (2, 2));
        assert_eq!(usage.take(), (0, 0));
    }
}
