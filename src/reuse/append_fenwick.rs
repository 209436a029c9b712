//! Sums over the end of a list that grows: a Fenwick tree.

/// Weights by index. Appending, changing and summing take time logarithmic in their number. The sum
/// of all weights stays below 2^32.
#[derive(Debug, Default)]
pub(super) struct AppendFenwick {
    /// Node `i`, counted from 1, holds the sum of the `i & -i` weights that end with weight `i`.
    nodes: Vec<u32>,
    total: u32,
}

fn lowest_bit(node: usize) -> usize {
    node & node.wrapping_neg()
}

impl AppendFenwick {
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    pub fn push(&mut self, weight: u32) {
        let node = self.nodes.len() + 1;
        let begin = node - lowest_bit(node);
        let mut sum = weight;
        let mut child = node - 1;
        while child > begin {
            sum += self.nodes[child - 1];
            child -= lowest_bit(child);
        }
        self.nodes.push(sum);
        self.total += weight;
    }

    /// Takes an amount from the weight at an index, which is at least as large.
    pub fn subtract(&mut self, index: usize, amount: u32) {
        let mut node = index + 1;
        while node <= self.nodes.len() {
            self.nodes[node - 1] -= amount;
            node += lowest_bit(node);
        }
        self.total -= amount;
    }

    /// The sum of the weights behind an index.
    pub fn sum_after(&self, index: usize) -> u32 {
        let mut node = index + 1;
        let mut sum = 0;
        while node > 0 {
            sum += self.nodes[node - 1];
            node -= lowest_bit(node);
        }
        self.total - sum
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sums_are_those_of_the_list(steps in prop::collection::vec((any::<bool>(), 0_u32..50, 0_u32..50), 0..200)) {
            let mut tree = AppendFenwick::default();
            let mut list: Vec<u32> = Vec::new();
            for (append, index, amount) in steps {
                if append || list.is_empty() {
                    tree.push(amount);
                    list.push(amount);
                } else {
                    let index = index as usize % list.len();
                    let amount = amount.min(list[index]);
                    tree.subtract(index, amount);
                    list[index] -= amount;
                }
                for index in 0..list.len() {
                    prop_assert_eq!(tree.sum_after(index), list[index + 1..].iter().sum::<u32>());
                }
            }
        }
    }
}
