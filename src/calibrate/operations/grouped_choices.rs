//! What a router with groups makes of the experts that tokens wish for.
//!
//! DeepSeek-V3's router has eight groups of experts and keeps four of them for each token: those whose
//! two best experts score most. The token's experts are the best of these (`grouped_topk` in vLLM). A
//! benchmark that gives eight experts the same score and the others none so gets at most those of four
//! groups; its other choices fall on experts without a score, the first of the groups that are kept.
//! With even wishes, one in each group, that is half of the experts.

const NUM_GROUPS: usize = 8;
const KEPT_GROUPS: usize = 4;
/// Experts of a group that count for its score.
const SCORED: u32 = 2;

/// How often each of `num_experts` is chosen by tokens that wish for `per_token` experts each; `wishes`
/// has those of a token one after the other. Of equals the first counts.
pub(super) fn granted_loads(wishes: &[u32], per_token: usize, num_experts: usize) -> Vec<u64> {
    let group_size = num_experts / NUM_GROUPS;
    let group = |expert: u32| expert as usize / group_size;
    let mut loads = vec![0; num_experts];
    for wishes in wishes.chunks_exact(per_token) {
        let mut scores = [0; NUM_GROUPS];
        for &expert in wishes {
            scores[group(expert)] = SCORED.min(scores[group(expert)] + 1);
        }
        let mut groups: [usize; NUM_GROUPS] = std::array::from_fn(|group| group);
        groups.sort_by_key(|&group| std::cmp::Reverse(scores[group]));
        let kept = &mut groups[..KEPT_GROUPS];
        kept.sort_unstable();
        let granted = wishes.iter().filter(|&&expert| kept.contains(&group(expert)));
        let num_granted = granted.clone().count();
        granted.for_each(|&expert| loads[expert as usize] += 1);
        let members = kept.iter().flat_map(|group| group * group_size..(group + 1) * group_size);
        let without_score = members.filter(|&expert| !wishes.contains(&(expert as u32)));
        without_score.take(per_token - num_granted).for_each(|expert| loads[expert] += 1);
    }
    loads
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sixteen experts in groups of two, by hand.
    #[test]
    fn wishes_of_four_groups_are_granted() {
        // One in each group: the first four groups are kept, their other experts fill up.
        let loads = granted_loads(&[0, 2, 4, 6, 8, 10, 12, 14], 8, 16);
        assert_eq!(loads, [1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        // The last three groups have two each and win over the four with one, of which the first is
        // kept and gives its other expert.
        let loads = granted_loads(&[10, 11, 12, 13, 14, 15, 3, 5], 8, 16);
        assert_eq!(loads, [0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
    }
}
