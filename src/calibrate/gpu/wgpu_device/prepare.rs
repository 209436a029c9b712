//! Buffers and steps of an operation.

use super::super::attention_inputs::{AttentionInputs, SOFTMAX_SCALE};
use super::super::device::DeviceError;
use super::super::inputs::{Input, word};
use super::super::operation::{Attention, Direction, Operation};
use super::super::reference::kv_write_layout;
use super::context::{Context, Step, bytes_of};

/// One set of inputs with its output.
pub(super) struct Set {
    pub steps: Vec<Step>,
    /// None for an operation without one.
    pub output: Option<Output>,
}

#[derive(Clone)]
pub(super) struct Output {
    pub buffer: wgpu::Buffer,
    pub element: OutputElement,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutputElement {
    F16,
    F32,
    Word,
}

/// Up to so many tokens the narrow product is faster than the tiled one, which then computes rows
/// that nobody needs.
const NARROW_TOKENS: u32 = 16;
/// Attention shares out keys until there are so many workgroups, with at least so many keys each.
const ENOUGH_WORKGROUPS: u32 = 256;
const MIN_KEYS_PER_SPLIT: u32 = 128;

impl Context {
    pub(super) fn element_bytes(&self) -> u64 {
        if self.f16 { 2 } else { 4 }
    }

    /// Refuses sizes that the device cannot bind; wgpu would only say so when they are used.
    pub(super) fn sets_of(&self, operation: &Operation, sets: u32) -> Result<Vec<Set>, DeviceError> {
        let tables = match operation {
            Operation::Attention(attention) => Some(Tables::new(self, attention)),
            Operation::KvCacheWrite { tokens, heads_kv, head_dim } => {
                Some(Tables::new(self, &kv_write_layout(*tokens, *heads_kv, *head_dim)))
            }
            _ => None,
        };
        let one = || match (operation, &tables) {
            (Operation::DeviceCopy { bytes }, _) => self.device_copy(*bytes),
            (Operation::HostCopy { direction: Direction::HostToDevice, bytes, .. }, _) => self.upload(*bytes),
            (Operation::HostCopy { direction: Direction::DeviceToHost, bytes, .. }, _) => {
                self.download(*bytes)
            }
            (Operation::Gemm { m, n, k, .. }, _) => self.gemm(*m, *n, *k),
            (Operation::Attention(attention), Some(tables)) => self.attention(attention, tables),
            (Operation::KvCacheWrite { heads_kv, head_dim, .. }, Some(tables)) => {
                self.kv_cache_write(heads_kv * head_dim, tables)
            }
            _ => Ok(Set { steps: vec![self.dispatch_nothing()], output: None }),
        };
        (0..sets).map(|_| one()).collect()
    }

    fn fits(&self, bytes: u64) -> Result<(), DeviceError> {
        let most = self.limits.max_storage_buffer_binding_size.min(self.limits.max_buffer_size);
        if bytes <= most { Ok(()) } else { Err(DeviceError::OutOfMemory { bytes }) }
    }

    /// A buffer of so many elements with random values in it.
    fn filled(&self, input: Input, count: u64) -> Result<wgpu::Buffer, DeviceError> {
        let bytes = count * self.element_bytes();
        self.fits(bytes)?;
        let buffer = self.storage(bytes);
        self.fill("fill_elements", 1, input, &buffer, count)?;
        Ok(buffer)
    }

    fn filled_words(&self, count: u64) -> Result<wgpu::Buffer, DeviceError> {
        self.fits(count * 4)?;
        let buffer = self.storage(count * 4);
        self.fill("fill_words", 2, Input::CopySource, &buffer, count)?;
        Ok(buffer)
    }

    fn fill(
        &self,
        kernel: &str,
        binding: u32,
        input: Input,
        buffer: &wgpu::Buffer,
        count: u64,
    ) -> Result<(), DeviceError> {
        let params = [input as u32, count as u32];
        let step = self.dispatch(kernel, &params, &[(binding, buffer)], self.workgroups_of(count));
        self.submit(std::iter::once(&step)).map(|_| ())
    }

    fn output(&self, count: u64) -> Result<Output, DeviceError> {
        let bytes = count * self.element_bytes();
        self.fits(bytes)?;
        let element = if self.f16 { OutputElement::F16 } else { OutputElement::F32 };
        Ok(Output { buffer: self.storage(bytes), element })
    }

    fn device_copy(&self, bytes: u64) -> Result<Set, DeviceError> {
        let from = self.filled_words(bytes / 4)?;
        let to = self.storage(bytes);
        let count = bytes / 16;
        let step = self.dispatch("copy", &[count as u32], &[(1, &from), (2, &to)], self.workgroups_of(count));
        Ok(Set { steps: vec![step], output: Some(Output { buffer: to, element: OutputElement::Word }) })
    }

    fn upload(&self, bytes: u64) -> Result<Set, DeviceError> {
        let from = self.device.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: bytes,
            usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
            mapped_at_creation: true,
        });
        let words: Vec<u32> = (0..(bytes / 4) as u32).map(|i| word(Input::CopySource, i)).collect();
        let filled = from.get_mapped_range_mut(..).map(|mut view| view.copy_from_slice(&bytes_of(&words)));
        filled.map_err(|error| DeviceError::Call {
            call: "filling host memory".to_owned(),
            message: error.to_string(),
        })?;
        from.unmap();
        let to = self.storage(bytes);
        let output = Some(Output { buffer: to.clone(), element: OutputElement::Word });
        Ok(Set { steps: vec![Step::Copy { from, to, bytes }], output })
    }

    fn download(&self, bytes: u64) -> Result<Set, DeviceError> {
        let from = self.filled_words(bytes / 4)?;
        let to = self.buffer(bytes, wgpu::BufferUsages::MAP_READ);
        let output = Some(Output { buffer: to.clone(), element: OutputElement::Word });
        Ok(Set { steps: vec![Step::Copy { from, to, bytes }], output })
    }

    fn gemm(&self, m: u32, n: u32, k: u32) -> Result<Set, DeviceError> {
        let a = self.filled(Input::Activations, u64::from(m) * u64::from(k))?;
        let w = self.filled(Input::Weights, u64::from(n) * u64::from(k))?;
        let output = self.output(u64::from(m) * u64::from(n))?;
        let (kernel, workgroups) = if m <= NARROW_TOKENS {
            ("narrow", [n / 4, m.div_ceil(8), 1])
        } else {
            ("tiled", [n / 64, m.div_ceil(64), 1])
        };
        let step = self.dispatch(kernel, &[m, n, k], &[(1, &a), (2, &w), (3, &output.buffer)], workgroups);
        Ok(Set { steps: vec![step], output: Some(output) })
    }

    fn kv_cache_write(&self, row: u32, tables: &Tables) -> Result<Set, DeviceError> {
        let cache = self.filled(Input::KvCache, 2 * u64::from(tables.inputs.slots) * u64::from(row))?;
        let step = self.write_step(row, tables, &cache)?;
        let element = if self.f16 { OutputElement::F16 } else { OutputElement::F32 };
        Ok(Set { steps: vec![step], output: Some(Output { buffer: cache, element }) })
    }

    fn write_step(&self, row: u32, tables: &Tables, cache: &wgpu::Buffer) -> Result<Step, DeviceError> {
        let inputs = &tables.inputs;
        let count = u64::from(inputs.tokens) * u64::from(row);
        let new_keys = self.filled(Input::NewKeys, count)?;
        let new_values = self.filled(Input::NewValues, count)?;
        Ok(self.dispatch(
            "kv_cache_write",
            &[inputs.tokens, row / 4, inputs.slots],
            &[(1, &new_keys), (2, &new_values), (3, &tables.slot_mapping), (4, cache)],
            self.workgroups_of(count / 4),
        ))
    }

    fn attention(&self, attention: &Attention, tables: &Tables) -> Result<Set, DeviceError> {
        let Attention { heads_q, heads_kv, head_dim, block_size, .. } = *attention;
        let inputs = &tables.inputs;
        let row = heads_kv * head_dim;
        let cache = self.filled(Input::KvCache, 2 * u64::from(inputs.slots) * u64::from(row))?;
        let outputs = u64::from(inputs.tokens) * u64::from(heads_q) * u64::from(head_dim);
        let queries = self.filled(Input::Queries, outputs)?;
        let output = self.output(outputs)?;
        let row_tiles = (inputs.longest_q() * (heads_q / heads_kv)).div_ceil(16);
        let sequences = inputs.sequences.len() as u32;
        let splits = ENOUGH_WORKGROUPS
            .div_ceil(row_tiles * heads_kv * sequences)
            .min(inputs.longest_kv().div_ceil(MIN_KEYS_PER_SPLIT))
            .max(1);
        let split_outputs = if splits == 1 { 1 } else { u64::from(splits) * outputs };
        self.fits(split_outputs * 4)?;
        let parts = self.storage(split_outputs * 4);
        let sums = self.storage((split_outputs / u64::from(head_dim)).max(1) * 8);
        let params = [
            heads_q,
            heads_kv,
            block_size,
            inputs.blocks_per_row,
            inputs.slots,
            splits,
            inputs.tokens,
            SOFTMAX_SCALE.to_bits(),
        ];
        let mut steps = vec![self.write_step(row, tables, &cache)?];
        steps.push(self.dispatch(
            "attention",
            &params,
            &[
                (1, &queries),
                (2, &cache),
                (3, &tables.block_table),
                (4, &tables.sequences),
                (5, &output.buffer),
                (6, &parts),
                (7, &sums),
            ],
            [row_tiles, heads_kv, sequences * splits],
        ));
        if splits > 1 {
            steps.push(self.dispatch(
                "combine",
                &params,
                &[(5, &output.buffer), (6, &parts), (7, &sums)],
                [inputs.tokens, heads_q, 1],
            ));
        }
        Ok(Set { steps, output: Some(output) })
    }
}

/// What all sets of a batch share.
struct Tables {
    inputs: AttentionInputs,
    block_table: wgpu::Buffer,
    sequences: wgpu::Buffer,
    slot_mapping: wgpu::Buffer,
}

impl Tables {
    fn new(context: &Context, attention: &Attention) -> Self {
        let inputs = AttentionInputs::new(attention);
        let words = |words: &[u32]| context.words(words, wgpu::BufferUsages::STORAGE);
        Self {
            block_table: words(&inputs.block_table),
            sequences: words(&inputs.sequence_words()),
            slot_mapping: words(&inputs.slot_mapping),
            inputs,
        }
    }
}
