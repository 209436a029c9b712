//! `--explore`.

use std::ops::Range;

use clap::Args;

use crate::report::{DEFAULT_STEPS, ExploreOptions};

#[derive(Debug, Args)]
pub(super) struct ExploreArguments {
    /// Write explorer.html, which plays the engine's steps block by block: those from FROM to before
    /// TO, counted from 0 [default: the first 400]
    #[arg(long, value_name = "FROM..TO", num_args = 0..=1, value_parser = parse_steps)]
    explore: Option<Option<Range<u64>>>,
    /// The replica to explore, counted from 0; data-parallel ranks count over all replicas
    #[arg(long, value_name = "N", default_value_t = 0, requires = "explore")]
    explore_replica: u32,
}

impl ExploreArguments {
    pub fn options(&self, num_replicas: u32) -> Result<Option<ExploreOptions>, String> {
        let Some(steps) = self.explore.clone() else { return Ok(None) };
        let (steps, replica) = (steps.unwrap_or(0..DEFAULT_STEPS), self.explore_replica);
        if replica >= num_replicas {
            return Err(format!("--explore-replica {replica}: there are {num_replicas}, counted from 0"));
        }
        Ok(Some(ExploreOptions { steps, replica }))
    }
}

fn parse_steps(text: &str) -> Result<Range<u64>, String> {
    let wrong = || "give steps as FROM..TO, such as 0..200, 500.. or ..100".to_owned();
    let (from, to) = text.split_once("..").ok_or_else(wrong)?;
    let step = |text: &str, default: u64| {
        if text.is_empty() { Ok(default) } else { text.parse::<u64>().map_err(|_| wrong()) }
    };
    let start = step(from, 0)?;
    let steps = start..step(to, start.saturating_add(DEFAULT_STEPS))?;
    if steps.is_empty() {
        return Err(format!("there is no step from {} to before {}", steps.start, steps.end));
    }
    Ok(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_have_two_ends_of_which_one_may_be_left_out() {
        let steps = parse_steps;
        assert_eq!(steps("10..20"), Ok(10..20));
        assert_eq!(steps("..20"), Ok(0..20));
        assert_eq!(steps("10.."), Ok(10..10 + DEFAULT_STEPS));
        assert_eq!(steps("20..20"), Err("there is no step from 20 to before 20".to_owned()));
        assert!(steps("10").is_err() && steps("a..b").is_err() && steps("1..-2").is_err());
    }
}
