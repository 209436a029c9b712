//! Several workloads at the same time, each with random numbers, tenants, sessions and texts of its
//! own.

mod config;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use rand::Rng;
use rustc_hash::FxHashMap;

pub use config::{MixConfig, PartConfig};

use super::generator::Open;
use super::recording::in_file;
use super::token_ids::in_part;
use super::{Arrival, ConfigError, RequestSpec, Workload, WorkloadConfig, WorkloadError, WorkloadNotes, rng};
use crate::prompt::{PromptEmbeds, PromptExtras};
use crate::units::SimTime;

/// The workload of a [`MixConfig`].
pub(super) struct Mix {
    parts: Vec<Part>,
    tenants: Vec<String>,
    next_request: u64,
    /// The part and its own index of each request that is not answered, by the mix's index.
    waiting: FxHashMap<u64, (usize, u64)>,
    /// Ids of adapters by name: the parts share an adapter of the same name, and count on their own.
    loras: FxHashMap<String, u64>,
}

struct Part {
    name: String,
    workload: Box<dyn Workload>,
    /// The mix's number of the part's first tenant.
    first_tenant: u32,
    priority: Option<i32>,
    /// For a trace, which does not know of it.
    until: SimTime,
    /// Of a trace, which does not name it in its errors.
    path: Option<PathBuf>,
}

impl Mix {
    pub fn new<E: From<ConfigError> + From<WorkloadError>>(
        config: &MixConfig,
        seed: u64,
        open: &mut Open<'_, E>,
    ) -> Result<Self, E> {
        config.validate()?;
        let mut mix = Self {
            parts: Vec::new(),
            tenants: Vec::new(),
            next_request: 0,
            waiting: FxHashMap::default(),
            loras: FxHashMap::default(),
        };
        for (index, part) in config.parts.iter().enumerate() {
            let seed = rng::stream(seed, &format!("mix part {}", part.name), 0).next_u64();
            let workload = config.workload_of(part);
            let kind = workload.kind();
            let mut path = None;
            let workload = workload.build::<E>(seed, &mut |field, trace| {
                let file = open(&format!(".parts[{index}].workload.{kind}{field}"), trace)?;
                path = Some(file.path.clone());
                Ok(file)
            })?;
            let first_tenant = mix.tenants.len() as u32;
            match workload.tenants() {
                [] => mix.tenants.push(part.name.clone()),
                names => mix.tenants.extend(names.iter().map(|name| format!("{}/{name}", part.name))),
            }
            let is_trace = matches!(part.workload, WorkloadConfig::Trace(_));
            let until = config.duration_s.filter(|_| is_trace);
            mix.parts.push(Part {
                name: part.name.clone(),
                workload,
                first_tenant,
                priority: part.priority,
                until: until.map_or(SimTime::MAX, SimTime::from_secs_f64),
                path: path.filter(|_| is_trace),
            });
        }
        Ok(mix)
    }

    /// The part that sends next, the first of them at equal times, and when.
    fn next_part(&mut self) -> Result<Option<(SimTime, usize)>, WorkloadError> {
        let mut next = None;
        for (index, part) in self.parts.iter_mut().enumerate() {
            let at = part.workload.peek().map_err(|error| match &part.path {
                Some(path) => in_file(path, error),
                None => error,
            })?;
            let at = at.filter(|&at| at < part.until);
            next = [next, at.map(|at| (at, index))].into_iter().flatten().min();
        }
        Ok(next)
    }

    /// A part's request as one of the mix.
    fn adopt(&mut self, index: usize, request: RequestSpec) -> Result<RequestSpec, WorkloadError> {
        let part = &self.parts[index];
        let moved = |tokens| {
            in_part(tokens, index).ok_or_else(|| WorkloadError::TokenIds { part: part.name.clone() })
        };
        let output = moved(&request.output)?;
        let mut extras: PromptExtras = request.extras;
        // A prompt of embeddings has token 0 everywhere; it is what they are made of that differs.
        let prompt = match &mut extras.prompt_embeds {
            Some(PromptEmbeds::OfTokens(tokens)) => {
                *tokens = moved(tokens)?;
                request.prompt
            }
            Some(PromptEmbeds::Counting { .. }) => request.prompt,
            None => moved(&request.prompt)?,
        };
        if let Some(lora) = &mut extras.lora {
            let next_id = self.loras.len() as u64 + 1;
            lora.id = *self.loras.entry(lora.name.clone()).or_insert(next_id);
        }
        for item in &mut extras.mm {
            item.identifier = format!("{}/{}", part.name, item.identifier);
        }
        let num_parts = self.parts.len() as u64;
        let adopted = RequestSpec {
            index: self.next_request,
            prompt,
            output,
            extras,
            priority: part.priority.unwrap_or(request.priority),
            tenant: part.first_tenant + request.tenant,
            // A number that no session of another part has.
            session: request
                .session
                .map(|session| session.wrapping_mul(num_parts).wrapping_add(index as u64)),
            ..request
        };
        self.waiting.insert(self.next_request, (index, request.index));
        self.next_request += 1;
        Ok(adopted)
    }
}

impl Workload for Mix {
    fn peek(&mut self) -> Result<Option<SimTime>, WorkloadError> {
        Ok(self.next_part()?.map(|(at, _)| at))
    }

    fn next(&mut self) -> Result<Option<Arrival>, WorkloadError> {
        let Some((_, part)) = self.next_part()? else { return Ok(None) };
        let Some(Arrival { at, request }) = self.parts[part].workload.next()? else { return Ok(None) };
        Ok(Some(Arrival { at, request: self.adopt(part, request)? }))
    }

    fn finished(&mut self, index: u64, at: SimTime) {
        if let Some((part, own_index)) = self.waiting.remove(&index) {
            self.parts[part].workload.finished(own_index, at);
        }
    }

    fn aborted(&mut self, index: u64, at: SimTime) {
        if let Some((part, own_index)) = self.waiting.remove(&index) {
            self.parts[part].workload.aborted(own_index, at);
        }
    }

    /// That of the part that has least of its own.
    fn progress(&self) -> Option<f64> {
        self.parts.iter().filter_map(|part| part.workload.progress()).reduce(f64::min)
    }

    fn tenants(&self) -> &[String] {
        &self.tenants
    }

    fn notes(&self) -> WorkloadNotes {
        let mut notes = WorkloadNotes::default();
        for part in &self.parts {
            notes.extend(part.workload.notes());
        }
        notes
    }
}
