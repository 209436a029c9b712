//! Charts on pages, each with its numbers below it.

use maud::{Markup, PreEscaped, html};

use super::table::table;
use crate::chart::{Nearest, Plot, svg};

/// A chart under its title.
pub fn figure(plot: &Plot) -> Markup {
    let nearest = match plot.nearest {
        Nearest::X => Some("x"),
        Nearest::Span => Some("span"),
        Nearest::Column => Some("column"),
        Nearest::Point => Some("point"),
        Nearest::Row => Some("row"),
        Nearest::Nothing => None,
    };
    html! {
        figure.chart data-nearest=[nearest] {
            figcaption { h3 { (plot.title) } p { (plot.description) } }
            div.plot { (PreEscaped(svg(plot))) }
            @if !plot.data.rows.is_empty() {
                details { summary { "Data" } (table(&plot.data)) }
            }
        }
    }
}

/// Charts beside each other where there is room.
pub fn figures(plots: &[Plot]) -> Markup {
    html! { div.figures { @for plot in plots { (figure(plot)) } } }
}
