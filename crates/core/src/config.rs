//! The settings of availability: when a link is suspected, and when it is declared down.

use std::time::Duration;

use anabranch_config::Span;
use anabranch_policy::Family;
use serde::{Deserialize, Deserializer};

/// Times and counts of the availability state machine, as `docs/availability.md` explains them. [`Config::validate`] checks that they
/// fit together. Read from a file, what is not written has its default.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The driver reads the counters this often; a quarter as often while nothing is carried.
    #[serde(deserialize_with = "time")]
    pub poll: Duration,
    /// The link is suspected if packets were sent and nothing at all came back for this long.
    #[serde(deserialize_with = "time")]
    pub silence: Duration,
    /// A one-way failure is suspected if packets were sent and nothing proved that they arrived for this long.
    #[serde(deserialize_with = "time")]
    pub one_way: Duration,
    /// A link without traffic is probed if nothing came in by it for this long.
    #[serde(deserialize_with = "time")]
    pub idle_probe: Duration,
    /// Time between two probes of a suspected or recovering link.
    #[serde(deserialize_with = "time")]
    pub probe_interval: Duration,
    /// Time between two probes of a link that is down.
    #[serde(deserialize_with = "time")]
    pub down_interval: Duration,
    /// Multiplies `idle_probe`, `down_interval` and [`PACE`](crate::rounds::PACE) on metered links.
    pub metered_factor: u32,
    /// If all far targets have been silent for this long, answers of near ones count.
    #[serde(deserialize_with = "time")]
    pub far_silence: Duration,
    /// A link that goes down for the second time stays down for at least this long, and for twice the time with every
    /// further fall, ...
    #[serde(deserialize_with = "time")]
    pub hold_down: Duration,
    /// ... but no longer than this.
    #[serde(deserialize_with = "time")]
    pub hold_down_max: Duration,
    /// One failure is forgotten after each such time without another.
    #[serde(deserialize_with = "time")]
    pub hold_forget: Duration,
    /// A link whose default route or address is missing while its carrier is there keeps its flows for this long: somebody may be
    /// configuring it.
    #[serde(deserialize_with = "time")]
    pub grace: Duration,
    /// An answer is late after the measured round-trip time and its variation, but not before this.
    #[serde(deserialize_with = "time")]
    pub deadline_min: Duration,
    /// The same while no round trip was measured (RFC 6298 §2.1: 1 s).
    #[serde(deserialize_with = "time")]
    pub deadline_unmeasured: Duration,
    /// The longest that an answer may take on a link without load.
    #[serde(deserialize_with = "time")]
    pub deadline_max: Duration,
    /// The longest queueing time that a loaded link may add to that.
    #[serde(deserialize_with = "time")]
    pub queue_max: Duration,
    /// Probe results kept for the loss rules.
    pub window: usize,
    /// Results older than this say nothing.
    #[serde(deserialize_with = "time")]
    pub window_age: Duration,
    /// The link goes down if this many probes in the window are lost, ...
    pub down_loss: usize,
    /// ... or this many in a row.
    pub down_consecutive: u32,
    /// The link comes back only if at most this many in the window are lost, ...
    pub up_loss: usize,
    /// ... and more than this many in a row were answered.
    pub up_consecutive: u32,
    /// Probe busy links now and then as well, so that there are figures to show.
    #[serde(skip)]
    pub measures: bool,
    /// The address family of the fixed node that measures of distance H(P) probe, if there is one.
    #[serde(skip)]
    pub node: Option<Family>,
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Span::deserialize(deserializer).map(|Span(time)| time)
}

impl Default for Config {
    /// A silent black hole is suspected after poll + silence, and proved by three probes 100 ms apart that miss their
    /// deadlines: 0.7 s on a link with a short round trip. Where nobody sends, the idle probe adds 1.1 s to that.
    fn default() -> Self {
        Config {
            poll: Duration::from_millis(50),
            silence: Duration::from_millis(200),
            one_way: Duration::from_secs(1),
            // Together with the target that is only tried now and then this makes one probe a second.
            idle_probe: Duration::from_millis(1100),
            probe_interval: Duration::from_millis(100),
            down_interval: Duration::from_millis(500),
            metered_factor: 20,
            far_silence: Duration::from_secs(300),
            hold_down: Duration::from_secs(5),
            hold_down_max: Duration::from_secs(300),
            hold_forget: Duration::from_secs(120),
            // dhclient, networkd and `netplan apply` take one or two seconds from an address or route to the next. dhcpcd that
            // is started anew asks for five to eight whether anybody else has the address (RFC 5227 section 2.1.1).
            grace: Duration::from_secs(10),
            deadline_min: Duration::from_millis(250),
            deadline_unmeasured: Duration::from_secs(1),
            deadline_max: Duration::from_secs(3),
            queue_max: Duration::from_secs(3),
            window: 10,
            window_age: Duration::from_secs(30),
            down_loss: 7,
            down_consecutive: 3,
            up_loss: 3,
            up_consecutive: 3,
            measures: false,
            node: None,
        }
    }
}

/// A value outside of what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {value}, allowed: {allowed}")]
pub struct ConfigError {
    /// The key, without its table.
    pub key: &'static str,
    /// The value as it was given.
    pub value: String,
    /// The allowed range.
    pub allowed: String,
}

impl Config {
    /// How many times less often a link is probed: `metered_factor` if it is metered, else 1.
    pub fn times_rarer(&self, metered: bool) -> u32 {
        if metered { self.metered_factor } else { 1 }
    }

    /// Returns an error for the first value that does not fit the others.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let ms = Duration::from_millis;
        between("poll", self.poll, ms(1), ms(1000))?;
        between("silence", self.silence, self.poll, ms(60_000))?;
        between("one_way", self.one_way, self.silence, ms(600_000))?;
        between("idle_probe", self.idle_probe, self.silence, ms(86_400_000))?;
        between("probe_interval", self.probe_interval, ms(10), ms(60_000))?;
        between(
            "down_interval",
            self.down_interval,
            self.probe_interval,
            ms(600_000),
        )?;
        between("deadline_min", self.deadline_min, ms(10), ms(60_000))?;
        between(
            "deadline_unmeasured",
            self.deadline_unmeasured,
            self.deadline_min,
            ms(60_000),
        )?;
        between(
            "deadline_max",
            self.deadline_max,
            self.deadline_unmeasured,
            ms(60_000),
        )?;
        between("queue_max", self.queue_max, ms(0), ms(60_000))?;
        between("window", self.window, 1, 100)?;
        between(
            "window_age",
            self.window_age,
            self.down_interval,
            ms(3_600_000),
        )?;
        between("down_loss", self.down_loss, 1, self.window)?;
        between(
            "down_consecutive",
            self.down_consecutive as usize,
            1,
            self.window,
        )?;
        between("up_loss", self.up_loss, 0, self.down_loss - 1)?;
        between("up_consecutive", self.up_consecutive as usize, 0, 100)?;
        between("far_silence", self.far_silence, ms(1000), ms(86_400_000))?;
        between("hold_down", self.hold_down, ms(0), ms(600_000))?;
        between(
            "hold_down_max",
            self.hold_down_max,
            self.hold_down,
            ms(86_400_000),
        )?;
        between("grace", self.grace, ms(0), ms(60_000))?;
        between("hold_forget", self.hold_forget, ms(1000), ms(86_400_000))?;
        between("metered_factor", self.metered_factor, 1, 1000)
    }
}

fn between<T: PartialOrd + std::fmt::Debug>(
    key: &'static str,
    value: T,
    least: T,
    most: T,
) -> Result<(), ConfigError> {
    if value >= least && value <= most {
        return Ok(());
    }
    Err(ConfigError {
        key,
        value: format!("{value:?}"),
        allowed: format!("{least:?} to {most:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn a_value_out_of_range_is_named_with_what_is_allowed() {
        let config = Config {
            up_loss: 7,
            ..Config::default()
        };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "`up_loss` is 7, allowed: 0 to 6"
        );
        let config = Config {
            silence: Duration::from_millis(10),
            ..Config::default()
        };
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "`silence` is 10ms, allowed: 50ms to 60s"
        );
    }
}
