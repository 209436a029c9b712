//! The order in which CPython walks a set of small integers.
//!
//! vLLM evicts the blocks of a failed load in the order of such a set, and the order of KV events
//! follows from it. It is that of the set's hash table (`Objects/setobject.c`, CPython 3.10 to 3.13):
//! an integer hashes to itself, and slots are tried a few in a row, then by a perturbed jump.

const LINEAR_PROBES: usize = 9;
const PERTURB_SHIFT: u32 = 5;
const MIN_SIZE: usize = 8;

struct PythonSet {
    table: Vec<Option<u32>>,
    used: usize,
}

impl PythonSet {
    fn slot(&self, value: u32) -> usize {
        let mask = self.table.len() - 1;
        let mut perturb = value as usize;
        let mut at = value as usize & mask;
        loop {
            let probes = if at + LINEAR_PROBES <= mask { LINEAR_PROBES } else { 0 };
            let free = |&slot: &usize| self.table[slot].is_none_or(|other| other == value);
            if let Some(slot) = (at..=at + probes).find(free) {
                return slot;
            }
            perturb >>= PERTURB_SHIFT;
            at = (at * 5 + 1 + perturb) & mask;
        }
    }

    fn add(&mut self, value: u32) {
        let slot = self.slot(value);
        if self.table[slot].replace(value).is_some() {
            return;
        }
        self.used += 1;
        if self.used * 5 >= (self.table.len() - 1) * 3 {
            let wanted = if self.used > 50_000 { self.used * 2 } else { self.used * 4 };
            let size = (wanted + 1).next_power_of_two().max(MIN_SIZE);
            for value in std::mem::replace(&mut self.table, vec![None; size]).into_iter().flatten() {
                let slot = self.slot(value);
                self.table[slot] = Some(value);
            }
        }
    }
}

/// The values, each once, in the order of a set to which they were added one after the other.
pub(super) fn in_python_set_order(values: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut set = PythonSet { table: vec![None; MIN_SIZE], used: 0 };
    for value in values {
        set.add(value);
    }
    set.table.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_cpythons() {
        // Recorded: list(s) after s = set(); s.update([...]).
        assert_eq!(in_python_set_order([33, 3, 1, 2, 8, 16]), [33, 2, 3, 1, 8, 16]);
        assert_eq!(in_python_set_order([100, 5, 64, 36, 4, 68, 132, 7]), [64, 4, 100, 5, 36, 68, 132, 7]);
        assert_eq!(
            in_python_set_order([131, 184, 272, 15, 239, 128, 27, 81, 58, 191, 241, 127]),
            [128, 131, 239, 272, 15, 81, 241, 184, 58, 27, 127, 191]
        );
        assert_eq!(
            in_python_set_order([
                195, 279, 53, 294, 128, 7, 111, 209, 144, 94, 200, 82, 37, 72, 228, 65, 68, 1, 3, 108, 111,
                85, 86, 149, 161, 102, 277, 105, 94, 101, 197, 153, 12, 185, 213, 85, 75, 136, 34, 170
            ]),
            [
                128, 1, 3, 7, 136, 12, 144, 149, 277, 279, 153, 161, 34, 37, 294, 170, 53, 185, 65, 195, 68,
                197, 200, 72, 75, 209, 82, 85, 86, 213, 94, 228, 101, 102, 105, 108, 111
            ]
        );
    }
}
