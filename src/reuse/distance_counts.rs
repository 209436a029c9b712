//! How many touches lie how far back, exactly.

/// Counts of distances. The memory is that of the largest distance.
#[derive(Clone, Debug, Default)]
pub struct DistanceCounts {
    /// The count at a distance is the sum of the steps up to it.
    steps: Vec<i64>,
    total: u64,
}

impl DistanceCounts {
    /// Counts one touch at each of `distance..distance + len`.
    pub fn add(&mut self, distance: u32, len: u32) {
        let (begin, end) = (distance as usize, distance as usize + len as usize);
        if end >= self.steps.len() {
            self.steps.resize(end + 1, 0);
        }
        self.steps[begin] += 1;
        self.steps[end] -= 1;
        self.total += u64::from(len);
    }

    /// All touches counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The distances that occur, in order, with their counts.
    pub fn counts(&self) -> impl Iterator<Item = (u64, u64)> + Clone + '_ {
        let mut count = 0;
        self.steps.iter().zip(0_u64..).filter_map(move |(step, distance)| {
            count += step;
            (count > 0).then_some((distance, count as u64))
        })
    }

    /// One more than the largest distance: the smallest LRU cache that hits all of these.
    pub fn end(&self) -> u64 {
        self.steps.len().saturating_sub(1) as u64
    }

    /// The touches nearer than each of some rising distances: the hits of LRU caches of so many blocks.
    pub fn num_below(&self, distances: &[u64]) -> Vec<u64> {
        let mut counts = self.counts().peekable();
        let mut below = 0;
        let of_next = |&distance: &u64| {
            while let Some((_, count)) = counts.next_if(|&(at, _)| at < distance) {
                below += count;
            }
            below
        };
        distances.iter().map(of_next).collect()
    }
}
