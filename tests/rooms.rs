//! The order of the rooms in `lib.rs` is the order in which they may use each other, and the rooms
//! that must be deterministic name nothing of the machine they run on.

use std::fs;
use std::path::{Path, PathBuf};

/// Rooms whose result depends on their input alone.
const PURE_ROOMS: [&str; 6] = ["engine", "cost", "workload", "reuse", "trace_tools", "simulation"];
/// Modules of `std` that reach outside of the program.
const IMPURE_STD: [&str; 5] = ["env", "fs", "net", "process", "thread"];
const IMPURE_WORDS: [&str; 8] =
    ["Instant", "SystemTime", "dbg!", "eprint!", "eprintln!", "print!", "println!", "rayon"];

struct Source {
    /// From `src` on.
    path: PathBuf,
    /// Without comments and with empty strings.
    code: String,
}

impl Source {
    fn room(&self) -> String {
        let first = self.path.iter().next().unwrap();
        Path::new(first).file_stem().unwrap().to_str().unwrap().to_owned()
    }

    /// The code that is compiled outside of tests: by convention tests come last in a file, or in
    /// a file of their own.
    fn code_without_tests(&self) -> &str {
        let stem = self.path.file_stem().unwrap().to_str().unwrap();
        if stem == "tests" || stem.ends_with("_tests") {
            return "";
        }
        let tests = self.code.match_indices("#[cfg(test)]").find(|(at, found)| {
            let item = self.code[at + found.len()..].trim_start();
            item.starts_with("mod ") && item.split('\n').next().is_some_and(|line| line.ends_with('{'))
        });
        tests.map_or(&self.code, |(at, _)| &self.code[..at])
    }
}

/// Blanks comments and what stands inside of string and character literals.
fn strip(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let raw = rest.strip_prefix('r').filter(|_| !code.ends_with(is_word)).map(|tail| {
            let hashes = tail.len() - tail.trim_start_matches('#').len();
            (hashes, &tail[hashes..])
        });
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if let Some((hashes, tail)) = raw
            && tail.starts_with('"')
        {
            let end = format!("\"{}", "#".repeat(hashes));
            let body = rest.len() - tail.len() + 1;
            rest[body..].find(&end).map_or(rest.len(), |at| body + at + end.len())
        } else if next == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|c| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |at| at + 2)
        } else if ["'\"'", "'\\\"'", "'\\''", "'\\\\'"].iter().any(|literal| rest.starts_with(literal)) {
            rest[1..].find('\'').map_or(1, |at| at + 2)
        } else {
            code.push(next);
            rest = &rest[next.len_utf8()..];
            continue;
        };
        code.push(' ');
        rest = &rest[skipped..];
    }
    code
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Where `word` stands in the code and is no part of a longer one.
fn find_word<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let ends = word.ends_with(is_word) && code[at + word.len()..].starts_with(is_word);
        !code[..at].ends_with(is_word) && !ends
    })
}

/// What follows `root::` everywhere in the code, also in the braces of a `use`.
fn used_below(code: &str, root: &str) -> Vec<String> {
    let root = format!("{root}::");
    let name = |text: &str| text.trim_start().chars().take_while(|&c| is_word(c)).collect::<String>();
    let mut names = Vec::new();
    for at in find_word(code, &root) {
        let tail = code[at + root.len()..].trim_start();
        let Some(list) = tail.strip_prefix('{') else {
            names.push(name(tail));
            continue;
        };
        let mut depth = 0;
        names.push(name(list));
        for (at, c) in list.char_indices() {
            match c {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => names.push(name(&list[at + 1..])),
                _ => {}
            }
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

fn sources() -> Vec<Source> {
    fn walk(folder: &Path, src: &Path, sources: &mut Vec<Source>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, src, sources);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let code = strip(&fs::read_to_string(&path).unwrap());
                sources.push(Source { path: path.strip_prefix(src).unwrap().to_owned(), code });
            }
        }
    }
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut sources = Vec::new();
    walk(&src, &src, &mut sources);
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    sources
}

/// The rooms in the order of `lib.rs`.
fn rooms() -> Vec<String> {
    let lib = strip(include_str!("../src/lib.rs"));
    let modules = lib.lines().filter_map(|line| line.trim().strip_prefix("pub mod ")?.strip_suffix(';'));
    modules.map(str::to_owned).collect()
}

#[test]
fn a_room_uses_only_rooms_above_it() {
    let rooms = rooms();
    let place = |room: &str| rooms.iter().position(|other| other == room);
    let mut problems = Vec::new();
    for source in sources() {
        let room = source.room();
        let Some(own) = place(&room) else {
            if room != "lib" && room != "main" {
                problems.push(format!("src/{}: {room} is no `pub mod` of lib.rs", source.path.display()));
            }
            continue;
        };
        for used in used_below(&source.code, "crate") {
            if place(&used).is_none_or(|place| place > own) {
                let path = source.path.display();
                problems.push(format!("src/{path}: {room} uses {used}, which is not above it in lib.rs"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn pure_rooms_name_nothing_of_the_machine() {
    let mut problems = Vec::new();
    for source in sources().iter().filter(|source| PURE_ROOMS.contains(&source.room().as_str())) {
        let code = source.code_without_tests();
        let modules = used_below(code, "std").into_iter().filter(|name| IMPURE_STD.contains(&name.as_str()));
        let words = IMPURE_WORDS.iter().filter(|word| find_word(code, word).next().is_some());
        for found in modules.map(|name| format!("std::{name}")).chain(words.map(|word| (*word).to_owned())) {
            problems.push(format!("src/{} names {found}", source.path.display()));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn paths_are_found_and_comments_are_not() {
    let code = strip(
        "use crate::{a::{x, y}, b::C, d};\n// use crate::no;\nlet s = \"crate::no \\\" crate::no\";\n\
         /* crate::no */ f(r#\"crate::no \" \"#, '\"', crate::e::g()); supercrate::no::z;",
    );
    assert_eq!(used_below(&code, "crate"), ["a", "b", "d", "e"]);
    assert_eq!(find_word("println!(); eprintln!()", "println!").count(), 1);
    assert_eq!(find_word("Instantly, Instant::now()", "Instant").count(), 1);
}
