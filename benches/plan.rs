//! A plan over twelve candidates: how long it takes, from the command to the files.
//!
//! ```text
//! cargo bench --bench plan                      # scenarios/plans/chat.yaml
//! cargo bench --bench plan -- PLAN.yaml
//! ```

use std::path::PathBuf;
use std::time::Instant;

use kvsim::study::plan::{Overrides, Planner, Progress, RunOptions, terminal_text};

/// Counts the simulations.
#[derive(Default)]
struct Runs(u64);

impl Progress for Runs {
    fn begin(&mut self, _runs: usize, _candidates: usize) -> std::io::Result<()> {
        Ok(())
    }

    fn run(&mut self) {
        self.0 += 1;
    }

    fn candidate(&mut self) {}
}

fn main() {
    let given = std::env::args().skip(1).find(|argument| argument != "--bench");
    let path = given.map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/plans/chat.yaml").into(),
        PathBuf::from,
    );
    let folder = tempfile::tempdir().expect("there is room for the results");
    let begin = Instant::now();
    let planner = Planner::load(&path, &Overrides::default()).expect("the plan is good");
    let mut runs = Runs::default();
    let options = RunOptions { folder: folder.path().join("out"), restart: false, threads: 0 };
    let result = planner.run(&options, &mut runs).expect("nobody stops it");
    let elapsed_s = begin.elapsed().as_secs_f64();
    println!("{}", terminal_text(&result));
    println!(
        "{} candidates, {} simulations: {elapsed_s:.1} s on {} processors",
        planner.num_candidates(),
        runs.0,
        std::thread::available_parallelism().map_or(1, usize::from)
    );
}
