//! The built-in coefficients against published kernel timings, where the tables are at hand.
//!
//! The bounds are one and a half times the errors published for these laws: a mistaken unit or
//! coefficient cannot hide, a different sample can vary.

use std::path::PathBuf;

use crate::catalog::{Dtype, Gpu, Model};

use super::attention::AttentionShape;
use super::coefficients::Coefficients;
use super::decode_attention::DecodeAttention;
use super::gemm::Gemm;
use super::mixed_attention::MixedAttention;
use super::moe::MoeLayer;
use super::prefill_attention::PrefillAttention;
use super::{PrefillChunk, StepShape};

/// A table's rows as column name to text, or None where the tables are not at hand.
fn rows(file: &str) -> Option<Vec<csv::StringRecord>> {
    let shared = std::env::var_os("KVSIM_SHARED")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"), PathBuf::from);
    let path = shared.join("data/kernels").join(file);
    let Ok(mut reader) = csv::Reader::from_path(&path) else {
        eprintln!("skipped: no {}", path.display());
        return None;
    };
    let mut rows = vec![reader.headers().unwrap().clone()];
    rows.extend(reader.records().map(Result::unwrap));
    Some(rows)
}

struct Row<'a> {
    header: &'a csv::StringRecord,
    record: &'a csv::StringRecord,
}

impl Row<'_> {
    fn text(&self, column: &str) -> &str {
        &self.record[self.header.iter().position(|name| name == column).unwrap()]
    }
    fn u32(&self, column: &str) -> u32 {
        self.text(column).parse().unwrap()
    }
    fn time_us(&self) -> f64 {
        self.text("time_us").parse().unwrap()
    }
}

/// Median and 90th percentile of |predicted / measured - 1| in per cent over the rows for which
/// `predict` answers, asserted to be within the bounds.
fn assert_errors(
    label: &str,
    rows: &[csv::StringRecord],
    (median_bound, p90_bound): (f64, f64),
    predict: impl Fn(&Row<'_>) -> Option<f64>,
) {
    let (header, records) = rows.split_first().unwrap();
    let mut signed: Vec<f64> = records
        .iter()
        .filter_map(|record| {
            let row = Row { header, record };
            predict(&row).map(|predicted| 100.0 * (predicted / row.time_us() - 1.0))
        })
        .collect();
    assert!(signed.len() >= 50, "{label}: only {} rows", signed.len());
    signed.sort_by(f64::total_cmp);
    let bias = signed[signed.len() / 2];
    let mut errors: Vec<f64> = signed.iter().map(|error| error.abs()).collect();
    errors.sort_by(f64::total_cmp);
    let (median, p90) = (errors[errors.len() / 2], errors[errors.len() * 9 / 10]);
    eprintln!("{label}: {median:.1} / {p90:.1} %, bias {bias:+.1} %, {} rows", errors.len());
    assert!(median <= median_bound && p90 <= p90_bound, "{label}: {median:.1} / {p90:.1} %");
}

fn gpu_and_fit(name: &str) -> (&'static Gpu, Coefficients) {
    let gpu = Gpu::find(name).unwrap();
    (gpu, Coefficients::built_in(gpu).unwrap())
}

#[test]
fn gemm_follows_the_tables() {
    let Some(rows) = rows("gemm.csv") else { return };
    for (name, format, dtype, bounds) in [
        ("H100-SXM", "bfloat16", Dtype::Bf16, (7.0, 19.0)),
        ("H200-SXM", "bfloat16", Dtype::Bf16, (7.8, 21.0)),
        ("A100-SXM", "bfloat16", Dtype::Bf16, (10.6, 29.0)),
        ("L40S", "bfloat16", Dtype::Bf16, (12.6, 32.0)),
        ("B200-SXM", "bfloat16", Dtype::Bf16, (9.3, 24.0)),
        ("RTX-PRO-6000-Server", "bfloat16", Dtype::Bf16, (8.1, 27.0)),
        ("RTX-4090", "bfloat16", Dtype::Bf16, (8.1, 14.0)),
        ("H100-SXM", "fp8", Dtype::Fp8, (13.8, 41.0)),
        ("B200-SXM", "fp8", Dtype::Fp8, (14.0, 44.0)),
        ("B200-SXM", "nvfp4", Dtype::Nvfp4, (13.6, 41.0)),
    ] {
        let (gpu, fit) = gpu_and_fit(name);
        assert_errors(&format!("GEMM {format} {name}"), &rows, bounds, |row| {
            let (n, k) = (row.u32("n"), row.u32("k"));
            let wanted = row.text("gpu") == name && row.text("dtype") == format && n >= 1024 && k >= 1024;
            wanted.then(|| Gemm::new(n, k, dtype, gpu, &fit.gemm).time_us(row.u32("m")))
        });
    }
}

/// The heads of a row, on one rank.
fn heads(row: &Row<'_>) -> Option<AttentionShape> {
    let mut model = Model::find("Llama-3.1-8B").unwrap();
    model.num_attention_heads = row.u32("heads_q");
    model.num_key_value_heads = row.u32("heads_kv");
    model.head_dim = row.u32("head_dim");
    (model.head_dim == 128 && row.text("window") == "0" && row.text("kv_dtype") == "bfloat16")
        .then(|| AttentionShape::new(&model, 1))
}

#[test]
fn decode_attention_follows_the_tables() {
    let Some(rows) = rows("attention.csv") else { return };
    for (name, bounds) in [
        ("H100-SXM", (4.5, 16.5)),
        ("H200-SXM", (4.0, 15.0)),
        ("A100-SXM", (16.5, 52.0)),
        ("L40S", (18.0, 43.0)),
        ("B200-SXM", (7.2, 27.0)),
        ("RTX-PRO-6000-Server", (4.5, 24.0)),
    ] {
        let (gpu, fit) = gpu_and_fit(name);
        assert_errors(&format!("decode attention {name}"), &rows, bounds, |row| {
            if row.text("gpu") != name || row.text("op") != "decode_attention" {
                return None;
            }
            let shape = heads(row)?;
            let (batch, kv) = (row.u32("batch"), f64::from(row.u32("kv_len")));
            // Where serving is: more KV than the L2 keeps, and enough heads for all SMs.
            let bytes = f64::from(batch) * kv * shape.kv_bytes_per_token;
            let wanted = bytes > 2.0 * gpu.l2_bytes as f64 && f64::from(batch) * shape.decode_heads_kv >= 8.0;
            wanted
                .then(|| DecodeAttention::new(&shape, gpu, fit.decode_attention.bf16, 0.6).time_us(batch, kv))
        });
    }
}

#[test]
fn prefill_attention_follows_the_tables() {
    let Some(rows) = rows("attention.csv") else { return };
    for (name, bounds) in [
        ("H100-SXM", (8.6, 35.0)),
        ("H200-SXM", (8.3, 27.0)),
        ("A100-SXM", (6.3, 29.0)),
        ("L40S", (10.5, 42.0)),
        ("B200-SXM", (9.6, 30.0)),
        ("RTX-PRO-6000-Server", (5.7, 18.0)),
    ] {
        let (gpu, fit) = gpu_and_fit(name);
        assert_errors(&format!("prefill attention {name}"), &rows, bounds, |row| {
            if row.text("gpu") != name || row.text("op") != "prefill_attention" {
                return None;
            }
            let shape = heads(row)?;
            let chunk = PrefillChunk {
                num_tokens: row.u32("q_len"),
                num_computed_tokens: row.text("kv_past").parse().unwrap_or(0),
            };
            let chunks = vec![chunk; row.u32("batch") as usize];
            Some(PrefillAttention::new(&shape, gpu, fit.prefill_attention).time_us(&chunks, None))
        });
    }
}

#[test]
fn mixed_attention_follows_the_tables() {
    let Some(rows) = rows("attention.csv") else { return };
    let (gpu, fit) = gpu_and_fit("RTX-PRO-6000-Server");
    assert_errors("mixed attention RTX PRO 6000", &rows, (14.6, 45.0), |row| {
        if row.text("gpu") != "RTX-PRO-6000-Server" || row.text("op") != "mixed_attention" {
            return None;
        }
        let mut step = StepShape::default();
        step.add_prefill(row.u32("q_len"), row.text("kv_past").parse().unwrap_or(0), false);
        let (decodes, kv) = (row.u32("n_decode"), row.u32("kv_decode"));
        step.add_decodes(decodes, u64::from(decodes) * u64::from(kv));
        let mixed = MixedAttention::new(&heads(row)?, gpu, fit.mixed_attention.unwrap());
        Some(mixed.time_us(&step, None, f64::from(kv)))
    });
}

#[test]
fn moe_follows_the_tables() {
    let Some(rows) = rows("moe.csv") else { return };
    for (name, format, dtype, bounds) in [
        ("H100-SXM", "bfloat16", Dtype::Bf16, (13.5, 54.0)),
        ("H200-SXM", "bfloat16", Dtype::Bf16, (16.0, 58.0)),
        ("A100-SXM", "bfloat16", Dtype::Bf16, (18.0, 53.0)),
        ("H100-SXM", "w4a16_mxfp4", Dtype::Mxfp4, (14.0, 35.0)),
        ("H200-SXM", "w4a16_mxfp4", Dtype::Mxfp4, (16.0, 33.0)),
        ("B200-SXM", "w4a8_mxfp4_mxfp8", Dtype::Mxfp4, (15.0, 43.0)),
        ("H100-SXM", "fp8_block", Dtype::Fp8, (14.0, 45.0)),
        ("H200-SXM", "fp8_block", Dtype::Fp8, (15.0, 40.0)),
        ("B200-SXM", "nvfp4", Dtype::Nvfp4, (18.0, 62.0)),
    ] {
        let (gpu, fit) = gpu_and_fit(name);
        let template = Model::find("Qwen3-30B-A3B").unwrap().moe.unwrap();
        assert_errors(&format!("MoE {format} {name}"), &rows, bounds, |row| {
            if row.text("gpu") != name || row.text("dtype") != format || row.text("moe_ep") != "1" {
                return None;
            }
            // The kernels of gpt-oss, not those that other checkpoints in the same format use.
            if format == "w4a16_mxfp4" && !row.text("kernel").contains("gptoss") {
                return None;
            }
            let tp = row.u32("moe_tp");
            let mut moe = template.clone();
            moe.num_experts = row.u32("experts");
            moe.num_experts_per_tok = row.u32("topk");
            moe.moe_intermediate_size = row.u32("inter");
            moe.expert_dtype = dtype;
            let wide = moe.moe_intermediate_size / tp >= 256;
            wide.then(|| MoeLayer::new(&moe, row.u32("hidden"), tp, gpu, &fit.moe).time_us(row.u32("tokens")))
        });
    }
}
