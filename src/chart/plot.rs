//! What to draw.

use super::axis::Axis;
use super::palette::Color;
use super::table::Table;

/// A chart as values. Where marks overlap, later ones are in front.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// What is shown; the heading, and what screen readers announce.
    pub title: String,
    /// What there is to see, in a sentence or two, for those who cannot see it.
    pub description: String,
    pub x: Axis,
    pub y: Axis,
    pub marks: Vec<Mark>,
    /// The numbers that are drawn. The first column is `x` where pointing finds a row by it.
    pub data: Table,
    pub nearest: Nearest,
    /// In pixels.
    pub size: (u32, u32),
}

impl Plot {
    /// Half of a wide page, and not much more than a telephone.
    pub const WIDTH: u32 = 480;
    /// Of a chart that has a page to itself.
    pub const WIDE: u32 = 640;
    pub const SIZE: (u32, u32) = (Self::WIDTH, 260);
}

/// Which row of the data belongs to a place in the chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nearest {
    /// The one whose first column is nearest.
    X,
    /// The last whose first column is not above: it begins a bin.
    Span,
    /// The one of the name along the axis.
    Column,
    /// The one whose first two columns are.
    Point,
    /// The one of the bar at this height, from the top.
    Row,
    /// None.
    Nothing,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    pub shape: Shape,
    pub color: Color,
    /// In the background of others.
    pub is_faint: bool,
    /// Written at the right end.
    pub label: Option<String>,
}

impl Mark {
    pub fn new(color: Color, shape: Shape) -> Self {
        Self { shape, color, is_faint: false, label: None }
    }

    pub fn faint(self) -> Self {
        Self { is_faint: true, ..self }
    }

    pub fn label(self, label: impl Into<String>) -> Self {
        Self { label: Some(label.into()), ..self }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Line(Vec<(f64, f64)>),
    Dashed(Vec<(f64, f64)>),
    /// Between two heights at each x.
    Band(Vec<(f64, f64, f64)>),
    /// From x to x, from 0 (or the axis) to y.
    Bars(Vec<(f64, f64, f64)>),
    /// From y to y, from 0 to x.
    Rows(Vec<(f64, f64, f64)>),
    Dots(Vec<(f64, f64)>),
    Rings(Vec<(f64, f64)>),
    Triangles(Vec<(f64, f64)>),
    /// Intervals: x, low, high.
    Intervals(Vec<(f64, f64, f64)>),
    /// The same lying down: low, high, y.
    Spans(Vec<(f64, f64, f64)>),
    /// A line from bottom to top.
    Upright(f64),
    /// A line across at an x, named at its top.
    At(f64, String),
    /// Words beside a place.
    Note(f64, f64, String),
}
