//! Profiles: the fitted laws of one GPU, with where they come from and how well they fit. Written by
//! `kvsim calibrate`, one YAML file each.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

use super::Format;
use super::collective::RateLaw;
use super::decode_attention::DecodeAttentionLaw;
use super::elementwise::{ElementwiseLaw, SamplerLaw};
use super::gemm::GemmLaw;
use super::host::HostLaw;
use super::law::Law;
use super::mixed_attention::MixedAttentionLaw;
use super::moe::MoeLaw;
use super::nvlink_all_reduce::NvlinkAllReduceLaw;
use super::prefill_attention::PrefillAttentionLaw;
use crate::catalog::Gpu;

/// How one GPU deviates from its datasheet. Times are in microseconds, efficiencies are fractions of
/// the vendor's peak.
///
/// A file has every number of every law it names and no other. So one that was written before a law
/// changed is refused, with the line of the number that is missing or unknown; fit it again from its
/// tables with `kvsim calibrate table`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// A name of the catalogue.
    pub gpu: String,
    /// Where the timings come from.
    pub source: String,
    /// When it was fitted, such as 2026-11-30.
    pub date: String,
    /// The driver the timings were taken with, if that is known.
    pub driver: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gemm: BTreeMap<Format, Fit<GemmLaw>>,
    /// By the format of the KV cache.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub decode_attention: BTreeMap<Format, Fit<DecodeAttentionLaw>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub prefill_attention: BTreeMap<Format, Fit<PrefillAttentionLaw>>,
    /// For kernels that give up packing query heads when a batch holds a prefill (FlashAttention 2).
    /// Without it a mixed batch costs the sum of its parts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mixed_attention: Option<Fit<MixedAttentionLaw>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub moe: BTreeMap<Format, Fit<MoeLaw>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nvlink_all_reduce: Option<Fit<NvlinkAllReduceLaw>>,
    /// In rising order of GPUs, as the lists below.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pcie_all_reduce: Vec<Fit<RateLaw>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all_gather: Vec<Fit<RateLaw>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub all_to_all: Vec<Fit<RateLaw>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reduce_scatter: Vec<Fit<RateLaw>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elementwise: Option<Fit<ElementwiseLaw>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampler: Option<Fit<SamplerLaw>>,
    #[serde(default)]
    pub host: HostLaw,
}

/// A fitted law, how well it fits, and for which shapes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fit<L> {
    pub rows: usize,
    /// How many of the law's numbers were fitted; the others switch a term off.
    pub fitted: usize,
    /// Over the rows that were fitted.
    pub fit_error: FitError,
    /// The same law fitted without a third of the shapes, over that third, for each third.
    pub held_out_error: FitError,
    /// The smallest and the largest value that was measured, by quantity.
    pub valid: BTreeMap<String, (f64, f64)>,
    pub law: L,
}

/// `|predicted / measured - 1|`, and the median of `predicted / measured - 1`, in per cent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FitError {
    pub median_percent: f64,
    pub p90_percent: f64,
    pub bias_percent: f64,
}

/// A profile that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    #[error("no cost profile for the GPU {gpu}; calibrate one and name it in `cost: {{profile: FILE}}`")]
    UnknownGpu { gpu: String },
    #[error("line {line}, column {column}: {problem}")]
    Yaml { line: u64, column: u64, problem: String },
    #[error("{operation}: `{name}` is {value}; give a number from {low} to {high}")]
    OutOfBounds { operation: String, name: &'static str, value: f64, low: f64, high: f64 },
}

static BUILT_IN: [(&str, &str); 8] = [
    ("H100-SXM", include_str!("profiles/h100-sxm.yaml")),
    ("H200", include_str!("profiles/h200.yaml")),
    ("A100-80G", include_str!("profiles/a100-80g.yaml")),
    ("B200", include_str!("profiles/b200.yaml")),
    // Nobody has published its timings yet; it is the B200's architecture.
    ("B300", include_str!("profiles/b200.yaml")),
    ("L40S", include_str!("profiles/l40s.yaml")),
    ("RTX-PRO-6000", include_str!("profiles/rtx-pro-6000.yaml")),
    ("RTX-4090", include_str!("profiles/rtx-4090.yaml")),
];

/// The built-in ones that were asked for: a study asks thousands of times.
static READ: [OnceLock<Result<Profile, ProfileError>>; 8] = [const { OnceLock::new() }; 8];

impl Profile {
    /// An empty one.
    pub fn new(gpu: &Gpu, source: String, date: String, driver: String) -> Self {
        Self {
            gpu: gpu.name.to_owned(),
            source,
            date,
            driver,
            gemm: BTreeMap::new(),
            decode_attention: BTreeMap::new(),
            prefill_attention: BTreeMap::new(),
            mixed_attention: None,
            moe: BTreeMap::new(),
            nvlink_all_reduce: None,
            pcie_all_reduce: Vec::new(),
            all_gather: Vec::new(),
            all_to_all: Vec::new(),
            reduce_scatter: Vec::new(),
            elementwise: None,
            sampler: None,
            host: HostLaw::default(),
        }
    }

    /// The built-in profile of a GPU, fitted to timings that others published; for a GPU that nobody
    /// measured, the shares of its nearest relative, which its own datasheet scales.
    ///
    /// # Errors
    /// [`ProfileError::UnknownGpu`].
    pub fn built_in(gpu: &Gpu) -> Result<&'static Self, ProfileError> {
        let index = BUILT_IN.iter().position(|(name, _)| *name == gpu.name);
        let index = index.ok_or_else(|| ProfileError::UnknownGpu { gpu: gpu.name.to_owned() })?;
        let read = || {
            let (name, text) = BUILT_IN[index];
            let mut profile = Self::from_yaml(text)?;
            if profile.gpu != name {
                let Self { gpu: measured, source, .. } = &profile;
                profile.source = format!("datasheet, with the shares of {measured}: {source}");
                profile.gpu = name.to_owned();
            }
            Ok(profile)
        };
        READ[index].get_or_init(read).as_ref().map_err(Clone::clone)
    }

    /// Reads a profile as `calibrate` writes it.
    ///
    /// # Errors
    /// [`ProfileError::Yaml`] with the place, [`ProfileError::OutOfBounds`].
    pub fn from_yaml(text: &str) -> Result<Self, ProfileError> {
        let profile: Self = read_yaml(text)?;
        profile.check_bounds()?;
        Ok(profile)
    }

    /// The GPU and the host terms of a profile whose laws may have other numbers than this version's.
    ///
    /// # Errors
    /// [`ProfileError::Yaml`] with the place, [`ProfileError::OutOfBounds`].
    pub fn host_terms_of(text: &str) -> Result<(String, HostLaw), ProfileError> {
        #[derive(Deserialize)]
        struct HostTerms {
            gpu: String,
            host: HostLaw,
        }
        let HostTerms { gpu, host } = read_yaml(text)?;
        within_bounds("host", &host)?;
        Ok((gpu, host))
    }

    /// The file's text.
    pub fn to_yaml(&self) -> String {
        // Writing plain data to a string cannot fail.
        serde_yaml::to_string(self).unwrap_or_default()
    }

    /// A number beyond its bounds would make times negative or infinite.
    fn check_bounds(&self) -> Result<(), ProfileError> {
        for (format, fit) in &self.gemm {
            within_bounds(&format!("gemm.{format}"), &fit.law)?;
        }
        for (format, fit) in &self.decode_attention {
            within_bounds(&format!("decode_attention.{format}"), &fit.law)?;
        }
        for (format, fit) in &self.prefill_attention {
            within_bounds(&format!("prefill_attention.{format}"), &fit.law)?;
        }
        for (format, fit) in &self.moe {
            within_bounds(&format!("moe.{format}"), &fit.law)?;
        }
        self.mixed_attention.iter().try_for_each(|fit| within_bounds("mixed_attention", &fit.law))?;
        self.nvlink_all_reduce.iter().try_for_each(|fit| within_bounds("nvlink_all_reduce", &fit.law))?;
        self.elementwise.iter().try_for_each(|fit| within_bounds("elementwise", &fit.law))?;
        self.sampler.iter().try_for_each(|fit| within_bounds("sampler", &fit.law))?;
        for (name, fits) in [
            ("pcie_all_reduce", &self.pcie_all_reduce),
            ("all_gather", &self.all_gather),
            ("all_to_all", &self.all_to_all),
            ("reduce_scatter", &self.reduce_scatter),
        ] {
            fits.iter().try_for_each(|fit| within_bounds(name, &fit.law))?;
        }
        within_bounds("host", &self.host)
    }
}

/// A file's plain data, or where in it what is wrong.
pub(super) fn read_yaml<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, ProfileError> {
    serde_yaml::from_str(text).map_err(|error| {
        let error = error.without_snippet();
        let place = error.location();
        let message = error.to_string();
        ProfileError::Yaml {
            line: place.map_or(1, |place| place.line()),
            column: place.map_or(1, |place| place.column()),
            problem: message.lines().next().unwrap_or_default().to_owned(),
        }
    })
}

pub(super) fn within_bounds<L: Law>(operation: &str, law: &L) -> Result<(), ProfileError> {
    for (parameter, value) in L::PARAMETERS.iter().zip(law.values()) {
        let is_fine = (parameter.low..=parameter.high).contains(&value) || value == parameter.neutral;
        if !is_fine {
            return Err(ProfileError::OutOfBounds {
                operation: operation.to_owned(),
                name: parameter.name,
                value,
                low: parameter.low,
                high: parameter.high,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_gpu_of_the_catalogue_has_a_profile() {
        for gpu in Gpu::all() {
            let profile = Profile::built_in(gpu).unwrap();
            assert_eq!(profile.gpu, gpu.name);
            assert_eq!(&Profile::from_yaml(&profile.to_yaml()).unwrap(), profile);
        }
    }

    #[test]
    fn no_operation_has_more_than_eleven_coefficients() {
        for gpu in Gpu::all() {
            let profile = Profile::built_in(gpu).unwrap();
            let fitted = profile.gemm.values().map(|fit| fit.fitted);
            let fitted = fitted.chain(profile.decode_attention.values().map(|fit| fit.fitted));
            let fitted = fitted.chain(profile.prefill_attention.values().map(|fit| fit.fitted));
            let fitted = fitted.chain(profile.moe.values().map(|fit| fit.fitted));
            let fitted = fitted.chain(profile.nvlink_all_reduce.iter().map(|fit| fit.fitted));
            let rates: usize = profile.pcie_all_reduce.iter().map(|fit| fit.fitted).sum();
            assert!(fitted.chain([rates]).all(|count| count <= 11), "{}", gpu.name);
        }
    }

    #[test]
    fn errors_give_the_place() {
        let error = Profile::from_yaml("gpu: H100-SXM\nsource: 1\nfast: yes\n").unwrap_err().to_string();
        assert!(error.starts_with("line 3, column 1: "), "{error}");
    }

    #[test]
    fn numbers_that_make_no_time_are_refused() {
        let mut profile = Profile::built_in(Gpu::find("H100").unwrap()).unwrap().clone();
        profile.gemm.get_mut(&Format::Bf16).unwrap().law.compute_efficiency = -0.5;
        let error = Profile::from_yaml(&profile.to_yaml()).unwrap_err().to_string();
        assert_eq!(error, "gemm.bf16: `compute_efficiency` is -0.5; give a number from 0.1 to 1.1");
    }
}
