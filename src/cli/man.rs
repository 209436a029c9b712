//! `kvsim man`: the manual, in the form that `man` reads.

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory};
use clap_mangen::{Man, generate_to};

use super::Arguments;
use super::console::{Console, Finished};

/// Print the manual page, or write those of all commands
#[derive(Debug, Args)]
pub(super) struct ManArguments {
    /// Write the page of each command into this folder, such as ~/.local/share/man/man1
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(super) fn man(arguments: &ManArguments, console: &Console) -> Result<Finished, Box<dyn Error>> {
    let command = Arguments::command();
    let Some(folder) = &arguments.out else {
        let mut page = Vec::new();
        Man::new(command).render(&mut page)?;
        let page = String::from_utf8_lossy(&page);
        console.product(&page)?;
        return Ok(Finished::new(page));
    };
    write_all(command, folder).map_err(|error| format!("cannot write {}: {error}", folder.display()))?;
    console.written("pages", folder)?;
    Ok(Finished::new(folder))
}

fn write_all(command: clap::Command, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    generate_to(command, folder)
}
