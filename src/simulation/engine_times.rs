//! What each engine's loop does next, and whose turn comes first.
//!
//! Most events of a simulation are these, and of an engine only the last that was planned of each kind
//! counts. So each engine has a place in a tournament, and an event costs a walk from there to the top
//! instead of a way through a heap.

use crate::units::SimTime;

/// What an engine's loop can be about to do, in the order in which engines do it at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Update,
    Iterate,
}

/// Time, then turn, then engine. One number, so that one comparison decides.
type Key = u128;

const NEVER: Key = Key::MAX;
const ITERATE: u32 = 1 << 31;

fn key(at: SimTime, turn: Turn, engine: u32) -> Key {
    let turn = if turn == Turn::Iterate { ITERATE } else { 0 };
    Key::from(at.as_ns()) << 32 | Key::from(turn | engine)
}

#[derive(Debug, Default)]
pub(super) struct EngineTimes {
    /// Of each engine, update and iterate, or [`NEVER`].
    planned: Vec<[Key; 2]>,
    /// The earlier one of two at each place, from 1 on; those of the engines lie behind.
    earliest: Vec<Key>,
}

impl EngineTimes {
    /// An engine takes its turn then, and not when it was planned before.
    #[inline]
    pub fn set(&mut self, at: SimTime, turn: Turn, engine: u32) {
        if engine as usize >= self.planned.len() {
            self.grow(engine as usize + 1);
        }
        self.replace(key(at, turn, engine), turn, engine);
    }

    /// Whose turn is next, and when.
    #[inline]
    pub fn peek(&self) -> Option<(SimTime, Turn, u32)> {
        let first = *self.earliest.get(1)?;
        let turn = if first as u32 & ITERATE == 0 { Turn::Update } else { Turn::Iterate };
        (first != NEVER).then_some((SimTime((first >> 32) as u64), turn, first as u32 & !ITERATE))
    }

    /// An engine has no such turn before it.
    #[inline]
    pub fn take(&mut self, turn: Turn, engine: u32) {
        self.replace(NEVER, turn, engine);
    }

    #[inline]
    fn replace(&mut self, key: Key, turn: Turn, engine: u32) {
        let engine = engine as usize;
        self.planned[engine][turn as usize] = key;
        let [update, iterate] = self.planned[engine];
        let mut place = self.earliest.len() / 2 + engine;
        let mut earliest = update.min(iterate);
        while place > 0 && self.earliest[place] != earliest {
            self.earliest[place] = earliest;
            earliest = earliest.min(self.earliest[place ^ 1]);
            place /= 2;
        }
    }

    fn grow(&mut self, num_engines: usize) {
        let planned: Vec<[Key; 2]> = std::mem::take(&mut self.planned);
        let num_places = num_engines.next_power_of_two();
        self.planned = vec![[NEVER; 2]; num_places];
        // One engine has place 1.
        self.earliest = vec![NEVER; 2 * num_places];
        for (engine, [update, iterate]) in planned.into_iter().enumerate() {
            self.replace(update, Turn::Update, engine as u32);
            self.replace(iterate, Turn::Iterate, engine as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_of_all_that_is_planned_is_next(
            changes in prop::collection::vec((0_u64..20, 0_u32..9, any::<bool>(), any::<bool>()), 0..80),
        ) {
            let mut times = EngineTimes::default();
            let mut naive = BTreeMap::new();
            for (at, engine, iterates, is_taken) in changes {
                let turn = if iterates { Turn::Iterate } else { Turn::Update };
                if is_taken {
                    if let Some((_, turn, engine)) = times.peek() {
                        times.take(turn, engine);
                        naive.remove(&(engine, turn as u8));
                    }
                } else {
                    times.set(SimTime(at), turn, engine);
                    naive.insert((engine, turn as u8), at);
                }
                let first = naive.iter().map(|(&(engine, turn), &at)| (at, turn, engine)).min();
                let next = times.peek().map(|(at, turn, engine)| (at.as_ns(), turn as u8, engine));
                prop_assert_eq!(next, first);
            }
        }
    }
}
