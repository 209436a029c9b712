//! Timing tables: CSV with a header, one measured kernel on a row.
//!
//! Every table has `gpu`, `op`, `dtype` and `time_us`, and the columns of its operations; further
//! columns do not matter. Rows of GPUs that the catalogue does not hold and rows whose `timing` holds
//! the host's launch time are left out, and counted.

use std::path::Path;

use super::operation::Timing;
use super::operations::{DecodeShape, GemmShape, MixedShape, PrefillShape, RoutingMemo, SamplerShape};
use super::row::Row;
use super::{CalibrateError, Timings};
use crate::catalog::Gpu;
use crate::text_file::{csv_problem, read_text, repeated_column};

const OPERATIONS: &str = "gemm, prefill_attention, decode_attention, mixed_attention, moe, all_reduce, \
     nccl_all_reduce, nccl_all_gather, nccl_alltoall, nccl_reduce_scatter, elementwise, sampler";

/// What every row has.
const COLUMNS: [&str; 4] = ["gpu", "op", "dtype", "time_us"];

impl Timings {
    /// Reads tables, one after the other.
    ///
    /// # Errors
    /// The first problem, with the file, the line and the column.
    pub fn read<P: AsRef<Path>>(paths: &[P]) -> Result<Self, CalibrateError> {
        let mut timings = Self::default();
        let mut routings = RoutingMemo::default();
        for path in paths {
            read_rows(path.as_ref(), &COLUMNS, |row| timings.add(row, &mut routings))?;
        }
        Ok(timings)
    }

    fn add(&mut self, row: &Row<'_>, routings: &mut RoutingMemo) -> Result<(), CalibrateError> {
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
                let shape =
                    PrefillShape { heads: row.heads()?, batch: row.count("batch")?, chunk: row.chunk()? };
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
                let shape = row.moe(routings)?;
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
            "elementwise" => push!(elementwise, row.elementwise()?),
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

/// Calls `each` with every row of a table that has the columns `needed`.
pub(super) fn read_rows(
    path: &Path,
    needed: &[&str],
    mut each: impl FnMut(&Row<'_>) -> Result<(), CalibrateError>,
) -> Result<(), CalibrateError> {
    let wrong = |line: u64, problem: String, hint: String| CalibrateError::Row {
        path: path.to_owned(),
        line,
        problem,
        hint,
    };
    let unreadable = |error: &csv::Error| {
        let (line, problem) = csv_problem(error);
        wrong(line, problem, "give each row a value for every column of the header".to_owned())
    };
    let text = read_text(path)?;
    let mut reader = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| unreadable(&error))?.clone();
    if let Some(name) = repeated_column(&header) {
        let problem = format!("there are two columns `{name}`");
        return Err(wrong(1, problem, "leave one of them out".to_owned()));
    }
    if let Some(column) = needed.iter().find(|column| !header.iter().any(|name| name == **column)) {
        let problem = if text.trim().is_empty() {
            "the file is empty".to_owned()
        } else {
            format!("the column `{column}` is missing")
        };
        let hint = format!("give a CSV table with the columns {}, with commas between", needed.join(", "));
        return Err(wrong(1, problem, hint));
    }
    let mut records = 0;
    for record in reader.records() {
        let record = record.map_err(|error| unreadable(&error))?;
        let line = record.position().map_or(1, csv::Position::line);
        each(&Row { path, line, header: &header, record: &record })?;
        records += 1;
    }
    if records == 0 {
        let hint = "give a timing on each line after the header".to_owned();
        return Err(wrong(1, "the table has no rows".to_owned(), hint));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Timings, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("table.csv");
        std::fs::write(&path, text).unwrap();
        Timings::read(&[&path]).map_err(|error| {
            error
                .to_string()
                .replace(&dir.path().display().to_string(), "")
                .trim_start_matches('/')
                .to_owned()
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
    fn shapes_that_cannot_be_are_refused() {
        for (header, row, expected) in [
            (
                "num_gpus,bytes",
                "all_reduce,bfloat16,1,4096",
                "table.csv:2: column 5 (`num_gpus`): one GPU has nobody to send to",
            ),
            (
                "batch,kv_len,heads_q,heads_kv,head_dim",
                "decode_attention,bfloat16,1,128,32,7,128",
                "table.csv:2: column 8 (`heads_kv`): 32 query heads cannot share 7 evenly",
            ),
            (
                "tokens,hidden,inter,topk,experts,moe_tp,moe_ep",
                "moe,bfloat16,8,4096,4096,8,4,1,1",
                "table.csv:2: column 8 (`topk`): a token cannot choose 8 of 4 experts",
            ),
            (
                "tokens,hidden,inter,topk,experts,moe_tp,moe_ep",
                "moe,bfloat16,8,4096,4096,2,4,1,8",
                "table.csv:2: column 11 (`moe_ep`): 8 ranks cannot share 4 experts",
            ),
        ] {
            let error = read(&format!("gpu,time_us,op,dtype,{header}\nH100,3.5,{row}\n")).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
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
            ("H100,moe,fp8,8,16,32,1\n", "table.csv:1: the column `hidden` is missing"),
            ("", "table.csv:1: the table has no rows"),
        ] {
            let error = read(&format!("{header}{rows}")).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
            assert!(error.contains("\n  help: "), "{error}");
        }
    }

    #[test]
    fn a_file_that_is_no_table_is_told() {
        for (text, expected) in [
            ("", "table.csv:1: the file is empty"),
            ("{\"a\": 1}\n", "table.csv:1: the column `gpu` is missing"),
            ("gpu;op;dtype;time_us\nH100;gemm;fp8;1\n", "table.csv:1: the column `gpu` is missing"),
            ("gpu,op,dtype,m,m,time_us\n", "table.csv:1: there are two columns `m`"),
            ("gpu,op,dtype,m,n,k\nH100,gemm,fp8,1,1,1\n", "table.csv:1: the column `time_us` is missing"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.starts_with(expected) && error.contains("\n  help: "), "{error}");
        }
    }
}
