//! What is asked for, and how it is answered.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::CurveError;
use super::cache_size::{CacheShape, CacheSize, spread};
use super::curve::{BlockSizeCurve, Curve};
use super::marks::marks;
use super::pass::{Pass, Sampling};
use super::simulate::simulate;
use crate::scenario::{Scenario, Template};
use crate::study::sweep;
use crate::trace_tools::{AnswerTimes, Generator, TraceError, TurnTimes};
use crate::workload::trace::TraceRequest;

/// Sizes of a curve, where none are given.
const NUM_SIZES: usize = 24;
/// The smallest of them is this part of the largest, or smaller than the smallest mark.
const RANGE: u64 = 1_000;

/// Which sizes are simulated.
#[derive(Clone, Debug, PartialEq)]
pub enum Simulate {
    /// So many in equal ratios, from the smallest that the engine starts with to the largest of the
    /// curve.
    Spread(usize),
    Sizes(Vec<CacheSize>),
}

/// What a curve is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct CurveRequest {
    /// As the scenario's `engine.block_size`.
    pub block_sizes: Vec<NonZeroU32>,
    /// Empty for sizes up to what finds all.
    pub sizes: Vec<CacheSize>,
    pub simulate: Option<Simulate>,
    pub sampling: Option<Sampling>,
    /// When users who wait for an answer go on.
    pub answers: AnswerTimes,
    /// Of host memory to mark, where the scenario has no tiers.
    pub host_gib: f64,
    /// Of simulations; 0 for as many as there are processors.
    pub threads: usize,
    /// The folder of what has been simulated, from where a killed curve goes on. Whoever has written the
    /// curve removes it.
    pub simulations: PathBuf,
}

/// Tells whoever waits how far a curve is: its requests, then its simulations.
pub trait Progress: sweep::Progress {
    /// A request has been looked up; that much of them are then, where it is known.
    fn request(&mut self, share: Option<f64>);
}

/// The options, for a manifest.
#[derive(Debug, Serialize)]
pub(super) struct Options<'a> {
    pub block_sizes: Vec<u32>,
    pub sampling: Option<Sampling>,
    pub ttft_ms: f64,
    pub tpot_ms: f64,
    pub sizes: &'a [CacheSize],
}

impl CurveRequest {
    pub(super) fn options(&self) -> Options<'_> {
        Options {
            block_sizes: self.block_sizes.iter().map(|size| size.get()).collect(),
            sampling: self.sampling,
            ttft_ms: self.answers.ttft.as_ms_f64(),
            tpot_ms: self.answers.tpot.as_ms_f64(),
            sizes: &self.sizes,
        }
    }

    /// Makes the curve of a scenario, which `template` is the text of.
    ///
    /// # Errors
    /// A scenario that no server could start with, a trace that cannot be read, or nothing that is
    /// looked up.
    pub fn run(
        &self,
        template: &Template,
        scenario: &Scenario,
        progress: &mut dyn Progress,
    ) -> Result<Curve, CurveError> {
        // What each of several is sent depends on what their router sees of them while they run.
        let sweep = ", or let a sweep vary engine.num_gpu_blocks_override to see what a fleet's router makes of \
                     larger caches";
        scenario.check_alone("a curve", sweep)?;
        let typed: Vec<u32> = self.block_sizes.iter().map(|size| size.get()).collect();
        let mut shapes = Vec::new();
        for block_size in &typed {
            let field = (
                "engine.block_size".to_owned(),
                template.value("engine.block_size", &block_size.to_string())?,
            );
            shapes.push(CacheShape::of(&template.scenario(&[field])?));
        }
        let (marks, mut notes) = marks(scenario, self.host_gib);
        let blocks_of_marks = |shape: &CacheShape| -> Vec<u64> {
            marks.iter().map(|mark| shape.chain_blocks(mark.cache_tokens)).collect()
        };
        let lanes: Vec<(u32, Vec<u64>)> =
            shapes.iter().map(|shape| (shape.block_size_tokens, blocks_of_marks(shape))).collect();
        let mut pass = Pass::new(&lanes, self.sampling);
        let (tenants, workload_notes) = self.look_up(scenario, &mut pass, progress)?;
        notes.splice(0..0, workload_notes);
        if pass.lanes().iter().all(|lane| lane.queries_tokens() == 0) {
            return Err(CurveError::NoLookups { scenario: scenario.file.name.clone() });
        }
        if scenario.engine.kv_cache_groups.len() > 1 {
            notes.push(
                "the one pass takes all KV cache groups for full attention: groups with a window hold and need less"
                    .to_owned(),
            );
        }
        let own_shape = CacheShape::of(scenario);
        let step = shapes.iter().map(|shape| u64::from(shape.block_size_tokens)).max().unwrap_or(1);
        let mut tokens: Vec<u64> = self.sizes.iter().map(|&size| own_shape.tokens(size)).collect();
        if tokens.is_empty() {
            let enough = pass.lanes().iter().zip(&shapes);
            let enough =
                enough.map(|(lane, shape)| lane.enough_blocks() * u64::from(shape.block_size_tokens));
            let smallest_mark = marks.first().map_or(u64::MAX, |mark| mark.cache_tokens / 2);
            let last = enough.max().unwrap_or(0).max(step);
            tokens = spread(
                (last / RANGE).min(smallest_mark).max(step),
                last.next_multiple_of(step),
                NUM_SIZES,
                step,
            );
        }
        tokens.sort_unstable();
        tokens.dedup();
        let mut curves: Vec<BlockSizeCurve> = shapes
            .iter()
            .zip(pass.lanes())
            .map(|(&shape, lane)| BlockSizeCurve::new(shape, lane, &tokens, &marks, &tenants))
            .collect();
        if let Some(chosen) = &self.simulate {
            let chosen = match chosen {
                Simulate::Sizes(sizes) => sizes.iter().map(|&size| own_shape.tokens(size)).collect(),
                Simulate::Spread(count) => {
                    // A request of max_model_len must fit.
                    let first = u64::from(scenario.engine.max_model_len).next_multiple_of(step);
                    spread(first, tokens.last().copied().unwrap_or(first).max(first), *count, step)
                }
            };
            simulate(template, &typed, &chosen, self, &mut curves, pass.lanes(), progress)?;
        }
        Ok(Curve {
            name: scenario.file.name.clone(),
            seed: scenario.seed(),
            model: scenario.model.name.clone(),
            gpu: scenario.gpu.name.to_owned(),
            num_gpus: scenario.file.engine.num_gpus(),
            requests: pass.requests(),
            sampling: self.sampling,
            marks,
            block_sizes: curves,
            notes,
        })
    }

    /// Takes the requests of the workload in the order in which they are sent. Returns the names of the
    /// tenants, and what is to be said.
    fn look_up(
        &self,
        scenario: &Scenario,
        pass: &mut Pass,
        progress: &mut dyn Progress,
    ) -> Result<(Vec<String>, Vec<String>), CurveError> {
        let workload = scenario.workload()?;
        let tenants = workload.tenants().to_vec();
        let mut generator = Generator::new(workload, self.answers, TurnTimes::Recorded);
        let mut waits = false;
        let result = generator.run(|request: &TraceRequest, share| {
            waits |= request.think_time.is_some();
            pass.add(request)?;
            progress.request(share);
            Ok(())
        });
        let place = scenario.trace_path()?;
        let place = place.as_deref().unwrap_or(Path::new(&scenario.file.name)).display().to_string();
        result.map_err(|source: TraceError| CurveError::Requests { place, source })?;
        let mut notes = generator.notes().notes;
        if waits {
            notes.push(self.answers.note());
        }
        Ok((tenants, notes))
    }
}
