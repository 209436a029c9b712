//! Which token ids generated texts have: equal ids are equal tokens, so each text gets its own.
//! Above them are those of traces that do not tell what was said.

use super::trace::{FIRST_PREFIX_TOKEN, FIRST_REUSE_TOKEN, FIRST_UNKNOWN_TOKEN};
use crate::prompt::TokenRuns;

/// Texts that sessions share have ids below this, those of one session alone from here on.
const FIRST_OWN_TOKEN: u64 = 1 << 62;

/// A text is shorter than this.
const TEXT_TOKENS: u64 = 1 << 32;

/// How many texts may be shared.
pub(crate) const MAX_SHARED_TEXTS: u64 = 4_000_000;

/// The first `len` tokens of shared text number `index`, a system prompt or a document.
pub(crate) fn shared_text(index: u64, len: u32) -> TokenRuns {
    TokenRuns::from_run(index * TEXT_TOKENS, len)
}

/// The placeholders of an image: those of all images are the same.
pub(crate) fn placeholders(len: u32) -> TokenRuns {
    shared_text(MAX_SHARED_TEXTS + 1, len)
}

/// The first token id that session `index` has for itself, when no session has more than so many.
///
/// Who hands a session's ids out one after the other keeps its conversation to few runs.
pub(crate) fn first_own_token(index: u64, tokens_per_session: u32) -> u64 {
    FIRST_OWN_TOKEN + index * u64::from(tokens_per_session)
}

/// Where the ids of one kind of text begin: those that sessions share and traces tell, of sessions,
/// of what a trace is assumed to share, and of what nobody tells.
const RANGES: [u64; 5] = [0, FIRST_OWN_TOKEN, FIRST_REUSE_TOKEN, FIRST_PREFIX_TOKEN, FIRST_UNKNOWN_TOKEN];

/// A part of a mix has so many ids in each range. All of them have room for 32 parts.
const PART_TOKENS: u64 = 1 << 54;
pub(crate) const MAX_PARTS: usize = 32;

/// The same text as part number `part` of a mix says it: equal to nothing that another part says.
/// `None` when it uses more ids than a part has.
pub(crate) fn in_part(tokens: &TokenRuns, part: usize) -> Option<TokenRuns> {
    let mut moved = TokenRuns::new();
    for run in tokens.runs() {
        let first = RANGES.into_iter().rev().find_map(|range| run.start.checked_sub(range))?;
        if first + u64::from(run.len) > PART_TOKENS {
            return None;
        }
        moved.push_run(run.start + part as u64 * PART_TOKENS, run.len);
    }
    Some(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_say_different_things_in_the_same_shape() {
        let mut tokens = shared_text(MAX_SHARED_TEXTS, 100);
        tokens.push_run(first_own_token(1_000_000, 1 << 31), 50);
        let last = in_part(&tokens, MAX_PARTS - 1).unwrap();
        assert_eq!(in_part(&tokens, 0).unwrap(), tokens);
        assert_eq!((last.len(), last.runs().len()), (150, 2));
        assert!(last.runs()[0].start < FIRST_OWN_TOKEN && last.runs()[1].start < 2 * FIRST_OWN_TOKEN);
        assert_ne!(last.runs()[0].start, tokens.runs()[0].start);
    }

    #[test]
    fn every_range_has_room_for_all_parts() {
        let ends = [&RANGES[1..], &[u64::MAX]].concat();
        for (range, end) in RANGES.into_iter().zip(ends) {
            assert!((end - range) / PART_TOKENS >= MAX_PARTS as u64, "{range}");
        }
        // Placeholders come last of what is shared.
        let last = placeholders(u32::MAX).runs()[0];
        assert!(last.start + u64::from(last.len) <= PART_TOKENS);
    }

    #[test]
    fn a_part_that_uses_more_ids_than_it_has_is_refused() {
        for (start, fits) in [
            (PART_TOKENS - 10, true),
            (PART_TOKENS - 9, false),
            (FIRST_OWN_TOKEN - 5, false),
            (FIRST_OWN_TOKEN + PART_TOKENS, false),
            (FIRST_UNKNOWN_TOKEN - 10, false),
            (FIRST_UNKNOWN_TOKEN, true),
            (u64::MAX - 10, false),
        ] {
            assert_eq!(in_part(&TokenRuns::from_run(start, 10), 3).is_some(), fits, "{start}");
        }
    }
}
