//! `[sweep]`: values that take the place of others, one after the other.
//!
//! A point of the sweep is the text of the file with other values in their places, so that it is read and judged like
//! any file, and a message about it quotes what stands there.

use std::ops::Range;
use std::path::Path;

use anabranch_config::{BadInput, Source, did_you_mean, dotted};
use toml::de::{DeTable, DeValue};

use crate::Point;

const POINTS_MAX: usize = 100_000;
/// Of the texts of all points together.
const BYTES_MAX: usize = 1 << 28;

/// A key of the file, where its value stands, and what stands there at each point.
struct Axis {
    key: String,
    place: Range<usize>,
    values: Vec<String>,
}

/// Every point and the file's text there, the last key turning fastest; without a sweep the text as it is.
pub(super) fn points(path: &Path, text: &str) -> Result<Vec<(Point, String)>, BadInput> {
    let source = Source::parse(path, text)?.numbered();
    let axes = axes(&source, text)?;
    let lengths = axes.iter().map(|axis| axis.values.len());
    let count = lengths.fold(1usize, |count, length| count.saturating_mul(length));
    if count > POINTS_MAX {
        let problem = format!("more than {POINTS_MAX} points, which is the most that is allowed");
        return Err(source.bad(&["sweep"], problem));
    }
    if count.saturating_mul(text.len()) > BYTES_MAX {
        let problem = format!(
            "{count} points of a file of {} bytes; at most {BYTES_MAX} bytes together are allowed",
            text.len()
        );
        return Err(source.bad(&["sweep"], problem));
    }
    Ok((0..count).map(|index| point(&axes, text, index)).collect())
}

/// A message about one point of a sweep.
pub(super) fn at_point(error: BadInput, point: &Point) -> BadInput {
    if point.is_empty() {
        return error;
    }
    BadInput::new(format!(
        "{error} (at the point {} of the sweep)",
        in_words(point)
    ))
}

pub(super) fn in_words(point: &Point) -> String {
    let values = point.iter().map(|(key, value)| format!("{key} = {value}"));
    values.collect::<Vec<_>>().join(", ")
}

fn point(axes: &[Axis], text: &str, index: usize) -> (Point, String) {
    let mut rest = index;
    let mut chosen: Vec<(&Axis, &String)> = Vec::new();
    for axis in axes.iter().rev() {
        chosen.push((axis, &axis.values[rest % axis.values.len()]));
        rest /= axis.values.len();
    }
    chosen.reverse();
    let point = chosen
        .iter()
        .map(|(axis, value)| (axis.key.clone(), value.trim_matches('"').to_owned()))
        .collect();
    let mut text = text.to_owned();
    chosen.sort_by_key(|(axis, _)| std::cmp::Reverse(axis.place.start));
    for (axis, value) in chosen {
        text.replace_range(axis.place.clone(), value);
    }
    (point, text)
}

fn axes(source: &Source<'_>, text: &str) -> Result<Vec<Axis>, BadInput> {
    let Ok(root) = DeTable::parse(text) else {
        return Ok(Vec::new());
    };
    let Some(sweep) = root.get_ref().get("sweep") else {
        return Ok(Vec::new());
    };
    let DeValue::Table(sweep) = sweep.get_ref() else {
        return Err(source.bad(
            &["sweep"],
            r#"write [sweep] and then "link.fiber.down" = ["10mbit", "40mbit"]"#,
        ));
    };
    let mut found = Vec::new();
    collect(sweep, &[], &mut found);
    let mut axes = Vec::new();
    for (path, values) in found {
        axes.push(axis(source, text, &path, values)?);
    }
    axes.sort_by_key(|(position, _)| *position);
    let axes: Vec<Axis> = axes.into_iter().map(|(_, axis)| axis).collect();
    for (index, axis) in axes.iter().enumerate() {
        let overlaps = |other: &&Axis| {
            axis.place.start < other.place.end && other.place.start < axis.place.end
        };
        if let Some(other) = axes[..index].iter().find(overlaps) {
            let problem = format!("{} and {} are one place of the file", other.key, axis.key);
            return Err(source.bad(&["sweep"], problem));
        }
    }
    Ok(axes)
}

/// The leaves of the table: dotted keys without quotes are tables to TOML.
fn collect<'a>(
    table: &'a DeTable<'a>,
    prefix: &[String],
    found: &mut Vec<(Vec<String>, &'a toml::Spanned<DeValue<'a>>)>,
) {
    for (key, value) in table.iter() {
        let path: Vec<String> = prefix
            .iter()
            .cloned()
            .chain([key.get_ref().to_string()])
            .collect();
        match value.get_ref() {
            DeValue::Table(inner) => collect(inner, &path, found),
            _ => found.push((path, value)),
        }
    }
}

/// The keys of the table that `key` would be in.
fn keys_beside(text: &str, key: &[&str]) -> Vec<String> {
    let Ok(root) = text.parse::<toml::Table>() else {
        return Vec::new();
    };
    let parents = &key[..key.len() - 1];
    let table = parents
        .iter()
        .try_fold(&root, |table, part| table.get(*part)?.as_table());
    table
        .into_iter()
        .flat_map(|table| table.keys().cloned())
        .collect()
}

fn axis(
    source: &Source<'_>,
    text: &str,
    path: &[String],
    values: &toml::Spanned<DeValue<'_>>,
) -> Result<(usize, Axis), BadInput> {
    let in_sweep: Vec<&str> = ["sweep"]
        .into_iter()
        .chain(path.iter().map(String::as_str))
        .collect();
    let bad = |problem: String| Err(source.bad(&in_sweep, problem));
    let key: Vec<&str> = path.iter().flat_map(|part| part.split('.')).collect();
    let Some(place) = source.span(&key).filter(|_| key[0] != "sweep") else {
        let known = keys_beside(text, &key);
        let meant = did_you_mean(key[key.len() - 1], known.iter().map(String::as_str));
        return bad(format!(
            "no such key in the file; write it with one of the values, whose place the sweep takes{meant}"
        ));
    };
    let DeValue::Array(array) = values.get_ref() else {
        return bad(r#"a list of values is wanted: ["10mbit", "40mbit"]"#.to_owned());
    };
    let values: Vec<String> = array
        .iter()
        .map(|value| text[value.span()].to_owned())
        .collect();
    if values.is_empty() {
        return bad("one value is wanted at least".to_owned());
    }
    if let Some(twice) = (1..values.len()).find(|&i| values[..i].contains(&values[i])) {
        return bad(format!("{} is there twice", values[twice]));
    }
    let position = source.position(&in_sweep);
    Ok((
        position,
        Axis {
            key: dotted(&key),
            place,
            values,
        },
    ))
}
