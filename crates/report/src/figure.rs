//! What all figures share: size, colours, text, axes. A figure is drawn once, with one placeholder colour for ink: inline
//! in a page the ink becomes the text colour of the page, light or dark; in a file of its own it becomes dark grey on
//! white.

use std::error::Error;

use plotters::coord::Shift;
use plotters::coord::ranged1d::ValueFormatter;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use anabranch_results::OutputError;

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Drawn = Result<(), Box<dyn Error>>;

/// Stands for the colour of text and lines until the use of the figure is known.
pub(crate) const INK: RGBColor = RGBColor(1, 2, 3);
const INK_HEX: &str = "#010203";

/// Okabe and Ito's colours, grey for their black, distinguishable with every common colour vision, in an order of high contrast.
const PALETTE: [RGBColor; 8] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xf0, 0xe4, 0x42),
    RGBColor(0x80, 0x80, 0x80),
];

pub(crate) const WIDTH: u32 = 800;
/// Plotters writes text a quarter smaller than this: 13 pixels of the figure.
const FONT_SIZE: i32 = 16;
/// Mean advance of a sans-serif character at `FONT_SIZE`, to keep labels apart without a font at hand.
pub(crate) const CHARACTER_WIDTH: i32 = 7;
/// Of capitals and of other wide characters.
const WIDE_CHARACTER_WIDTH: i32 = 10;
pub(crate) const LABEL_ROW: i32 = 18;
pub(crate) const LEFT_AXIS: u32 = 68;
pub(crate) const BOTTOM_AXIS: u32 = 48;
pub(crate) const MARGIN_LEFT: i32 = 6;
pub(crate) const MARGIN_RIGHT: u32 = 12;
pub(crate) const MAX_BINS: usize = 400;

/// The colour of the n-th link everywhere in a report.
pub(crate) fn colour(link: usize) -> RGBColor {
    PALETTE[link % PALETTE.len()]
}

/// The same as a CSS colour.
pub(crate) fn css_colour(link: usize) -> String {
    let RGBColor(red, green, blue) = colour(link);
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// One drawn figure.
pub(crate) struct Drawing {
    svg: String,
}

impl Drawing {
    /// `name` is for messages only.
    pub(crate) fn draw(
        name: &str,
        height: u32,
        draw: impl FnOnce(&Area) -> Drawn,
    ) -> Result<Drawing, OutputError> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
            let drawn = draw(&area).and_then(|()| Ok(area.present()?));
            drawn.map_err(|error| OutputError::Plot {
                name: name.to_owned(),
                reason: error.to_string(),
            })?;
        }
        Ok(Drawing { svg })
    }

    /// For a page: scales with its container and takes the colour of the page's text.
    pub(crate) fn inline(&self) -> String {
        let start = self.svg.find("viewBox").unwrap_or(0);
        format!("<svg {}", &self.svg[start..]).replace(INK_HEX, "currentColor")
    }

    /// For a file of its own.
    pub(crate) fn standalone(&self) -> String {
        let body = self.svg.find('>').map_or(0, |end| end + 1);
        let (head, body) = self.svg.split_at(body);
        format!("{head}<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>{body}")
            .replace(INK_HEX, "#1c2024")
    }
}

/// About how wide a text is at `FONT_SIZE`; rather too wide than too narrow.
pub(crate) fn text_width(text: &str) -> i32 {
    let width = |character: char| match character {
        'A'..='Z' | 'm' | 'w' | '%' | '=' | '±' => WIDE_CHARACTER_WIDTH,
        _ => CHARACTER_WIDTH,
    };
    text.chars().map(width).sum()
}

pub(crate) fn text(position: HPos) -> TextStyle<'static> {
    ("sans-serif", FONT_SIZE)
        .into_font()
        .color(&INK)
        .pos(Pos::new(position, VPos::Center))
}

/// Lines and labels of both axes.
pub(crate) fn mesh<X, Y>(
    chart: &mut ChartContext<SVGBackend, Cartesian2d<X, Y>>,
    x: &str,
    y: &str,
    x_label: &dyn Fn(&f64) -> String,
    y_label: &dyn Fn(&f64) -> String,
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut style = chart.configure_mesh();
    style
        .x_desc(x)
        .y_desc(y)
        .x_labels(8)
        .y_labels(6)
        .max_light_lines(0)
        .bold_line_style(INK.mix(0.15))
        .axis_style(INK.mix(0.5))
        .label_style(text(HPos::Center))
        .axis_desc_style(text(HPos::Center))
        .x_label_formatter(x_label)
        .y_label_formatter(y_label);
    style.draw()?;
    Ok(())
}
