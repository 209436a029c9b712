//! Pages: one HTML file each, that needs nothing else. No script has to run to read it, nothing is
//! fetched (the page forbids it to itself), and the same content gives the same bytes.
//!
//! A page is a list of [`Section`]s. Whoever has something to show makes a section, with a style and
//! a script of its own if it needs them, and whoever writes the page puts it in its place.

mod figure;
mod format;
mod table;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::chart::style_sheet;

pub use figure::{figure, figures};
pub use format::{count, percent, seconds};
pub use table::{definitions, sortable, table};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// Scripts and styles of the page itself, and nothing from elsewhere.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// A part of a page under a heading.
#[derive(Clone, Debug)]
pub struct Section {
    /// Of the part within the page: a word.
    pub id: &'static str,
    pub heading: String,
    pub body: Markup,
    /// CSS for this section alone. Colours are those of the page: `var(--ink)`, `var(--blue)` ...
    pub style: &'static str,
    /// JavaScript that runs when the page is there. The section has to make sense without it.
    pub script: &'static str,
}

impl Section {
    pub fn new(id: &'static str, heading: impl Into<String>, body: Markup) -> Self {
        Self { id, heading: heading.into(), body, style: "", script: "" }
    }
}

/// A figure that one looks at first.
#[derive(Clone, Debug)]
pub struct Headline {
    pub name: String,
    pub value: String,
    pub unit: String,
    /// What it is made of, or how it spreads.
    pub note: String,
}

#[derive(Clone, Debug)]
pub struct Page {
    /// What kind of page it is.
    pub kind: &'static str,
    pub title: String,
    /// Below the title: what this is about, in a line or two.
    pub about: Markup,
    /// Something one has to know before all else.
    pub notice: Option<String>,
    pub headlines: Vec<Headline>,
    pub sections: Vec<Section>,
}

impl Page {
    /// The whole file.
    pub fn html(&self) -> String {
        let of_sections = |part: fn(&Section) -> &'static str| -> String {
            self.sections.iter().map(part).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
        };
        let style = [style_sheet(), STYLE.to_owned(), of_sections(|section| section.style)].join("\n");
        let script = [SCRIPT.to_owned(), of_sections(|section| section.script)].join("\n");
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta http-equiv="Content-Security-Policy" content=(POLICY);
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="generator" content=(concat!("kvsim ", env!("CARGO_PKG_VERSION")));
                    title { (self.title) " · " (self.kind) }
                    style { (PreEscaped(style)) }
                }
                body {
                    header {
                        p.kind { "kvsim · " (self.kind) }
                        h1 { (self.title) }
                        div.about { (self.about) }
                    }
                    main {
                        @if let Some(notice) = &self.notice {
                            p.notice role="note" { (notice) }
                        }
                        @if !self.headlines.is_empty() {
                            (headlines(&self.headlines))
                        }
                        nav aria-label="Sections" {
                            @for section in &self.sections {
                                a href={ "#" (section.id) } { (section.heading) } " "
                            }
                        }
                        @for section in &self.sections {
                            section id=(section.id) {
                                h2 { (section.heading) }
                                (section.body)
                            }
                        }
                    }
                    footer {
                        p { "Written by kvsim " (env!("CARGO_PKG_VERSION")) ". Simulated, not measured." }
                    }
                    script { (PreEscaped(script)) }
                }
            }
        };
        page.into_string()
    }
}

fn headlines(headlines: &[Headline]) -> Markup {
    html! {
        dl.headlines {
            @for it in headlines {
                div {
                    dt { (it.name) }
                    dd { span.value { (it.value) } @if !it.unit.is_empty() { span.unit { (it.unit) } } }
                    @if !it.note.is_empty() { dd.note { (it.note) } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_text_and_never_markup() {
        let page = Page {
            kind: "run",
            title: "<script>alert(1)</script>".to_owned(),
            about: html! { p { ("a & b") } },
            notice: Some("<b>".to_owned()),
            headlines: vec![Headline {
                name: "\"><i>".to_owned(),
                value: "1".to_owned(),
                unit: "<u>".to_owned(),
                note: String::new(),
            }],
            sections: vec![Section::new("one", "<h1>", html! {})],
        };
        let html = page.html();
        assert_eq!(html.matches("<script>").count(), 1);
        assert!(html.contains("<h1>&lt;script&gt;alert(1)&lt;/script&gt;</h1>"));
        assert!(html.contains("a &amp; b") && html.contains("&quot;&gt;&lt;i&gt;"));
        assert!(!html.contains("<b>") && !html.contains("<i>") && !html.contains("<u>"));
        assert_eq!(html, page.html());
    }
}
