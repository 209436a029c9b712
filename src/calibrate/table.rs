//! Timing tables: CSV with a header, one measured kernel on a row.
//!
//! Every table has `gpu`, `op`, `dtype` and `time_us`, and the columns of its operations; further
//! columns do not matter. Rows of GPUs that the catalogue does not hold and rows whose `timing` holds
//! the host's launch time are left out, and counted.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::Path;

use csv::StringRecord;

use super::CalibrateError;
use super::operation::Timing;
use super::operations::{
    CollectiveShape, DecodeShape, ElementwiseShape, GemmShape, Heads, MixedShape, MoeTiming, PrefillShape,
    SamplerShape,
};
use crate::catalog::Gpu;
use crate::cost::{Format, PrefillChunk};

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

const OPERATIONS: &str = "gemm, prefill_attention, decode_attention, mixed_attention, moe, all_reduce, \
     nccl_all_reduce, nccl_all_gather, nccl_alltoall, nccl_reduce_scatter, elementwise, sampler";
const DTYPES: &str = "bfloat16, float16, fp8, fp8_block, int4_wo, nvfp4, w4a16_mxfp4, w4a8_mxfp4_mxfp8";

impl Timings {
    /// Reads tables, one after the other.
    ///
    /// # Errors
    /// The first problem, with the file, the line and the column.
    pub fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Self, CalibrateError> {
        let mut timings = Self::default();
        for path in paths {
            timings.read_table(path.as_ref())?;
        }
        Ok(timings)
    }

    /// Names of the GPUs that have rows.
    pub fn gpus(&self) -> BTreeSet<&'static str> {
        let mut gpus = BTreeSet::new();
        macro_rules! collect {
            ($($list:ident),*) => { $( gpus.extend(self.$list.iter().map(|row| row.gpu.name)); )* };
        }
        for_all_operations!(collect);
        gpus
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
        let left_out = &mut self.left_out;
        macro_rules! keep {
            ($($list:ident),*) => { $( keep_largest_source(&mut self.$list, left_out); )* };
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

    fn read_table(&mut self, path: &Path) -> Result<(), CalibrateError> {
        let bytes = std::fs::read(path)
            .map_err(|source| CalibrateError::Read { path: path.to_owned(), source })?;
        let mut reader = csv::ReaderBuilder::new().from_reader(bytes.as_slice());
        let header = reader.headers().map_err(|error| unreadable(path, &error))?.clone();
        let mut records = 0;
        for record in reader.records() {
            let record = record.map_err(|error| unreadable(path, &error))?;
            let line = record.position().map_or(1, csv::Position::line);
            self.add(&Row { path, line, header: &header, record: &record })?;
            records += 1;
        }
        if records == 0 {
            return Err(CalibrateError::Row {
                path: path.to_owned(),
                line: 1,
                problem: "the table has no rows".to_owned(),
                hint: "give a CSV file with a header and one timing on each line".to_owned(),
            });
        }
        Ok(())
    }

    fn leave_out(&mut self, reason: String) {
        *self.left_out.entry(reason).or_default() += 1;
    }

    fn add(&mut self, row: &Row<'_>) -> Result<(), CalibrateError> {
        let op = row.text("op")?;
        let gpu_name = row.text("gpu")?;
        let time_us = row.time_us()?;
        let format = row.format()?;
        let timing = row.optional("timing");
        let source = row.source();
        let gpu = Gpu::find(gpu_name);
        if timing.contains("launch floor inside") {
            self.leave_out("host launch time inside".to_owned());
            return Ok(());
        }
        let Ok(gpu) = gpu else {
            self.leave_out(format!("the GPU {gpu_name} is not in the catalogue"));
            return Ok(());
        };
        macro_rules! push {
            ($list:ident, $shape:expr) => {
                self.$list.push(Timing { gpu, format, shape: $shape, time_us, source })
            };
        }
        match op {
            "gemm" => {
                let shape = GemmShape { m: row.count("m")?, n: row.count("n")?, k: row.count("k")? };
                push!(gemm, shape);
            }
            "decode_attention" => {
                let (batch, kv_len) = (row.count("batch")?, row.count("kv_len")?);
                push!(decode_attention, DecodeShape { heads: row.heads()?, batch, kv_len });
            }
            "prefill_attention" => {
                let shape = PrefillShape { heads: row.heads()?, batch: row.count("batch")?, chunk: row.chunk()? };
                push!(prefill_attention, shape);
            }
            "mixed_attention" => {
                let shape = MixedShape {
                    heads: row.heads()?,
                    chunk: row.chunk()?,
                    num_decodes: row.count("n_decode")?,
                    kv_decode: row.count("kv_decode")?,
                };
                push!(mixed_attention, shape);
            }
            "moe" => {
                let shape = row.moe()?;
                push!(moe, shape);
            }
            "all_reduce" => push!(all_reduce, row.collective()?),
            "nccl_all_gather" => push!(all_gather, row.collective()?),
            "nccl_alltoall" => push!(all_to_all, row.collective()?),
            "nccl_reduce_scatter" => push!(reduce_scatter, row.collective()?),
            "nccl_all_reduce" => {
                row.collective()?;
                self.leave_out("NCCL's all-reduce; vLLM's own is fitted".to_owned());
            }
            "elementwise" => {
                let bytes_per_value = row.elementwise_bytes()?;
                let (tokens, hidden) = (row.count("tokens")?, row.count("hidden")?);
                push!(elementwise, ElementwiseShape { tokens, hidden, bytes_per_value });
            }
            "sampler" => {
                push!(sampler, SamplerShape { sequences: row.count("tokens")?, vocab: row.count("hidden")? });
            }
            other => {
                return Err(row.wrong("op", format!("there is no operation `{other}`"), OPERATIONS));
            }
        }
        Ok(())
    }
}

fn keep_largest_source<S>(rows: &mut Vec<Timing<S>>, left_out: &mut BTreeMap<String, usize>) {
    let mut counts: BTreeMap<(&str, String), usize> = BTreeMap::new();
    for row in rows.iter() {
        *counts.entry((row.gpu.name, row.source.clone())).or_default() += 1;
    }
    rows.retain(|row| {
        let own = counts[&(row.gpu.name, row.source.clone())];
        let is_largest = counts.iter().all(|((gpu, source), count)| {
            *gpu != row.gpu.name || *count < own || (*count == own && *source >= row.source)
        });
        if !is_largest {
            let reason = format!("of {} on {}, where another source has more", row.source, row.gpu.name);
            *left_out.entry(reason).or_default() += 1;
        }
        is_largest
    });
}

fn remove_same<S: std::fmt::Debug>(
    rows: &mut Vec<Timing<S>>,
    fitted: &[Timing<S>],
    left_out: &mut BTreeMap<String, usize>,
) {
    let identity = |row: &Timing<S>| {
        (row.gpu.name, row.format, format!("{:?}", row.shape), row.time_us.to_bits())
    };
    let fitted: HashSet<_> = fitted.iter().map(identity).collect();
    let before = rows.len();
    rows.retain(|row| !fitted.contains(&identity(row)));
    if rows.len() < before {
        *left_out.entry("fitted".to_owned()).or_default() += before - rows.len();
    }
}

fn unreadable(path: &Path, error: &csv::Error) -> CalibrateError {
    let line = error.position().map_or(1, csv::Position::line);
    let problem = match error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("the row has {len} values, the header {expected_len}")
        }
        csv::ErrorKind::Utf8 { .. } => "the row is not UTF-8 text".to_owned(),
        other => format!("{other:?}"),
    };
    let hint = "give each row a value for every column of the header".to_owned();
    CalibrateError::Row { path: path.to_owned(), line, problem, hint }
}

struct Row<'a> {
    path: &'a Path,
    line: u64,
    header: &'a StringRecord,
    record: &'a StringRecord,
}

impl Row<'_> {
    fn position(&self, column: &str) -> Option<usize> {
        self.header.iter().position(|name| name == column)
    }

    fn wrong(&self, column: &str, problem: String, known: &str) -> CalibrateError {
        CalibrateError::Value {
            path: self.path.to_owned(),
            line: self.line,
            column: self.position(column).map_or(1, |index| index + 1),
            name: column.to_owned(),
            problem,
            hint: format!("use one of: {known}"),
        }
    }

    fn optional(&self, column: &str) -> &str {
        self.position(column).map_or("", |index| &self.record[index])
    }

    fn text(&self, column: &str) -> Result<&str, CalibrateError> {
        let Some(index) = self.position(column) else {
            let op = self.optional("op");
            return Err(CalibrateError::Row {
                path: self.path.to_owned(),
                line: 1,
                problem: format!("the column `{column}` is missing"),
                hint: match op {
                    "" => "every table has gpu, op, dtype and time_us".to_owned(),
                    op => format!("add `{column}`, which rows of {op} need"),
                },
            });
        };
        Ok(&self.record[index])
    }

    /// A number; empty is an error.
    fn number(&self, column: &str, wanted: &str, is_fine: impl Fn(f64) -> bool) -> Result<f64, CalibrateError> {
        let text = self.text(column)?;
        match text.trim().parse::<f64>() {
            Ok(value) if is_fine(value) => Ok(value),
            _ => Err(CalibrateError::Value {
                path: self.path.to_owned(),
                line: self.line,
                column: self.position(column).map_or(1, |index| index + 1),
                name: column.to_owned(),
                problem: if text.trim().is_empty() {
                    "there is no value".to_owned()
                } else {
                    format!("found `{text}`")
                },
                hint: format!("give {wanted}"),
            }),
        }
    }

    /// Who measured it, and with which release.
    fn source(&self) -> String {
        match (self.optional("source"), self.optional("framework")) {
            (source, "") => source.to_owned(),
            (source, framework) => format!("{source} ({framework})"),
        }
    }

    fn time_us(&self) -> Result<f64, CalibrateError> {
        self.number("time_us", "microseconds above 0", |time| time.is_finite() && time > 0.0)
    }

    fn count(&self, column: &str) -> Result<u32, CalibrateError> {
        let is_count = |value: f64| value.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&value);
        Ok(self.number(column, "a whole number from 1", is_count)? as u32)
    }

    /// A count that may be 0 or, where it does not apply, empty.
    fn count_or_0(&self, column: &str) -> Result<u32, CalibrateError> {
        if self.optional(column).trim().is_empty() {
            return Ok(0);
        }
        let is_count = |value: f64| value.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(&value);
        Ok(self.number(column, "a whole number from 0", is_count)? as u32)
    }

    /// Of the KV cache where there is one, of weights and activations otherwise.
    fn format(&self) -> Result<Format, CalibrateError> {
        let column = if self.optional("kv_dtype").is_empty() { "dtype" } else { "kv_dtype" };
        Ok(match self.text(column)? {
            "bfloat16" | "float16" => Format::Bf16,
            // Logits; no product has a law in 32 bits.
            "float32" if self.optional("op") == "sampler" => Format::Bf16,
            "fp8" => Format::Fp8,
            "fp8_block" => Format::Fp8Block,
            "int4_wo" => Format::Int4,
            "nvfp4" => Format::Nvfp4,
            "w4a16_mxfp4" if self.optional("kernel").contains("gptoss") => Format::Mxfp4,
            "w4a16_mxfp4" => Format::Mxfp4Marlin,
            "w4a8_mxfp4_mxfp8" => Format::Mxfp4Mxfp8,
            other => return Err(self.wrong(column, format!("there is no format `{other}`"), DTYPES)),
        })
    }

    fn heads(&self) -> Result<Heads, CalibrateError> {
        let window = self.count_or_0("window")?;
        Ok(Heads {
            heads_q: self.count("heads_q")?,
            heads_kv: self.count("heads_kv")?,
            head_dim: self.count("head_dim")?,
            window_tokens: (window > 0).then_some(window),
        })
    }

    fn chunk(&self) -> Result<PrefillChunk, CalibrateError> {
        Ok(PrefillChunk {
            num_tokens: self.count("q_len")?,
            num_computed_tokens: self.count_or_0("kv_past")?,
        })
    }

    fn moe(&self) -> Result<MoeTiming, CalibrateError> {
        let (hidden, inter) = (self.count("hidden")?, self.count("inter")?);
        let (topk, experts) = (self.count("topk")?, self.count("experts")?);
        Ok(MoeTiming {
            tokens: self.count("tokens")?,
            hidden,
            inter: (inter / self.count("moe_tp")?).max(1),
            experts_per_token: topk,
            num_experts: experts,
            expert_matrices: self.expert_matrices((hidden, inter, topk, experts)),
            expert_parallel: self.count("moe_ep")?,
            activated_experts: Some(self.count_or_0("activated_experts")?).filter(|&count| count > 0),
        })
    }

    fn collective(&self) -> Result<CollectiveShape, CalibrateError> {
        Ok(CollectiveShape { num_gpus: self.count("num_gpus")?, bytes: f64::from(self.count("bytes")?) })
    }

    /// Read and written for each value of the output, in 16 bits, by the kernel's name.
    fn elementwise_bytes(&self) -> Result<f64, CalibrateError> {
        Ok(match self.text("kernel")? {
            // Gate and up in, one out.
            "act_fn" => 6.0,
            // With the residual: two in, two out.
            "layernorm" | "final_layernorm" => 8.0,
            // Kernels of 2024, which pass over their operands more than once.
            "add" => 5.5,
            "mlp_act" => 9.0,
            "input_layernorm" | "post_attention_layernorm" => 10.0,
            "attn_rope" => 12.0,
            "emb" => 20.0,
            // One in, one out.
            _ => 4.0,
        })
    }

    /// Weight matrices of an expert: three with a gate. Nemotron 3's experts have none (squared
    /// ReLU), which vLLM's benchmarks know since 0.24; no column says so.
    fn expert_matrices(&self, shape: (u32, u32, u32, u32)) -> u32 {
        let (hidden, inter, topk, experts) = shape;
        let is_nemotron = (hidden, inter, topk, experts) == (2688, 1856, 6, 128) || (topk, experts) == (22, 512);
        let is_old = self.optional("framework") == "vllm-0.14.0";
        if is_nemotron && !is_old { 2 } else { 3 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Timings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table.csv");
        std::fs::write(&path, text).unwrap();
        Timings::read(&[&path]).map_err(|error| {
            error.to_string().replace(&dir.path().display().to_string(), "").trim_start_matches('/').to_owned()
        })
    }

    #[test]
    fn rows_go_to_their_operation() {
        let timings = read(
            "gpu,op,dtype,m,n,k,time_us,timing\n\
             H100-SXM,gemm,bfloat16,8,1024,2048,3.5,graph\n\
             H100-SXM,gemm,fp8,8,1024,2048,3.5,eager (host launch floor inside)\n\
             Z9000,gemm,fp8,8,1024,2048,3.5,graph\n",
        )
        .unwrap();
        assert_eq!(timings.gemm.len(), 1);
        assert_eq!(timings.gemm[0].gpu.name, "H100-SXM");
        assert_eq!(timings.left_out.values().sum::<usize>(), 2);
    }

    #[test]
    fn errors_name_the_place_and_what_to_give() {
        let header = "gpu,op,dtype,m,n,k,time_us\n";
        for (rows, expected) in [
            ("H100,gemm,bfloat16,8,16,32,-1\n", "table.csv:2: column 7 (`time_us`): found `-1`"),
            ("H100,gemm,bfloat16,8,16,32,NaN\n", "table.csv:2: column 7 (`time_us`): found `NaN`"),
            ("H100,gemm,bfloat16,8,16,32,\n", "table.csv:2: column 7 (`time_us`): there is no value"),
            ("H100,gemm,bfloat16,0,16,32,1\n", "table.csv:2: column 4 (`m`): found `0`"),
            ("H100,gemm,float7,8,16,32,1\n", "table.csv:2: column 3 (`dtype`): there is no format `float7`"),
            ("H100,jpeg,fp8,8,16,32,1\n", "table.csv:2: column 2 (`op`): there is no operation `jpeg`"),
            ("H100,gemm,fp8,8,16\n", "table.csv:2: the row has 5 values, the header 7"),
            ("H100,moe,fp8,8,16,32,1\n", "table.csv:1: the column `moe_tp` is missing"),
            ("", "table.csv:1: the table has no rows"),
        ] {
            let error = read(&format!("{header}{rows}")).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
            assert!(error.contains("\n  help: "), "{error}");
        }
    }
}
