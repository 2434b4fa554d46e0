//! Rates as people write them: `"500mbit"`, `"1.5gbit"`, or plain bit/s.

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Deserializer, de};

const UNITS: [(&str, f64); 4] = [("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3), ("bit", 1.0)];
const RATE_MAX_BPS: f64 = 1e12;
const ALLOWED: &str =
    r#"write it like "500mbit" (bit, kbit, mbit, gbit) or as a whole number of bit/s"#;

/// A rate in bit/s, above 0 and at most 1 Tbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(NonZeroU64);

impl Rate {
    /// Bit/s.
    pub fn bps(self) -> u64 {
        self.0.get()
    }

    fn from_bps(rate_bps: f64) -> Result<Self, String> {
        if rate_bps.is_nan() || rate_bps < 1.0 {
            return Err(format!("a rate must be above 0: {ALLOWED}"));
        }
        if rate_bps > RATE_MAX_BPS {
            return Err(format!("a rate may be at most 1000 gbit: {ALLOWED}"));
        }
        NonZeroU64::new(rate_bps.round() as u64)
            .map(Self)
            .ok_or_else(|| ALLOWED.to_owned())
    }
}

impl std::str::FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim().to_ascii_lowercase();
        let (number, factor) = UNITS
            .iter()
            .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
            .unwrap_or((&text, 1.0));
        let number: f64 = number
            .trim()
            .parse()
            .map_err(|_| format!("not a rate: {ALLOWED}"))?;
        Self::from_bps(number * factor)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Rate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a rate: {ALLOWED}")
            }

            fn visit_i64<E: de::Error>(self, rate_bps: i64) -> Result<Rate, E> {
                Rate::from_bps(rate_bps as f64).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Rate, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// No access line is slower, ...
const LINE_MIN_BPS: u64 = 64_000;
/// ... and none faster (400 gigabit Ethernet).
const LINE_MAX_BPS: u64 = 400_000_000_000;
/// Who writes a smaller number without a unit thinks in Mbit/s.
const MEANT_IN_BITS: f64 = 100e3;

/// The rate of an access line, as its owner writes it: with a unit, from 64 kbit/s to 400 Gbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineRate(pub Rate);

impl std::str::FromStr for LineRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(number) = text.trim().parse() {
            return Err(without_unit(number));
        }
        let rate: Rate = text.parse()?;
        if !(LINE_MIN_BPS..=LINE_MAX_BPS).contains(&rate.bps()) {
            return Err("a line has 64kbit to 400gbit".to_owned());
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

impl<'de> Deserialize<'de> for LineRate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = LineRate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, r#"a rate with its unit, like "500mbit""#)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<LineRate, E> {
                Err(E::custom(without_unit(number as f64)))
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<LineRate, E> {
                Err(E::custom(without_unit(number)))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<LineRate, E> {
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
    fn a_line_has_a_unit_and_a_rate_that_lines_have() {
        for (text, problem) in [
            ("500", "did you mean \"500mbit\"?"),
            ("100000000", "did you mean \"100000000bit\"?"),
            ("500gbit", "a line has 64kbit to 400gbit"),
            ("9kbit", "a line has 64kbit to 400gbit"),
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
}
