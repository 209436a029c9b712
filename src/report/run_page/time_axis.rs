//! What happens over time, in charts that share an axis.

use super::RunView;
use crate::chart::{Axis, Color, Mark, Shape, Table};
use crate::report::timeseries::Bin;

/// The unit of time that suits the run.
pub(super) struct TimeAxis {
    pub axis: Axis,
    pub name: String,
    bin_width: f64,
    unit_s: f64,
}

impl TimeAxis {
    pub fn of(view: &RunView<'_>) -> Self {
        let width_s = view.series.width_s();
        let end_s = view.series.bins().len().max(1) as f64 * width_s;
        let (unit, unit_s) = match end_s {
            end if end <= 1_200.0 => ("s", 1.0),
            end if end <= 14_400.0 => ("min", 60.0),
            _ => ("h", 3_600.0),
        };
        let name = format!("simulated time, {unit}");
        let axis = Axis::exact(&name, 0.0, end_s / unit_s);
        Self { axis, name, bin_width: width_s / unit_s, unit_s }
    }

    /// A second, in units of the axis.
    pub fn axis_per_s(&self) -> f64 {
        1.0 / self.unit_s
    }

    /// At the end of each bin, where there is a value; the first also at the begin of its bin, so that
    /// a run of one bin shows something.
    pub fn points(&self, view: &RunView<'_>, mut value: impl FnMut(&Bin) -> Option<f64>) -> Vec<(f64, f64)> {
        let ends = view.series.bins().iter().enumerate();
        let mut points: Vec<(f64, f64)> = ends
            .filter_map(|(index, bin)| Some(((index + 1) as f64 * self.bin_width, value(bin)?)))
            .collect();
        if let Some(&(at, value)) = points.first() {
            points.insert(0, (at - self.bin_width, value));
        }
        points
    }

    pub fn line(&self, view: &RunView<'_>, color: Color, value: impl Fn(&Bin) -> f64) -> Mark {
        Mark::new(color, Shape::Line(self.points(view, |bin| Some(value(bin)))))
    }

    /// From 0 to the value of each bin, over its width: one shape for all of them.
    pub fn steps(&self, view: &RunView<'_>, color: Color, value: impl Fn(&Bin) -> f64) -> Mark {
        self.steps_of(color, view.series.bins().iter().map(value))
    }

    /// The same of a value for each bin.
    pub fn steps_of(&self, color: Color, values: impl Iterator<Item = f64>) -> Mark {
        let step = |(index, value): (usize, f64)| {
            let begin = index as f64 * self.bin_width;
            [(begin, 0.0, value), (begin + self.bin_width, 0.0, value)]
        };
        Mark::new(color, Shape::Band(values.enumerate().flat_map(step).collect()))
    }

    /// A row for each bin; cells are written by `row`.
    pub fn table(&self, view: &RunView<'_>, head: &[&str], row: impl Fn(&Bin) -> Vec<String>) -> Table {
        self.table_of(head, view.series.bins(), row)
    }

    /// The same of other bins of these widths.
    pub fn table_of<T>(&self, head: &[&str], bins: &[T], row: impl Fn(&T) -> Vec<String>) -> Table {
        let mut table = Table::new(0, &[&[self.name.as_str()], head].concat());
        for (index, bin) in bins.iter().enumerate() {
            let at = crate::chart::number((index + 1) as f64 * self.bin_width);
            table.push(std::iter::once(at).chain(row(bin)));
        }
        table
    }
}
