//! Token sequences as runs of consecutive ids.
//!
//! Traces with prefix hashes and generated chats know of a prompt only which parts are equal to
//! which others. A part is a run `start, start + 1, ...`; two sequences are equal exactly when
//! their canonical runs are equal. One hour of real traffic is 145 million tokens but only some
//! hundred thousand runs, so ids are expanded only where somebody hashes them.

/// `len` token ids from `start` upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokenRun {
    pub start: u64,
    /// In tokens.
    pub len: u32,
}

/// A token sequence. Canonical: no run is empty, and no run continues the one before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TokenRuns {
    runs: Vec<TokenRun>,
    /// The position of the first token of each run.
    begins: Vec<u32>,
    len: u32,
}

impl TokenRuns {
    pub const fn new() -> Self {
        Self { runs: Vec::new(), begins: Vec::new(), len: 0 }
    }

    /// Empty, with room for so many runs.
    pub fn with_capacity(runs: usize) -> Self {
        Self { runs: Vec::with_capacity(runs), begins: Vec::with_capacity(runs), len: 0 }
    }

    pub fn from_run(start: u64, len: u32) -> Self {
        let mut tokens = Self::new();
        tokens.push_run(start, len);
        tokens
    }

    /// The number of tokens.
    #[inline]
    pub const fn len(&self) -> u32 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn runs(&self) -> &[TokenRun] {
        &self.runs
    }

    /// Appends one token.
    #[inline]
    pub fn push(&mut self, token: u64) {
        self.push_run(token, 1);
    }

    /// Appends the ids `start..start + len`.
    ///
    /// # Panics
    /// When the sequence would have more than `u32::MAX` tokens.
    #[inline]
    pub fn push_run(&mut self, start: u64, len: u32) {
        if len == 0 {
            return;
        }
        let total = self.len.checked_add(len).expect("a sequence has at most 2^32 - 1 tokens");
        if let Some(last) = self.runs.last_mut()
            && last.start.wrapping_add(u64::from(last.len)) == start
        {
            last.len += len;
        } else {
            self.runs.push(TokenRun { start, len });
            self.begins.push(self.len);
        }
        self.len = total;
    }

    /// Appends another sequence.
    pub fn extend(&mut self, other: &Self) {
        for run in &other.runs {
            self.push_run(run.start, run.len);
        }
    }

    /// Keeps the first `len` tokens.
    pub fn truncate(&mut self, len: u32) {
        if len >= self.len {
            return;
        }
        let keep = self.begins.partition_point(|&begin| begin < len);
        self.runs.truncate(keep);
        self.begins.truncate(keep);
        if let (Some(run), Some(begin)) = (self.runs.last_mut(), self.begins.last()) {
            run.len = len - begin;
        }
        self.len = len;
    }

    /// The token at `position`.
    ///
    /// # Panics
    /// When there is none.
    #[inline]
    pub fn get(&self, position: u32) -> u64 {
        assert!(position < self.len, "position {position} of {} tokens", self.len);
        let index = self.run_at(position);
        self.runs[index].start.wrapping_add(u64::from(position - self.begins[index]))
    }

    /// The index of the run that holds a position.
    fn run_at(&self, position: u32) -> usize {
        self.begins.partition_point(|&begin| begin <= position) - 1
    }

    /// The runs that make up the positions `from..to`, cut to it.
    pub fn slice(&self, from: u32, to: u32) -> impl Iterator<Item = TokenRun> + '_ {
        let first = if from < self.len { self.run_at(from) } else { self.runs.len() };
        self.runs[first..].iter().zip(&self.begins[first..]).map_while(move |(run, &begin)| {
            let (low, high) = (begin.max(from), (begin + run.len).min(to));
            (low < high)
                .then(|| TokenRun { start: run.start.wrapping_add(u64::from(low - begin)), len: high - low })
        })
    }

    /// The token ids of the positions `from..to`.
    pub fn ids(&self, from: u32, to: u32) -> impl Iterator<Item = u64> + '_ {
        self.slice(from, to).flat_map(|run| (0..u64::from(run.len)).map(move |i| run.start.wrapping_add(i)))
    }
}

impl FromIterator<u64> for TokenRuns {
    fn from_iter<I: IntoIterator<Item = u64>>(ids: I) -> Self {
        let mut tokens = Self::new();
        for id in ids {
            tokens.push(id);
        }
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_behave_as_the_list_of_their_ids(
            ids in prop::collection::vec(0u64..6, 0..60),
            cut in 0u32..70,
            from in 0u32..70,
            to in 0u32..70,
        ) {
            let tokens: TokenRuns = ids.iter().copied().collect();
            prop_assert_eq!(tokens.len() as usize, ids.len());
            prop_assert_eq!(tokens.ids(0, tokens.len()).collect::<Vec<_>>(), ids.clone());
            for (position, &id) in ids.iter().enumerate() {
                prop_assert_eq!(tokens.get(position as u32), id);
            }
            let (low, high) = ((from as usize).min(ids.len()), (to as usize).min(ids.len()));
            let expected = if low < high { ids[low..high].to_vec() } else { Vec::new() };
            prop_assert_eq!(tokens.ids(from, to).collect::<Vec<_>>(), expected);
            let mut shorter = tokens.clone();
            shorter.truncate(cut);
            prop_assert_eq!(shorter, ids.iter().copied().take(cut as usize).collect::<TokenRuns>());
        }
    }
}
