use std::process::ExitCode;

fn main() -> ExitCode {
    kvsim::cli::main()
}
