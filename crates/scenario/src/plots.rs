//! Figures as SVG. A figure is drawn once, with one placeholder colour for ink: inline in a page the ink becomes the
//! text colour of the page, light or dark; in a file of its own it becomes dark grey on white.

use std::error::Error;
use std::ops::Range;

use anabranch_workload::Transfer;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::metrics::succeeded;
use crate::report::{Event, EventKind};
use crate::{LinkSeries, LinkState};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b, X = RangedCoordf64> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn Error>>;

/// Stands for the colour of text and lines until the use of the figure is known.
const INK: RGBColor = RGBColor(1, 2, 3);
const INK_HEX: &str = "#010203";

/// Okabe and Ito's colours, distinguishable with every common colour vision, in an order of high contrast.
const PALETTE: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xf0, 0xe4, 0x42),
];

const WIDTH: u32 = 800;
/// Plotters writes text a quarter smaller than this: 13 pixels of the figure.
const FONT_SIZE: i32 = 16;
/// Mean advance of a sans-serif character at `FONT_SIZE`, to keep labels apart without a font at hand.
const CHARACTER_WIDTH: i32 = 7;
const LABEL_ROW: i32 = 18;
const LEFT_AXIS: u32 = 68;
const BOTTOM_AXIS: u32 = 48;
const MARGIN_LEFT: i32 = 6;
const MARGIN_RIGHT: u32 = 12;
const MAX_BINS: usize = 400;

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
pub(crate) struct Figure {
    svg: String,
}

impl Figure {
    fn draw(height: u32, draw: impl FnOnce(&Area) -> Drawn) -> Result<Figure, Box<dyn Error>> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
            draw(&area)?;
            area.present()?;
        }
        Ok(Figure { svg })
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

fn text(position: HPos) -> TextStyle<'static> {
    ("sans-serif", FONT_SIZE)
        .into_font()
        .color(&INK)
        .pos(Pos::new(position, VPos::Center))
}

/// What the links carried, stacked, under the capacity that existed, above what the gateway believed of each link.
pub(crate) fn throughput(
    series: &[LinkSeries],
    events: &[Event],
) -> Result<Figure, Box<dyn Error>> {
    let stack = Stack::of(series, events);
    let lanes_height = LABEL_ROW as u32 * series.len() as u32 + BOTTOM_AXIS + 10;
    Figure::draw(330 + lanes_height, |area| {
        let (upper, lower) = area.split_vertically(330);
        draw_stack(&upper, &stack, series, events)?;
        draw_lanes(area, &lower, &stack, series)
    })
}

/// The rates of all links on one grid of time.
struct Stack {
    span_s: Range<f64>,
    unit: (&'static str, f64),
    /// For each link, the middle of each bin and the sum of this link and those before it.
    tops: Vec<Vec<(f64, f64)>>,
    /// Corners of the line of existing capacity.
    capacity: Vec<(f64, f64)>,
    peak: f64,
}

impl Stack {
    fn of(series: &[LinkSeries], events: &[Event]) -> Stack {
        let samples = || series.iter().flat_map(|link| &link.samples);
        let from_s = samples()
            .map(|sample| sample.t_s)
            .reduce(f64::min)
            .unwrap_or(0.0);
        let to_s = samples()
            .map(|sample| sample.t_s)
            .reduce(f64::max)
            .unwrap_or(0.0)
            .max(from_s + 1e-3);
        let longest = series
            .iter()
            .map(|link| link.samples.len())
            .max()
            .unwrap_or(0);
        let bins = longest.saturating_sub(1).clamp(1, MAX_BINS);
        let capacity = capacity(series, events, from_s..to_s);
        let most = capacity.iter().map(|corner| corner.1).fold(0.0, f64::max);
        let unit = unit_for(most);
        let tops = stacked(series, from_s..to_s, bins, unit.1);
        let capacity: Vec<_> = capacity
            .into_iter()
            .map(|(t_s, bps)| (t_s, bps / unit.1))
            .collect();
        let peak = tops
            .iter()
            .flatten()
            .chain(&capacity)
            .map(|point| point.1)
            .fold(0.0, f64::max);
        Stack {
            span_s: from_s..to_s,
            unit,
            tops,
            capacity,
            peak,
        }
    }
}

fn unit_for(rate_bps: f64) -> (&'static str, f64) {
    match rate_bps {
        rate if rate >= 2e9 => ("Gbit/s", 1e9),
        rate if rate >= 2e6 => ("Mbit/s", 1e6),
        _ => ("kbit/s", 1e3),
    }
}

fn stacked(
    series: &[LinkSeries],
    span_s: Range<f64>,
    bins: usize,
    unit: f64,
) -> Vec<Vec<(f64, f64)>> {
    let width_s = (span_s.end - span_s.start) / bins as f64;
    let mut sums = vec![0.0; bins];
    let stack = |link: &LinkSeries| {
        let rates = link.down_bps_in_bins(span_s.start, span_s.end, bins);
        sums.iter_mut()
            .zip(rates)
            .for_each(|(sum, rate_bps)| *sum += rate_bps / unit);
        sums.iter()
            .enumerate()
            .map(|(bin, &sum)| (span_s.start + width_s * (bin as f64 + 0.5), sum))
            .collect()
    };
    series.iter().map(stack).collect()
}

/// The sum of the rates of links that are whole, as the corners of a step line: a link counts nothing from its cut to
/// its return.
fn capacity(series: &[LinkSeries], events: &[Event], span_s: Range<f64>) -> Vec<(f64, f64)> {
    let rate_of = |event: &Event| {
        let link = series
            .iter()
            .find(|link| Some(&link.name) == event.link.as_ref());
        link.map_or(0.0, |link| link.down_rate_bps as f64)
    };
    let mut now: f64 = series.iter().map(|link| link.down_rate_bps as f64).sum();
    let mut corners = vec![(span_s.start, now)];
    for event in events {
        let change = match event.kind {
            EventKind::Cut => -rate_of(event),
            EventKind::Restored => rate_of(event),
            _ => continue,
        };
        corners.push((event.t_s, now));
        now += change;
        corners.push((event.t_s, now));
    }
    corners.push((span_s.end, now));
    corners
}

fn draw_stack(area: &Area, stack: &Stack, series: &[LinkSeries], events: &[Event]) -> Drawn {
    let mut chart = ChartBuilder::on(area)
        .margin_top(LABEL_ROW * 4 + 6)
        .margin_left(MARGIN_LEFT)
        .margin_right(MARGIN_RIGHT)
        .margin_bottom(6)
        .y_label_area_size(LEFT_AXIS)
        .build_cartesian_2d(stack.span_s.clone(), 0.0..stack.peak.max(1e-3) * 1.06)?;
    mesh(
        &mut chart,
        "",
        &format!("to the users ({})", stack.unit.0),
        &|t| trimmed(*t),
    )?;
    for (link, tops) in stack.tops.iter().enumerate() {
        let floor: Vec<(f64, f64)> = match link.checked_sub(1) {
            Some(below) => stack.tops[below].clone(),
            None => tops.iter().map(|point| (point.0, 0.0)).collect(),
        };
        let outline = tops
            .iter()
            .chain(floor.iter().rev())
            .copied()
            .collect::<Vec<_>>();
        chart.draw_series([Polygon::new(outline, colour(link).mix(0.72).filled())])?;
        chart.draw_series(LineSeries::new(
            tops.iter().copied(),
            colour(link).stroke_width(1),
        ))?;
    }
    chart.draw_series(DashedLineSeries::new(
        stack.capacity.iter().copied(),
        6,
        4,
        INK.stroke_width(1),
    ))?;
    draw_legend(area, series)?;
    draw_events(area, &mut chart, stack, events)
}

/// Squares and names of the links, and the dashed line of capacity, in one row at the top.
fn draw_legend(area: &Area, series: &[LinkSeries]) -> Drawn {
    let (mut x, y) = (LEFT_AXIS as i32 + MARGIN_LEFT, LABEL_ROW / 2 + 2);
    for (index, link) in series.iter().enumerate() {
        area.draw(&Rectangle::new(
            [(x, y - 5), (x + 11, y + 6)],
            colour(index).mix(0.85).filled(),
        ))?;
        x = draw_legend_text(area, &link.name, x + 17, y)?;
    }
    area.draw(&PathElement::new(
        vec![(x, y), (x + 6, y)],
        INK.stroke_width(1),
    ))?;
    area.draw(&PathElement::new(
        vec![(x + 10, y), (x + 16, y)],
        INK.stroke_width(1),
    ))?;
    draw_legend_text(area, "capacity that existed", x + 22, y)?;
    Ok(())
}

fn draw_legend_text(area: &Area, label: &str, x: i32, y: i32) -> Result<i32, Box<dyn Error>> {
    area.draw(&Text::new(label.to_owned(), (x, y), text(HPos::Left)))?;
    Ok(x + label.chars().count() as i32 * CHARACTER_WIDTH + 18)
}

/// A dashed line per event, with its label in the first of three rows where it does not cover another.
fn draw_events(area: &Area, chart: &mut Chart, stack: &Stack, events: &[Event]) -> Drawn {
    let mut row_ends = [i32::MIN; 3];
    let top = stack.peak.max(1e-3) * 1.06;
    for event in events
        .iter()
        .filter(|event| stack.span_s.contains(&event.t_s))
    {
        let line = [(event.t_s, 0.0), (event.t_s, top)];
        chart.draw_series(DashedLineSeries::new(
            line,
            3,
            3,
            INK.mix(0.8).stroke_width(1),
        ))?;
        let (x, y) = chart.backend_coord(&(event.t_s, top));
        let label = event.label();
        let width = label.chars().count() as i32 * CHARACTER_WIDTH;
        let left = (x + 3).min(WIDTH as i32 - width - 2);
        let Some(row) = row_ends.iter().position(|&end| end < left) else {
            continue;
        };
        row_ends[row] = left + width + 8;
        let label_y = LABEL_ROW * (row as i32 + 1) + LABEL_ROW / 2 + 4;
        area.draw(&PathElement::new(
            vec![(x, label_y), (x, y)],
            INK.mix(0.8).stroke_width(1),
        ))?;
        area.draw(&Text::new(label, (left, label_y), text(HPos::Left)))?;
    }
    Ok(())
}

/// One bar per link on `strip`; `whole` is the figure, whose pixels a chart's coordinates mean.
fn draw_lanes(whole: &Area, strip: &Area, stack: &Stack, series: &[LinkSeries]) -> Drawn {
    let lanes = series.len() as f64;
    let mut chart = ChartBuilder::on(strip)
        .margin_top(2)
        .margin_left(MARGIN_LEFT)
        .margin_right(MARGIN_RIGHT)
        .y_label_area_size(LEFT_AXIS)
        .x_label_area_size(BOTTOM_AXIS)
        .build_cartesian_2d(stack.span_s.clone(), lanes..0.0)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .disable_y_axis()
        .x_desc("time since the start of the run (s)")
        .x_label_formatter(&|t| trimmed(*t))
        .label_style(text(HPos::Center))
        .axis_style(INK.mix(0.5))
        .draw()?;
    for (index, link) in series.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(stack.span_s.start, index as f64 + 0.5));
        whole.draw(&Text::new(
            shortened(&link.name),
            (x - 6, y),
            text(HPos::Right),
        ))?;
        for (from_s, to_s, state) in link.states() {
            draw_lane(whole, &chart, index, from_s..to_s, state)?;
        }
    }
    Ok(())
}

/// Full colour means up, half means suspect, an empty frame means down: shape and word, not colour alone.
fn draw_lane(
    area: &Area,
    chart: &Chart,
    lane: usize,
    span_s: Range<f64>,
    state: LinkState,
) -> Drawn {
    let (left, top) = chart.backend_coord(&(span_s.start, lane as f64));
    let (right, bottom) = chart.backend_coord(&(span_s.end, lane as f64 + 1.0));
    let corners = [(left, top + 2), (right, bottom - 2)];
    match state {
        LinkState::Up => area.draw(&Rectangle::new(corners, colour(lane).mix(0.72).filled()))?,
        LinkState::Suspect => {
            area.draw(&Rectangle::new(corners, colour(lane).mix(0.3).filled()))?
        }
        LinkState::Down => area.draw(&Rectangle::new(corners, INK.mix(0.6)))?,
    }
    let name = state.name();
    if state != LinkState::Up && right - left > name.len() as i32 * CHARACTER_WIDTH + 4 {
        area.draw(&Text::new(
            name,
            ((left + right) / 2, (top + bottom) / 2),
            text(HPos::Center),
        ))?;
    }
    Ok(())
}

/// Share of successful transfers that took at most so long, for all and for each link.
pub(crate) fn durations(
    transfers: &[Transfer],
    links: &[String],
) -> Result<Figure, Box<dyn Error>> {
    let all = sorted_durations(transfers, None);
    let span_s = duration_span_s(&all);
    Figure::draw(330, |area| {
        let mut chart = ChartBuilder::on(area)
            .margin_top(LABEL_ROW + 6)
            .margin_left(MARGIN_LEFT)
            .margin_right(MARGIN_RIGHT)
            .y_label_area_size(LEFT_AXIS)
            .x_label_area_size(BOTTOM_AXIS)
            .build_cartesian_2d(LogTime(span_s.clone()), 0.0..1.0)?;
        mesh(
            &mut chart,
            "duration of a transfer (logarithmic)",
            "share of transfers",
            &|t| round_time(*t),
        )?;
        for (index, link) in links.iter().enumerate() {
            let steps = steps(&sorted_durations(transfers, Some(link)), &span_s);
            chart.draw_series(LineSeries::new(steps, colour(index).stroke_width(2)))?;
        }
        chart.draw_series(LineSeries::new(steps(&all, &span_s), INK.stroke_width(2)))?;
        draw_duration_legend(area, links)
    })
}

/// The range of the durations with room on both sides, so that equal durations still make a plot.
fn duration_span_s(sorted: &[f64]) -> Range<f64> {
    let shortest = sorted.first().copied().unwrap_or(0.1).max(1e-6);
    let longest = sorted.last().copied().unwrap_or(1.0).max(shortest);
    shortest * 0.8..longest * 1.25
}

/// A logarithmic axis of seconds with ticks at 1, 2 and 5 times the powers of ten, unlike that of plotters, which
/// marks only the powers and leaves narrow ranges bare.
struct LogTime(Range<f64>);

impl Ranged for LogTime {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, time_s: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (time_s / self.0.start).ln() / (self.0.end / self.0.start).ln();
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        let decades = self.0.start.log10().floor() as i32..=self.0.end.log10().ceil() as i32;
        let ticks =
            decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(decade)));
        ticks.filter(|tick| self.0.contains(tick)).collect()
    }

    fn range(&self) -> Range<f64> {
        self.0.clone()
    }
}

impl ValueFormatter<f64> for LogTime {
    fn format_ext(&self, time_s: &f64) -> String {
        round_time(*time_s)
    }
}

fn draw_duration_legend(area: &Area, links: &[String]) -> Drawn {
    let (mut x, y) = (LEFT_AXIS as i32 + MARGIN_LEFT, LABEL_ROW / 2 + 2);
    let lines = links
        .iter()
        .enumerate()
        .map(|(index, link)| (link.as_str(), colour(index)));
    for (label, colour) in lines.chain([("all", INK)]) {
        area.draw(&PathElement::new(
            vec![(x, y), (x + 14, y)],
            colour.stroke_width(2),
        ))?;
        x = draw_legend_text(area, label, x + 20, y)?;
    }
    Ok(())
}

fn sorted_durations(transfers: &[Transfer], link: Option<&str>) -> Vec<f64> {
    let matches = |transfer: &&Transfer| link.is_none() || transfer.link.as_deref() == link;
    let mut durations: Vec<f64> = succeeded(transfers)
        .filter(matches)
        .map(|transfer| transfer.duration_s)
        .collect();
    durations.sort_by(f64::total_cmp);
    durations
}

/// An empirical distribution as corners of a step line, thinned to what can be seen.
fn steps(sorted: &[f64], span_s: &Range<f64>) -> Vec<(f64, f64)> {
    let Some(last) = sorted.len().checked_sub(1) else {
        return Vec::new();
    };
    let stride = sorted.len().div_ceil(MAX_BINS);
    let mut corners = vec![(span_s.start, 0.0)];
    let mut below = 0.0;
    for rank in (0..last).step_by(stride).chain([last]) {
        let share = (rank + 1) as f64 / sorted.len() as f64;
        corners.extend([(sorted[rank], below), (sorted[rank], share)]);
        below = share;
    }
    corners.push((span_s.end, 1.0));
    corners
}

/// A time of one significant digit, in seconds.
fn round_time(time_s: f64) -> String {
    match time_s {
        short if short < 0.9e-3 => format!("{:.0} µs", time_s * 1e6),
        short if short < 0.9 => format!("{:.0} ms", time_s * 1e3),
        _ => format!("{time_s:.0} s"),
    }
}

fn mesh<X>(chart: &mut Chart<X>, x: &str, y: &str, x_label: &dyn Fn(&f64) -> String) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
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
        .y_label_formatter(&|value| trimmed(*value));
    style.draw()?;
    Ok(())
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A link name that fits beside its lane.
fn shortened(name: &str) -> String {
    let fits = (LEFT_AXIS as i32 / CHARACTER_WIDTH - 1) as usize;
    if name.chars().count() <= fits {
        name.to_owned()
    } else {
        name.chars().take(fits - 1).chain(['…']).collect()
    }
}
