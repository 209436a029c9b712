//! Headless Chromium, which looks at pages.

use std::path::Path;
use std::process::Command;

/// A Chromium that is installed.
pub struct Chromium(&'static str);

impl Chromium {
    /// `None`, and a line that says so, where there is none.
    pub fn find() -> Option<Self> {
        let is_there = |name: &&str| {
            Command::new(name).arg("--version").output().is_ok_and(|output| output.status.success())
        };
        let found = ["chromium", "chromium-browser", "google-chrome"].into_iter().find(is_there).map(Self);
        if found.is_none() {
            eprintln!("Chromium is not installed: nobody looks at the pages");
        }
        found
    }

    /// Opens a page, and returns what Chromium prints.
    ///
    /// # Panics
    /// When a script has an error, or the page's policy forbids something.
    pub fn open(&self, page: &Path, arguments: &[&str]) -> String {
        let profile = tempfile::tempdir().unwrap();
        let output = Command::new(self.0)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--enable-logging=stderr", "--force-prefers-reduced-motion"])
            .arg("--virtual-time-budget=60000")
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .args(arguments)
            .arg(format!("file://{}", page.display()))
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&output.stderr);
        // Frames without scripts are meant.
        let is_problem = |line: &&str| {
            line.contains("CONSOLE") && !line.contains("Blocked script execution in 'about:srcdoc'")
        };
        let problems: Vec<&str> = log.lines().filter(is_problem).collect();
        assert!(problems.is_empty(), "{}: {problems:?}", page.display());
        String::from_utf8(output.stdout).unwrap()
    }

    /// What a page's own script wrote into its body between `LOOKED` and `END`.
    pub fn looked(&self, page: &Path, arguments: &[&str]) -> Option<String> {
        let dom = self.open(page, &[arguments, &["--dump-dom"]].concat());
        let (found, _) = dom.split("LOOKED ").last()?.split_once(" END")?;
        Some(found.to_owned())
    }
}
