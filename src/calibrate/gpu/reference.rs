//! What a kernel must have written, in f64, for a sample of the elements of its output.

use rand::SeedableRng;
use rand::seq::index::sample;
use rand_chacha::ChaCha8Rng;

use super::attention_inputs::{AttentionInputs, SOFTMAX_SCALE};
use super::inputs::{Input, value, value_fp8, value_rounded_to_fp8};
use super::operation::{Attention, Batch, GemmFormat, Operation};

/// Elements of an output that lie side by side.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Probe {
    pub first: u64,
    pub expected: Vec<f64>,
}

/// Rows of heads of which an attention is probed, elements of which a product is.
const MAX_ROWS: usize = 16;
const MAX_ELEMENTS: usize = 256;

type Value = fn(Input, u64) -> f64;

/// Probes of the output of an operation; none where it has no output.
pub(super) fn probes(operation: &Operation) -> Vec<Probe> {
    match *operation {
        Operation::Gemm { format, m, n, k } => picks(u64::from(m) * u64::from(n), MAX_ELEMENTS)
            .into_iter()
            .map(|at| {
                let (row, column) = (at / u64::from(n), at % u64::from(n));
                let (activation, weight): (Value, Value) = match format {
                    GemmFormat::Bf16 => (value, value),
                    GemmFormat::Fp8 => (value_rounded_to_fp8, value_fp8),
                };
                let products = (0..u64::from(k)).map(|i| {
                    activation(Input::Activations, row * u64::from(k) + i)
                        * weight(Input::Weights, column * u64::from(k) + i)
                });
                Probe { first: at, expected: vec![products.sum()] }
            })
            .collect(),
        Operation::Attention(attention) => attention_probes(&attention),
        Operation::KvCacheWrite { tokens, heads_kv, head_dim } => {
            kv_write_probes(tokens, u64::from(heads_kv * head_dim))
        }
        Operation::DeviceCopy { bytes } | Operation::HostCopy { bytes, .. } => {
            // In words of 4 bytes, which are read as numbers up to 2^32.
            let word = |i: u64| f64::from(super::inputs::word(Input::CopySource, i as u32));
            let at = picks(bytes / 4, MAX_ELEMENTS).into_iter();
            at.map(|i| Probe { first: i, expected: vec![word(i)] }).collect()
        }
        Operation::AllReduce { num_gpus, bytes } => {
            // All GPUs have the same message.
            let sum = |i: u64| f64::from(num_gpus) * value(Input::Activations, i);
            let at = picks(bytes / 2, MAX_ELEMENTS).into_iter();
            at.map(|i| Probe { first: i, expected: vec![sum(i)] }).collect()
        }
        Operation::Launch | Operation::GraphReplay { .. } => Vec::new(),
    }
}

/// The cache write alone puts token `i` where the one block of a sequence of all tokens has it.
pub(super) fn kv_write_layout(tokens: u32, heads_kv: u32, head_dim: u32) -> Attention {
    let batch = Batch::Prefill { sequences: 1, q_len: tokens, kv_past: 0 };
    Attention { batch, heads_q: heads_kv, heads_kv, head_dim, block_size: 16 }
}

fn kv_write_probes(tokens: u32, row: u64) -> Vec<Probe> {
    let inputs = AttentionInputs::new(&kv_write_layout(tokens, 1, 1));
    let at = picks(u64::from(tokens), MAX_ROWS).into_iter();
    at.flat_map(|token| {
        let slot = u64::from(inputs.slot_mapping[token as usize]);
        [(Input::NewKeys, slot), (Input::NewValues, u64::from(inputs.slots) + slot)].map(|(input, slot)| {
            let expected = (0..row).map(|i| value(input, token * row + i)).collect();
            Probe { first: slot * row, expected }
        })
    })
    .collect()
}

fn attention_probes(attention: &Attention) -> Vec<Probe> {
    let inputs = AttentionInputs::new(attention);
    let (heads_q, head_dim) = (u64::from(attention.heads_q), u64::from(attention.head_dim));
    let mut rows = picks(u64::from(inputs.tokens) * heads_q, MAX_ROWS);
    // The last token sees most, and the first of a mixed batch's decodes is where kinds meet.
    rows.push(u64::from(inputs.tokens) * heads_q - 1);
    if let Some(&token) = inputs.first_tokens.get(1) {
        rows.push(u64::from(token) * heads_q);
    }
    rows.into_iter()
        .map(|row| {
            let expected = attention_row(attention, &inputs, row / heads_q, row % heads_q);
            Probe { first: row * head_dim, expected }
        })
        .collect()
}

/// One token's output of one head: softmax over all earlier tokens and itself.
fn attention_row(attention: &Attention, inputs: &AttentionInputs, token: u64, head: u64) -> Vec<f64> {
    let (heads_kv, head_dim) = (u64::from(attention.heads_kv), u64::from(attention.head_dim));
    let row = heads_kv * head_dim;
    let head_kv = head / u64::from(attention.heads_q / attention.heads_kv);
    let sequence = inputs.first_tokens.partition_point(|&first| u64::from(first) <= token) - 1;
    let first = u64::from(inputs.first_tokens[sequence]);
    let lengths = inputs.sequences[sequence];
    let past = lengths.kv_len - lengths.q_len;
    let query_at = (token * u64::from(attention.heads_q) + head) * head_dim;
    let query: Vec<f64> = (0..head_dim).map(|i| value(Input::Queries, query_at + i)).collect();
    let seen = past + (token - first) as u32 + 1;
    // Where a position's key or value comes from: the cache, or the new tokens.
    let at = |position: u32, new: Input, plane: u64| {
        if position < past {
            let slot = u64::from(inputs.slot(sequence, position)) + plane * u64::from(inputs.slots);
            (Input::KvCache, slot * row + head_kv * head_dim)
        } else {
            (new, (first + u64::from(position - past)) * row + head_kv * head_dim)
        }
    };
    let scores: Vec<f64> = (0..seen)
        .map(|position| {
            let (input, key) = at(position, Input::NewKeys, 0);
            let dot: f64 = query.iter().zip(key..).map(|(q, i)| q * value(input, i)).sum();
            dot * f64::from(SOFTMAX_SCALE)
        })
        .collect();
    let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - highest).exp()).collect();
    let total: f64 = weights.iter().sum();
    let mut output = vec![0.0; head_dim as usize];
    for (position, weight) in (0..).zip(&weights) {
        let (input, from) = at(position, Input::NewValues, 1);
        for (out, i) in output.iter_mut().zip(from..) {
            *out += weight / total * value(input, i);
        }
    }
    output
}

/// Up to `most` of `0..count`, ascending; all of them if there are no more. Always the first and last.
fn picks(count: u64, most: usize) -> Vec<u64> {
    if count <= most as u64 {
        return (0..count).collect();
    }
    let mut rng = ChaCha8Rng::seed_from_u64(count);
    let mut at: Vec<u64> = sample(&mut rng, count as usize, most - 2).iter().map(|i| i as u64).collect();
    at.extend([0, count - 1]);
    at.sort_unstable();
    at.dedup();
    at
}

/// The largest error among probes, as a share of the element's size plus the root mean square of all.
/// NaN counts as infinite.
pub(super) fn largest_error(probes: &[Probe], read: &[Vec<f64>]) -> f64 {
    let expected = || probes.iter().flat_map(|probe| &probe.expected);
    let count = expected().count();
    if count == 0 {
        return 0.0;
    }
    let rms = (expected().map(|x| x * x).sum::<f64>() / count as f64).sqrt().max(f64::MIN_POSITIVE);
    let errors = expected().zip(read.iter().flatten()).map(|(x, got)| (got - x).abs() / (x.abs() + rms));
    errors.map(|error| if error.is_nan() { f64::INFINITY } else { error }).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::super::device::ElementType;
    use super::super::operation::Sequence;
    use super::*;

    #[test]
    fn a_product_is_the_sum_of_its_products() {
        let operation = Operation::Gemm { format: GemmFormat::Bf16, m: 2, n: 3, k: 2 };
        let probes = probes(&operation);
        assert_eq!(probes.len(), 6);
        let (a, w) = (|i| value(Input::Activations, i), |i| value(Input::Weights, i));
        // Row 1, column 2.
        assert_eq!(probes[5], Probe { first: 5, expected: vec![a(2) * w(4) + a(3) * w(5)] });
    }

    #[test]
    fn the_first_token_of_a_prompt_sees_itself_alone() {
        let batch = Batch::Prefill { sequences: 1, q_len: 4, kv_past: 0 };
        let attention = Attention { batch, heads_q: 4, heads_kv: 2, head_dim: 8, block_size: 16 };
        let inputs = AttentionInputs::new(&attention);
        // Query heads 2 and 3 share KV head 1.
        let expected: Vec<f64> = (8..16).map(|i| value(Input::NewValues, i)).collect();
        assert_eq!(attention_row(&attention, &inputs, 0, 3), expected);
    }

    #[test]
    fn one_forgotten_token_is_seen() {
        let batch = Batch::Decode { sequences: 1, kv_len: 77 };
        let attention = Attention { batch, heads_q: 1, heads_kv: 1, head_dim: 128, block_size: 16 };
        let inputs = AttentionInputs::new(&attention);
        let right = attention_row(&attention, &inputs, 0, 0);
        // The last of the earlier tokens is left out, the token's own key takes its place.
        let sequences = vec![Sequence { q_len: 1, kv_len: 76 }];
        let wrong = attention_row(&attention, &AttentionInputs { sequences, ..inputs }, 0, 0);
        let probe = [Probe { first: 0, expected: right }];
        let error = largest_error(&probe, &[wrong]);
        assert!(error > 3.0 * ElementType::Bf16.tolerance(), "{error}");
    }

    #[test]
    fn nan_is_an_error() {
        let probe = [Probe { first: 0, expected: vec![1.0] }];
        assert_eq!(largest_error(&probe, &[vec![f64::NAN]]), f64::INFINITY);
        assert_eq!(largest_error(&probe, &[vec![1.5]]), 0.25);
    }
}
