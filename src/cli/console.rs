//! What a command says: text for people, nothing, or a line of JSON for each event.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};

use super::diagnostic::Diagnostic;
use super::exit;

/// Options of every command.
#[derive(Clone, Copy, Debug, Default, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputOptions {
    /// Print nothing but errors
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Print a line of JSON for each event instead of text; the last is `finished` or `error`
    #[arg(long, global = true)]
    pub json: bool,
}

/// How a command ended: what it came to, as JSON, and its exit code.
#[derive(Debug)]
pub(super) struct Finished {
    pub code: u8,
    pub summary: Value,
}

impl Finished {
    pub fn new(summary: impl Serialize) -> Self {
        // What we serialise are structs of numbers and texts, which always are JSON.
        Self { code: exit::OK, summary: serde_json::to_value(summary).unwrap_or_default() }
    }

    pub fn with_code(self, code: u8) -> Self {
        Self { code, ..self }
    }
}

/// Where a command's words go.
#[derive(Debug)]
pub(super) struct Console {
    options: OutputOptions,
    begun: Instant,
}

impl Console {
    pub fn new(options: OutputOptions) -> Self {
        Self { options, begun: Instant::now() }
    }

    /// Events are wanted, and all of them.
    pub fn tells_events(&self) -> bool {
        self.options.json && !self.options.quiet
    }

    /// Text for people is wanted.
    pub fn tells_people(&self) -> bool {
        !self.options.json && !self.options.quiet
    }

    /// Seconds since the command began.
    pub fn elapsed_s(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    /// A line or more for people.
    pub fn say(&self, text: impl Display) -> io::Result<()> {
        if self.tells_people() { print_line(text) } else { Ok(()) }
    }

    /// What people and programs should know.
    pub fn note(&self, text: impl Display) -> io::Result<()> {
        if self.tells_events() {
            self.event("note", json!({"message": text.to_string()}))
        } else {
            self.say(text)
        }
    }

    /// A file or folder is in its place.
    pub fn written(&self, what: &str, path: &Path) -> io::Result<()> {
        if self.tells_events() {
            self.event("written", json!({"what": what, "path": path}))
        } else {
            self.say(format_args!("{what}: {}", path.display()))
        }
    }

    /// One of the things that a command makes many of is there.
    pub fn row(&self, row: impl Serialize) -> io::Result<()> {
        if !self.tells_events() {
            return Ok(());
        }
        self.event("row", json!({"row": serde_json::to_value(row)?}))
    }

    /// What a command is for, if that is a text: also when nothing but errors is to be said.
    pub fn product(&self, text: &str) -> io::Result<()> {
        if self.options.json { Ok(()) } else { print(text) }
    }

    /// The command was understood, and begins.
    pub fn started(&self, command: &str) -> io::Result<()> {
        if !self.tells_events() {
            return Ok(());
        }
        self.event("started", json!({"command": command, "kvsim_version": env!("CARGO_PKG_VERSION")}))
    }

    pub fn finished(&self, finished: &Finished) -> io::Result<()> {
        if !self.tells_events() {
            return Ok(());
        }
        self.event(
            "finished",
            json!({
                "exit_code": finished.code,
                "elapsed_s": rounded(self.elapsed_s()),
                "summary": finished.summary,
            }),
        )
    }

    /// Why the command ends without what was asked for. A closed pipe is nobody's error.
    pub fn error(&self, error: &(dyn Error + 'static), code: u8) {
        let _ = if self.options.json {
            let mut fields = json!({"exit_code": code});
            extend(&mut fields, serde_json::to_value(Diagnostic::of(error)).unwrap_or_default());
            self.event("error", fields)
        } else {
            // As clap's own errors: in colour on a terminal, unless NO_COLOR is set.
            let style = *clap::builder::Styles::styled().get_error();
            writeln!(anstream::stderr().lock(), "{style}error:{style:#} {error}")
        };
    }

    /// A line with the name of the event and its fields.
    pub fn event(&self, name: &str, fields: Value) -> io::Result<()> {
        let mut event = json!({"event": name});
        extend(&mut event, fields);
        print_line(event)
    }
}

/// Adds the fields of one object to another.
fn extend(object: &mut Value, more: Value) {
    if let (Value::Object(object), Value::Object(more)) = (object, more) {
        object.extend(more);
    }
}

/// Whole milliseconds, in seconds.
pub(super) fn rounded(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

fn print_line(text: impl Display) -> io::Result<()> {
    print(format_args!("{text}\n"))
}

fn print(text: impl Display) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| io::Error::new(error.kind(), format!("cannot write to stdout: {error}")))
}
