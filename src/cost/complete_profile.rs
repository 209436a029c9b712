//! A profile with every operation a simulation can ask for: what was not measured on the GPU is taken
//! from the nearest one that was.

use super::collective::{AllReduceLaw, RateLaw};
use super::decode_attention::DecodeAttentionLaw;
use super::elementwise::{ElementwiseLaw, SamplerLaw};
use super::gemm::GemmLaw;
use super::host::HostLaw;
use super::mixed_attention::MixedAttentionLaw;
use super::moe::MoeLaw;
use super::prefill_attention::{Packing, PrefillAttentionLaw};
use super::{Fit, Format, Profile};
use crate::catalog::{Dtype, Gpu};

/// Who lends to whom: links decide over collectives, and efficiencies resemble each other among
/// datacentre and among workstation GPUs.
const NVLINK_LENDERS: [&str; 5] = ["H100-SXM", "H200", "A100-80G", "B200", "RTX-PRO-6000"];
const PCIE_LENDERS: [&str; 4] = ["L40S", "RTX-PRO-6000", "RTX-4090", "H100-SXM"];

/// See the module. Laws are shares of a GPU's own peaks, so they can be lent.
#[derive(Clone, Debug)]
pub struct CompleteProfile {
    own: Profile,
    lenders: Vec<&'static Profile>,
}

impl CompleteProfile {
    pub fn new(own: Profile, gpu: &Gpu) -> Self {
        let names: &[&str] = match gpu.nvlink_bytes_per_s {
            Some(_) => &NVLINK_LENDERS,
            None => &PCIE_LENDERS,
        };
        let lenders = names
            .iter()
            .filter(|name| **name != own.gpu)
            .filter_map(|name| Profile::built_in(Gpu::find(name).ok()?).ok())
            .collect();
        Self { own, lenders }
    }

    pub fn own(&self) -> &Profile {
        &self.own
    }

    /// The first law that is there, with the GPU it was measured on.
    fn find<'a, T>(&'a self, law: impl Fn(&'a Profile) -> Option<T>) -> Option<(T, &'a str)> {
        std::iter::once(&self.own)
            .chain(self.lenders.iter().copied())
            .find_map(|profile| law(profile).map(|law| (law, profile.gpu.as_str())))
    }

    /// The law of the best format, own or lent: the format matters more than the GPU only where the
    /// GPU's own has nothing at all.
    fn find_format<'a, T>(
        &'a self,
        formats: &'static [Format],
        law: impl Fn(&'a Profile, Format) -> Option<T>,
    ) -> Option<(T, &'a str, Format)> {
        std::iter::once(&self.own).chain(self.lenders.iter().copied()).find_map(|profile| {
            formats
                .iter()
                .find_map(|&format| law(profile, format).map(|law| (law, profile.gpu.as_str(), format)))
        })
    }

    fn gemm_with_origin(&self, dtype: Dtype, gpu: &Gpu) -> (&GemmLaw, &str, Format) {
        let computed_in = if gpu.native_matmul_flops(dtype).is_some() { dtype } else { Dtype::Bf16 };
        let found = self.find_format(Format::for_gemm(computed_in), |profile, format| {
            profile.gemm.get(&format).map(|fit| &fit.law)
        });
        found.expect("H100-SXM and L40S, which lend, have bf16")
    }

    pub fn gemm(&self, dtype: Dtype, gpu: &Gpu) -> &GemmLaw {
        self.gemm_with_origin(dtype, gpu).0
    }

    fn moe_with_origin(&self, formats: &'static [Format]) -> (&MoeLaw, &str, Format) {
        let found = self.find_format(formats, |profile, format| profile.moe.get(&format).map(|fit| &fit.law));
        found.expect("H100-SXM and L40S, which lend, have bf16")
    }

    pub fn moe(&self, formats: &'static [Format]) -> &MoeLaw {
        self.moe_with_origin(formats).0
    }

    fn decode_with_origin(&self, format: Format) -> (&DecodeAttentionLaw, &str, Format) {
        let found = self.find_format(kv_formats(format), |profile, format| {
            profile.decode_attention.get(&format).map(|fit| &fit.law)
        });
        found.expect("H100-SXM and L40S, which lend, have bf16")
    }

    pub fn decode_attention(&self, format: Format) -> &DecodeAttentionLaw {
        self.decode_with_origin(format).0
    }

    pub fn prefill_attention(&self, format: Format) -> &PrefillAttentionLaw {
        let found = self.find_format(kv_formats(format), |profile, format| {
            profile.prefill_attention.get(&format).map(|fit| &fit.law)
        });
        found.expect("H100-SXM and L40S, which lend, have bf16").0
    }

    /// Where it was not measured, but prefills do not pack query heads, the tiles of the prefill
    /// law in the measured rule of the RTX PRO 6000. Without one a mixed batch costs the sum of its
    /// parts.
    pub fn mixed_attention(&self, gpu: &Gpu) -> Option<MixedAttentionLaw> {
        if let Some(fit) = &self.own.mixed_attention {
            return Some(fit.law);
        }
        let prefill = &self.own.prefill_attention.get(&Format::Bf16)?.law;
        if prefill.packing != Packing::OneQuery || prefill.tile_rows != 64 {
            return None;
        }
        let (rule, _) = self.find(|profile| profile.mixed_attention.as_ref().map(|fit| &fit.law))?;
        let flops_per_us = gpu.bf16_flops * 1e-6 / f64::from(gpu.num_sms) * prefill.compute_efficiency;
        let token_us = 4.0 * 64.0 * 128.0 / flops_per_us;
        Some(MixedAttentionLaw {
            t0_us: prefill.t0_us,
            token_ns: token_us * 1e3,
            tile_us: prefill.tile_us + token_us * prefill.pad_tokens,
            ..*rule
        })
    }

    pub fn all_reduce(&self) -> AllReduceLaw {
        let found = self.find(|profile| {
            let nvlink = profile.nvlink_all_reduce.as_ref().map(|fit| AllReduceLaw::Nvlink(fit.law));
            let pcie = || AllReduceLaw::Pcie(profile.pcie_all_reduce.iter().map(|fit| fit.law).collect());
            nvlink.or_else(|| (!profile.pcie_all_reduce.is_empty()).then(pcie))
        });
        found.map_or(AllReduceLaw::Pcie(Vec::new()), |(law, _)| law)
    }

    pub fn all_gather(&self) -> impl Iterator<Item = &RateLaw> {
        self.rate_laws(|profile| &profile.all_gather)
    }

    pub fn reduce_scatter(&self) -> impl Iterator<Item = &RateLaw> {
        self.rate_laws(|profile| &profile.reduce_scatter)
    }

    pub fn all_to_all(&self) -> impl Iterator<Item = &RateLaw> {
        self.rate_laws(|profile| &profile.all_to_all)
    }

    /// Of the first profile that has any.
    fn rate_laws<'a>(
        &'a self,
        laws: impl Fn(&'a Profile) -> &'a Vec<Fit<RateLaw>>,
    ) -> impl Iterator<Item = &'a RateLaw> {
        let found = self.find(|profile| Some(laws(profile)).filter(|fits| !fits.is_empty()));
        found.into_iter().flat_map(|(fits, _)| fits.iter().map(|fit| &fit.law))
    }

    pub fn elementwise(&self) -> &ElementwiseLaw {
        let found = self.find(|profile| profile.elementwise.as_ref().map(|fit| &fit.law));
        found.expect("H100-SXM and RTX-PRO-6000, which lend, have it").0
    }

    pub fn sampler(&self) -> &SamplerLaw {
        let found = self.find(|profile| profile.sampler.as_ref().map(|fit| &fit.law));
        found.expect("RTX-PRO-6000, which lends, has it").0
    }

    pub fn host(&self) -> &HostLaw {
        &self.own.host
    }

    /// The largest number of tokens and the longest context that were measured.
    pub fn max_tokens_and_context(&self) -> (u32, u32) {
        let largest = |valid: &std::collections::BTreeMap<String, (f64, f64)>, name: &str| {
            valid.get(name).map_or(0, |range| range.1 as u32)
        };
        let tokens = self.own.gemm.values().map(|fit| largest(&fit.valid, "m")).max();
        let context = self.own.decode_attention.values().map(|fit| largest(&fit.valid, "kv_len")).max();
        (tokens.unwrap_or(0), context.unwrap_or(0))
    }

    /// What the laws for these formats rest on beside measurements on `gpu`, one sentence each.
    pub fn caveats(&self, gpu: &Gpu, weights: Dtype, experts: Option<Dtype>, kv_cache: Dtype) -> Vec<String> {
        let mut caveats = vec![format!("{}: {}", self.own.gpu, self.own.source)];
        if self.own.gpu != gpu.name {
            caveats.push(format!("the profile of {} stands in for {}", self.own.gpu, gpu.name));
        }
        let mut stands_in = |operation: &str, wanted: String, lender: &str, format: Format| {
            if lender != self.own.gpu || format.name() != wanted {
                caveats.push(format!(
                    "{operation} in {wanted} was not measured on {}; {format} of {lender} stands in",
                    self.own.gpu
                ));
            }
        };
        let wanted = |dtype: Dtype, formats: &[Format]| {
            let own_name = formats.first().map_or("bf16", |format| format.name());
            if formats[0] == Format::Bf16 && dtype != Dtype::Bf16 {
                format!("{dtype:?}")
            } else {
                own_name.into()
            }
        };
        let (_, lender, format) = self.gemm_with_origin(weights, gpu);
        let native = gpu.native_matmul_flops(weights).is_some();
        let name = if native { wanted(weights, Format::for_gemm(weights)) } else { format!("{weights:?}") };
        stands_in("GEMM", name, lender, format);
        if let Some(experts) = experts {
            let formats = Format::for_moe(experts, false);
            let (_, lender, format) = self.moe_with_origin(formats);
            stands_in("MoE", wanted(experts, formats), lender, format);
        }
        let kv_format = Format::of_kv_cache(kv_cache);
        let (_, lender, format) = self.decode_with_origin(kv_format);
        stands_in("decode attention", kv_format.name().to_owned(), lender, format);
        caveats
    }
}

/// Formats of a KV cache whose kernels can stand for `format`, the best first.
const fn kv_formats(format: Format) -> &'static [Format] {
    match format {
        Format::Fp8 => &[Format::Fp8, Format::Bf16],
        _ => &[Format::Bf16],
    }
}
