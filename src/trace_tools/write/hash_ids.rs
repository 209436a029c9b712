//! Prompts as lists of hash ids: an id for each block of tokens and all before it.

use rustc_hash::FxHashMap;

use crate::prompt::{PromptExtras, TokenRun, TokenRuns};
use crate::reuse::{BlockChains, TooManyBlocks};

const NONE: u64 = u64::MAX;

/// Gives ids from 0 in the order in which blocks first occur.
pub(super) struct HashIdMaker {
    chains: BlockChains,
    /// By the number of a full block, or [`NONE`].
    full: Vec<u64>,
    /// Of what is left of a prompt behind its full blocks.
    rests: FxHashMap<Rest, u64>,
    next_id: u64,
    ids: Vec<u64>,
}

#[derive(PartialEq, Eq, Hash)]
struct Rest {
    /// The id before it, or [`NONE`].
    parent: u64,
    runs: Vec<TokenRun>,
    extras: Option<Box<PromptExtras>>,
}

impl HashIdMaker {
    pub fn new(id_tokens: u32) -> Self {
        Self {
            chains: BlockChains::new(id_tokens),
            full: Vec::new(),
            rests: FxHashMap::default(),
            next_id: 0,
            ids: Vec::new(),
        }
    }

    /// The ids of a prompt; the last one is of what remains.
    pub fn ids(&mut self, prompt: &TokenRuns, extras: &PromptExtras) -> Result<&[u64], TooManyBlocks> {
        let chain = self.chains.of(prompt, extras)?;
        self.ids.clear();
        for block in chain {
            let index = block.0 as usize;
            if index >= self.full.len() {
                self.full.resize(index + 1, NONE);
            }
            if self.full[index] == NONE {
                self.full[index] = self.next_id;
                self.next_id += 1;
            }
            self.ids.push(self.full[index]);
        }
        let covered = chain.len() as u32 * self.chains.block_size();
        if covered < prompt.len() {
            let rest = Rest {
                parent: self.ids.last().copied().unwrap_or(NONE),
                runs: prompt.slice(covered, prompt.len()).collect(),
                extras: (*extras != PromptExtras::default()).then(|| Box::new(extras.clone())),
            };
            let id = *self.rests.entry(rest).or_insert(self.next_id);
            self.next_id += u64::from(id == self.next_id);
            self.ids.push(id);
        }
        Ok(&self.ids)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ids_in_common_are_whole_blocks_in_common(prompts in prop::collection::vec(prop::collection::vec(0_u64..3, 1..20), 1..20)) {
            const ID_TOKENS: usize = 4;
            let mut maker = HashIdMaker::new(ID_TOKENS as u32);
            let ids: Vec<Vec<u64>> = prompts
                .iter()
                .map(|prompt| maker.ids(&prompt.iter().copied().collect(), &PromptExtras::default()).unwrap().to_vec())
                .collect();
            for (one, one_ids) in prompts.iter().zip(&ids) {
                prop_assert_eq!(one_ids.len(), one.len().div_ceil(ID_TOKENS));
                for (other, other_ids) in prompts.iter().zip(&ids) {
                    let common = one.iter().zip(other).take_while(|(a, b)| a == b).count();
                    let blocks = if one == other { one_ids.len() } else { common / ID_TOKENS };
                    let common_ids = one_ids.iter().zip(other_ids).take_while(|(a, b)| a == b).count();
                    prop_assert_eq!(common_ids, blocks);
                    // An id stands for all before it too.
                    prop_assert!(one_ids[common_ids..].iter().all(|id| !other_ids.contains(id)));
                }
            }
        }
    }

    #[test]
    fn an_id_is_its_tokens_and_all_before() {
        let plain = PromptExtras::default();
        let salted = PromptExtras { cache_salt: Some("s".into()), ..PromptExtras::default() };
        let mut maker = HashIdMaker::new(4);
        let mut ids = |runs: &[(u64, u32)], extras| {
            let mut prompt = TokenRuns::new();
            runs.iter().for_each(|&(start, len)| prompt.push_run(start, len));
            maker.ids(&prompt, extras).unwrap().to_vec()
        };
        assert_eq!(ids(&[(0, 10)], &plain), [0, 1, 2]);
        assert_eq!(ids(&[(0, 10)], &plain), [0, 1, 2]);
        assert_eq!(ids(&[(0, 12)], &plain), [0, 1, 3]);
        assert_eq!(ids(&[(0, 9)], &plain), [0, 1, 4]);
        // The same tokens behind others are another block.
        assert_eq!(ids(&[(4, 4), (0, 4)], &plain), [5, 6]);
        assert_eq!(ids(&[(0, 10)], &salted), [7, 8, 9]);
        assert_eq!(ids(&[(0, 2)], &plain), [10]);
        assert_eq!(ids(&[(0, 2)], &salted), [11]);
    }
}
