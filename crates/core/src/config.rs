//! When a link is suspected, and when it is given up.

use std::time::Duration;

use anabranch_policy::Family;

/// The windows of the availability machine. [`Config::validate`] says what fits together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The driver reads the counters this often; a quarter as often while nothing is carried.
    pub poll: Duration,
    /// Packets were sent and nothing at all came back for so long: suspicion.
    pub silence: Duration,
    /// Packets were sent and nothing proved that they arrive for so long: suspicion of a one-way failure.
    pub one_way: Duration,
    /// Nothing was heard for so long on a link without traffic: it is probed.
    pub idle_probe: Duration,
    /// Between two probes of a suspected or recovering link.
    pub probe_interval: Duration,
    /// Between two probes of a link that is down.
    pub down_interval: Duration,
    /// Times `idle_probe`, `down_interval` and [`PACE`](crate::rounds::PACE) on metered links.
    pub metered_factor: u32,
    /// Far targets that have been silent for so long are given up: near ones are heard.
    pub far_silence: Duration,
    /// A link that goes down for the second time stays down for so long at least, and for twice the time with every
    /// further fall, ...
    pub hold_down: Duration,
    /// ... but no longer than this.
    pub hold_down_max: Duration,
    /// One fall is forgotten with each of these that passes without another.
    pub hold_forget: Duration,
    /// A link whose default route or address goes while its carrier stays keeps its flows for so long: somebody may be
    /// configuring it.
    pub grace: Duration,
    /// A probe's answer is late after the round trip last measured and its variation, but not before this.
    pub deadline_min: Duration,
    /// The same while no round trip was measured (RFC 6298 §2.1: 1 s).
    pub deadline_unmeasured: Duration,
    /// However slow the link is without load.
    pub deadline_max: Duration,
    /// The longest queue a loaded link is granted on top.
    pub queue_max: Duration,
    /// Probe results kept for the loss rules.
    pub window: usize,
    /// Results older than this say nothing.
    pub window_age: Duration,
    /// Down if so many in the window are lost, ...
    pub down_loss: usize,
    /// ... or so many in a row.
    pub down_consecutive: u32,
    /// Up again only if at most so many in the window are lost, ...
    pub up_loss: usize,
    /// ... and more than so many in a row were answered.
    pub up_consecutive: u32,
    /// A link that users keep busy is asked now and then all the same, for what is shown of it.
    pub measures: bool,
    /// The family of the fixed node that measures of distance H(P) ask, if there is one.
    pub node: Option<Family>,
}

impl Default for Config {
    /// A silent blackhole is seen after poll + silence, and proved by three probes 100 ms apart that miss their
    /// deadlines: 0.7 s on a link with a short round trip. Where nobody sends, the idle probe adds 1.1 s to that.
    fn default() -> Self {
        Config {
            poll: Duration::from_millis(50),
            silence: Duration::from_millis(200),
            one_way: Duration::from_secs(1),
            // With a target that is merely tried now and then: one probe a second.
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

/// A value that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` is {value}, allowed: {allowed}")]
pub struct ConfigError {
    /// Within the table it stands in.
    pub key: &'static str,
    /// As it was given.
    pub value: String,
    /// What would be possible.
    pub allowed: String,
}

impl Config {
    /// How many times as rarely a link is asked for being metered, or not.
    pub fn times_rarer(&self, metered: bool) -> u32 {
        if metered { self.metered_factor } else { 1 }
    }

    /// The first value that does not fit the others, by its field name.
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
