//! The block table and the lists that go with a batch.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::operation::{Attention, Sequence};

/// Where the tokens of a batch lie. The cache is one array `[2][slots][heads_kv][head_dim]`, keys
/// first; a slot is a token's place, `block * block_size + offset`.
#[derive(Clone, Debug)]
pub(super) struct AttentionInputs {
    pub sequences: Vec<Sequence>,
    /// The first new token of each sequence in the batch.
    pub first_tokens: Vec<u32>,
    /// New tokens in all.
    pub tokens: u32,
    /// A row of `blocks_per_row` for each sequence.
    pub block_table: Vec<u32>,
    pub blocks_per_row: u32,
    pub block_size: u32,
    pub slots: u32,
    /// The slot of each new token.
    pub slot_mapping: Vec<u32>,
}

impl AttentionInputs {
    /// Blocks lie in random order, as in a server that has run for a while.
    pub fn new(attention: &Attention) -> Self {
        let block_size = attention.block_size;
        let sequences = attention.batch.sequences();
        let blocks_of = |s: &Sequence| s.kv_len.div_ceil(block_size);
        let num_blocks: u32 = sequences.iter().map(blocks_of).sum();
        let blocks_per_row = sequences.iter().map(blocks_of).max().unwrap_or(0);
        let mut blocks: Vec<u32> = (0..num_blocks).collect();
        blocks.shuffle(&mut ChaCha8Rng::seed_from_u64(1));
        let mut free = blocks.into_iter();
        let mut inputs = Self {
            block_table: Vec::with_capacity(sequences.len() * blocks_per_row as usize),
            first_tokens: Vec::with_capacity(sequences.len()),
            slot_mapping: Vec::new(),
            tokens: 0,
            blocks_per_row,
            block_size,
            slots: num_blocks * block_size,
            sequences,
        };
        for i in 0..inputs.sequences.len() {
            let sequence = inputs.sequences[i];
            inputs.block_table.extend(free.by_ref().take(blocks_of(&sequence) as usize));
            inputs.block_table.resize((i + 1) * blocks_per_row as usize, 0);
            inputs.first_tokens.push(inputs.tokens);
            inputs.tokens += sequence.q_len;
            for position in sequence.kv_len - sequence.q_len..sequence.kv_len {
                inputs.slot_mapping.push(inputs.slot(i, position));
            }
        }
        inputs
    }

    /// The slot of a position of a sequence.
    pub fn slot(&self, sequence: usize, position: u32) -> u32 {
        let at = sequence * self.blocks_per_row as usize + (position / self.block_size) as usize;
        self.block_table[at] * self.block_size + position % self.block_size
    }

    /// For the kernels: first new token, new tokens, all tokens, unused; of each sequence.
    pub fn sequence_words(&self) -> Vec<u32> {
        let rows = self.sequences.iter().zip(&self.first_tokens);
        rows.flat_map(|(s, &first)| [first, s.q_len, s.kv_len, 0]).collect()
    }

    pub fn longest_q(&self) -> u32 {
        self.sequences.iter().map(|s| s.q_len).max().unwrap_or(0)
    }

    pub fn longest_kv(&self) -> u32 {
        self.sequences.iter().map(|s| s.kv_len).max().unwrap_or(0)
    }
}

/// Scale of the scores. With inputs of this spread a head of 128 then has scores of a standard
/// deviation near 1: a wrong softmax shows, and so does a token that is left out.
pub(super) const SOFTMAX_SCALE: f32 = 0.25;

#[cfg(test)]
mod tests {
    use super::super::operation::Batch;
    use super::*;

    #[test]
    fn every_token_has_a_slot_of_its_own() {
        let batch = Batch::Mixed { q_len: 37, kv_past: 100, decodes: 5, kv_decode: 50 };
        let attention = Attention { batch, heads_q: 8, heads_kv: 2, head_dim: 128, block_size: 16 };
        let inputs = AttentionInputs::new(&attention);
        assert_eq!((inputs.tokens, inputs.blocks_per_row), (42, 9));
        assert_eq!(inputs.slots, (9 + 5 * 4) * 16);
        let mut slots: Vec<u32> = Vec::new();
        for (i, sequence) in inputs.sequences.iter().enumerate() {
            slots.extend((0..sequence.kv_len).map(|position| inputs.slot(i, position)));
        }
        let count = slots.len();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), count);
        assert!(slots.iter().all(|&slot| slot < inputs.slots));
        assert_eq!(inputs.slot_mapping[37], inputs.slot(1, 49));
    }
}
