//! The colours, of light and of dark surfaces. What is drawn carries the name of its colour as a
//! class; [`style_sheet`] says what the names mean.

use plotters::style::RGBColor;

/// Of a mark or a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Color {
    Blue,
    Orange,
    Green,
    Purple,
    Brown,
    Sky,
    Grey,
    /// Text and lines that matter.
    Ink,
    /// Axes and labels.
    Muted,
    /// Lines behind the marks.
    Grid,
    /// What is drawn on.
    Surface,
}

struct Tone {
    color: Color,
    class: &'static str,
    light: [u8; 3],
    dark: [u8; 3],
}

const fn tone(color: Color, class: &'static str, light: [u8; 3], dark: [u8; 3]) -> Tone {
    Tone { color, class, light, dark }
}

const TONES: [Tone; 11] = [
    tone(Color::Blue, "blue", [0x00, 0x67, 0xa8], [0x5a, 0xae, 0xea]),
    tone(Color::Orange, "orange", [0xb8, 0x4a, 0x00], [0xff, 0x8a, 0x4c]),
    tone(Color::Green, "green", [0x00, 0x7a, 0x5a], [0x2f, 0xc4, 0x95]),
    tone(Color::Purple, "purple", [0xa1, 0x3d, 0x80], [0xe5, 0x8f, 0xc6]),
    tone(Color::Brown, "brown", [0x5a, 0x3a, 0x10], [0xf5, 0xe6, 0xa8]),
    tone(Color::Sky, "sky", [0x3a, 0x8f, 0xc4], [0x9f, 0xd4, 0xf5]),
    tone(Color::Grey, "grey", [0x80, 0x86, 0x8f], [0x8b, 0x92, 0x9c]),
    tone(Color::Ink, "ink", [0x1c, 0x1f, 0x23], [0xe8, 0xe9, 0xeb]),
    tone(Color::Muted, "muted", [0x59, 0x60, 0x6a], [0xa0, 0xa7, 0xb1]),
    tone(Color::Grid, "grid", [0xe4, 0xe4, 0xdf], [0x31, 0x35, 0x3d]),
    tone(Color::Surface, "surface", [0xff, 0xff, 0xff], [0x1b, 0x1e, 0x24]),
];

impl Color {
    /// Of series, in the order in which they are used.
    pub const SERIES: [Self; 7] =
        [Self::Blue, Self::Orange, Self::Green, Self::Purple, Self::Brown, Self::Sky, Self::Grey];

    /// Of the series at this place; they begin again after the last.
    pub fn series(index: usize) -> Self {
        Self::SERIES[index % Self::SERIES.len()]
    }

    fn tone(self) -> &'static Tone {
        TONES.iter().find(|tone| tone.color == self).unwrap_or(&TONES[0])
    }

    /// What plotters is given: the light tone, which tells [`Self::class_of`] who it is.
    pub(super) fn rgb(self) -> RGBColor {
        let [r, g, b] = self.tone().light;
        RGBColor(r, g, b)
    }

    /// The class of a colour that plotters was given.
    pub(super) fn class_of((r, g, b): (u8, u8, u8)) -> &'static str {
        TONES.iter().find(|tone| tone.light == [r, g, b]).map_or("ink", |tone| tone.class)
    }
}

fn hex([r, g, b]: [u8; 3]) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The variables `--blue` ... and the classes of charts: `l-blue` for lines, `f-blue` for areas and
/// text. Light, and dark where the reader prefers it; paper is light.
pub fn style_sheet() -> String {
    let variables = |of: fn(&Tone) -> [u8; 3]| -> String {
        TONES.iter().map(|tone| format!("--{}:{};", tone.class, hex(of(tone)))).collect()
    };
    let mut css = format!(":root{{color-scheme:light dark;{}}}\n", variables(|tone| tone.light));
    css += &format!(
        "@media screen and (prefers-color-scheme:dark){{:root{{{}}}}}\n",
        variables(|tone| tone.dark)
    );
    for tone in &TONES {
        css += &format!(
            ".l-{0}{{stroke:var(--{0});fill:none}}.f-{0}{{fill:var(--{0});stroke:none}}\n",
            tone.class
        );
    }
    css + ".chart-text{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,sans-serif;\
           font-variant-numeric:tabular-nums}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of WCAG 2.2, relative luminance.
    fn luminance(rgb: [u8; 3]) -> f64 {
        let [r, g, b] = rgb.map(|value| {
            let share = f64::from(value) / 255.0;
            if share <= 0.040_45 { share / 12.92 } else { ((share + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * r + 0.7152 * g + 0.0722 * b
    }

    fn contrast(a: [u8; 3], b: [u8; 3]) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn contrast_is_that_of_the_standard() {
        assert_eq!(contrast([0; 3], [255; 3]), 21.0);
        // The lightest grey that is text on white.
        assert!(contrast([0x76; 3], [255; 3]) >= 4.5 && contrast([0x77; 3], [255; 3]) < 4.5);
    }

    /// WCAG asks for 4.5 between text and its ground (level AA), and 3 for what is drawn.
    #[test]
    fn everything_can_be_told_from_its_ground() {
        // The page behind the cards is in page.css.
        for (of, grounds) in [
            ((|tone: &Tone| tone.light) as fn(&Tone) -> [u8; 3], [[0xff; 3], [0xf7, 0xf7, 0xf5]]),
            (|tone: &Tone| tone.dark, [[0x1b, 0x1e, 0x24], [0x14, 0x16, 0x1a]]),
        ] {
            for ground in grounds {
                for color in Color::SERIES {
                    assert!(contrast(of(color.tone()), ground) >= 3.0, "{color:?}");
                }
                for color in [Color::Ink, Color::Muted] {
                    assert!(contrast(of(color.tone()), ground) >= 4.5, "{color:?}");
                }
            }
        }
    }

    #[test]
    fn a_colour_is_found_by_what_plotters_was_given() {
        for tone in &TONES {
            let RGBColor(r, g, b) = tone.color.rgb();
            assert_eq!(Color::class_of((r, g, b)), tone.class);
        }
    }
}
