//! Remembers a time per count, filled on demand.

/// Times in nanoseconds by a small integer such as the number of tokens.
#[derive(Clone, Debug, Default)]
pub(super) struct Memo {
    /// 0 is "not computed yet": no operation takes no time.
    times_ns: Vec<u64>,
}

impl Memo {
    /// Counts beyond this are computed every time, so that one huge step does not take memory.
    const MAX_COUNT: usize = 1 << 18;

    pub fn get(&mut self, count: u32, compute: impl FnOnce() -> u64) -> u64 {
        let index = count as usize;
        if index >= self.times_ns.len() {
            if index >= Self::MAX_COUNT {
                return compute();
            }
            self.times_ns.resize((index + 1).next_power_of_two(), 0);
        }
        let time_ns = &mut self.times_ns[index];
        if *time_ns == 0 {
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
        assert_eq!(memo.get(5, || 50), 50);
        assert_eq!(memo.get(5, || unreachable!()), 50);
        assert_eq!(memo.get(3, || 30), 30);
        // Beyond the limit nothing is kept.
        assert_eq!(memo.get(u32::MAX, || 1), 1);
        assert_eq!(memo.get(u32::MAX, || 2), 2);
    }
}
