//! `kvsim size`: how much KV cache a server of a model on some GPUs has.

use std::error::Error;
use std::fmt::{self, Write};
use std::path::Path;

use clap::Args;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::Error as ValueError;
use serde_json::{Value, json};

use super::console::{Console, Finished};
use crate::catalog::{Dtype, Gpu, Model, SizingError};
use crate::engine::config::SpecMethod;
use crate::scenario::{EngineSection, ServerSize, SpeculativeSection, find_model, suggest};

/// The sizes that are shown when none is asked for.
const USUAL_TENSOR_PARALLEL_SIZES: [u32; 4] = [1, 2, 4, 8];
const GIB: f64 = (1_u64 << 30) as f64;

/// Weights, KV cache and maximum concurrency of a model on a GPU, as vLLM would log them
#[derive(Debug, Args)]
pub(super) struct SizeArguments {
    /// A built-in model, or the path of a Hugging Face config.json
    model: String,
    /// A GPU of the catalogue, such as H100-SXM
    gpu: String,
    /// GPUs of a replica, or of each of its engine cores [default: 1, 2, 4 and 8 side by side]
    #[arg(long, visible_alias = "tp", value_name = "N")]
    tensor_parallel_size: Option<u32>,
    /// Engine cores of a replica, each on as many GPUs; they share the experts, where there are some
    #[arg(long, visible_alias = "dp", value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    data_parallel_size: u32,
    /// Longest request in tokens [default: the model's own limit]
    #[arg(long, value_name = "N")]
    max_model_len: Option<u32>,
    /// The share of the GPU's memory that vLLM may use
    #[arg(long, value_name = "SHARE", default_value_t = EngineSection::default().gpu_memory_utilization)]
    gpu_memory_utilization: f64,
    /// Number format of the weights, such as fp8 [default: the checkpoint's]
    #[arg(long, value_name = "FORMAT", value_parser = dtype)]
    quantization: Option<Dtype>,
    /// Number format of the KV cache, such as fp8 [default: the model's]
    #[arg(long, value_name = "FORMAT", value_parser = dtype)]
    kv_cache_dtype: Option<Dtype>,
    /// Tokens in a block
    #[arg(long, value_name = "N", default_value_t = EngineSection::default().block_size)]
    block_size: u32,
    /// Most running requests [default: vLLM's for the GPU]
    #[arg(long, value_name = "N")]
    max_num_seqs: Option<u32>,
    /// Most tokens in a step [default: vLLM's for the GPU]
    #[arg(long, value_name = "N")]
    max_num_batched_tokens: Option<u32>,
    /// No CUDA graphs, which take memory
    #[arg(long)]
    enforce_eager: bool,
    /// What makes drafts: eagle (a head with weights and KV cache of its own) or ngram (no memory)
    #[arg(long, value_name = "METHOD", value_parser = spec_method)]
    spec_method: Option<SpecMethod>,
}

fn dtype(text: &str) -> Result<Dtype, String> {
    let deserializer: serde::de::value::StrDeserializer<'_, ValueError> = text.into_deserializer();
    Dtype::deserialize(deserializer)
        .map_err(|_| "give bf16, fp8, int8, int4, mxfp4, nvfp4 or fp32".to_owned())
}

fn spec_method(text: &str) -> Result<SpecMethod, String> {
    let deserializer: serde::de::value::StrDeserializer<'_, ValueError> = text.into_deserializer();
    SpecMethod::deserialize(deserializer).map_err(|_| "give eagle or ngram".to_owned())
}

pub(super) fn size(arguments: &SizeArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let model = find_model(&arguments.model, Path::new(""))?;
    let gpu = Gpu::find(&arguments.gpu).map_err(|error| {
        format!("unknown GPU `{}`\n  help: {}", error.name, suggest(&error.name, &error.known))
    })?;
    let section = arguments.section();
    if let Some(max_model_len) = section.max_model_len
        && !(1..=model.max_position_embeddings).contains(&max_model_len)
    {
        return Err(format!(
            "--max-model-len is {max_model_len}, but {} was made for {} tokens\n  help: give 1 to {}",
            model.name, model.max_position_embeddings, model.max_position_embeddings
        )
        .into());
    }
    let at = |tensor_parallel_size| {
        ServerSize::new(&model, gpu, &EngineSection { tensor_parallel_size, ..section.clone() })
    };
    let mut text = String::new();
    if let Some(tp) = arguments.tensor_parallel_size {
        let size = at(tp).map_err(|error| in_gib(&error, &section, &model))?;
        print_one(&mut text, &model, gpu, &size)?;
        console.say(text.trim_end())?;
        return match size.starts() {
            true => Ok(Finished::new(to_json(&model, gpu, &[(tp, Ok(size))], &section)?)),
            false => Err(does_not_start(&size).into()),
        };
    }
    let sizes: Vec<(u32, Result<ServerSize, SizingError>)> =
        USUAL_TENSOR_PARALLEL_SIZES.into_iter().map(|tp| (tp, at(tp))).collect();
    if let Some(error) = sizes.iter().find_map(|(_, size)| size.as_ref().err())
        && sizes.iter().all(|(_, size)| size.is_err())
    {
        return Err(in_gib(error, &section, &model).into());
    }
    print_side_by_side(&mut text, &model, gpu, &sizes)?;
    console.say(text.trim_end())?;
    Ok(Finished::new(to_json(&model, gpu, &sizes, &section)?))
}

impl SizeArguments {
    fn section(&self) -> EngineSection {
        EngineSection {
            data_parallel_size: self.data_parallel_size,
            gpu_memory_utilization: self.gpu_memory_utilization,
            block_size: self.block_size,
            max_model_len: self.max_model_len,
            max_num_seqs: self.max_num_seqs,
            max_num_batched_tokens: self.max_num_batched_tokens,
            enforce_eager: self.enforce_eager,
            quantization: self.quantization,
            kv_cache_dtype: self.kv_cache_dtype,
            speculative_config: self.spec_method.map(|method| SpeculativeSection {
                method,
                // Neither changes a size.
                num_speculative_tokens: 1,
                acceptance_rate: 0.0,
                disable_lookahead_block_hashes: false,
            }),
            ..EngineSection::default()
        }
    }
}

/// The same in units that people think in and options of this command.
fn in_gib(error: &SizingError, section: &EngineSection, model: &Model) -> String {
    let weight_dtype = model.moe.as_ref().map_or(model.weight_dtype, |moe| moe.expert_dtype);
    match error {
        SizingError::DoesNotFit {
            model,
            gpu,
            tensor_parallel_size,
            missing_bytes,
            weight_bytes,
            overhead_bytes,
            requested_bytes,
            fitting_tensor_parallel_size,
        } => {
            let [missing, weights, overhead, requested] =
                [missing_bytes, weight_bytes, overhead_bytes, requested_bytes]
                    .map(|&bytes| bytes as f64 / GIB);
            let more_gpus = fitting_tensor_parallel_size
                .map_or_else(String::new, |tp| format!("--tensor-parallel-size {tp}, "));
            let is_16_bit = section.quantization.unwrap_or(weight_dtype) == Dtype::Bf16;
            let lighter = if is_16_bit { ", or --quantization fp8" } else { "" };
            format!(
                "{model} does not fit on {tensor_parallel_size} x {gpu}: each GPU lacks {missing:.2} GiB \
                 ({weights:.2} for weights and {overhead:.2} for the engine against {requested:.2} requested)\n  \
                 help: use {more_gpus}a GPU with more memory{lighter}"
            )
        }
        other => {
            let text = other.to_string().replace("`gpu_memory_utilization`", "--gpu-memory-utilization");
            text.replacen("; ", "\n  help: ", 1)
        }
    }
}

fn does_not_start(size: &ServerSize) -> String {
    let shorter = match size.longest_max_model_len {
        0 => String::new(),
        longest => format!("give --max-model-len {longest} or less, "),
    };
    format!(
        "vLLM does not start: a request of max_model_len ({}) tokens needs {} blocks, but the cache has {}\n  \
         help: {shorter}more --tensor-parallel-size, or --kv-cache-dtype fp8",
        size.max_model_len,
        size.blocks_per_request,
        size.memory.num_gpu_blocks.saturating_sub(1)
    )
}

fn to_json(
    model: &Model,
    gpu: &Gpu,
    sizes: &[(u32, Result<ServerSize, SizingError>)],
    section: &EngineSection,
) -> Result<Value, serde_json::Error> {
    let sizes = sizes
        .iter()
        .map(|(tp, size)| match size {
            Ok(size) => {
                let mut value = serde_json::to_value(size)?;
                value["starts"] = size.starts().into();
                Ok(value)
            }
            Err(error) => Ok(json!({"tensor_parallel_size": tp, "error": in_gib(error, section, model)})),
        })
        .collect::<Result<Vec<_>, serde_json::Error>>()?;
    Ok(json!({"model": model.name, "gpu": gpu.name, "sizes": sizes}))
}

/// In the words of vLLM's log.
fn print_one(out: &mut String, model: &Model, gpu: &Gpu, size: &ServerSize) -> fmt::Result {
    let memory = &size.memory;
    let gib = |bytes: u64| bytes as f64 / GIB;
    let ranks = size.tensor_parallel_size;
    let each = if size.num_gpus > 1 { " of each GPU" } else { "" };
    match size.data_parallel_size {
        1 => writeln!(out, "{} on {ranks} x {}", model.name, gpu.name)?,
        engines => writeln!(
            out,
            "{} on {engines} engine cores of {ranks} x {}: {} GPUs. Of each engine core:",
            model.name, gpu.name, size.num_gpus
        )?,
    }
    writeln!(
        out,
        "Of {:.2} GiB{each}, {:.2} GiB requested: {:.2} GiB for weights, {:.2} for activations, {:.2} for CUDA \
         graphs, {:.2} outside of PyTorch",
        gib(gpu.memory_bytes),
        gib(memory.requested_bytes),
        gib(memory.weight_bytes),
        gib(memory.activation_bytes),
        gib(memory.cudagraph_bytes),
        gib(memory.non_torch_bytes),
    )?;
    writeln!(out, "Available KV cache memory: {:.2} GiB", gib(memory.available_bytes))?;
    writeln!(
        out,
        "# GPU blocks: {} of {} tokens, {} bytes for each token",
        thousands(u64::from(memory.num_gpu_blocks)),
        size.block_size_tokens,
        thousands(size.kv_bytes_per_token)
    )?;
    writeln!(
        out,
        "GPU KV cache size: {} tokens, Maximum concurrency for {} tokens per request: {:.2}x",
        thousands(size.kv_cache_tokens),
        thousands(u64::from(size.max_model_len)),
        size.max_concurrency
    )?;
    writeln!(
        out,
        "Largest max_model_len that fits: {} (the model was made for {})",
        thousands(u64::from(size.longest_max_model_len)),
        thousands(u64::from(model.max_position_embeddings))
    )?;
    extrapolated(out, size)
}

fn extrapolated(out: &mut String, size: &ServerSize) -> fmt::Result {
    match &size.extrapolated_because {
        Some(why) => writeln!(out, "Extrapolated: {why}, which the memory of a step could be set on"),
        None => Ok(()),
    }
}

fn print_side_by_side(
    out: &mut String,
    model: &Model,
    gpu: &Gpu,
    sizes: &[(u32, Result<ServerSize, SizingError>)],
) -> fmt::Result {
    let max_model_len =
        sizes.iter().find_map(|(_, size)| size.as_ref().ok()).map_or(0, |it| it.max_model_len);
    let gib = |bytes: u64| format!("{:.2}", bytes as f64 / GIB);
    let row = |name: &str, cell: &dyn Fn(&ServerSize) -> String| {
        let cells = sizes.iter().map(|(_, size)| size.as_ref().map_or_else(|_| String::new(), cell));
        std::iter::once(name.to_owned()).chain(cells).collect::<Vec<String>>()
    };
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    let heads = sizes.iter().map(|(tp, _)| format!("TP {tp}"));
    table.add_row(std::iter::once(String::new()).chain(heads));
    table.add_row(row("weights, GiB per GPU", &|size| gib(size.memory.weight_bytes)));
    table.add_row(row("available KV cache memory, GiB per GPU", &|size| gib(size.memory.available_bytes)));
    table.add_row(row("KV cache bytes per token and GPU", &|size| thousands(size.kv_bytes_per_token)));
    table.add_row(row("GPU blocks", &|size| thousands(u64::from(size.memory.num_gpu_blocks))));
    table.add_row(row("GPU KV cache size, tokens", &|size| thousands(size.kv_cache_tokens)));
    let concurrency =
        format!("maximum concurrency for {} tokens per request", thousands(u64::from(max_model_len)));
    table.add_row(row(&concurrency, &|size| format!("{:.2}x", size.max_concurrency)));
    table.add_row(row("largest max_model_len that fits", &|size| {
        thousands(u64::from(size.longest_max_model_len))
    }));
    for index in 1..=sizes.len() {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    match sizes.iter().find_map(|(_, size)| size.as_ref().ok()).map_or(1, |size| size.data_parallel_size) {
        1 => writeln!(out, "{} on {}", model.name, gpu.name)?,
        engines => writeln!(
            out,
            "{} on {}, {engines} engine cores with TP GPUs each; the KV cache is that of each",
            model.name, gpu.name
        )?,
    }
    writeln!(out, "{}", table.trim_fmt())?;
    for (tp, size) in sizes {
        match size {
            Err(SizingError::DoesNotFit { missing_bytes, .. }) => {
                writeln!(out, "TP {tp}: does not fit, each GPU lacks {} GiB", gib(*missing_bytes))?;
            }
            Err(error) => writeln!(out, "TP {tp}: {error}")?,
            Ok(size) if !size.starts() => writeln!(
                out,
                "TP {tp}: starts only with --max-model-len {} or less",
                size.longest_max_model_len
            )?,
            Ok(_) => {}
        }
    }
    sizes.iter().find_map(|(_, size)| size.as_ref().ok()).map_or(Ok(()), |size| extrapolated(out, size))
}

/// Digits in groups of three, as vLLM logs them.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }
}
