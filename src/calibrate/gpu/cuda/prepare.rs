//! Buffers and steps of an operation.

use std::rc::Rc;

use cudarc::driver::sys;

use super::CudaDevice;
use super::all_reduce::AllReduce;
use super::driver::{Buffer, Graph, HostMemory};
use super::step::Step;
use crate::calibrate::gpu::attention_inputs::{AttentionInputs, SOFTMAX_SCALE};
use crate::calibrate::gpu::device::DeviceError;
use crate::calibrate::gpu::inputs::{Input, word};
use crate::calibrate::gpu::operation::{Attention, Direction, GemmFormat, Operation};
use crate::calibrate::gpu::reference::kv_write_layout;

/// Where a result is read from.
pub(super) enum Output {
    Bf16(sys::CUdeviceptr),
    Words(sys::CUdeviceptr),
    HostWords(*const u8),
    None,
}

/// One set of inputs with its output.
pub(super) struct Set {
    pub steps: Vec<Step>,
    pub output: Output,
    /// Own what the steps point to.
    _buffers: Vec<Buffer>,
    _host: Option<HostMemory>,
    _shared: Option<Rc<Tables>>,
}

/// Threads of the kernels that stride over their items.
const THREADS: u32 = 256;
const MAX_BLOCKS: u64 = 1 << 16;
/// Up to so many tokens the narrow product is used, which reads weights as they come.
const NARROW_TOKENS: u32 = 32;
/// Keys, or steps along k, are shared out until there are so many blocks for each SM, with at least so
/// many keys or steps each.
const BLOCKS_PER_SM: u32 = 4;
const MIN_KEYS_PER_SPLIT: u32 = 128;
const MIN_STEPS_PER_SPLIT: u32 = 16;

/// What all sets of a batch share.
pub(super) struct Tables {
    inputs: AttentionInputs,
    block_table: Buffer,
    sequences: Buffer,
    slot_mapping: Buffer,
}

impl Tables {
    fn new(attention: &Attention) -> Result<Self, DeviceError> {
        let inputs = AttentionInputs::new(attention);
        Ok(Self {
            block_table: Buffer::of_words(&inputs.block_table)?,
            sequences: Buffer::of_words(&inputs.sequence_words())?,
            slot_mapping: Buffer::of_words(&inputs.slot_mapping)?,
            inputs,
        })
    }
}

fn blocks_of(items: u64) -> [u32; 3] {
    [items.div_ceil(u64::from(THREADS)).clamp(1, MAX_BLOCKS) as u32, 1, 1]
}

impl CudaDevice {
    pub(super) fn sets_of(&self, operation: &Operation, sets: u32) -> Result<Vec<Set>, DeviceError> {
        let tables = match operation {
            Operation::Attention(attention) => Some(Rc::new(Tables::new(attention)?)),
            Operation::KvCacheWrite { tokens, heads_kv, head_dim } => {
                Some(Rc::new(Tables::new(&kv_write_layout(*tokens, *heads_kv, *head_dim))?))
            }
            _ => None,
        };
        let one = || match (operation, &tables) {
            (Operation::DeviceCopy { bytes }, _) => self.device_copy(*bytes),
            (Operation::HostCopy { direction, pinned, bytes }, _) => {
                self.host_copy(*direction, *pinned, *bytes)
            }
            (Operation::Gemm { format, m, n, k }, _) => self.gemm(*format, *m, *n, *k),
            (Operation::Attention(attention), Some(tables)) => self.attention(attention, tables),
            (Operation::KvCacheWrite { heads_kv, head_dim, .. }, Some(tables)) => {
                self.kv_cache_write(heads_kv * head_dim, tables)
            }
            (Operation::AllReduce { num_gpus, bytes }, _) => self.all_reduce(*num_gpus, *bytes),
            (Operation::GraphReplay { nodes }, _) => self.graph(*nodes),
            _ => Ok(set(vec![self.nothing()?], Output::None, Vec::new())),
        };
        (0..sets).map(|_| one()).collect()
    }

    fn kernel(
        &self,
        name: &str,
        grid: [u32; 3],
        threads: u32,
        arguments: Vec<u64>,
    ) -> Result<Step, DeviceError> {
        Ok(Step::Kernel { function: self.kernels.get(name)?, grid, threads, arguments })
    }

    fn nothing(&self) -> Result<Step, DeviceError> {
        self.kernel("nothing", [1; 3], 1, Vec::new())
    }

    /// A buffer of so many elements of `bytes` each, filled by a kernel with random values.
    fn filled(&self, kernel: &str, input: Input, count: u64, bytes: u64) -> Result<Buffer, DeviceError> {
        let buffer = Buffer::new(count * bytes)?;
        let arguments = vec![buffer.pointer, input as u64, count];
        self.kernel(kernel, blocks_of(count), THREADS, arguments)?.enqueue(self, self.timer.stream)?;
        Ok(buffer)
    }

    fn device_copy(&self, bytes: u64) -> Result<Set, DeviceError> {
        let from = self.filled("fill_words", Input::CopySource, bytes / 4, 4)?;
        let to = Buffer::new(bytes)?;
        let step = Step::DeviceCopy { from: from.pointer, to: to.pointer, bytes: bytes as usize };
        Ok(set(vec![step], Output::Words(to.pointer), vec![from, to]))
    }

    fn host_copy(&self, direction: Direction, pinned: bool, bytes: u64) -> Result<Set, DeviceError> {
        let mut memory = HostMemory::new(bytes as usize, pinned)?;
        match direction {
            Direction::HostToDevice => {
                for (i, to) in memory.bytes_mut().chunks_exact_mut(4).enumerate() {
                    to.copy_from_slice(&word(Input::CopySource, i as u32).to_le_bytes());
                }
                let to = Buffer::new(bytes)?;
                let step = Step::Upload { from: Rc::new(memory), to: to.pointer };
                Ok(set(vec![step], Output::Words(to.pointer), vec![to]))
            }
            Direction::DeviceToHost => {
                let from = self.filled("fill_words", Input::CopySource, bytes / 4, 4)?;
                let to = memory.bytes_mut().as_mut_ptr();
                let step = Step::Download { from: from.pointer, to, bytes: bytes as usize };
                let mut made = set(vec![step], Output::HostWords(to), vec![from]);
                made._host = Some(memory);
                Ok(made)
            }
        }
    }

    fn gemm(&self, format: GemmFormat, m: u32, n: u32, k: u32) -> Result<Set, DeviceError> {
        let (kernel, bytes) = match format {
            GemmFormat::Bf16 => ("fill_bf16", 2),
            GemmFormat::Fp8 => ("fill_fp8", 1),
        };
        let inputs = u64::from(m) * u64::from(k);
        let activations = self.filled("fill_bf16", Input::Activations, inputs, 2)?;
        let weights = self.filled(kernel, Input::Weights, u64::from(n) * u64::from(k), bytes)?;
        let outputs = u64::from(m) * u64::from(n);
        let output = Buffer::new(outputs * 2)?;
        if let Ok(cublaslt) = &self.cublaslt {
            let mut steps = Vec::new();
            let mut buffers = vec![activations, weights, output];
            let mut from = buffers[0].pointer;
            if format == GemmFormat::Fp8 {
                let quantised = Buffer::new(inputs)?;
                let arguments = vec![from, quantised.pointer, inputs / 8];
                steps.push(self.kernel("quantise_fp8", blocks_of(inputs / 8), THREADS, arguments)?);
                from = quantised.pointer;
                buffers.push(quantised);
            }
            let plan = cublaslt.plan(format, m, n, k)?;
            let (weights, output) = (buffers[1].pointer, buffers[2].pointer);
            steps.push(Step::Product { plan, activations: from, weights, output });
            return Ok(set(steps, Output::Bf16(output), buffers));
        }
        let (kernel, threads, mut grid) = if m <= NARROW_TOKENS {
            ("gemm_narrow", 128, [n.div_ceil(64), m.div_ceil(16), 1])
        } else {
            ("gemm_wide", 256, [n.div_ceil(128), m.div_ceil(128), 1])
        };
        let wanted = (BLOCKS_PER_SM * self.num_sms()).div_ceil(grid[0] * grid[1]);
        let splits = if m <= NARROW_TOKENS { wanted.min(k / 32 / MIN_STEPS_PER_SPLIT).max(1) } else { 1 };
        grid[2] = splits;
        let parts = Buffer::new(if splits > 1 { outputs * 4 * u64::from(splits) } else { 16 })?;
        let sizes = [m, n, k].map(u64::from);
        let mut arguments = vec![activations.pointer, weights.pointer, output.pointer, parts.pointer];
        arguments.extend(sizes);
        let mut steps = vec![self.kernel(kernel, grid, threads, arguments)?];
        if splits > 1 {
            let grid = [(outputs / 2).div_ceil(u64::from(THREADS)) as u32, 1, 1];
            let arguments = vec![parts.pointer, output.pointer, outputs, u64::from(splits)];
            steps.push(self.kernel("add_parts", grid, THREADS, arguments)?);
        }
        Ok(set(steps, Output::Bf16(output.pointer), vec![activations, weights, output, parts]))
    }

    /// The step that writes new tokens into a cache, with the buffers that it reads.
    fn write_step(
        &self,
        row: u32,
        tables: &Tables,
        cache: &Buffer,
    ) -> Result<(Step, [Buffer; 2]), DeviceError> {
        let inputs = &tables.inputs;
        let count = u64::from(inputs.tokens) * u64::from(row);
        let new_keys = self.filled("fill_bf16", Input::NewKeys, count, 2)?;
        let new_values = self.filled("fill_bf16", Input::NewValues, count, 2)?;
        let mut arguments =
            vec![new_keys.pointer, new_values.pointer, tables.slot_mapping.pointer, cache.pointer];
        arguments.extend([inputs.tokens, row / 8, inputs.slots].map(u64::from));
        let step = self.kernel("kv_cache_write", blocks_of(count / 8), THREADS, arguments)?;
        Ok((step, [new_keys, new_values]))
    }

    fn kv_cache_write(&self, row: u32, tables: &Rc<Tables>) -> Result<Set, DeviceError> {
        let count = 2 * u64::from(tables.inputs.slots) * u64::from(row);
        let cache = self.filled("fill_bf16", Input::KvCache, count, 2)?;
        let (step, [keys, values]) = self.write_step(row, tables, &cache)?;
        let mut made = set(vec![step], Output::Bf16(cache.pointer), vec![cache, keys, values]);
        made._shared = Some(Rc::clone(tables));
        Ok(made)
    }

    fn attention(&self, attention: &Attention, tables: &Rc<Tables>) -> Result<Set, DeviceError> {
        let Attention { heads_q, heads_kv, head_dim, block_size, .. } = *attention;
        let inputs = &tables.inputs;
        let row = heads_kv * head_dim;
        let cache =
            self.filled("fill_bf16", Input::KvCache, 2 * u64::from(inputs.slots) * u64::from(row), 2)?;
        let outputs = u64::from(inputs.tokens) * u64::from(heads_q) * u64::from(head_dim);
        let queries = self.filled("fill_bf16", Input::Queries, outputs, 2)?;
        let output = Buffer::new(outputs * 2)?;
        let rows = inputs.longest_q() * (heads_q / heads_kv);
        let (kernel, tile) = if rows <= 16 { ("attention_16", 16) } else { ("attention_64", 64) };
        let row_tiles = rows.div_ceil(tile);
        let sequences = inputs.sequences.len() as u32;
        let splits = (BLOCKS_PER_SM * self.num_sms())
            .div_ceil(row_tiles * heads_kv * sequences)
            .min(inputs.longest_kv().div_ceil(MIN_KEYS_PER_SPLIT))
            .max(1);
        let split_outputs = if splits == 1 { 0 } else { u64::from(splits) * outputs };
        let parts = Buffer::new(split_outputs * 4)?;
        let sums = Buffer::new(split_outputs / u64::from(head_dim) * 8)?;
        let mut arguments = vec![
            queries.pointer,
            cache.pointer,
            tables.block_table.pointer,
            tables.sequences.pointer,
            output.pointer,
            parts.pointer,
            sums.pointer,
        ];
        arguments.extend(
            [
                heads_q,
                heads_kv,
                block_size,
                inputs.blocks_per_row,
                inputs.slots,
                splits,
                inputs.tokens,
                SOFTMAX_SCALE.to_bits(),
            ]
            .map(u64::from),
        );
        let (write, [keys, values]) = self.write_step(row, tables, &cache)?;
        let grid = [row_tiles, heads_kv, sequences * splits];
        let mut steps = vec![write, self.kernel(kernel, grid, tile * 2, arguments)?];
        if splits > 1 {
            let mut arguments = vec![parts.pointer, sums.pointer, output.pointer];
            arguments.extend([heads_q, splits, inputs.tokens].map(u64::from));
            let grid = [inputs.tokens, heads_q, 1];
            steps.push(self.kernel("combine_attention", grid, head_dim, arguments)?);
        }
        let pointer = output.pointer;
        let buffers = vec![cache, queries, output, parts, sums, keys, values];
        let mut made = set(steps, Output::Bf16(pointer), buffers);
        made._shared = Some(Rc::clone(tables));
        Ok(made)
    }

    fn all_reduce(&self, num_gpus: u32, bytes: u64) -> Result<Set, DeviceError> {
        let nccl = self
            .nccl
            .as_ref()
            .map_err(|message| DeviceError::Call { call: "NCCL".to_owned(), message: message.clone() })?;
        let all_reduce = AllReduce::new(Rc::clone(nccl), self.ordinal, self.timer.stream, num_gpus, bytes)?;
        let output = Output::Bf16(all_reduce.output());
        Ok(set(vec![Step::AllReduce(Rc::new(all_reduce))], output, Vec::new()))
    }

    fn graph(&self, nodes: u32) -> Result<Set, DeviceError> {
        let nothing = self.nothing()?;
        let graph = Graph::capture(self.timer.stream, |stream| {
            (0..nodes).try_for_each(|_| nothing.enqueue(self, stream))
        })?;
        Ok(set(vec![Step::Graph(Rc::new(graph))], Output::None, Vec::new()))
    }
}

fn set(steps: Vec<Step>, output: Output, buffers: Vec<Buffer>) -> Set {
    Set { steps, output, _buffers: buffers, _host: None, _shared: None }
}
