//! A file as text with positions, so that an error about a value can quote it.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::{BadInput, did_you_mean};

const QUOTED_CHARS_MAX: usize = 60;
const FILE_BYTES_MAX: u64 = 1 << 20;

/// A file's text, what stands where in it, and what to call it in messages.
pub struct Source<'a> {
    path: PathBuf,
    text: &'a str,
    root: DeTable<'a>,
    numbered: bool,
}

/// A key and its value, as written.
struct Place {
    key: String,
    value: Range<usize>,
}

impl<'a> Source<'a> {
    /// Fails on anything that is not TOML, naming the line.
    pub fn parse(path: &Path, text: &'a str) -> Result<Self, BadInput> {
        let root = DeTable::parse(text).map_err(|error| syntax_error(path, text, &error))?;
        Ok(Self {
            path: path.to_owned(),
            text,
            root: root.into_inner(),
            numbered: false,
        })
    }

    /// Names the line in every message.
    pub fn numbered(self) -> Self {
        Self {
            numbered: true,
            ..self
        }
    }

    /// Reads the whole file into `T`; an error names key and value.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, BadInput> {
        toml::from_str(self.text).map_err(|error| self.shape_error(&error))
    }

    /// An error about the value at `key`, which need not exist.
    pub fn bad(&self, key: &[&str], problem: impl std::fmt::Display) -> BadInput {
        self.compose(&self.as_written(key), self.span(key), &problem.to_string())
    }

    /// As [`dotted`], but a number that names a value of a table stays a name: `trunk.sublink.0`.
    fn as_written(&self, key: &[&str]) -> String {
        let parts = key.iter().enumerate();
        parts.fold(String::new(), |path, (depth, part)| {
            match self.value(&key[..depth]).map(Spanned::get_ref) {
                Some(DeValue::Table(_)) => format!("{path}.{part}"),
                _ => dotted(&[&path, part]),
            }
        })
    }

    /// Where the value of `key` begins: tables are read in any order, but people number what they write.
    pub fn position(&self, key: &[&str]) -> usize {
        self.span(key).map_or(usize::MAX, |span| span.start)
    }

    /// Where the value of `key` stands in the text.
    pub fn span(&self, key: &[&str]) -> Option<Range<usize>> {
        self.value(key).map(Spanned::span)
    }

    fn value(&self, key: &[&str]) -> Option<&Spanned<DeValue<'a>>> {
        let (first, rest) = key.split_first()?;
        rest.iter().try_fold(self.root.get(*first)?, |value, part| {
            match (value.get_ref(), part.parse::<usize>()) {
                (DeValue::Array(array), Ok(index)) => array.get(index),
                (DeValue::Table(table), _) => table.get(*part),
                _ => None,
            }
        })
    }

    fn shape_error(&self, error: &toml::de::Error) -> BadInput {
        let place = error
            .span()
            .and_then(|span| locate_in_table(&self.root, "", &span));
        let message = reword(error.message());
        match place {
            Some(place) => self.compose(&place.key, Some(place.value), &message),
            None => BadInput::new(format!("{}: {message}", self.path.display())),
        }
    }

    fn compose(&self, key: &str, value: Option<Range<usize>>, problem: &str) -> BadInput {
        let path = self.path.display();
        let Some(value) = value else {
            return BadInput::new(format!("{path}: {key}: {problem}"));
        };
        let line = match self.numbered {
            true => format!(":{}", line_of(self.text, value.start)),
            false => String::new(),
        };
        let quoted = self.quote(value);
        // A table made by dotted keys has its name for a place.
        if key == quoted {
            return BadInput::new(format!("{path}{line}: {key}: {problem}"));
        }
        BadInput::new(format!("{path}{line}: {key} = {quoted}: {problem}"))
    }

    fn quote(&self, span: Range<usize>) -> String {
        let text = self.text.get(span).unwrap_or_default();
        let mut quoted: String = text.chars().take(QUOTED_CHARS_MAX).collect();
        if quoted.len() < text.len() {
            quoted.push('…');
        }
        quoted
    }
}

/// The text of a file of at most 1 MiB.
pub fn read_text(path: &Path) -> Result<String, BadInput> {
    let bad =
        |problem: &dyn std::fmt::Display| BadInput::new(format!("{}: {problem}", path.display()));
    let size = std::fs::metadata(path).map_err(|error| bad(&error))?.len();
    if size > FILE_BYTES_MAX {
        return Err(bad(&format!(
            "{size} bytes; a configuration has at most {FILE_BYTES_MAX}"
        )));
    }
    std::fs::read_to_string(path).map_err(|error| bad(&error))
}

/// Letters, digits, '-' and '_' only: safe in file names, commands and messages.
pub fn is_name(text: &str, chars_max: usize) -> bool {
    (1..=chars_max).contains(&text.len())
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
}

/// A key as in messages: `link.fiber.probe[0]`.
pub fn dotted(key: &[&str]) -> String {
    key.iter()
        .fold(String::new(), |path, part| match part.parse::<usize>() {
            Ok(index) => format!("{path}[{index}]"),
            Err(_) if path.is_empty() => (*part).to_owned(),
            Err(_) => format!("{path}.{part}"),
        })
}

fn syntax_error(path: &Path, text: &str, error: &toml::de::Error) -> BadInput {
    let at = error.span().map_or(0, |span| span.start);
    BadInput::new(format!(
        "{}:{}: not TOML: {}",
        path.display(),
        line_of(text, at),
        error.message()
    ))
}

/// The line that `at` is in, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.get(..at)
        .map_or(1, |before| before.matches('\n').count() + 1)
}

/// The innermost entry whose key or value holds `span`.
fn locate_in_table(table: &DeTable<'_>, prefix: &str, span: &Range<usize>) -> Option<Place> {
    table.iter().find_map(|(key, value)| {
        let path = if prefix.is_empty() {
            key.get_ref().to_string()
        } else {
            format!("{prefix}.{}", key.get_ref())
        };
        locate_in_value(value.get_ref(), &path, span).or_else(|| {
            let holds = holds(&key.span(), span) || holds(&value.span(), span);
            holds.then(|| Place {
                key: path,
                value: value.span(),
            })
        })
    })
}

fn locate_in_value(value: &DeValue<'_>, path: &str, span: &Range<usize>) -> Option<Place> {
    match value {
        DeValue::Table(table) => locate_in_table(table, path, span),
        DeValue::Array(array) => array.iter().enumerate().find_map(|(index, item)| {
            let path = format!("{path}[{index}]");
            locate_in_value(item.get_ref(), &path, span).or_else(|| {
                holds(&item.span(), span).then(|| Place {
                    key: path,
                    value: item.span(),
                })
            })
        }),
        _ => None,
    }
}

fn holds(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    !inner.is_empty() && outer.start <= inner.start && inner.end <= outer.end
}

/// Serde's words in the user's: keys, not fields.
fn reword(message: &str) -> String {
    let message = match message.strip_prefix("unknown field ") {
        Some(rest) => match rest.split_once(", expected ") {
            Some((key, allowed)) => {
                let allowed = allowed.trim_start_matches("one of ").replace('`', "");
                let meant = did_you_mean(&key.replace('`', ""), allowed.split(", "));
                format!("unknown key; allowed: {allowed}{meant}")
            }
            None => "unknown key".to_owned(),
        },
        None => message.replace("missing field", "missing key"),
    };
    message.replace('`', "")
}
