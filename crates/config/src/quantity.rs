//! Quantities as people write them: a number and its unit, `"12ms"`, `"64kB"`, `"1%"`, `"500mbit"`, `"0.5/s"`.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

/// Each with what it is in the base unit. Units that end others come after them.
type Units = [(&'static str, f64)];

const SPAN_UNITS: &Units = &[
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("min", 60.0),
    ("s", 1.0),
    ("h", 3600.0),
];
const SPAN_MAX_S: f64 = 366.0 * 86_400.0;

const BYTES_UNITS: &Units = &[
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

const RATE_UNITS: &Units = &[("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
const RATE_MAX_BPS: f64 = 1e12;
/// A congested one may have little left; whoever writes less has left a unit out, ...
const LINE_MIN_BPS: u64 = 1_000;
/// ... and none faster (400 gigabit Ethernet).
const LINE_MAX_BPS: u64 = 400_000_000_000;
/// Who writes a smaller number without a unit thinks in Mbit/s.
const MEANT_IN_BITS: f64 = 100e3;

const FREQUENCY_UNITS: &Units = &[("/min", 1.0 / 60.0), ("/s", 1.0), ("/h", 1.0 / 3600.0)];

/// A value that is written as text with its unit; some also as a bare number.
trait Quantity: FromStr<Err = String> {
    /// For messages: what it is.
    const NAME: &str;
    /// For messages: how it is written.
    const ALLOWED: &str;

    /// None if a whole number does not do.
    fn of_whole(_: i64) -> Option<Result<Self, String>> {
        None
    }

    /// None if a number with decimals does not do.
    fn of_decimal(_: f64) -> Option<Result<Self, String>> {
        None
    }
}

/// What `text` is not.
fn no<Q: Quantity>() -> String {
    format!("not {}: {}", Q::NAME, Q::ALLOWED)
}

/// `text` in the base unit, by the first unit that it ends with; none if it ends with none.
fn scaled(text: &str, units: &Units) -> Option<f64> {
    let text = text.trim();
    let (number, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    let number: f64 = number.trim_end().parse().ok()?;
    Some(number * factor)
}

fn quantity<'de, Q: Quantity, D: Deserializer<'de>>(deserializer: D) -> Result<Q, D::Error> {
    struct Visitor<Q>(PhantomData<Q>);
    impl<Q: Quantity> de::Visitor<'_> for Visitor<Q> {
        type Value = Q;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}: {}", Q::NAME, Q::ALLOWED)
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Q, E> {
            let other = || E::invalid_type(de::Unexpected::Signed(number), &self);
            Q::of_whole(number).ok_or_else(other)?.map_err(E::custom)
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<Q, E> {
            let other = || E::invalid_type(de::Unexpected::Float(number), &self);
            Q::of_decimal(number).ok_or_else(other)?.map_err(E::custom)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Q, E> {
            text.parse().map_err(E::custom)
        }
    }
    deserializer.deserialize_any(Visitor(PhantomData))
}

macro_rules! read_quantity {
    ($($kind:ty),+) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                quantity(deserializer)
            }
        }
    )+};
}
read_quantity!(Span, Bytes, Share, Rate, LineRate, Frequency);

/// A time, at most a year; 0 is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(pub Duration);

impl Quantity for Span {
    const NAME: &str = "a time";
    const ALLOWED: &str = r#"write it like "12ms" (ns, us, ms, s, min, h)"#;
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time_s = scaled(text, SPAN_UNITS).filter(|time_s| *time_s >= 0.0);
        let time_s = time_s.ok_or_else(no::<Self>)?;
        if time_s > SPAN_MAX_S {
            return Err("a time may be at most 366 days".to_owned());
        }
        Ok(Span(Duration::from_nanos((time_s * 1e9).round() as u64)))
    }
}

/// An amount of data, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl Quantity for Bytes {
    const NAME: &str = "a size";
    const ALLOWED: &str =
        r#"write it like "64kB" (B, kB, MB, GB, KiB, MiB, GiB) or as a whole number of bytes"#;

    fn of_whole(bytes: i64) -> Option<Result<Self, String>> {
        Some(Bytes::new(bytes as f64))
    }
}

impl Bytes {
    fn new(bytes: f64) -> Result<Self, String> {
        match (0.0..=BYTES_MAX).contains(&bytes) {
            true => Ok(Bytes(bytes.round() as u64)),
            false => Err(no::<Self>()),
        }
    }
}

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Bytes::new(scaled(text, BYTES_UNITS).ok_or_else(no::<Self>)?)
    }
}

/// A part of a whole or a probability, 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(pub f64);

impl Quantity for Share {
    const NAME: &str = "a share";
    const ALLOWED: &str = r#"write it like "1%" or 0.01, from 0 to 1"#;

    fn of_whole(share: i64) -> Option<Result<Self, String>> {
        Some(Share::new(share as f64))
    }

    fn of_decimal(share: f64) -> Option<Result<Self, String>> {
        Some(Share::new(share))
    }
}

impl Share {
    fn new(share: f64) -> Result<Self, String> {
        match (0.0..=1.0).contains(&share) {
            true => Ok(Share(share)),
            false => Err(no::<Self>()),
        }
    }
}

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Share::new(scaled(text, &[("%", 0.01)]).ok_or_else(no::<Self>)?)
    }
}

/// A rate in bit/s, above 0 and at most 1 Tbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(NonZeroU64);

impl Quantity for Rate {
    const NAME: &str = "a rate";
    const ALLOWED: &str =
        r#"write it like "500mbit" (bit, kbit, mbit, gbit) or as a whole number of bit/s"#;

    fn of_whole(rate_bps: i64) -> Option<Result<Self, String>> {
        Some(Rate::from_bps(rate_bps as f64))
    }
}

impl Rate {
    /// Of so many bit/s.
    ///
    /// # Panics
    /// If that is 0.
    pub const fn of_bps(rate_bps: u64) -> Self {
        Rate(NonZeroU64::new(rate_bps).expect("a rate is above 0"))
    }

    /// In bit/s.
    pub fn bps(self) -> u64 {
        self.0.get()
    }

    fn from_bps(rate_bps: f64) -> Result<Self, String> {
        let allowed = Self::ALLOWED;
        if rate_bps.is_nan() || rate_bps < 1.0 {
            return Err(format!("a rate must be above 0: {allowed}"));
        }
        if rate_bps > RATE_MAX_BPS {
            return Err(format!("a rate may be at most 1000 gbit: {allowed}"));
        }
        NonZeroU64::new(rate_bps.round() as u64)
            .map(Self)
            .ok_or_else(|| allowed.to_owned())
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim().to_ascii_lowercase();
        let bare = || text.parse().ok();
        Self::from_bps(
            scaled(&text, RATE_UNITS)
                .or_else(bare)
                .ok_or_else(no::<Self>)?,
        )
    }
}

/// The rate of an access line, as its owner writes it: with a unit, from 1 kbit/s to 400 Gbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineRate(pub Rate);

impl Quantity for LineRate {
    const NAME: &str = "a rate with its unit";
    const ALLOWED: &str = r#"write it like "500mbit" (bit, kbit, mbit, gbit)"#;

    fn of_whole(number: i64) -> Option<Result<Self, String>> {
        Some(Err(without_unit(number as f64)))
    }

    fn of_decimal(number: f64) -> Option<Result<Self, String>> {
        Some(Err(without_unit(number)))
    }
}

impl FromStr for LineRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(number) = text.trim().parse() {
            return Err(without_unit(number));
        }
        let rate: Rate = text.parse()?;
        if !(LINE_MIN_BPS..=LINE_MAX_BPS).contains(&rate.bps()) {
            return Err("a line has 1kbit to 400gbit".to_owned());
        }
        Ok(Self(rate))
    }
}

/// What somebody may have meant who wrote a number alone.
fn without_unit(number: f64) -> String {
    let meant = match number {
        _ if number.is_nan() || number <= 0.0 => String::new(),
        _ if number < MEANT_IN_BITS => format!("; did you mean \"{number}mbit\"?"),
        _ => format!("; did you mean \"{number}bit\"?"),
    };
    format!("a rate has a unit (bit, kbit, mbit, gbit){meant}")
}

/// How often something happens in a second; above 0.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Frequency(pub f64);

impl Quantity for Frequency {
    const NAME: &str = "a frequency";
    const ALLOWED: &str = r#"write it like "0.5/s" (/s, /min, /h), above 0"#;
}

impl FromStr for Frequency {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let per_s = scaled(text, FREQUENCY_UNITS);
        let per_s = per_s.filter(|per_s| per_s.is_finite() && *per_s > 0.0);
        per_s.map(Frequency).ok_or_else(no::<Self>)
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

    #[test]
    fn a_line_has_a_unit_and_a_rate_that_lines_have() {
        for (text, problem) in [
            ("500", "did you mean \"500mbit\"?"),
            ("100000000", "did you mean \"100000000bit\"?"),
            ("500gbit", "a line has 1kbit to 400gbit"),
            ("900bit", "a line has 1kbit to 400gbit"),
        ] {
            let said = text.parse::<LineRate>().unwrap_err();
            assert!(said.ends_with(problem), "{text}: {said}");
        }
        let fast: LineRate = "400gbit".parse().unwrap();
        assert_eq!(fast.0.bps(), LINE_MAX_BPS);
    }

    #[test]
    fn units_and_decimals_are_understood() {
        for (text, rate_bps) in [
            ("500mbit", 500_000_000),
            ("1.5gbit", 1_500_000_000),
            ("64 kbit", 64_000),
            ("10bit", 10),
            ("9600", 9600),
        ] {
            assert_eq!(text.parse::<Rate>().map(Rate::bps), Ok(rate_bps), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_rate_is_refused() {
        for text in [
            "0", "0mbit", "-1mbit", "fast", "", "nan", "inf", "5mbps", "1e400", "0.2bit",
        ] {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_happens_often_says_in_which_time() {
        assert_eq!("0.00220833/s".parse(), Ok(Frequency(0.00220833)));
        assert_eq!("30 /min".parse(), Ok(Frequency(0.5)));
        for text in ["1", "0/s", "-1/s", "inf/s", "1/d", "/s"] {
            assert!(text.parse::<Frequency>().is_err(), "{text}");
        }
    }
}
