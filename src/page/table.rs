//! Tables of pages. They scroll within the page where it is narrow.

use maud::{Markup, html};

use crate::chart::Table;

/// Names and what they stand for.
pub fn definitions(rows: &[(&str, String)]) -> Markup {
    html! {
        dl.definitions {
            @for (name, value) in rows {
                div {
                    dt {
                        // Names of settings break where their words end.
                        @for part in name.split_inclusive(['_', '.']) { (part) wbr; }
                    }
                    dd { (value) }
                }
            }
        }
    }
}

pub fn table(table: &Table) -> Markup {
    cells(table, "")
}

/// One whose rows a click on a head sorts.
pub fn sortable(table: &Table) -> Markup {
    cells(table, "sortable")
}

fn cells(table: &Table, class: &str) -> Markup {
    let is_text = |column: usize| column < table.text_columns;
    html! {
        // The focus lets arrow keys scroll it.
        div.scroll tabindex="0" role="group" aria-label="Table" {
            table class=(class) {
                thead {
                    tr {
                        @for (column, name) in table.head.iter().enumerate() {
                            th scope="col" class=[is_text(column).then_some("text")] { (name) }
                        }
                    }
                }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (column, cell) in row.iter().enumerate() {
                                @if is_text(column) { td.text { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
        }
    }
}
