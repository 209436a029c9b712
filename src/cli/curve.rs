//! `kvsim curve`: hit rate over the size of the cache.

use std::error::Error;
use std::fs;
use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};

use clap::Args;

use super::console::{Console, Finished};
use super::progress::{Bar, Unit};
use super::trace::input::number_within;
use crate::report::TraceInfo;
use crate::scenario::{Source, Template};
use crate::study::hit_rate_curve::{CacheSize, CurveRequest, Progress, Sampling, Simulate, terminal_table};
use crate::study::sweep::{self, Row};
use crate::text_file::read_text;
use crate::trace_tools::AnswerTimes;
use crate::units::SimTime;

/// Show the hit rate over the size of the cache, for all sizes from one pass over the requests
#[derive(Debug, Args)]
pub(super) struct CurveArguments {
    /// The scenario, a YAML file
    scenario: PathBuf,
    /// The trace to replay, instead of the scenario's
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Leave out rows of the trace that cannot be read, and count them
    #[arg(long)]
    skip_bad_rows: bool,
    /// Block sizes, in tokens
    #[arg(long, value_name = "TOKENS", value_delimiter = ',', default_value = "16,32,64")]
    block_sizes: Vec<NonZeroU32>,
    /// Sizes of the cache, such as 20GiB, 500000tokens or 28000blocks (of the scenario's block size)
    /// [default: 24 up to the one that finds all]
    #[arg(long, value_name = "SIZES", value_delimiter = ',')]
    sizes: Vec<CacheSize>,
    /// Simulate the engine too: at so many sizes, or at these
    #[arg(long, value_name = "N|SIZES", value_parser = parse_simulate)]
    simulate: Option<Simulate>,
    /// Look at this share of the blocks only, such as 0.01, for traces beyond memory
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    sample: Option<f64>,
    /// Keep at most so many blocks in the sample for each block size
    #[arg(long, value_name = "BLOCKS", value_parser = clap::value_parser!(u64).range(64..=1 << 32))]
    sample_blocks: Option<u64>,
    /// Mark what this much host memory holds, where the scenario has no tiers; 0 for no mark
    #[arg(long, value_name = "GIB", default_value = "64", value_parser = parse_gib)]
    host_gib: f64,
    /// How long an answer takes to its first token, in milliseconds; users go on when it has ended
    #[arg(long, value_name = "MS", default_value = "200", value_parser = parse_ms)]
    ttft_ms: f64,
    /// How long each further token takes, in milliseconds
    #[arg(long, value_name = "MS", default_value = "20", value_parser = parse_ms)]
    tpot_ms: f64,
    /// Change a field of the scenario, such as workload.chat.sessions_per_s=2; may be given again
    #[arg(long = "set", value_name = "FIELD=VALUE")]
    overrides: Vec<String>,
    /// The seed, instead of the scenario's
    #[arg(long)]
    seed: Option<u64>,
    /// The folder of the curve [default: reports/NAME-curve]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Simulations at a time [default: one for each processor]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

fn parse_ms(text: &str) -> Result<f64, String> {
    number_within(text, 0.0, 1e9)
}

fn parse_gib(text: &str) -> Result<f64, String> {
    number_within(text, 0.0, 1e9)
}

fn parse_share(text: &str) -> Result<f64, String> {
    number_within(text, 1e-9, 1.0)
}

fn parse_simulate(text: &str) -> Result<Simulate, String> {
    if let Ok(count) = text.parse() {
        return match count {
            1..=1_000 => Ok(Simulate::Spread(count)),
            _ => Err("give 1 to 1000 sizes".to_owned()),
        };
    }
    text.split(',').map(str::parse).collect::<Result<_, _>>().map(Simulate::Sizes)
}

pub(super) fn curve(arguments: &CurveArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let path = &arguments.scenario;
    let template = Template::read(Source {
        path: path.clone(),
        text: read_text(path)?,
        overrides: arguments.overrides.clone(),
        seed: arguments.seed,
        trace: arguments.trace.clone(),
        skip_bad_rows: arguments.skip_bad_rows,
    })?;
    let scenario = template.scenario(&[])?;
    let max_blocks = arguments.sample_blocks.map(|blocks| blocks as usize);
    let is_sampled = arguments.sample.is_some() || max_blocks.is_some();
    let rate = arguments.sample.unwrap_or(1.0);
    let mut block_sizes = arguments.block_sizes.clone();
    block_sizes.sort_unstable();
    block_sizes.dedup();
    let name = &scenario.file.name;
    let default = || Path::new("reports").join(format!("{name}-curve"));
    let target = arguments.out.clone().unwrap_or_else(default);
    let request = CurveRequest {
        block_sizes,
        sizes: arguments.sizes.clone(),
        simulate: arguments.simulate.clone(),
        sampling: is_sampled.then_some(Sampling { rate, max_blocks }),
        answers: AnswerTimes {
            ttft: SimTime::from_secs_f64(arguments.ttft_ms / 1e3),
            tpot: SimTime::from_secs_f64(arguments.tpot_ms / 1e3),
        },
        host_gib: arguments.host_gib,
        threads: arguments.threads.map_or(0, NonZeroUsize::get),
        simulations: beside(&target),
    };
    let mut watch = Watch { bar: console.bar(name, Unit::Requests, None), console, name, requests: 0 };
    let curve = request.run(&template, &scenario, &mut watch)?;
    drop(watch);
    let trace = scenario.trace_path()?.as_deref().map(TraceInfo::of).transpose()?;
    curve.write(&target, &request, &scenario, trace.as_ref())?;
    // They are in the curve now.
    let _ = fs::remove_dir_all(&request.simulations);
    console.say(terminal_table(&curve))?;
    console.written("curve", &target)?;
    Ok(Finished::new(&curve))
}

/// The folder of the simulations that have finished, until the curve is there.
fn beside(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.simulations"))
}

/// A bar of requests, then of simulations.
struct Watch<'a> {
    console: &'a Console,
    name: &'a str,
    bar: Bar<'a>,
    requests: u64,
}

impl Progress for Watch<'_> {
    fn request(&mut self, share: Option<f64>) {
        self.requests += 1;
        self.bar.set(self.requests as f64, share);
    }
}

impl sweep::Progress for Watch<'_> {
    fn begin(&mut self, done: usize, all: usize) -> io::Result<()> {
        if done > 0 {
            let name = self.name;
            self.console.note(format_args!("{name}: {done} of {all} simulations are there already"))?;
        }
        self.bar = self.console.bar(self.name, Unit::Runs, Some(all - done));
        Ok(())
    }

    fn row(&mut self, row: &Row) -> io::Result<()> {
        self.bar.add(1);
        self.console.row(row)
    }
}
