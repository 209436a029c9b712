//! What the fit asks of an operation: its shapes, its law, and which rows matter.

use crate::catalog::Gpu;
use crate::cost::Format;
use crate::cost::law::Law;

/// A kind of kernel law that might describe the timings: what is known of the kernel, with every
/// term off, and the names of the parameters to fit.
pub(super) struct Variant<L> {
    pub law: L,
    pub free: &'static [&'static str],
}

/// One timing of one operation.
#[derive(Clone, Debug)]
pub(super) struct Timing<S> {
    pub gpu: &'static Gpu,
    pub format: Format,
    pub shape: S,
    pub time_us: f64,
    /// Who measured it.
    pub source: String,
}

pub(super) trait Operation {
    type Shape: Clone + Send + Sync;
    type Law: Law;

    /// Which rows [`Self::is_in_scope`] keeps, in words.
    const SCOPE: &'static str;

    fn variants(gpu: &Gpu, format: Format) -> Vec<Variant<Self::Law>>;

    /// What a benchmark would measure, microseconds.
    fn predict_us(shape: &Self::Shape, format: Format, gpu: &Gpu, law: &Self::Law) -> f64;

    /// Rows that describe what models ask for; the others are fitted with a tenth of the weight.
    fn is_in_scope(shape: &Self::Shape, format: Format, gpu: &Gpu) -> bool;

    /// Rows that a serving step visits: 8 to 256 tokens, 512 to 8,192 tokens of context.
    fn is_serving(shape: &Self::Shape) -> bool;

    /// Rows with the same key are held out together.
    fn key(shape: &Self::Shape) -> String;

    /// What bounds the valid range.
    fn quantities(shape: &Self::Shape) -> Vec<(&'static str, f64)>;

    /// How much a row counts.
    fn weight(shape: &Self::Shape, format: Format, gpu: &Gpu) -> f64 {
        let scope = if Self::is_in_scope(shape, format, gpu) { 1.0 } else { 0.1 };
        if Self::is_serving(shape) { 2.0 * scope } else { scope }
    }
}
