//! Charts for pages and papers: lines with error bars, distributions, stacked areas, bars.
//!
//! A chart is a list of layers, drawn in the order in which they were added, over axes that fit them unless told
//! otherwise. It is drawn with one placeholder for ink, see [`Chart::svg`] and [`Chart::inline`]. The same chart draws
//! to the same bytes.

use std::ops::Range;

use anabranch_results::OutputError;
use anabranch_scenario::stats::Estimate;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use crate::figure::{
    Area, BOTTOM_AXIS, CHARACTER_WIDTH, Drawing, Drawn, INK, LABEL_ROW, LEFT_AXIS, MARGIN_LEFT,
    MARGIN_RIGHT, MAX_BINS, WIDTH, colour, mesh, text, text_width,
};

type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Scale, Scale>>;

const HEIGHT: u32 = 400;
/// Half of an error bar's cap, in pixels.
const CAP: i32 = 4;
const POINT: i32 = 3;
/// Pixels between one entry of the legend and the next, its line sample included.
const LEGEND_GAP: i32 = 38;

/// Layers over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    title: String,
    x: Axis,
    y: Axis,
    layers: Vec<Layer>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Axis {
    label: String,
    log: bool,
    range: Option<Range<f64>>,
    unit: Unit,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Unit {
    #[default]
    Number,
    Seconds,
}

#[derive(Clone, Debug, PartialEq)]
struct Layer {
    name: String,
    mark: Mark,
    colour: RGBColor,
    points: Vec<Datum>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mark {
    Line,
    Dashed,
    Points,
    /// Line and points.
    Both,
    Area,
}

/// A value and how sure it is.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Datum {
    x: f64,
    y: f64,
    low: f64,
    high: f64,
}

impl Datum {
    fn exact((x, y): (f64, f64)) -> Datum {
        Datum {
            x,
            y,
            low: y,
            high: y,
        }
    }

    fn is_drawn(&self, x: &Axis, y: &Axis) -> bool {
        let fits = |axis: &Axis, value: f64| value.is_finite() && !(axis.log && value <= 0.0);
        fits(x, self.x) && fits(y, self.y)
    }
}

impl Chart {
    /// An empty chart with linear axes.
    pub fn new(
        title: impl Into<String>,
        x_label: impl Into<String>,
        y_label: impl Into<String>,
    ) -> Chart {
        let axis = |label| Axis {
            label,
            ..Axis::default()
        };
        Chart {
            title: title.into(),
            x: axis(x_label.into()),
            y: axis(y_label.into()),
            layers: Vec::new(),
        }
    }

    /// Makes the x axis logarithmic; points at or below 0 are left out.
    pub fn log_x(mut self) -> Chart {
        self.x.log = true;
        self
    }

    /// Makes the y axis logarithmic; points at or below 0 are left out.
    pub fn log_y(mut self) -> Chart {
        self.y.log = true;
        self
    }

    /// Writes the ticks of the x axis as times; its values are seconds.
    pub fn seconds_x(mut self) -> Chart {
        self.x.unit = Unit::Seconds;
        self
    }

    /// Shows this much of the x axis, whatever the layers have.
    pub fn range_x(mut self, range: Range<f64>) -> Chart {
        self.x.range = Some(range);
        self
    }

    /// Shows this much of the y axis, whatever the layers have.
    pub fn range_y(mut self, range: Range<f64>) -> Chart {
        self.y.range = Some(range);
        self
    }

    /// One more layer: a line through these points, in their order.
    pub fn line(
        self,
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Chart {
        self.layer(name, Mark::Line, points.into_iter().map(Datum::exact))
    }

    /// A line that is not data: a theory, a capacity.
    pub fn dashed(
        self,
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Chart {
        self.layer(name, Mark::Dashed, points.into_iter().map(Datum::exact))
    }

    /// One more layer: a mark at each of these points.
    pub fn points(
        self,
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Chart {
        self.layer(name, Mark::Points, points.into_iter().map(Datum::exact))
    }

    /// Means joined by a line, each with its confidence interval as an error bar.
    pub fn estimates(
        self,
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, Estimate)>,
    ) -> Chart {
        let datum = |(x, estimate): (f64, Estimate)| Datum {
            x,
            y: estimate.mean,
            low: estimate.low,
            high: estimate.high,
        };
        self.layer(name, Mark::Both, points.into_iter().map(datum))
    }

    /// Share of `values` (up) that are at most so large (across), as steps.
    pub fn cdf(self, name: impl Into<String>, values: impl IntoIterator<Item = f64>) -> Chart {
        let steps = steps(
            values
                .into_iter()
                .filter(|value| value.is_finite())
                .collect(),
        );
        self.layer(name, Mark::Line, steps.into_iter().map(Datum::exact))
    }

    /// An area on top of the areas before it. All areas of a chart have the same x values.
    pub fn area(
        self,
        name: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) -> Chart {
        let below = self.layers.iter().rev().find(|l| l.mark == Mark::Area);
        let below: Vec<f64> = below.map_or(Vec::new(), |l| l.points.iter().map(|p| p.y).collect());
        let stacked = points.into_iter().enumerate().map(|(i, (x, y))| {
            let low = below.get(i).copied().unwrap_or(0.0);
            Datum {
                x,
                y: low + y,
                low,
                high: low + y,
            }
        });
        self.layer(name, Mark::Area, stacked)
    }

    /// Draws the layer added last in the colour of text: the whole beside its parts.
    pub fn in_ink(mut self) -> Chart {
        if let Some(layer) = self.layers.last_mut() {
            layer.colour = INK;
        }
        self
    }

    /// The standalone file: dark on white.
    pub fn svg(&self) -> Result<String, OutputError> {
        Ok(self.figure()?.standalone())
    }

    /// For a page: scales with its container and takes the colour of the page's text.
    pub fn inline(&self) -> Result<String, OutputError> {
        Ok(self.figure()?.inline())
    }

    pub(crate) fn figure(&self) -> Result<Drawing, OutputError> {
        Drawing::draw(&self.title, HEIGHT, |area| self.draw(area))
    }

    fn layer(
        mut self,
        name: impl Into<String>,
        mark: Mark,
        points: impl Iterator<Item = Datum>,
    ) -> Chart {
        let coloured = self.layers.iter().filter(|layer| layer.colour != INK);
        let colour = colour(coloured.count());
        self.layers.push(Layer {
            name: name.into(),
            mark,
            colour,
            points: points.collect(),
        });
        self
    }

    fn draw(&self, area: &Area) -> Drawn {
        let entries: Vec<_> = self
            .layers
            .iter()
            .map(|layer| (layer.name.as_str(), layer.mark, layer.colour))
            .collect();
        let top = heading(area, &self.title, &entries)?;
        let mut plane = ChartBuilder::on(area)
            .margin_top(top)
            .margin_left(MARGIN_LEFT)
            .margin_right(MARGIN_RIGHT)
            .y_label_area_size(LEFT_AXIS)
            .x_label_area_size(BOTTOM_AXIS)
            .build_cartesian_2d(self.scale_x(), self.scale_y())?;
        let (x, y) = (self.x.unit, self.y.unit);
        mesh(
            &mut plane,
            &self.x.label,
            &self.y.label,
            &|v| x.tick(*v),
            &|v| y.tick(*v),
        )?;
        for layer in &self.layers {
            self.draw_layer(area, &mut plane, layer)?;
        }
        Ok(())
    }

    fn draw_layer(&self, area: &Area, plane: &mut Plane, layer: &Layer) -> Drawn {
        let points: Vec<Datum> = layer
            .points
            .iter()
            .filter(|datum| datum.is_drawn(&self.x, &self.y))
            .copied()
            .collect();
        let line = points.iter().map(|datum| (datum.x, datum.y));
        match layer.mark {
            Mark::Line | Mark::Both => {
                plane.draw_series(LineSeries::new(line, layer.colour.stroke_width(2)))?;
            }
            Mark::Dashed => {
                let style = layer.colour.stroke_width(1);
                plane.draw_series(DashedLineSeries::new(line, 6, 4, style))?;
            }
            Mark::Area => {
                let floor = points.iter().rev().map(|datum| (datum.x, datum.low));
                let outline: Vec<_> = line.chain(floor).collect();
                plane.draw_series([Polygon::new(outline, layer.colour.mix(0.72).filled())])?;
            }
            Mark::Points => {}
        }
        if matches!(layer.mark, Mark::Points | Mark::Both) {
            for datum in &points {
                draw_point(area, plane, datum, layer.colour)?;
            }
        }
        Ok(())
    }

    fn scale_x(&self) -> Scale {
        let drawn = self.drawn();
        self.x.scale(drawn.map(|datum| datum.x), false)
    }

    fn scale_y(&self) -> Scale {
        let drawn = self.drawn();
        let ends = drawn.flat_map(|datum| [datum.y, datum.low, datum.high]);
        self.y.scale(ends, true)
    }

    fn drawn(&self) -> impl Iterator<Item = &Datum> {
        let points = self.layers.iter().flat_map(|layer| &layer.points);
        points.filter(|datum| datum.is_drawn(&self.x, &self.y))
    }
}

fn draw_point(area: &Area, plane: &Plane, datum: &Datum, colour: RGBColor) -> Drawn {
    let (x, y) = plane.backend_coord(&(datum.x, datum.y));
    area.draw(&Circle::new((x, y), POINT, colour.filled()))?;
    draw_error(area, plane, datum, colour)
}

fn draw_error(area: &Area, plane: &Plane, datum: &Datum, colour: RGBColor) -> Drawn {
    if datum.low >= datum.high {
        return Ok(());
    }
    let floor = plane.y_range().start;
    let (x, low) = plane.backend_coord(&(datum.x, datum.low.max(floor)));
    let (_, high) = plane.backend_coord(&(datum.x, datum.high));
    for ends in [
        [(x, low), (x, high)],
        [(x - CAP, low), (x + CAP, low)],
        [(x - CAP, high), (x + CAP, high)],
    ] {
        area.draw(&PathElement::new(ends, colour.stroke_width(1)))?;
    }
    Ok(())
}

/// Title and legend; the height they take.
fn heading(
    area: &Area,
    title: &str,
    entries: &[(&str, Mark, RGBColor)],
) -> Result<i32, Box<dyn std::error::Error>> {
    let left = LEFT_AXIS as i32 + MARGIN_LEFT;
    let mut y = LABEL_ROW / 2 + 2;
    if !title.is_empty() {
        area.draw(&Text::new(title.to_owned(), (left, y), text(HPos::Left)))?;
        y += LABEL_ROW;
    }
    let mut x = left;
    for (name, mark, colour) in entries.iter().filter(|(name, ..)| !name.is_empty()) {
        let width = text_width(name) + LEGEND_GAP;
        if x + width > WIDTH as i32 && x > left {
            (x, y) = (left, y + LABEL_ROW);
        }
        sample(area, (x, y), *mark, *colour)?;
        area.draw(&Text::new(
            (*name).to_owned(),
            (x + 20, y),
            text(HPos::Left),
        ))?;
        x += width;
    }
    Ok(y + LABEL_ROW / 2 + 4)
}

/// What a layer looks like, beside its name.
fn sample(area: &Area, (x, y): (i32, i32), mark: Mark, colour: RGBColor) -> Drawn {
    let dash = |from, to| PathElement::new([(x + from, y), (x + to, y)], colour.stroke_width(2));
    match mark {
        Mark::Line => area.draw(&dash(0, 14))?,
        Mark::Dashed => {
            area.draw(&dash(0, 5))?;
            area.draw(&dash(9, 14))?;
        }
        Mark::Area => {
            let corners = [(x, y - 5), (x + 11, y + 6)];
            area.draw(&Rectangle::new(corners, colour.mix(0.85).filled()))?;
        }
        Mark::Points | Mark::Both => {
            if mark == Mark::Both {
                area.draw(&dash(0, 14))?;
            }
            area.draw(&Circle::new((x + 7, y), POINT, colour.filled()))?;
        }
    }
    Ok(())
}

/// An empirical distribution as corners of a step line, thinned to what can be seen.
fn steps(mut values: Vec<f64>) -> Vec<(f64, f64)> {
    values.sort_by(f64::total_cmp);
    let Some(last) = values.len().checked_sub(1) else {
        return Vec::new();
    };
    let stride = values.len().div_ceil(MAX_BINS);
    let mut corners = Vec::new();
    let mut below = 0.0;
    for rank in (0..last).step_by(stride).chain([last]) {
        let share = (rank + 1) as f64 / values.len() as f64;
        corners.extend([(values[rank], below), (values[rank], share)]);
        below = share;
    }
    corners
}

impl Axis {
    /// A scale for these values. `from_zero` keeps zero in sight of a linear axis and leaves room above.
    fn scale(&self, values: impl Iterator<Item = f64>, from_zero: bool) -> Scale {
        let range = self
            .range
            .clone()
            .unwrap_or_else(|| self.fit(values, from_zero));
        if self.log {
            Scale::Log(range)
        } else {
            Scale::Linear(range)
        }
    }

    fn fit(&self, values: impl Iterator<Item = f64>, from_zero: bool) -> Range<f64> {
        let extent = |found: Option<(f64, f64)>, value: f64| {
            if !value.is_finite() || (self.log && value <= 0.0) {
                return found;
            }
            let (low, high) = found.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        };
        let (low, high) = values.fold(None, extent).unwrap_or((0.1, 1.0));
        match (self.log, from_zero) {
            (true, _) => low * 0.8..high * 1.25,
            (false, true) => low.min(0.0)..(high * 1.06).max(low.min(0.0) + 1e-9),
            (false, false) if low < high => low..high,
            (false, false) => low - 0.5..high + 0.5,
        }
    }
}

impl Unit {
    fn tick(self, value: f64) -> String {
        match self {
            Unit::Number => number(value),
            Unit::Seconds => time(value),
        }
    }
}

/// As short as it can be told from its neighbours: 0.25, 12000, 2e-4.
fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e6).contains(&size) {
        return format!("{value:e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A time given in seconds, in the unit that leaves few digits.
fn time(time_s: f64) -> String {
    match time_s.abs() {
        0.0 => "0 s".to_owned(),
        short if short < 0.9e-3 => format!("{} µs", number((time_s * 1e9).round() / 1e3)),
        short if short < 0.9 => format!("{} ms", number((time_s * 1e6).round() / 1e3)),
        _ => format!("{} s", number(time_s)),
    }
}

/// An axis. The logarithmic one has ticks at 1, 2 and 5 times the powers of ten, unlike that of plotters, which marks
/// only the powers and leaves narrow ranges bare.
enum Scale {
    Linear(Range<f64>),
    Log(Range<f64>),
}

impl Ranged for Scale {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let share = match self {
            Scale::Linear(range) => (value - range.start) / (range.end - range.start),
            Scale::Log(range) => (value / range.start).ln() / (range.end / range.start).ln(),
        };
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match self {
            Scale::Linear(range) => RangedCoordf64::from(range.clone()).key_points(hint),
            Scale::Log(range) => log_ticks(range),
        }
    }

    fn range(&self) -> Range<f64> {
        let (Scale::Linear(range) | Scale::Log(range)) = self;
        range.clone()
    }
}

fn log_ticks(range: &Range<f64>) -> Vec<f64> {
    let (first, last) = (range.start.log10().floor(), range.end.log10().ceil());
    let digits: &[f64] = if range.end / range.start > 1e3 {
        &[1.0]
    } else {
        &[1.0, 2.0, 5.0]
    };
    let ticks = (first as i32..=last as i32)
        .flat_map(|decade| digits.iter().map(move |digit| digit * 10f64.powi(decade)));
    ticks.filter(|tick| range.contains(tick)).collect()
}

impl ValueFormatter<f64> for Scale {
    fn format_ext(&self, value: &f64) -> String {
        number(*value)
    }
}

/// Bars in groups: one group per category, in each one bar per series.
#[derive(Clone, Debug, PartialEq)]
pub struct Bars {
    title: String,
    y: Axis,
    categories: Vec<String>,
    series: Vec<(String, Vec<Estimate>)>,
    /// By series, then category.
    published: Vec<Vec<Option<f64>>>,
}

impl Bars {
    /// Empty groups of bars, one for each category.
    pub fn new(
        title: impl Into<String>,
        y_label: impl Into<String>,
        categories: impl IntoIterator<Item = impl Into<String>>,
    ) -> Bars {
        Bars {
            title: title.into(),
            y: Axis {
                label: y_label.into(),
                ..Axis::default()
            },
            categories: categories.into_iter().map(Into::into).collect(),
            series: Vec::new(),
            published: Vec::new(),
        }
    }

    /// Makes the y axis logarithmic; bars at or below 0 are left out.
    pub fn log_y(mut self) -> Bars {
        self.y.log = true;
        self
    }

    /// One bar per category, in their order, with its interval as an error bar.
    pub fn series(
        mut self,
        name: impl Into<String>,
        values: impl IntoIterator<Item = Estimate>,
    ) -> Bars {
        let values = values.into_iter().collect();
        self.series.push((name.into(), values));
        self.published.push(Vec::new());
        self
    }

    /// What is published of the series added last, by category: a mark across each bar.
    pub fn published(mut self, values: impl IntoIterator<Item = Option<f64>>) -> Bars {
        if let Some(published) = self.published.last_mut() {
            published.extend(values);
        }
        self
    }

    /// The standalone file: dark on white.
    pub fn svg(&self) -> Result<String, OutputError> {
        Ok(self.figure()?.standalone())
    }

    /// For a page: scales with its container and takes the colour of the page's text.
    pub fn inline(&self) -> Result<String, OutputError> {
        Ok(self.figure()?.inline())
    }

    fn figure(&self) -> Result<Drawing, OutputError> {
        Drawing::draw(&self.title, HEIGHT, |area| self.draw(area))
    }

    fn draw(&self, area: &Area) -> Drawn {
        let series = self.series.iter().enumerate();
        let entries = series.map(|(index, (name, _))| (name.as_str(), Mark::Area, colour(index)));
        let marks = || self.published.iter().flatten().flatten();
        let published = marks().next().map(|_| ("published", Mark::Line, INK));
        let entries: Vec<_> = entries.chain(published).collect();
        let top = heading(area, &self.title, &entries)?;
        let groups = self.categories.len().max(1);
        let ends = self.series.iter().flat_map(|(_, values)| values);
        let ends = ends.flat_map(|estimate| [estimate.mean, estimate.high]);
        let ends = ends.chain(marks().copied());
        let mut plane = ChartBuilder::on(area)
            .margin_top(top)
            .margin_left(MARGIN_LEFT)
            .margin_right(MARGIN_RIGHT)
            .y_label_area_size(LEFT_AXIS)
            .x_label_area_size(BOTTOM_AXIS)
            .build_cartesian_2d(Scale::Linear(0.0..groups as f64), self.y.scale(ends, true))?;
        mesh(&mut plane, "", &self.y.label, &|_| String::new(), &|v| {
            number(*v)
        })?;
        self.draw_categories(area, &plane)?;
        for (index, (_, values)) in self.series.iter().enumerate() {
            for (group, estimate) in values.iter().enumerate() {
                self.draw_bar(area, &plane, index, group, estimate)?;
            }
        }
        for (index, published) in self.published.iter().enumerate() {
            for (group, value) in published.iter().enumerate() {
                self.draw_published(area, &plane, index, group, *value)?;
            }
        }
        Ok(())
    }

    fn draw_published(
        &self,
        area: &Area,
        plane: &Plane,
        index: usize,
        group: usize,
        value: Option<f64>,
    ) -> Drawn {
        let Some(value) = value else { return Ok(()) };
        let (left, width) = self.place(index, group);
        let ends = [left, left + width].map(|x| plane.backend_coord(&(x, value)));
        area.draw(&PathElement::new(ends, INK.stroke_width(2)))?;
        Ok(())
    }

    /// Left end and width of a bar.
    fn place(&self, index: usize, group: usize) -> (f64, f64) {
        let width = 0.8 / self.series.len() as f64;
        (group as f64 + 0.1 + width * index as f64, width)
    }

    fn draw_categories(&self, area: &Area, plane: &Plane) -> Drawn {
        let floor = plane.y_range().start;
        let room = (WIDTH - LEFT_AXIS) as usize / self.categories.len().max(1);
        for (group, category) in self.categories.iter().enumerate() {
            let (x, y) = plane.backend_coord(&(group as f64 + 0.5, floor));
            let label = shortened(category, room / CHARACTER_WIDTH as usize);
            area.draw(&Text::new(label, (x, y + LABEL_ROW), text(HPos::Center)))?;
        }
        Ok(())
    }

    fn draw_bar(
        &self,
        area: &Area,
        plane: &Plane,
        index: usize,
        group: usize,
        estimate: &Estimate,
    ) -> Drawn {
        let (left, width) = self.place(index, group);
        let datum = Datum {
            x: left + width / 2.0,
            y: estimate.mean,
            low: estimate.low,
            high: estimate.high,
        };
        if !datum.is_drawn(&Axis::default(), &self.y) {
            return Ok(());
        }
        let floor = plane
            .y_range()
            .start
            .max(if self.y.log { 0.0 } else { f64::MIN });
        let base = if self.y.log { floor } else { 0.0 };
        let corners = [
            plane.backend_coord(&(left, datum.y)),
            plane.backend_coord(&(left + width * 0.94, base)),
        ];
        area.draw(&Rectangle::new(corners, colour(index).mix(0.85).filled()))?;
        draw_error(area, plane, &datum, INK)
    }
}

/// Something drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Plot {
    /// Bars in groups.
    Bars(Bars),
    /// Layers over two axes.
    Chart(Chart),
}

impl From<Bars> for Plot {
    fn from(bars: Bars) -> Self {
        Plot::Bars(bars)
    }
}

impl From<Chart> for Plot {
    fn from(chart: Chart) -> Self {
        Plot::Chart(chart)
    }
}

impl Plot {
    /// The standalone file: dark on white.
    pub fn svg(&self) -> Result<String, OutputError> {
        match self {
            Plot::Bars(bars) => bars.svg(),
            Plot::Chart(chart) => chart.svg(),
        }
    }

    /// For a page: scales with its container and takes the colour of the page's text.
    pub fn inline(&self) -> Result<String, OutputError> {
        match self {
            Plot::Bars(bars) => bars.inline(),
            Plot::Chart(chart) => chart.inline(),
        }
    }
}

/// The beginning of a name that has room for so many characters.
pub(crate) fn shortened(name: &str, characters: usize) -> String {
    if name.chars().count() <= characters {
        return name.to_owned();
    }
    let kept = name.chars().take(characters.saturating_sub(1));
    kept.chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn goodput() -> Chart {
        let estimate = |mean: f64| Estimate {
            low: mean * 0.9,
            high: mean * 1.1,
            ..Estimate::exact(mean)
        };
        let theory = |p: f64| (p, 0.3 / p.sqrt());
        Chart::new("Goodput against loss", "loss", "goodput (Mbit/s)")
            .log_x()
            .log_y()
            .dashed("Mathis", [1e-4, 1e-1].map(theory))
            .estimates(
                "observed",
                [1e-4, 1e-3, 1e-2].map(|p| (p, estimate(theory(p).1))),
            )
    }

    #[test]
    fn a_chart_names_its_layers_and_draws_to_the_same_bytes() {
        let svg = goodput().svg().unwrap();
        for text in ["Goodput against loss", "Mathis", "observed", "1e-4", "0.01"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg, goodput().svg().unwrap());
        assert!(goodput().inline().unwrap().contains("currentColor"));
    }

    #[test]
    fn a_logarithmic_axis_leaves_out_what_has_no_logarithm() {
        let points = [(0.0, 1.0), (1.0, 0.0), (f64::NAN, 1.0), (10.0, 10.0)];
        let chart = Chart::new("", "x", "y").log_x().log_y().line("a", points);
        assert_eq!(chart.drawn().count(), 1);
        assert!(chart.svg().is_ok());
    }

    #[test]
    fn an_empty_chart_is_a_frame() {
        assert!(Chart::new("", "x", "y").line("nothing", []).svg().is_ok());
        assert!(Bars::new("", "y", [] as [&str; 0]).svg().is_ok());
    }

    #[test]
    fn areas_stand_on_each_other() {
        let chart = Chart::new("", "t", "rate")
            .area("a", [(0.0, 1.0), (1.0, 2.0)])
            .area("b", [(0.0, 3.0), (1.0, 4.0)]);
        let tops: Vec<f64> = chart.layers[1].points.iter().map(|p| p.y).collect();
        assert_eq!(tops, [4.0, 6.0]);
        assert_eq!(chart.layers[1].points[1].low, 2.0);
    }

    #[test]
    fn a_distribution_ends_at_one_at_its_largest_value() {
        let corners = steps(vec![3.0, 1.0, 2.0, 2.0]);
        assert_eq!(corners.first(), Some(&(1.0, 0.0)));
        assert_eq!(corners.last(), Some(&(3.0, 1.0)));
        assert!(corners.contains(&(2.0, 0.75)));
        assert!(steps((0..100_000).map(f64::from).collect()).len() <= 2 * MAX_BINS + 2);
    }

    #[test]
    fn bars_are_as_many_as_values() {
        let bars = Bars::new("lost bytes", "kB", ["SH", "DH", "DHFV"])
            .series("simulator", [352.0, 39.0, 11.0].map(Estimate::exact));
        let svg = bars.svg().unwrap();
        // The page's white, three bars, and the sample in the legend.
        assert_eq!(svg.matches("<rect").count(), 5);
        assert!(svg.contains("DHFV") && !svg.contains("published"));
    }

    #[test]
    fn what_is_published_is_a_mark_across_its_bar_and_named() {
        let bars = Bars::new("lost bytes", "kB", ["SH", "DH"])
            .series("simulator", [200.0, 39.0].map(Estimate::exact));
        let plain = bars.clone().svg().unwrap();
        let svg = bars.published([Some(352.0), None]).svg().unwrap();
        // The mark, and its sample in the legend.
        let thick = |svg: &str| svg.matches("stroke-width=\"2\"").count();
        assert_eq!((thick(&plain), thick(&svg)), (0, 2));
        assert!(svg.contains("published") && svg.contains("300"));
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(number(0.25), "0.25");
        assert_eq!(number(12_000.0), "12000");
        assert_eq!(number(1e-4), "1e-4");
        assert_eq!(time(0.05), "50 ms");
        assert_eq!(time(2.5e-5), "25 µs");
        assert_eq!(time(20.0), "20 s");
        assert_eq!(log_ticks(&(0.5..30.0)), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0]);
    }
}
