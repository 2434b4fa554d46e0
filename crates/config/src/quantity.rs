//! Quantities as people write them: `"12ms"`, `"64kB"`, `"1%"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

const SPAN_UNITS: [(&str, f64); 6] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("min", 60.0),
    ("s", 1.0),
    ("h", 3600.0),
];
const SPAN_MAX_S: f64 = 366.0 * 86_400.0;
const SPAN_ALLOWED: &str = r#"write it like "12ms" (ns, us, ms, s, min, h)"#;

const BYTES_UNITS: [(&str, f64); 7] = [
    ("KiB", 1024.0),
    ("MiB", 1048576.0),
    ("GiB", 1073741824.0),
    ("kB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("B", 1.0),
];
/// Exact as a floating-point number.
const BYTES_MAX: f64 = (1u64 << 53) as f64;
const BYTES_ALLOWED: &str =
    r#"write it like "64kB" (B, kB, MB, GB, KiB, MiB, GiB) or as a whole number of bytes"#;

const SHARE_ALLOWED: &str = r#"write it like "1%" or 0.01, from 0 to 1"#;

/// A time, at most a year; 0 is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

/// An amount of data, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A part of a whole or a probability, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(pub f64);

/// `text` in the base unit, by the first unit of `units` that it ends with. Units that end others come after them.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let number: f64 = number.trim_end().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time_s = scaled(text, &SPAN_UNITS).ok_or(format!("not a time: {SPAN_ALLOWED}"))?;
        if time_s > SPAN_MAX_S {
            return Err("a time may be at most 366 days".to_owned());
        }
        Ok(Span(Duration::from_nanos((time_s * 1e9).round() as u64)))
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = scaled(text, &BYTES_UNITS).ok_or(format!("not a size: {BYTES_ALLOWED}"))?;
        Bytes::new(bytes)
    }
}

impl Bytes {
    fn new(bytes: f64) -> Result<Self, String> {
        if (0.0..=BYTES_MAX).contains(&bytes) {
            Ok(Bytes(bytes.round() as u64))
        } else {
            Err(format!("not a size: {BYTES_ALLOWED}"))
        }
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let share = scaled(text, &[("%", 0.01)]).ok_or(format!("not a share: {SHARE_ALLOWED}"))?;
        Share::new(share)
    }
}

impl Share {
    fn new(share: f64) -> Result<Self, String> {
        if (0.0..=1.0).contains(&share) {
            Ok(Share(share))
        } else {
            Err(format!("not a share: {SHARE_ALLOWED}"))
        }
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a time: {SPAN_ALLOWED}")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Bytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a size: {BYTES_ALLOWED}")
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Bytes, E> {
                Bytes::new(bytes as f64).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Bytes, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Share;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a share: {SHARE_ALLOWED}")
            }

            fn visit_i64<E: de::Error>(self, share: i64) -> Result<Share, E> {
                Share::new(share as f64).map_err(E::custom)
            }

            fn visit_f64<E: de::Error>(self, share: f64) -> Result<Share, E> {
                Share::new(share).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Share, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_carry_a_unit() {
        for (text, nanos) in [
            ("12ms", 12_000_000),
            ("0.5 s", 500_000_000),
            ("250us", 250_000),
            ("7ns", 7),
            ("2min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0s", 0),
        ] {
            assert_eq!(
                text.parse(),
                Ok(Span(Duration::from_nanos(nanos))),
                "{text}"
            );
        }
        for text in ["12", "", "s", "-1s", "nan s", "1 year", "1e9h"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_in_powers_of_1000_or_say_otherwise() {
        for (text, bytes) in [
            ("64kB", 64_000),
            ("64KiB", 65_536),
            ("1.5 MB", 1_500_000),
            ("9B", 9),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["64", "64kb", "-1B", "9e9GB"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_percentages_or_parts_of_one() {
        assert_eq!("1%".parse(), Ok(Share(0.01)));
        assert_eq!("100 %".parse(), Ok(Share(1.0)));
        for text in ["1", "101%", "-1%", "%"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
    }
}
