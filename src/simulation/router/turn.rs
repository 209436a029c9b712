//! Fair choice among equals.

use super::ReplicaView;

/// Whose turn it is: replicas are looked at in a circle that begins after the last choice, so that
/// equals take turns. A router that began at the first would send every request of an idle fleet
/// there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Turn {
    next: usize,
}

impl Turn {
    /// The ready replica with the least `cost`; of equals the first in the circle.
    pub fn least<C: PartialOrd>(
        &mut self,
        replicas: &[ReplicaView],
        cost: impl Fn(usize, &ReplicaView) -> C,
    ) -> usize {
        let (before, from) = replicas.split_at(self.next.min(replicas.len()));
        let circle = from.iter().zip(before.len()..).chain(before.iter().zip(0..));
        let mut best: Option<(C, usize)> = None;
        for (view, index) in circle.filter(|(view, _)| view.is_ready) {
            let cost = cost(index, view);
            if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                best = Some((cost, index));
            }
        }
        let chosen = best.map_or(0, |(_, index)| index);
        self.next = chosen + 1;
        chosen
    }
}
