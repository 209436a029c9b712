//! The command line, by example: each file in `tests/cmd` is a command and what it prints.

#[test]
fn commands_print_what_is_written() {
    trycmd::TestCases::new().case("tests/cmd/*.toml").case("tests/cmd/*.trycmd");
}
