//! A file as text with positions, so that an error about a value can quote it.

use std::fs::File;
use std::io::Read;
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
    /// The table that keys are of.
    within: Vec<String>,
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
            within: Vec::new(),
        })
    }

    /// Names the line in every message.
    pub fn numbered(self) -> Self {
        Self {
            numbered: true,
            ..self
        }
    }

    /// The same file, for messages about keys of one of its tables.
    pub fn within(&self, table: &[&str]) -> Self {
        let table = table.iter().map(|part| (*part).to_owned());
        Self {
            path: self.path.clone(),
            text: self.text,
            root: self.root.clone(),
            numbered: self.numbered,
            within: self.within.iter().cloned().chain(table).collect(),
        }
    }

    /// Reads the whole file into `T`; an error names key and value.
    pub fn read<T: serde::de::DeserializeOwned>(&self) -> Result<T, BadInput> {
        toml::from_str(self.text).map_err(|error| self.shape_error(&error))
    }

    /// An error about the value at `key`, which need not exist.
    pub fn bad(&self, key: &[&str], problem: impl std::fmt::Display) -> BadInput {
        let place = self.span(key);
        self.compose(
            &self.as_written(&self.whole(key)),
            place,
            &problem.to_string(),
        )
    }

    /// As [`dotted`], but a number that names a value of a table stays a name: `trunk.sublink.0`.
    fn as_written(&self, key: &[&str]) -> String {
        let parts = key.iter().enumerate();
        parts.fold(String::new(), |path, (depth, part)| {
            match self.value(&key[..depth]).map(Spanned::get_ref) {
                Some(DeValue::Table(_)) => with_name(&path, part),
                _ => with_part(&path, part),
            }
        })
    }

    /// Where the value of `key` begins: tables are read in any order, but people number what they write.
    pub fn position(&self, key: &[&str]) -> usize {
        self.span(key).map_or(usize::MAX, |span| span.start)
    }

    /// Where the value of `key` stands in the text.
    pub fn span(&self, key: &[&str]) -> Option<Range<usize>> {
        self.value(&self.whole(key)).map(Spanned::span)
    }

    /// The line in which the value of `key` begins, from 1.
    pub fn line(&self, key: &[&str]) -> Option<usize> {
        Some(line_of(self.text, self.span(key)?.start))
    }

    /// From the root of the file.
    fn whole<'k>(&'k self, key: &[&'k str]) -> Vec<&'k str> {
        let within = self.within.iter().map(String::as_str);
        within.chain(key.iter().copied()).collect()
    }

    /// What stands there, as typed.
    pub fn text(&self, key: &[&str]) -> Option<&str> {
        self.text.get(self.span(key)?)
    }

    /// Those that stand at the top of the file.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.root.keys().map(|key| key.get_ref().as_ref())
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
            Some(place) => {
                let value = self.quote(place.value.clone());
                let message = with_unit(error.message(), &value).unwrap_or(message);
                self.compose(&place.key, Some(place.value), &message)
            }
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

/// The text of a file of at most 1 MiB, whatever kind of file it is: a device may have no end.
pub fn read_text(path: &Path) -> Result<String, BadInput> {
    read_text_up_to(path, FILE_BYTES_MAX)
}

/// The same of a file of another size at most.
pub fn read_text_up_to(path: &Path, bytes_max: u64) -> Result<String, BadInput> {
    let bad =
        |problem: &dyn std::fmt::Display| BadInput::new(format!("{}: {problem}", path.display()));
    let file = File::open(path).map_err(|error| bad(&error))?;
    let mut bytes = Vec::new();
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| bad(&error))?;
    if bytes.len() as u64 > bytes_max {
        return Err(bad(&format!(
            "is longer than {bytes_max} bytes, which is the most that is read"
        )));
    }
    String::from_utf8(bytes).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = before.iter().filter(|&&byte| byte == b'\n').count() + 1;
        BadInput::new(format!("{}:{line}: not UTF-8 text", path.display()))
    })
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
        .fold(String::new(), |path, part| with_part(&path, part))
}

fn with_part(path: &str, part: &str) -> String {
    match part.parse::<usize>() {
        Ok(index) => format!("{path}[{index}]"),
        Err(_) => with_name(path, part),
    }
}

/// A name with spaces, quotes or control characters is quoted, as it is in the file.
fn with_name(path: &str, name: &str) -> String {
    let is_bare = |c: char| !(c.is_whitespace() || c.is_control() || c == '"');
    let name = match !name.is_empty() && name.chars().all(is_bare) {
        true => name.to_owned(),
        false => format!("{name:?}"),
    };
    match path {
        "" => name,
        path => format!("{path}.{name}"),
    }
}

fn syntax_error(path: &Path, text: &str, error: &toml::de::Error) -> BadInput {
    let span = error.span().unwrap_or_default();
    let line = line_of(text, span.start);
    let problem = match (error.message(), text.get(span)) {
        ("duplicate key", Some(key)) => format!("{key} is there twice"),
        (problem, _) => problem.to_owned(),
    };
    BadInput::new(format!("{}:{line}: not TOML: {problem}", path.display()))
}

/// The line that `at` is in, from 1.
fn line_of(text: &str, at: usize) -> usize {
    text.get(..at)
        .map_or(1, |before| before.matches('\n').count() + 1)
}

/// The innermost entry whose key or value holds `span`.
fn locate_in_table(table: &DeTable<'_>, prefix: &str, span: &Range<usize>) -> Option<Place> {
    table.iter().find_map(|(key, value)| {
        let path = with_name(prefix, key.get_ref());
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

/// What to write in place of an unknown key that bears the unit of its value, which then bears it itself.
fn with_unit(message: &str, value: &str) -> Option<String> {
    let unknown = message.strip_prefix("unknown field `")?;
    let (key, known) = unknown.split_once("`, expected ")?;
    let units = [
        ("_ms", "ms"),
        ("_per_s", "/s"),
        ("_s", "s"),
        ("_percent", "%"),
    ];
    let unit_of = |(suffix, unit)| Some((key.strip_suffix(suffix)?, unit));
    let (stem, unit) = units.into_iter().find_map(unit_of)?;
    let known = || known.split('`').skip(1).step_by(2);
    let begins = |key: &&str| {
        stem.strip_prefix(key)
            .is_some_and(|rest| rest.starts_with('_'))
    };
    let key = known().find(|key| *key == stem).or(known().find(begins))?;
    value.parse::<f64>().ok()?;
    Some(format!("unknown key; write {key} = \"{value}{unit}\""))
}

/// Serde's words in the user's: keys, not fields; and what somebody may have meant who wrote an unknown word.
fn reword(message: &str) -> String {
    let unknown = |what: &str, between: &str| message.strip_prefix(what)?.split_once(between);
    if let Some((key, allowed)) = unknown("unknown field ", ", expected ") {
        return format!("unknown key; {}", allowed_words(key, allowed));
    }
    if message.starts_with("unknown field ") {
        return "unknown key".to_owned();
    }
    if let Some((word, allowed)) = unknown("unknown variant ", ", expected ") {
        return allowed_words(word, allowed);
    }
    if let Some((word, allowed)) = unknown("unknown policy ", ", allowed: ") {
        let word = word.replace('`', "");
        return format!("unknown policy {word}, {}", allowed_words(&word, allowed));
    }
    let message = message
        .replace("missing field", "missing key")
        .replace("expected a sequence", "expected a list")
        .replace("expected a map", "expected a table")
        .replace("type: sequence", "type: list")
        .replace("type: map", "type: table");
    whole_numbers(&message).replace('`', "")
}

/// What may stand in place of `word`, and the nearest of it.
fn allowed_words(word: &str, allowed: &str) -> String {
    let allowed = allowed.trim_start_matches("one of ").replace('`', "");
    let allowed = allowed.replace(" or ", ", ");
    let meant = did_you_mean(&word.replace('`', ""), allowed.split(", "));
    format!("allowed: {allowed}{meant}")
}

/// Names of Rust's integers say nothing to people who write files.
fn whole_numbers(message: &str) -> String {
    let names = ["u8", "u16", "u32", "u64", "usize"];
    let named = names.iter().find_map(|name| {
        message
            .strip_suffix(name)?
            .strip_suffix("expected ")
            .map(|before| format!("{before}expected a whole number of 0 or more"))
    });
    named.unwrap_or_else(|| message.to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn unknown_words_are_told_what_is_allowed_and_what_is_near() {
        for (said, reworded) in [
            (
                "unknown field `dealy`, expected one of `delay`, `loss`",
                "unknown key; allowed: delay, loss; did you mean delay?",
            ),
            (
                "unknown variant `cubik`, expected `reno` or `cubic`",
                "allowed: reno, cubic; did you mean cubic?",
            ),
            (
                "unknown policy `WDSM`, allowed: WSDM, RR",
                "unknown policy WDSM, allowed: WSDM, RR; did you mean WSDM?",
            ),
            (
                "unknown policy `fastest`, allowed: WSDM, RR",
                "unknown policy fastest, allowed: WSDM, RR",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "invalid value: integer -1, expected a whole number of 0 or more",
            ),
            (
                "invalid type: map, expected a sequence",
                "invalid type: table, expected a list",
            ),
            (
                "invalid type: sequence, expected u8",
                "invalid type: list, expected a whole number of 0 or more",
            ),
            (
                "invalid type: integer `3`, expected a map",
                "invalid type: integer 3, expected a table",
            ),
        ] {
            assert_eq!(reword(said), reworded);
        }
    }

    #[test]
    fn a_key_that_bears_a_unit_is_told_to_leave_it_to_the_value() {
        let message = "unknown field `check_period_ms`, expected one of `slot`, `check`";
        for (message, value, said) in [
            (message, "25", Some("unknown key; write check = \"25ms\"")),
            (message, "\"25\"", None),
            ("unknown field `check_ms`, expected `slot`", "25", None),
            (
                "unknown field `hold_down_max_ms`, expected `hold_down`, `hold_down_max`",
                "5",
                Some("unknown key; write hold_down_max = \"5ms\""),
            ),
            ("unknown field `slots`, expected `slot`", "25", None),
        ] {
            assert_eq!(with_unit(message, value).as_deref(), said, "{message}");
        }
    }

    #[test]
    fn a_file_without_an_end_and_one_that_is_no_text_are_refused() {
        let endless = read_text(Path::new("/dev/zero")).unwrap_err().to_string();
        assert!(
            endless.starts_with("/dev/zero: is longer than 1048576 bytes"),
            "{endless}"
        );
        let path = std::env::temp_dir().join(format!("anabranch-text-{}", std::process::id()));
        std::fs::write(&path, b"a = 1\nb = \"\xff\"\n").unwrap();
        let foreign = read_text(&path).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert!(foreign.ends_with(":2: not UTF-8 text"), "{foreign}");
    }

    #[test]
    fn a_key_that_is_there_twice_is_named() {
        let text = "link.a = 1\nlink.b = 2\nlink.a = 3\n";
        let twice = Source::parse(Path::new("f.toml"), text).err().unwrap();
        assert_eq!(twice.to_string(), "f.toml:3: not TOML: a is there twice");
    }

    #[test]
    fn errors_quote_a_key_that_is_not_bare() {
        let text = "[sweep]\n\"\ta b\" = 1\n";
        let source = Source::parse(Path::new("f.toml"), text).unwrap();
        let said = r#"f.toml: sweep."\ta b" = 1: no"#;
        assert_eq!(source.bad(&["sweep", "\ta b"], "no").to_string(), said);
        type Whole = BTreeMap<String, BTreeMap<String, bool>>;
        let shape = source.read::<Whole>().unwrap_err().to_string();
        assert!(
            shape.starts_with(r#"f.toml: sweep."\ta b" = 1: "#),
            "{shape}"
        );
    }

    #[test]
    fn a_key_is_one_word() {
        for (key, word) in [
            (&["link", "fiber", "probe", "0"][..], "link.fiber.probe[0]"),
            (&["sweep", " a.b"], "sweep.\" a.b\""),
            (&["sweep", "\ta \"b"], "sweep.\"\\ta \\\"b\""),
            (&["", "b"], "\"\".b"),
        ] {
            assert_eq!(dotted(key), word);
        }
    }
}
