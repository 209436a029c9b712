//! plotters' drawing as SVG whose colours are classes, for page and file to say what they are.
//!
//! plotters counts in whole pixels. A unit here is a tenth of a pixel ([`UNIT`]), which keeps lines
//! smooth, and the numbers in the text short.

use std::convert::Infallible;
use std::fmt::Write;

use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind,
};

use super::palette::Color;

/// In a pixel.
pub(super) const UNIT: u32 = 10;

type Drawn = Result<(), DrawingErrorKind<Infallible>>;

/// Appends the elements of a drawing of this size, in units, to a text.
pub(super) struct SvgBackend<'a> {
    pub out: &'a mut String,
    pub size: (u32, u32),
}

impl SvgBackend<'_> {
    fn push(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(text);
    }

    /// The attributes that say how something is filled or stroked.
    fn style(&mut self, style: &impl BackendStyle, is_filled: bool) {
        let color = style.color();
        let class = Color::class_of(color.rgb);
        if is_filled {
            self.push(format_args!(" class=\"f-{class}\""));
        } else {
            self.push(format_args!(" class=\"l-{class}\" stroke-width=\"{}\"", style.stroke_width()));
        }
        if color.alpha < 1.0 {
            self.push(format_args!(" opacity=\"{:.2}\"", color.alpha));
        }
    }

    /// As steps from one point to the next.
    fn path(
        &mut self,
        points: impl IntoIterator<Item = BackendCoord>,
        is_filled: bool,
        style: &impl BackendStyle,
    ) {
        let mut points = points.into_iter();
        let Some(first) = points.next() else { return };
        self.push(format_args!("<path d=\"M{} {}", first.0, first.1));
        let mut last = first;
        for (index, point) in points.enumerate() {
            let (dx, dy) = (point.0 - last.0, point.1 - last.1);
            // A sign tells numbers apart as well as a space does.
            let before = match index {
                0 => "l",
                _ if dx < 0 => "",
                _ => " ",
            };
            let between = if dy < 0 { "" } else { " " };
            self.push(format_args!("{before}{dx}{between}{dy}"));
            last = point;
        }
        self.out.push_str(if is_filled { "z\"" } else { "\"" });
        self.style(style, is_filled);
        self.out.push_str("/>");
    }
}

impl DrawingBackend for SvgBackend<'_> {
    type ErrorType = Infallible;

    fn get_size(&self) -> (u32, u32) {
        self.size
    }

    fn ensure_prepared(&mut self) -> Drawn {
        Ok(())
    }

    fn present(&mut self) -> Drawn {
        Ok(())
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Drawn {
        self.draw_rect((x, y), (x + 1, y + 1), &color, true)
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        self.path([from, to], false, style);
        Ok(())
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Drawn {
        let (width, height) = ((to.0 - from.0).max(0), (to.1 - from.1).max(0));
        self.push(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{width}\" height=\"{height}\"",
            from.0, from.1
        ));
        self.style(style, fill);
        self.out.push_str("/>");
        Ok(())
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        self.path(path, false, style);
        Ok(())
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Drawn {
        self.path(path, true, style);
        Ok(())
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        center: BackendCoord,
        radius: u32,
        style: &S,
        fill: bool,
    ) -> Drawn {
        self.push(format_args!("<circle cx=\"{}\" cy=\"{}\" r=\"{radius}\"", center.0, center.1));
        self.style(style, fill);
        self.out.push_str("/>");
        Ok(())
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, y): BackendCoord) -> Drawn {
        let (color, anchor, size) = (style.color(), style.anchor(), style.size());
        let class = Color::class_of(color.rgb);
        // Of a line of text, from where it is anchored to where its letters stand.
        let down = match anchor.v_pos {
            VPos::Top => 0.8,
            VPos::Center => 0.35,
            VPos::Bottom => -0.2,
        };
        let at = match anchor.h_pos {
            HPos::Left => "",
            HPos::Center => " text-anchor=\"middle\"",
            HPos::Right => " text-anchor=\"end\"",
        };
        let y = y + (down * size).round() as i32;
        self.push(format_args!("<text x=\"{x}\" y=\"{y}\" class=\"chart-text f-{class}\"{at}>"));
        escape(self.out, text);
        self.out.push_str("</text>");
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Infallible>> {
        Ok((text_width(text, style.size()), style.size() as u32))
    }
}

/// About what a text takes.
pub(super) fn text_width(text: &str, size: f64) -> u32 {
    let ems = |c: char| match c {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | ' ' | '(' | ')' | 't' | 'f' | 'r' => {
            0.34
        }
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.9,
        'A'..='Z' => 0.68,
        _ => 0.57,
    };
    (text.chars().map(ems).sum::<f64>() * size) as u32
}

/// Appends text that means nothing to XML.
pub(super) fn escape(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // XML has no way to write them.
            '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' => out.push('\u{fffd}'),
            _ => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_any_number_of_points_is_a_path_that_browsers_take() {
        let black = BackendColor { alpha: 1.0, rgb: (0, 0, 0) };
        let path = |points: &[BackendCoord]| {
            let mut out = String::new();
            SvgBackend { out: &mut out, size: (100, 100) }.path(points.iter().copied(), false, &black);
            out.split('"').nth(1).unwrap_or_default().to_owned()
        };
        assert_eq!(path(&[]), "");
        assert_eq!(path(&[(4, 7)]), "M4 7");
        assert_eq!(path(&[(4, 7), (9, 5), (2, 5), (3, 6)]), "M4 7l5-2-7 0 1 1");
    }
}
