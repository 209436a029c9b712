//! The command line, by example: each file in `tests/cmd` is a command and what it prints.

use std::process::{Command, Stdio};

#[test]
fn commands_print_what_is_written() {
    trycmd::TestCases::new().case("tests/cmd/*.toml").case("tests/cmd/*.trycmd");
}

/// As `kvsim ... | head -0`: who reads our output may go at any time.
#[test]
fn a_closed_pipe_is_no_error() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/mooncake_sample.jsonl");
    let commands: [&[&str]; 7] = [
        &["--help"],
        &["completions", "bash"],
        &["man"],
        &["trace", "info", trace],
        &["trace", "info", trace, "--json"],
        &["calibrate", "show", "H100"],
        &["nothing", "--json"],
    ];
    for arguments in commands {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvsim"));
        let mut child =
            command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let expected = if arguments[0] == "nothing" { 2 } else { 0 };
        assert_eq!(output.status.code(), Some(expected), "{arguments:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{arguments:?}");
    }
}
