//! From a plan's file to candidates that can run.

use std::path::{Path, PathBuf};

use super::PlanError;
use super::file::{Base, PlanFile};
use super::header::Header;
use crate::scenario::{Scenario, Source, Template};
use crate::study::sweep::Sweep;
use crate::text_file::read_text;

/// What the command line changes in all candidates.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `path.to.field=value`.
    pub set: Vec<String>,
    /// Replaces the path of a trace workload.
    pub trace: Option<PathBuf>,
}

/// A plan that has been understood: nothing has run, and nothing typed is in doubt.
pub struct Planner {
    pub name: String,
    pub description: String,
    pub(super) header: Header,
    pub(super) sweep: Sweep,
}

impl Planner {
    /// Reads a plan, its scenario and its traces.
    ///
    /// # Errors
    /// What was typed cannot be read, a trace cannot, the load cannot be varied, or no candidate could
    /// start.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Self, PlanError> {
        let text = read_text(path)?;
        let mut file = PlanFile::parse(&text, path).map_err(|error| error.in_file(path))?;
        let template = template(path, &file, overrides)?;
        let points = std::mem::take(&mut file.candidates);
        let sweep = Sweep::of_points(&file.name, &template, points, &[])?;
        for scenario in sweep.scenarios().iter().flatten() {
            scenario.check_fleet_of_one_kind("a candidate")?;
            scenario.scaled(1.0)?;
            for pool in &scenario.pools {
                file.check_price(pool.gpu).map_err(|error| error.in_file(path))?;
            }
        }
        if let Some(scenario) = sweep.scenarios().iter().flatten().next() {
            let tenants = scenario.workload_sharing(sweep.traces())?.tenants().to_vec();
            file.find_tenants(&tenants).map_err(|error| error.in_file(path))?;
        }
        let header = Header { candidates: sweep.plan.clone(), settings: file.settings };
        Ok(Self { name: file.name, description: file.description, header, sweep })
    }

    /// Candidates, those that cannot start included.
    pub fn num_candidates(&self) -> usize {
        self.sweep.scenarios().len()
    }

    pub(super) fn scenario(&self, candidate: usize) -> &Result<Scenario, String> {
        &self.sweep.scenarios()[candidate]
    }
}

/// The scenario with what is set for all candidates.
fn template(path: &Path, file: &PlanFile, overrides: &Overrides) -> Result<Template, PlanError> {
    let source = |path: PathBuf, text: String| Source {
        path,
        text,
        overrides: Vec::new(),
        seed: None,
        trace: overrides.trace.clone(),
        skip_bad_rows: false,
    };
    let mut template = match &file.base {
        Base::File(name) => {
            let scenario = path.parent().unwrap_or(Path::new("")).join(name);
            let text = read_text(&scenario)?;
            Template::read(source(scenario, text))?
        }
        Base::Inline(node) => Template::of_tree(source(path.to_owned(), String::new()), node.clone()),
    };
    for (field, value) in &file.set {
        template.set(field, value.clone())?;
    }
    for text in &overrides.set {
        template.apply_override(text)?;
    }
    Ok(template)
}
