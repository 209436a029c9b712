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

#[cfg(target_os = "linux")]
#[test]
fn a_full_terminal_is_told() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvsim"));
    let output = command.args(["size", "Llama-3.1-8B", "H100"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.starts_with("error: cannot write to stdout: No space left"), "{told}");
}

/// A limit on the size of files stands for a full disk: one error that names the file, and nothing is left.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_leaves_nothing_half_written() {
    let root = env!("CARGO_MANIFEST_DIR");
    let scenario = format!("{root}/scenarios/chat.yaml --set workload.chat.duration_s=20");
    for command in [
        format!("run {scenario} --out out"),
        format!("curve {scenario} --out out"),
        format!("trace generate {root}/scenarios/chat.yaml out"),
        format!("trace generate {root}/scenarios/chat.yaml out.gz"),
        format!("trace generate {root}/scenarios/chat.yaml out.zst"),
        format!("trace convert {root}/traces/mooncake_sample.jsonl out"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let script = format!("trap '' XFSZ; ulimit -f 4; exec {} {command}", env!("CARGO_BIN_EXE_kvsim"));
        let output = Command::new("sh").args(["-c", &script]).current_dir(dir.path()).output().unwrap();
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {told}");
        assert!(told.starts_with("error: cannot write ") && told.contains("out"), "{command}: {told}");
        assert_eq!(told.lines().count(), 1, "{command}: {told}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "{command}");
    }
}

/// A pipe can be read once: a trace in one is refused, and not waited for.
#[cfg(target_os = "linux")]
#[test]
fn a_trace_in_a_pipe_is_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvsim"));
    command.args(["run", "scenarios/mooncake.yaml", "--trace", "/dev/stdin", "--out", "never_a_pipe"]);
    let mut child = command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdin.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: --trace /dev/stdin: /dev/stdin is a pipe or a device, but a trace is read more than once\n  \
         help: save it to a file first\n"
    );
}

/// As root a rename would put a file in the place of a device.
#[cfg(target_os = "linux")]
#[test]
fn a_device_stays_a_device() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvsim"));
    let output = command
        .args(["trace", "convert", "traces/mooncake_sample.jsonl", "/dev/null", "--to", "mooncake"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: cannot write /dev/null: it is a pipe or a device; name a file\n"
    );
    assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
}

/// No table of kernels tells what `kvsim calibrate bench` found: a fit to kernels leaves it as it is.
#[test]
fn host_terms_outlive_a_fit_to_kernels() {
    let dir = tempfile::tempdir().unwrap();
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cmd/calibrate_tiny.csv");
    let fit = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kvsim"));
        command.current_dir(&dir).args(["calibrate", "table", table, "--gpu", "H100", "--out", "own.yaml"]);
        let output = command.args(more).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let profile = std::fs::read_to_string(dir.path().join("own.yaml")).unwrap();
        (String::from_utf8(output.stdout).unwrap(), profile)
    };
    let (told, _) = fit(&[]);
    assert!(told.contains("host terms of H100-SXM: those of the built-in profile of H100-SXM\n"), "{told}");
    // Also from a file whose laws are those of another version.
    let old = "gpu: H100-SXM\nsource: own\ngemm: {bf16: old}\nhost:\n  gpu_step_us: 321.5\n";
    std::fs::write(dir.path().join("own.yaml"), old).unwrap();
    let (told, profile) = fit(&[]);
    assert!(told.contains("host terms of H100-SXM: kept from own.yaml, which was there\n"), "{told}");
    assert!(profile.contains("gpu_step_us: 321.5\n"), "{profile}");
    let (told, profile) = fit(&["--host", "A100"]);
    assert!(told.contains("host terms of H100-SXM: those of the built-in profile of A100-80G\n"), "{told}");
    assert!(!profile.contains("gpu_step_us: 321.5\n"), "{profile}");
    std::fs::write(dir.path().join("host.yaml"), old).unwrap();
    let (told, profile) = fit(&["--host", "host.yaml"]);
    assert!(told.contains("host terms of H100-SXM: those of host.yaml\n"), "{told}");
    assert!(profile.contains("gpu_step_us: 321.5\n"), "{profile}");
    // A profile of another GPU has nothing to keep.
    std::fs::write(dir.path().join("own.yaml"), old.replace("H100-SXM", "H200")).unwrap();
    assert!(!fit(&[]).1.contains("gpu_step_us: 321.5\n"));
}
