//! Charts: what to draw as plain values, drawn as SVG in one style. Colours are classes, so that a
//! page or the file itself says what they are in light and dark.

mod axis;
mod draw;
mod number;
mod palette;
mod plot;
mod scatter;
mod svg_backend;
mod table;

pub use axis::Axis;
pub use draw::{sheet, svg};
pub use number::{grouped, interval, number, signed, tick};
pub use palette::{Color, style_sheet};
pub use plot::{Mark, Nearest, Plot, Shape};
pub use scatter::{Group, predicted_against_measured};
pub use table::Table;
