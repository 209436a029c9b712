use super::super::operation::{Operation, Variant};
use crate::catalog::Gpu;
use crate::cost::Format;
use crate::cost::elementwise::{Elementwise, ElementwiseLaw, SamplerLaw};

#[derive(Clone, Copy, Debug)]
pub(in crate::calibrate) struct ElementwiseShape {
    pub tokens: u32,
    pub hidden: u32,
    /// Read and written for each of `tokens x hidden` values.
    pub bytes_per_value: f64,
    /// Its start against that of most kernels.
    pub starts: f64,
}

pub(in crate::calibrate) struct ElementwiseOperation;

impl Operation for ElementwiseOperation {
    type Shape = ElementwiseShape;
    type Law = ElementwiseLaw;
    const SCOPE: &'static str = "all rows";

    fn variants(_gpu: &Gpu, _format: Format) -> Vec<Variant<ElementwiseLaw>> {
        let free = &["t0_us", "memory_efficiency", "l2_speedup", "l2_share"];
        vec![Variant { law: ElementwiseLaw::neutral(), free }]
    }

    fn predict_us(shape: &ElementwiseShape, _format: Format, gpu: &Gpu, law: &ElementwiseLaw) -> f64 {
        let bytes = f64::from(shape.tokens) * f64::from(shape.hidden) * shape.bytes_per_value;
        let kernel = Elementwise::new(gpu, law, &SamplerLaw::neutral());
        shape.starts * kernel.start_us() + kernel.move_us(bytes)
    }

    fn is_in_scope(_shape: &ElementwiseShape, _format: Format, _gpu: &Gpu) -> bool {
        true
    }

    fn is_serving(shape: &ElementwiseShape) -> bool {
        (8..=256).contains(&shape.tokens)
    }

    fn key(shape: &ElementwiseShape) -> String {
        format!("{} {}", shape.hidden, shape.bytes_per_value)
    }

    fn quantities(shape: &ElementwiseShape) -> Vec<(&'static str, f64)> {
        vec![("tokens", f64::from(shape.tokens)), ("hidden", f64::from(shape.hidden))]
    }
}

#[derive(Clone, Copy, Debug)]
pub(in crate::calibrate) struct SamplerShape {
    pub sequences: u32,
    pub vocab: u32,
}

pub(in crate::calibrate) struct SamplerOperation;

impl Operation for SamplerOperation {
    type Shape = SamplerShape;
    type Law = SamplerLaw;
    const SCOPE: &'static str = "all rows";

    fn variants(_gpu: &Gpu, _format: Format) -> Vec<Variant<SamplerLaw>> {
        let free = &["t0_us", "passes", "l2_speedup", "l2_share"];
        vec![Variant { law: SamplerLaw::neutral(), free }]
    }

    fn predict_us(shape: &SamplerShape, _format: Format, gpu: &Gpu, law: &SamplerLaw) -> f64 {
        Elementwise::new(gpu, &ElementwiseLaw::neutral(), law).sampler_us(shape.sequences, shape.vocab)
    }

    fn is_in_scope(_shape: &SamplerShape, _format: Format, _gpu: &Gpu) -> bool {
        true
    }

    fn is_serving(shape: &SamplerShape) -> bool {
        (8..=256).contains(&shape.sequences)
    }

    fn key(shape: &SamplerShape) -> String {
        format!("{}", shape.vocab)
    }

    fn quantities(shape: &SamplerShape) -> Vec<(&'static str, f64)> {
        vec![("sequences", f64::from(shape.sequences)), ("vocab", f64::from(shape.vocab))]
    }
}
