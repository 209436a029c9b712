//! The pages as a reader sees them, in headless Chromium: in light and dark, on a telephone and on a
//! wide screen, on paper, and without scripts. Where no Chromium is installed the test says so.

mod chromium;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use chromium::Chromium;

const SCENARIO: &str = "
name: small
model: Llama-3.1-8B
gpu: H100
engine: {max_model_len: 4096, num_gpu_blocks_override: 300}
workload:
  chat:
    sessions_per_s: 2
    duration_s: 10
    tenants: [{name: \"<script>alert(2)</script>\", system_prompt_tokens: 200}, {name: b, system_prompt_tokens: 90}]
    turns: {geometric: {mean: 3, max: 10}}
    message_tokens: {lognormal: {median: 60, sigma: 1.0, max: 1000}}
    answer_tokens: {lognormal: {median: 50, sigma: 0.7, max: 500}}
    think_time_s: {exponential: {mean: 2}}
    max_context_tokens: 4096
";

const SWEEP: &str = "
name: small
description: \"<script>alert(3)</script>\"
scenario: scenario.yaml
grid:
  engine.block_size: [16, 32]
  engine.num_gpu_blocks_override: [280, 340, 400]
replications: 2
pareto: {minimise: [latency.ttft.p99_ms], maximise: [prefix_cache.hit_rate]}
";

/// Looks at a page as wide as a telephone and as a screen, and writes what is wrong into the body.
const LOOK: &str = r#"<!doctype html><meta charset="utf-8"><body><script>
const page = PAGE, wrong = [];
const look = (width, hasScripts) => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.style.cssText = `width:${width}px;height:900px;border:0`;
  if (!hasScripts) frame.sandbox = "allow-same-origin";
  frame.srcdoc = page;
  frame.onload = () => {
    const inner = frame.contentDocument, view = frame.contentWindow;
    const say = text => wrong.push(`${width} px: ${text}`);
    if (inner.documentElement.scrollWidth > view.innerWidth) say(`the page is ${inner.documentElement.scrollWidth} wide`);
    for (const svg of inner.querySelectorAll("svg"))
      if (svg.getAttribute("role") !== "img" || !svg.querySelector("title").textContent || !svg.querySelector("desc"))
        say("a chart without a name");
    const levels = [...inner.querySelectorAll("h1,h2,h3,h4")].map(head => +head.tagName[1]);
    if (levels.filter(level => level === 1).length !== 1 || levels[0] !== 1) say("not one first heading");
    levels.reduce((last, level) => { if (level > last + 1) say(`a heading ${level} after ${last}`); return level; }, 0);
    const ids = [...inner.querySelectorAll("[id]")].map(it => it.id);
    if (new Set(ids).size !== ids.length) say("an id twice");
    for (const link of inner.querySelectorAll("a[href^='#']"))
      if (!inner.getElementById(link.hash.slice(1))) say(`no ${link.hash}`);
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const [r, g, b] = view.getComputedStyle(inner.body).backgroundColor.match(/\d+/g).map(Number);
    if ((r + g + b < 384) !== dark) say(`ground ${r} ${g} ${b} where dark is ${dark}`);
    const head = inner.querySelector("table.sortable thead button");
    if (!hasScripts) {
      if (head) say("a script has run");
      const seen = [...inner.querySelectorAll("h2, .chart svg, table, footer")].filter(it => it.offsetHeight || it.clientHeight);
      if (seen.length < 4) say("little is seen without scripts");
      return done();
    }
    if (inner.querySelector("table.sortable") && !head) say("a table that cannot be sorted");
    if (head) { head.click(); if (!head.closest("th").hasAttribute("aria-sort")) say("sorting says nothing"); }
    const figure = inner.querySelector("figure[data-nearest]"), svg = figure && figure.querySelector("svg");
    if (svg) {
      svg.scrollIntoView();
      const box = svg.getBoundingClientRect();
      svg.dispatchEvent(new view.PointerEvent("pointermove",
        {bubbles: true, clientX: box.left + box.width / 2, clientY: box.top + box.height / 2}));
      if (!figure.querySelector(".tip")) say("pointing at a chart shows nothing");
    }
    done();
  };
  document.body.append(frame);
});
look(360, true).then(() => look(1280, true)).then(() => look(1280, false)).then(() => {
  document.body.replaceChildren("LOOKED " + (wrong.join("; ") || "and all is well") + " END");
});
</script>"#;

struct Reader {
    chromium: Chromium,
    dir: tempfile::TempDir,
}

impl Reader {
    fn look(&self, page: &Path) {
        let html = fs::read_to_string(page).unwrap();
        // Nothing from elsewhere: only names of namespaces and links within the folder.
        for scheme in ["http://", "https://"] {
            assert!(!html.contains(scheme), "{}: {scheme}", page.display());
        }
        let json = serde_json::to_string(&html).unwrap().replace("</", "<\\/");
        let look = self.dir.path().join("look.html");
        fs::write(&look, LOOK.replacen("PAGE", &json, 1)).unwrap();
        for scheme in ["--blink-settings=preferredColorScheme=0", "--blink-settings=preferredColorScheme=1"] {
            let found = self.chromium.looked(&look, &[scheme]);
            assert_eq!(found.as_deref(), Some("and all is well"), "{}", page.display());
        }
        self.chromium.open(page, &["--dump-dom"]);
        let paper = self.dir.path().join("page.pdf");
        self.chromium.open(page, &[&format!("--print-to-pdf={}", paper.display())]);
        let pdf = fs::read(&paper).unwrap();
        assert!(pdf.starts_with(b"%PDF") && pdf.len() > 10_000, "{}", page.display());
    }
}

fn kvsim(dir: &Path, arguments: &[&str]) {
    let output = Command::new(env!("CARGO_BIN_EXE_kvsim")).args(arguments).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_page_can_be_read_everywhere() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| -> PathBuf { dir.path().join(name) };
    fs::write(at("scenario.yaml"), SCENARIO).unwrap();
    fs::write(at("sweep.yaml"), SWEEP).unwrap();
    kvsim(dir.path(), &["run", "scenario.yaml", "--out", "run", "-q"]);
    kvsim(dir.path(), &["run", "scenario.yaml", "--out", "again", "-q"]);
    kvsim(dir.path(), &["run", "scenario.yaml", "--seed", "2", "--out", "other", "-q"]);
    kvsim(dir.path(), &["sweep", "sweep.yaml", "--out", "sweep", "--reports", "-q"]);
    kvsim(
        dir.path(),
        &["curve", "scenario.yaml", "--out", "curve", "--simulate", "280blocks,400blocks", "-q"],
    );
    let plan = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cmd/plan.in/plan.yaml");
    kvsim(dir.path(), &["plan", plan, "--out", "plan", "-q"]);
    kvsim(dir.path(), &["compare", "run", "other", "--html", "compare.html", "-q"]);
    kvsim(dir.path(), &["compare", "sweep:0", "sweep:5", "--html", "points.html", "-q"]);

    let page = fs::read_to_string(at("run/report.html")).unwrap();
    assert_eq!(page, fs::read_to_string(at("again/report.html")).unwrap());
    assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert(2)&lt;/script&gt;"));
    assert!(page.len() < 500_000, "{} bytes", page.len());

    let Some(chromium) = Chromium::find() else { return };
    let reader = Reader { chromium, dir: tempfile::tempdir().unwrap() };
    for page in [
        "run/report.html",
        "sweep/report.html",
        "curve/report.html",
        "plan/report.html",
        "compare.html",
        "points.html",
    ] {
        reader.look(&at(page));
    }
}
