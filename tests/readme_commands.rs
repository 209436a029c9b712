//! The README and CI promise the same two commands.

/// The lines of a text that are commands to cargo, without comments.
fn cargo_commands(text: &str) -> Vec<&str> {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| line.starts_with("cargo test") || line.starts_with("cargo run")).collect()
}

#[test]
fn ci_runs_the_commands_that_the_readme_names() {
    let readme = include_str!("../README.md");
    let start = readme.find("## Start").expect("the README has a section `Start`");
    let section = &readme[start..];
    let block = section.split("```").nth(1).expect("the section has a block of commands");
    let mut promised = cargo_commands(block);
    let mut run = cargo_commands(include_str!("../.ci/run"));
    promised.sort_unstable();
    run.sort_unstable();
    assert_eq!(promised.len(), 2, "the README's section `Start` names two commands: {promised:?}");
    assert_eq!(promised, run);
}
