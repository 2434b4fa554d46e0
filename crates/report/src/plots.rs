//! The figures of one run's report.

use std::error::Error;
use std::ops::Range;

use anabranch_results::{OutputError, succeeded};
use anabranch_scenario::{Event, EventKind, LinkSeries, LinkState};
use anabranch_workload::{Direction, Transfer};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use crate::chart::{Chart, shortened};
use crate::figure::{
    Area, BOTTOM_AXIS, CHARACTER_WIDTH, Drawing, Drawn, INK, LABEL_ROW, LEFT_AXIS, MARGIN_LEFT,
    MARGIN_RIGHT, MAX_BINS, WIDTH, colour, mesh, text, text_width,
};

type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Of the stack of one direction.
const STACK_HEIGHT: u32 = 330;

/// What the links carried in each direction, stacked, under the capacity that existed, above what the gateway believed of
/// each link.
pub(crate) fn throughput(
    series: &[LinkSeries],
    events: &[Event],
    directions: &[Direction],
) -> Result<Drawing, OutputError> {
    let lanes_height = LABEL_ROW as u32 * series.len() as u32 + BOTTOM_AXIS + 10;
    let height = STACK_HEIGHT * directions.len() as u32 + lanes_height;
    Drawing::draw("throughput", height, |area| {
        let mut below = area.clone();
        for direction in directions {
            let (stack, rest) = below.split_vertically(STACK_HEIGHT);
            draw_stack(
                &stack,
                &Stack::of(series, events, *direction),
                series,
                events,
            )?;
            below = rest;
        }
        draw_lanes(area, &below, &span_s(series), series)
    })
}

/// From the first sample to the last.
fn span_s(series: &[LinkSeries]) -> Range<f64> {
    let times = || {
        series
            .iter()
            .flat_map(|link| &link.samples)
            .map(|sample| sample.t_s)
    };
    let from_s = times().reduce(f64::min).unwrap_or(0.0);
    let to_s = times().reduce(f64::max).unwrap_or(0.0);
    from_s..to_s.max(from_s + 1e-3)
}

/// The rates of all links in one direction on one grid of time.
struct Stack {
    direction: Direction,
    span_s: Range<f64>,
    unit: (&'static str, f64),
    /// For each link, the middle of each bin and the sum of this link and those before it.
    tops: Vec<Vec<(f64, f64)>>,
    /// Corners of the line of existing capacity.
    capacity: Vec<(f64, f64)>,
    peak: f64,
}

impl Stack {
    fn of(series: &[LinkSeries], events: &[Event], direction: Direction) -> Stack {
        let span_s = span_s(series);
        let longest = series
            .iter()
            .map(|link| link.samples.len())
            .max()
            .unwrap_or(0);
        let bins = longest.saturating_sub(1).clamp(1, MAX_BINS);
        let capacity = capacity(series, events, direction, span_s.clone());
        let most = capacity.iter().map(|corner| corner.1).fold(0.0, f64::max);
        let unit = unit_for(most);
        let tops = stacked(series, direction, span_s.clone(), bins, unit.1);
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
            direction,
            span_s,
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
    direction: Direction,
    span_s: Range<f64>,
    bins: usize,
    unit: f64,
) -> Vec<Vec<(f64, f64)>> {
    let width_s = (span_s.end - span_s.start) / bins as f64;
    let mut sums = vec![0.0; bins];
    let stack = |link: &LinkSeries| {
        let rates = link.bps_in_bins(direction, span_s.clone(), bins);
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
fn capacity(
    series: &[LinkSeries],
    events: &[Event],
    direction: Direction,
    span_s: Range<f64>,
) -> Vec<(f64, f64)> {
    let rate = |link: &LinkSeries| link.rate_bps(direction) as f64;
    let rate_of = |event: &Event| {
        let link = series
            .iter()
            .find(|link| Some(&link.name) == event.link.as_ref());
        link.map_or(0.0, rate)
    };
    let mut now: f64 = series.iter().map(rate).sum();
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
        &format!(
            "{} the users ({})",
            preposition(stack.direction),
            stack.unit.0
        ),
        &|t| trimmed(*t),
        &|value| trimmed(*value),
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

fn preposition(direction: Direction) -> &'static str {
    match direction {
        Direction::Down => "to",
        Direction::Up => "from",
    }
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
    Ok(x + text_width(label) + 18)
}

/// A dashed line per event, with its label in the first of three rows where it does not cover another.
fn draw_events(area: &Area, chart: &mut Plane, stack: &Stack, events: &[Event]) -> Drawn {
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
        let label = label(event);
        let width = text_width(&label);
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

/// A few words for the mark of an event.
fn label(event: &Event) -> String {
    match &event.link {
        Some(link) => format!("{link} {}", event.kind.word()),
        None => event.text.chars().take(32).collect(),
    }
}

/// One bar per link on `strip`; `whole` is the figure, whose pixels a chart's coordinates mean.
fn draw_lanes(whole: &Area, strip: &Area, span_s: &Range<f64>, series: &[LinkSeries]) -> Drawn {
    let lanes = series.len() as f64;
    let mut chart = ChartBuilder::on(strip)
        .margin_top(2)
        .margin_left(MARGIN_LEFT)
        .margin_right(MARGIN_RIGHT)
        .y_label_area_size(LEFT_AXIS)
        .x_label_area_size(BOTTOM_AXIS)
        .build_cartesian_2d(span_s.clone(), lanes..0.0)?;
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
        let (x, y) = chart.backend_coord(&(span_s.start, index as f64 + 0.5));
        whole.draw(&Text::new(
            shortened(
                &link.name,
                LEFT_AXIS as usize / CHARACTER_WIDTH as usize - 1,
            ),
            (x - 6, y),
            text(HPos::Right),
        ))?;
        for (from_s, to_s, state) in link.states() {
            draw_lane(whole, &chart, index, from_s..to_s, state)?;
        }
    }
    Ok(())
}

/// Full colour means up, half means suspect or captive, an empty frame means down: shape and word, not colour alone.
fn draw_lane(
    area: &Area,
    chart: &Plane,
    lane: usize,
    span_s: Range<f64>,
    state: LinkState,
) -> Drawn {
    let (left, top) = chart.backend_coord(&(span_s.start, lane as f64));
    let (right, bottom) = chart.backend_coord(&(span_s.end, lane as f64 + 1.0));
    let corners = [(left, top + 2), (right, bottom - 2)];
    match state {
        LinkState::Up => area.draw(&Rectangle::new(corners, colour(lane).mix(0.72).filled()))?,
        LinkState::Suspect | LinkState::Captive => {
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
pub(crate) fn durations(transfers: &[Transfer], links: &[String]) -> Result<Drawing, OutputError> {
    let of = |link: Option<&str>| {
        let matches =
            move |transfer: &&Transfer| link.is_none() || transfer.link.as_deref() == link;
        succeeded(transfers)
            .filter(matches)
            .map(|transfer| transfer.duration_s)
            .collect::<Vec<_>>()
    };
    let axes = Chart::new(
        "",
        "duration of a transfer (logarithmic)",
        "share of transfers",
    );
    let axes = axes.log_x().seconds_x().range_y(0.0..1.0);
    let parts = links
        .iter()
        .fold(axes, |chart, link| chart.cdf(link, of(Some(link))));
    parts.cdf("all", of(None)).in_ink().figure()
}

fn trimmed(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
