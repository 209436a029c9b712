//! The yardstick of the replay bench: a plain LRU over the block touches of a trace.
//!
//! It parses the trace and touches each block of each prompt once, in the order of the file. It has
//! no clock, no scheduler, no admission and no block table; nothing that touches every block can be
//! much faster.

use std::io::{self, BufRead};

use serde::Deserialize;

const NONE: u32 = u32::MAX;
/// Blocks of 16 tokens in a hash id of 512.
const BLOCKS_PER_HASH_ID: u32 = 32;

#[derive(Deserialize)]
struct Row {
    input_length: u32,
    hash_ids: Vec<u32>,
}

/// Blocks by number, linked from the least to the most recently touched.
struct PlainLru {
    prev: Vec<u32>,
    next: Vec<u32>,
    is_cached: Vec<bool>,
    head: u32,
    tail: u32,
    len: usize,
    capacity: usize,
}

impl PlainLru {
    fn new(capacity: usize) -> Self {
        Self {
            prev: Vec::new(),
            next: Vec::new(),
            is_cached: Vec::new(),
            head: NONE,
            tail: NONE,
            len: 0,
            capacity,
        }
    }

    fn unlink(&mut self, block: u32) {
        let (prev, next) = (self.prev[block as usize], self.next[block as usize]);
        match prev {
            NONE => self.head = next,
            _ => self.next[prev as usize] = next,
        }
        match next {
            NONE => self.tail = prev,
            _ => self.prev[next as usize] = prev,
        }
    }

    /// True on a hit.
    fn touch(&mut self, block: u32) -> bool {
        if block as usize >= self.prev.len() {
            let len = (block as usize + 1).next_power_of_two();
            self.prev.resize(len, NONE);
            self.next.resize(len, NONE);
            self.is_cached.resize(len, false);
        }
        let hit = self.is_cached[block as usize];
        if hit {
            self.unlink(block);
        } else if self.len == self.capacity {
            let oldest = self.head;
            self.unlink(oldest);
            self.is_cached[oldest as usize] = false;
        } else {
            self.len += 1;
        }
        self.is_cached[block as usize] = true;
        self.prev[block as usize] = self.tail;
        self.next[block as usize] = NONE;
        match self.tail {
            NONE => self.head = block,
            tail => self.next[tail as usize] = block,
        }
        self.tail = block;
        hit
    }
}

/// Touches and hits of a Mooncake trace over a cache of `capacity` blocks of 16 tokens.
pub fn touch_all(trace: impl BufRead, capacity: usize) -> io::Result<(u64, u64)> {
    let mut lru = PlainLru::new(capacity);
    let (mut touches, mut hits) = (0, 0);
    for line in trace.lines() {
        let row: Row = serde_json::from_str(&line?)?;
        let mut blocks_left = row.input_length / 16;
        for id in row.hash_ids {
            let blocks = blocks_left.min(BLOCKS_PER_HASH_ID);
            blocks_left -= blocks;
            for block in 0..blocks {
                touches += 1;
                hits += u64::from(lru.touch(id * BLOCKS_PER_HASH_ID + block));
            }
        }
    }
    Ok((touches, hits))
}
