//! `explorer.html`: the recording, and what plays it.

use maud::{Markup, PreEscaped, html};

use super::recorder::Recorder;
use crate::page::{Page, Section, count};
use crate::report::RunInfo;

const STYLE: &str = include_str!("explorer.css");
/// The state at any moment, the sentences, and the picture.
const SCRIPT: &str = concat!(
    include_str!("replay.js"),
    include_str!("narrate.js"),
    include_str!("draw.js"),
    include_str!("view.js")
);

/// Makes the page.
pub(in crate::report) fn explorer_page(recorder: &Recorder, info: &RunInfo) -> String {
    let first = recorder.first_step();
    let section = if recorder.has_begun() {
        let body = body(&recorder.json(&info.name));
        Section { style: STYLE, script: SCRIPT, ..Section::new("explorer", "Step by step", body) }
    } else {
        let text = format!("The run ends before its step {}.", count(first));
        Section::new("explorer", "Nothing to show", html! { p { (text) } })
    };
    let notice = recorder.is_cut().then(|| {
        format!(
            "The recording ends after {} steps: more would make this page slow. See others with --explore {}.. .",
            count(recorder.num_steps()),
            first + recorder.num_steps()
        )
    });
    let page = Page {
        kind: "block explorer",
        title: info.name.clone(),
        about: html! {
            p {
                "What the engine does with its " (count(u64::from(info.num_gpu_blocks))) " KV cache blocks, from step "
                (count(first)) " on, for " (count(recorder.num_steps())) " steps. All of it was recorded from the \
                 engine while it ran. The figures of the run are in " a href="report.html" { "report.html" } "."
            }
        },
        notice,
        headlines: Vec::new(),
        sections: vec![section],
    };
    page.html()
}

fn body(json: &str) -> Markup {
    // The only way out of a script element.
    let json = json.replace("</", "<\\/");
    let button = |id: &str, sign: &str, label: &str| {
        html! { button type="button" id=(id) title=(label) aria-label=(label) { (sign) } }
    };
    html! {
        noscript { p { "This page plays a recording, which takes JavaScript. The tables of the run are beside it." } }
        div #explorer-root hidden {
            div.player role="group" aria-label="Player" {
                div.buttons {
                    (button("step-back", "|◀", "Back to the call before (Shift and left arrow)"))
                    (button("back", "◀", "One event back (left arrow)"))
                    (button("play", "▶ Play", "Play or pause (space)"))
                    (button("forward", "▶", "One event forward (right arrow)"))
                    (button("step-forward", "▶|", "On to the next call (Shift and right arrow)"))
                }
                input #position type="range" min="0" step="1" value="0" aria-label="Event";
                label.speed { "Speed " select #speed { option value="1600" { "slow" } option value="800" selected { "normal" } option value="250" { "fast" } } }
                output #where for="position" {}
            }
            div #rules.rules role="group" aria-label="The seven rules" {}
            div #story.story aria-live="polite" {}
            div.board {
                div.panel.pool-panel {
                    h3 { "Block pool" }
                    p.legend #legend {}
                    div #pool.pool {}
                    h3 { "Free queue " span.hint { "the left end is handed out next" } }
                    div #queue.queue {}
                }
                div.panel {
                    h3 { "Requests" }
                    div #requests.requests {}
                }
            }
            div.board {
                div.panel {
                    h3 { "Hash chain " span.hint { "what is in the cache; each hash covers all tokens before it" } }
                    div #chain.chain {}
                }
                div.panel {
                    h3 #events-heading { "Events" }
                    ol #events.events {}
                    div #details.details aria-live="polite" {}
                }
            }
            p.keys {
                "Keys: " kbd { "←" } " " kbd { "→" } " event, " kbd { "Shift" } " and arrow for a whole call, "
                kbd { "Space" } " plays, " kbd { "Home" } " " kbd { "End" } ", " kbd { "Esc" }
                " ends a selection. Click a block, a request or a hash to see it everywhere."
            }
        }
        script type="application/json" id="explorer-data" { (PreEscaped(json)) }
    }
}
