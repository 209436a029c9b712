//! Remembers a time per count, filled on demand.

/// The times of four kinds of operations, in nanoseconds, by a small integer such as the number of
/// tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Memo {
    /// All 0 is "not computed yet": no operation takes no time.
    times_ns: Vec<[u64; 4]>,
}

impl Memo {
    /// Counts beyond this are computed every time, so that one huge step does not take memory.
    const MAX_COUNT: usize = 1 << 18;

    pub fn get(&mut self, count: u32, compute: impl FnOnce() -> [u64; 4]) -> [u64; 4] {
        let index = count as usize;
        if index >= self.times_ns.len() {
            if index >= Self::MAX_COUNT {
                return compute();
            }
            self.times_ns.resize((index + 1).next_power_of_two(), [0; 4]);
        }
        let time_ns = &mut self.times_ns[index];
        if *time_ns == [0; 4] {
            *time_ns = compute();
        }
        *time_ns
    }
}

#[cfg(test)]
mod tests {
    use super::Memo;

    #[test]
    fn computes_once() {
        let mut memo = Memo::default();
        let times = |ns| [ns, 0, 0, 1];
        assert_eq!(memo.get(5, || times(50)), times(50));
        assert_eq!(memo.get(5, || unreachable!()), times(50));
        assert_eq!(memo.get(3, || times(30)), times(30));
        // Beyond the limit nothing is kept.
        assert_eq!(memo.get(u32::MAX, || times(1)), times(1));
        assert_eq!(memo.get(u32::MAX, || times(2)), times(2));
    }
}
