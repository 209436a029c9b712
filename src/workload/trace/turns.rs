//! Counts the turns of conversations, for formats that do not.

use rustc_hash::FxHashMap;

/// Keeps some bytes for each conversation.
#[derive(Default)]
pub(super) struct Turns {
    next: FxHashMap<u64, u32>,
}

impl Turns {
    /// The turn that comes next in a session, counted from 0.
    pub fn next(&mut self, session: u64) -> u32 {
        let next = self.next.entry(session).or_default();
        *next += 1;
        *next - 1
    }
}
