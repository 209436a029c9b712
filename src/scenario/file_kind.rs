//! The kinds of YAML files that commands take, told apart so that a file of another kind is not taken for one
//! with wrong fields.

use super::error::FieldError;
use super::tree::{Node, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Scenario,
    Sweep,
    Plan,
}

impl FileKind {
    /// By the fields that only this kind has; `None` where they do not tell.
    fn of(root: &Node) -> Option<Self> {
        let has = |name: &str| root.get(name).is_some();
        match (has("scenario"), has("prices_per_hour"), has("workload")) {
            (true, true, false) => Some(Self::Plan),
            (true, false, false) if !has("targets") => Some(Self::Sweep),
            (false, false, true) => Some(Self::Scenario),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Scenario => "scenario",
            Self::Sweep => "sweep",
            Self::Plan => "plan",
        }
    }

    const fn command(self) -> &'static str {
        match self {
            Self::Scenario => "kvsim run",
            Self::Sweep => "kvsim sweep",
            Self::Plan => "kvsim plan",
        }
    }

    /// # Errors
    /// The file is of another kind than `self`: with the command that takes it, and what to write.
    pub fn check(self, root: &Node) -> Result<(), FieldError> {
        let Some(found) = Self::of(root).filter(|found| *found != self) else { return Ok(()) };
        let instead = match self {
            Self::Scenario => match root.get("scenario").map(|node| &node.value) {
                Some(Value::String(path)) => {
                    format!("the scenario that it names is {path}, from its folder on")
                }
                _ => "a scenario has a `model`, a `gpu` and a `workload`".to_owned(),
            },
            Self::Sweep => "a sweep names a scenario and what varies: `scenario: FILE` and \
                            `grid: {engine.block_size: [16, 32]}`"
                .to_owned(),
            Self::Plan => {
                "a plan names a scenario, `targets` and `prices_per_hour`, as scenarios/plans/chat.yaml \
                           does"
                    .to_owned()
            }
        };
        Err(FieldError {
            place: Some(root.place.clone()),
            ..FieldError::new(
                format!("this is a {}, not a {}", found.name(), self.name()),
                format!("`{}` takes it; {instead}", found.command()),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        let of = |text| FileKind::of(&Node::parse(text).unwrap());
        assert_eq!(of("name: a\nmodel: b\nworkload: {}"), Some(FileKind::Scenario));
        assert_eq!(of("scenario: a.yaml\ngrid: {}"), Some(FileKind::Sweep));
        assert_eq!(of("scenario: a.yaml\ntargets: []\nprices_per_hour: {}"), Some(FileKind::Plan));
        // A plan without its prices must be told so.
        assert_eq!(of("scenario: a.yaml\ntargets: []"), None);
        assert_eq!(of("name: a"), None);
    }
}
