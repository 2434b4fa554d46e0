//! `expected.toml`: which seeds count, and every claim with what would make it true.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use anabranch_config::{BadInput, Source};
use anabranch_report::Reading;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use crate::sample::{Certainty, Estimate};
use crate::{Seeds, World};

/// The numbers that count as reproduced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Region {
    /// The least that belongs to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<f64>,
    /// The most that belongs to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<f64>,
    /// Only more belongs to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// Only less belongs to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
}

/// Where an estimate lies, as far as it is sure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// All of its interval.
    Inside,
    /// Nothing of its interval.
    Outside,
    /// Its interval crosses the border, or there is none.
    Across,
}

impl Region {
    /// `min` and all above.
    pub fn at_least(min: f64) -> Self {
        Region {
            min: Some(min),
            ..Region::default()
        }
    }

    /// `max` and all below.
    pub fn at_most(max: f64) -> Self {
        Region {
            max: Some(max),
            ..Region::default()
        }
    }

    /// `value` ± `tolerance`, in the unit of `value`.
    pub fn around(value: f64, tolerance: f64) -> Self {
        Region {
            min: Some(value - tolerance),
            max: Some(value + tolerance),
            ..Region::default()
        }
    }

    /// What is no number belongs to no region.
    pub fn holds(&self, value: f64) -> bool {
        !value.is_nan() && self.reaches_down_to(value) && self.reaches_up_to(value)
    }

    /// Where `estimate` lies; what could not be observed is outside.
    pub fn position(&self, estimate: &Estimate) -> Position {
        if !estimate.observed.is_finite() {
            return Position::Outside;
        }
        let (low, high) = match estimate.certainty {
            Certainty::Fact => (estimate.observed, estimate.observed),
            Certainty::Interval { low, high } => (low, high),
            Certainty::Unknown => return Position::Across,
        };
        match () {
            () if self.holds(low) && self.holds(high) => Position::Inside,
            () if self.reaches_down_to(high) && self.reaches_up_to(low) => Position::Across,
            () => Position::Outside,
        }
    }

    fn reaches_down_to(&self, value: f64) -> bool {
        self.min.is_none_or(|min| value >= min) && self.above.is_none_or(|above| value > above)
    }

    fn reaches_up_to(&self, value: f64) -> bool {
        self.max.is_none_or(|max| value <= max) && self.below.is_none_or(|below| value < below)
    }

    /// What is wrong with it as the region of a claim.
    fn problem(&self) -> Option<&'static str> {
        match (self.min, self.above, self.max, self.below) {
            (None, None, None, None) => Some("cannot fail: give `min`, `max`, `above` or `below`"),
            (Some(_), Some(_), ..) => Some("either `min`, which belongs to it, or `above`"),
            (.., Some(_), Some(_)) => Some("either `max`, which belongs to it, or `below`"),
            _ => None,
        }
    }
}

impl fmt::Display for Region {
    /// In words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.min, self.max) {
            (Some(min), Some(max)) if min == max => return f.write_str(&number(min)),
            (Some(min), Some(max)) => return write!(f, "{} to {}", number(min), number(max)),
            _ => {}
        }
        let ends = [
            ("at least", self.min),
            ("above", self.above),
            ("at most", self.max),
            ("below", self.below),
        ];
        let words = ends
            .iter()
            .filter_map(|(word, end)| Some(format!("{word} {}", number((*end)?))));
        f.write_str(&words.collect::<Vec<_>>().join(" and "))
    }
}

/// What is to be thought of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It holds here.
    Reproduced,
    /// Only a weaker claim holds.
    Partly,
    /// It does not hold here.
    NotReproduced,
    /// The number was an input, or the seeds are those the scenario was fitted on: it says that the input arrived.
    Calibrated,
    /// It can hardly fail, whatever the algorithms do.
    Sanity,
    /// The runs are too few or too short to tell; stated, sets of seeds contradict each other.
    Undecided,
}

impl Verdict {
    /// In the order in which they are counted.
    pub const ALL: [Verdict; 6] = [
        Verdict::Reproduced,
        Verdict::Partly,
        Verdict::NotReproduced,
        Verdict::Calibrated,
        Verdict::Sanity,
        Verdict::Undecided,
    ];

    /// As in files.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::Partly => "partly",
            Verdict::NotReproduced => "not-reproduced",
            Verdict::Calibrated => "calibrated",
            Verdict::Sanity => "sanity",
            Verdict::Undecided => "undecided",
        }
    }
}

/// A row of `expected.toml`: `[figure.key]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// A sentence that can be true or false.
    pub claim: String,
    /// The published value, if there is one.
    pub published: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    above: Option<f64>,
    below: Option<f64>,
    /// A weaker claim, for those that hold partly.
    pub partly: Option<Region>,
    /// What the file says of it.
    pub verdict: Verdict,
    /// Why it is not simply reproduced.
    pub why: Option<String>,
    /// Mutations of the algorithms under which it must not hold.
    #[serde(default)]
    pub fails_under: Vec<String>,
    /// Of all these values; empty if they have none.
    #[serde(default)]
    pub unit: String,
    /// Where it is claimed.
    #[serde(default = "sim")]
    pub world: World,
}

fn sim() -> World {
    World::Sim
}

impl Claim {
    /// What counts as reproduced.
    pub fn region(&self) -> Region {
        Region {
            min: self.min,
            max: self.max,
            above: self.above,
            below: self.below,
        }
    }

    /// The key that is wrong or missing, and what is wrong with it.
    fn problem(&self, mutations: &[&str]) -> Option<(&'static str, String)> {
        let wrong = |key, problem: &str| Some((key, problem.to_owned()));
        let is_known = |name: &str| mutations.contains(&name);
        if let Some(name) = self.fails_under.iter().find(|name| !is_known(name)) {
            let known = mutations.join(", ");
            let problem = format!("there is no mutation {name}; there are: {known}");
            return Some(("fails_under", problem));
        }
        if let Some(problem) = self.region().problem() {
            return wrong("claim", problem);
        }
        if let Some(problem) = self.partly.and_then(|region| region.problem()) {
            return wrong("partly", problem);
        }
        if self.published.is_some_and(|it| !self.region().holds(it)) {
            return wrong("published", "is outside the claim's own region");
        }
        match self.verdict {
            Verdict::Reproduced | Verdict::Partly if self.fails_under.is_empty() => {
                wrong("fails_under", "name a mutation that makes the claim fail")
            }
            Verdict::Partly if self.partly.is_none() => {
                wrong("partly", "give the weaker region that holds")
            }
            Verdict::Reproduced => None,
            _ if self.why.is_none() => wrong("why", "say in a sentence why it is not reproduced"),
            _ => None,
        }
    }
}

/// Which seeds are for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeedPlan {
    /// Those on which parameters and bounds were chosen: nothing is judged on them.
    pub fit: Seeds,
    /// Those that are judged.
    pub judge: Seeds,
    /// So many of the latter in a quick run.
    pub quick: u64,
    /// So many of the latter in the laboratory, where a run takes as long as it lasts.
    pub lab: u64,
}

/// Figure, then key.
pub(crate) type Claims = BTreeMap<String, BTreeMap<String, Claim>>;

/// What `expected.toml` says.
#[derive(Clone, Debug)]
pub struct Expected {
    pub(crate) seeds: SeedPlan,
    pub(crate) readings: Vec<Reading>,
    pub(crate) claims: Claims,
}

impl Expected {
    /// Reads the text; `path` is for messages. Claims are about some of `figures` and name some of `mutations`.
    ///
    /// # Errors
    /// If it is no such file, or a claim could not fail, or says too little of its verdict, or names what there is not: with
    /// line and key.
    pub(crate) fn parse(
        path: &Path,
        text: &str,
        figures: &[&str],
        mutations: &[&str],
    ) -> Result<Expected, BadInput> {
        let source = Source::parse(path, text)?.numbered();
        let Written {
            seeds,
            readings,
            claims,
        } = source.read()?;
        if seeds.fit.overlaps(seeds.judge) {
            let problem = format!("shares seeds with fit = \"{}\": judge on others", seeds.fit);
            return Err(source.bad(&["seeds", "judge"], problem));
        }
        for (figure, claims) in &claims {
            if !figures.contains(&figure.as_str()) {
                let problem = format!("no such figure; there are: {}", figures.join(", "));
                return Err(source.bad(&[figure], problem));
            }
            for (key, claim) in claims {
                if let Some((part, problem)) = claim.problem(mutations) {
                    return Err(source.bad(&[figure, key, part], problem));
                }
            }
        }
        Ok(Expected {
            seeds,
            readings,
            claims,
        })
    }
}

/// The tables of the file: those that are no figures by name.
struct Written {
    seeds: SeedPlan,
    readings: Vec<Reading>,
    claims: Claims,
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Tables)
    }
}

struct Tables;

impl<'de> Visitor<'de> for Tables {
    type Value = Written;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[seeds], [[reading]] and a table for every claim: [figure.key]")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Written, A::Error> {
        let (mut seeds, mut readings, mut claims) = (None, Vec::new(), Claims::new());
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "seeds" => seeds = Some(map.next_value()?),
                "reading" => readings = map.next_value()?,
                _ => drop(claims.insert(key, map.next_value()?)),
            }
        }
        let missing = || serde::de::Error::missing_field("seeds");
        Ok(Written {
            seeds: seeds.ok_or_else(missing)?,
            readings,
            claims,
        })
    }
}

/// Four significant digits, whole numbers whole.
pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() || (value == value.trunc() && value.abs() < 1e15) {
        return format!("{value:.0}");
    }
    let magnitude = value.abs().log10().floor() as i32;
    let decimals = (3 - magnitude).clamp(0, 12) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEDS: &str =
        "[seeds]\nfit = \"1..20\"\njudge = \"1001..1020\"\nquick = 3\nlab = 3\n[fig1.a]\n";
    const WHOLE: &str = "claim = \"c\"\nmin = 1\nverdict = \"reproduced\"\nfails_under = [\"m\"]\n";

    fn refused(rest: &str) -> String {
        let text = format!("{SEEDS}{rest}");
        parsed(&text).unwrap_err().to_string()
    }

    fn parsed(text: &str) -> Result<Expected, BadInput> {
        Expected::parse(Path::new("expected.toml"), text, &["fig1"], &["m", "n"])
    }

    fn between(low: f64, high: f64) -> Estimate {
        Estimate {
            observed: (low + high) / 2.0,
            certainty: Certainty::Interval { low, high },
        }
    }

    #[test]
    fn a_closed_end_belongs_to_the_region_and_an_open_one_does_not() {
        let closed = Region::around(1.5, 0.5);
        assert!(closed.holds(1.0) && closed.holds(2.0));
        assert!(!closed.holds(0.999) && !closed.holds(2.001) && !closed.holds(f64::NAN));
        let open = Region {
            above: Some(1.0),
            below: Some(2.0),
            ..Region::default()
        };
        assert!(!open.holds(1.0) && !open.holds(2.0) && open.holds(1.001));
    }

    #[test]
    fn the_whole_interval_has_to_lie_in_the_region() {
        let region = Region::at_least(1.0);
        for (low, high, position) in [
            (1.0, 2.0, Position::Inside),
            (0.9, 2.0, Position::Across),
            (0.5, 1.0, Position::Across),
            (0.5, 0.9, Position::Outside),
            (1.0, f64::INFINITY, Position::Inside),
            (f64::NEG_INFINITY, 2.0, Position::Across),
        ] {
            let mut estimate = between(low, high);
            estimate.observed = 1.0;
            assert_eq!(region.position(&estimate), position, "{low} {high}");
        }
        let open = Region {
            above: Some(1.0),
            ..Region::default()
        };
        assert_eq!(open.position(&between(1.0, 1.0)), Position::Outside);
        let nothing = between(f64::NAN, f64::NAN);
        assert_eq!(region.position(&nothing), Position::Outside);
    }

    #[test]
    fn a_file_is_refused_with_line_and_key_if_a_claim_cannot_fail_or_says_too_little() {
        for (rest, problem) in [
            (
                "claim = \"c\"\nverdict = \"sanity\"\nwhy = \"w\"\n",
                ":7: fig1.a.claim = \"c\": cannot fail: give `min`, `max`, `above` or `below`",
            ),
            (
                &WHOLE.replace("min = 1", "min = 1\nabove = 1"),
                ":7: fig1.a.claim = \"c\": either `min`, which belongs to it, or `above`",
            ),
            (
                &format!("{WHOLE}published = 0.5\n"),
                ":11: fig1.a.published = 0.5: is outside the claim's own region",
            ),
            (
                "claim = \"c\"\nmin = 1\nverdict = \"reproduced\"\n",
                ": fig1.a.fails_under: name a mutation that makes the claim fail",
            ),
            (
                &WHOLE.replace("reproduced", "partly"),
                ": fig1.a.partly: give the weaker region that holds",
            ),
            (
                &WHOLE.replace("reproduced", "not-reproduced"),
                ": fig1.a.why: say in a sentence why it is not reproduced",
            ),
        ] {
            assert_eq!(refused(rest), format!("expected.toml{problem}"));
        }
        let other = refused(&WHOLE.replace("[\"m\"]", "[\"o\"]"));
        let unknown = ":10: fig1.a.fails_under = [\"o\"]: there is no mutation o; there are: m, n";
        assert_eq!(other, format!("expected.toml{unknown}"));
        let elsewhere = refused(&format!("{WHOLE}[fig2.a]\n{WHOLE}"));
        assert!(
            elsewhere.contains("fig2: no such figure; there are: fig1"),
            "{elsewhere}"
        );
        assert!(refused(&format!("{WHOLE}colour = 1\n")).contains(":11: fig1.a.colour"));
        let open = refused(&WHOLE.replace("reproduced", "undecided"));
        assert!(open.contains("fig1.a.why: say in a sentence"), "{open}");
    }

    #[test]
    fn nothing_is_judged_on_the_seeds_it_was_fitted_on() {
        let text = format!("{SEEDS}{WHOLE}");
        let expected = parsed(&text).unwrap();
        assert_eq!(expected.seeds.judge.count(), 20);
        let reading = "[[reading]]\nreading = \"r\"\ntried = 3\nkept = true\nwhy = \"w\"\n";
        let read = parsed(&format!("{text}{reading}")).unwrap().readings;
        assert_eq!((read.len(), read[0].tried, read[0].kept), (1, 3, true));
        let text = text.replace("1001..1020", "20..40");
        let error = parsed(&text).unwrap_err().to_string();
        let problem = "expected.toml:3: seeds.judge = \"20..40\": shares seeds with fit = \"1..20\": judge on others";
        assert_eq!(error, problem);
    }

    #[test]
    fn numbers_are_written_to_four_digits() {
        let written = [0.0, 12.0, 352_000.0, 40.4523, 0.000_123_456, 98765.4321].map(number);
        assert_eq!(
            written,
            ["0", "12", "352000", "40.45", "0.0001235", "98765"]
        );
    }

    #[test]
    fn a_region_reads_as_words() {
        assert_eq!(Region::around(2.0, 1.0).to_string(), "1 to 3");
        assert_eq!(Region::at_most(0.25).to_string(), "at most 0.25");
        let mixed = Region {
            above: Some(1.0),
            max: Some(2.0),
            ..Region::default()
        };
        assert_eq!(mixed.to_string(), "above 1 and at most 2");
    }
}
