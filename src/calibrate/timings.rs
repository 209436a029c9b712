//! The rows of timing tables, by operation, and which of them a fit takes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::operation::Timing;
use super::operations::{
    CollectiveShape, DecodeShape, ElementwiseShape, GemmShape, MixedShape, MoeTiming, PrefillShape,
    SamplerShape,
};
use crate::catalog::Gpu;

/// The rows of some tables, by operation.
#[derive(Clone, Debug, Default)]
pub struct Timings {
    pub(super) gemm: Vec<Timing<GemmShape>>,
    pub(super) decode_attention: Vec<Timing<DecodeShape>>,
    pub(super) prefill_attention: Vec<Timing<PrefillShape>>,
    pub(super) mixed_attention: Vec<Timing<MixedShape>>,
    pub(super) moe: Vec<Timing<MoeTiming>>,
    pub(super) all_reduce: Vec<Timing<CollectiveShape>>,
    pub(super) all_gather: Vec<Timing<CollectiveShape>>,
    pub(super) all_to_all: Vec<Timing<CollectiveShape>>,
    pub(super) reduce_scatter: Vec<Timing<CollectiveShape>>,
    pub(super) elementwise: Vec<Timing<ElementwiseShape>>,
    pub(super) sampler: Vec<Timing<SamplerShape>>,
    /// Rows that say nothing to a fit, by the reason.
    pub left_out: BTreeMap<String, usize>,
}

/// Calls a macro with the names of all lists.
macro_rules! for_all_operations {
    ($call:ident) => {
        $call!(
            gemm,
            decode_attention,
            prefill_attention,
            mixed_attention,
            moe,
            all_reduce,
            all_gather,
            all_to_all,
            reduce_scatter,
            elementwise,
            sampler
        )
    };
}

impl Timings {
    /// Names of the GPUs that have rows.
    pub fn gpus(&self) -> BTreeSet<&'static str> {
        let mut gpus = BTreeSet::new();
        macro_rules! collect {
            ($($list:ident),*) => { $( gpus.extend(self.$list.iter().map(|row| row.gpu.name)); )* };
        }
        for_all_operations!(collect);
        gpus
    }

    /// Rows of all operations.
    pub fn num_rows(&self) -> usize {
        let mut rows = 0;
        macro_rules! count {
            ($($list:ident),*) => { $( rows += self.$list.len(); )* };
        }
        for_all_operations!(count);
        rows
    }

    /// Who measured the rows of a GPU.
    pub fn sources(&self, gpu: &str) -> BTreeSet<&str> {
        let mut sources = BTreeSet::new();
        macro_rules! collect {
            ($($list:ident),*) => { $(
                let rows = self.$list.iter().filter(|row| row.gpu.name == gpu);
                sources.extend(rows.map(|row| row.source.as_str()));
            )* };
        }
        for_all_operations!(collect);
        sources
    }

    /// Keeps, for each operation on each GPU, the source with the most rows: two ways of timing do
    /// not make one law.
    pub fn keep_one_source(&mut self) {
        self.keep_source_of(&Self::default());
    }

    /// The same, but the source of `fitted` where it has rows, because that is what its laws describe.
    pub fn keep_source_of(&mut self, fitted: &Self) {
        let left_out = &mut self.left_out;
        macro_rules! keep {
            ($($list:ident),*) => { $( keep_best_source(&mut self.$list, &fitted.$list, left_out); )* };
        }
        for_all_operations!(keep);
    }

    /// Leaves out the rows that are also in `fitted`.
    pub fn remove_rows_of(&mut self, fitted: &Self) {
        let left_out = &mut self.left_out;
        macro_rules! remove {
            ($($list:ident),*) => { $( remove_same(&mut self.$list, &fitted.$list, left_out); )* };
        }
        for_all_operations!(remove);
    }

    /// Keeps the rows of one GPU.
    pub fn keep_gpu(&mut self, gpu: &Gpu) {
        macro_rules! keep {
            ($($list:ident),*) => { $( self.$list.retain(|row| row.gpu.name == gpu.name); )* };
        }
        for_all_operations!(keep);
    }

    pub(super) fn leave_out(&mut self, reason: String) {
        *self.left_out.entry(reason).or_default() += 1;
    }
}

fn keep_best_source<S>(
    rows: &mut Vec<Timing<S>>,
    fitted: &[Timing<S>],
    left_out: &mut BTreeMap<String, usize>,
) {
    let fitted: BTreeSet<(&str, &str)> =
        fitted.iter().map(|row| (row.gpu.name, row.source.as_str())).collect();
    let mut counts: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for row in rows.iter() {
        *counts.entry((row.gpu.name, row.source.clone())).or_default() += 1;
    }
    // Fitted first, then the most rows, then the first by name.
    let rank = |gpu: &str, source: &str, count: usize| (!fitted.contains(&(gpu, source)), Reverse(count));
    let mut best: BTreeMap<&str, (&str, _)> = BTreeMap::new();
    for ((gpu, source), count) in &counts {
        let own = (source.as_str(), rank(gpu, source, *count));
        best.entry(gpu)
            .and_modify(|best| {
                if own.1 < best.1 {
                    *best = own
                }
            })
            .or_insert(own);
    }
    rows.retain(|row| {
        let (source, _) = best[row.gpu.name];
        let is_best = row.source == source;
        if !is_best {
            let reason = format!("of {} on {}, where {source} is taken", row.source, row.gpu.name);
            *left_out.entry(reason).or_default() += 1;
        }
        is_best
    });
}

fn remove_same<S: std::fmt::Debug>(
    rows: &mut Vec<Timing<S>>,
    fitted: &[Timing<S>],
    left_out: &mut BTreeMap<String, usize>,
) {
    let identity =
        |row: &Timing<S>| (row.gpu.name, row.format, format!("{:?}", row.shape), row.time_us.to_bits());
    let fitted: HashSet<_> = fitted.iter().map(identity).collect();
    let before = rows.len();
    rows.retain(|row| !fitted.contains(&identity(row)));
    if rows.len() < before {
        *left_out.entry("fitted".to_owned()).or_default() += before - rows.len();
    }
}
