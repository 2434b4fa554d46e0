//! Alarms: what is wrong with a link, for people and monitoring.
//!
//! A link that is used and works can still be bad: it loses packets, or went down repeatedly. The alarm of one that does not
//! work names what it lacks. A link that the operator took out of use is no alarm.

use std::fmt;

use crate::availability::{DownCause, State};
use crate::balancer::{FoundMtu, LinkStatus, PathStatus};
use crate::link::{Admin, Missing};

/// What [`State::Captive`] means.
pub const CAPTIVE: &str =
    "captive: it answers, and carries none of the connections that hosts begin";
/// This many failures within an hour raise an alarm.
const FLAPPING_FALLS: usize = 3;

/// What [`Event::PathMtu`](crate::Event::PathMtu) means, of a link.
pub fn lengths(found: Option<FoundMtu>) -> String {
    match found {
        Some(FoundMtu { bytes, is_alike }) => {
            let alike = match is_alike {
                true => {
                    "; all links show the same, so it may be that who is asked answers no longer ones"
                }
                false => "",
            };
            format!(
                "carries packets of at most {bytes} bytes: TCP's segments are kept so short{alike}"
            )
        }
        None => "carries packets as long as its device allows".to_owned(),
    }
}

/// One thing that is wrong with a link for one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// Its device is not there, or has no carrier.
    Absent(Missing),
    /// It has no address or no gateway.
    Unconfigured(Missing),
    /// It is down, for this reason.
    Down(DownCause),
    /// It answers probes, but carries no connection that users open.
    Captive,
    /// It lost many probes within the last minute: at least 3, and at least one of 20.
    Lossy {
        /// Probes that were lost.
        lost: usize,
        /// Probes that were answered or lost.
        judged: usize,
    },
    /// How often it went down within the last hour: at least 3 times.
    Flapping(usize),
}

impl Alarm {
    /// The alarms of a link for one family. Lost probes raise none if the link is down.
    pub fn of(admin: Admin, path: &PathStatus) -> Vec<Alarm> {
        if admin == Admin::Down {
            return Vec::new();
        }
        let falls = path.falls_within_an_hour;
        let flapping = (falls >= FLAPPING_FALLS).then_some(Alarm::Flapping(falls));
        let lossy = path.recent.is_lossy().then_some(Alarm::Lossy {
            lost: path.recent.lost,
            judged: path.recent.judged,
        });
        let state = match path.state {
            State::Up | State::PossiblyDown(_) => lossy,
            State::Captive => Some(Alarm::Captive),
            State::Down(DownCause::Absent(missing @ (Missing::Device | Missing::Carrier))) => {
                Some(Alarm::Absent(missing))
            }
            State::Down(DownCause::Absent(missing @ (Missing::Address | Missing::Gateway))) => {
                Some(Alarm::Unconfigured(missing))
            }
            State::Down(cause) => Some(Alarm::Down(cause)),
        };
        state.into_iter().chain(flapping).collect()
    }

    /// A name for programs that read the status.
    pub fn word(&self) -> &'static str {
        match self {
            Alarm::Absent(_) => "absent",
            Alarm::Unconfigured(_) => "unconfigured",
            Alarm::Captive | Alarm::Down(DownCause::Portal) => "captive",
            Alarm::Down(_) => "down",
            Alarm::Lossy { .. } => "lossy",
            Alarm::Flapping(_) => "flapping",
        }
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Alarm::Absent(missing) | Alarm::Unconfigured(missing) => missing.fmt(f),
            Alarm::Down(cause) => cause.fmt(f),
            Alarm::Captive => f.write_str(CAPTIVE),
            Alarm::Lossy { lost, judged } => {
                let percent = 100.0 * *lost as f64 / *judged as f64;
                write!(
                    f,
                    "lossy: {percent:.0} % of the last minute's probes are lost, {lost} of {judged}"
                )
            }
            Alarm::Flapping(falls) => write!(f, "flapping: down {falls} times in the last hour"),
        }
    }
}

/// Whether no link works for any family: nothing reaches the internet, as far as is known.
pub fn is_dark<'a>(links: impl IntoIterator<Item = &'a LinkStatus>) -> bool {
    let works = |link: &LinkStatus| {
        let mut paths = link.paths.values();
        link.admin != Admin::Down && paths.any(|path| !matches!(path.state, State::Down(_)))
    };
    !links.into_iter().any(works)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::availability::Suspicion;
    use crate::quality::ProbeQuality;
    use crate::time::Time;

    fn path(state: State, lost: usize, falls_within_an_hour: usize) -> PathStatus {
        PathStatus {
            state,
            since: Time::ZERO,
            usable: true,
            probes_lost: 0,
            probes_judged: 0,
            probes_sent: 0,
            probes_not_sent: 0,
            round_trip: None,
            targets: Vec::new(),
            near_only: false,
            held_until: None,
            falls: 0,
            first_fall: None,
            falls_within_an_hour,
            heard: Time::ZERO,
            recent: ProbeQuality {
                judged: 50,
                lost,
                ..ProbeQuality::default()
            },
            filtered: Vec::new(),
            portal: None,
            mtu: None,
        }
    }

    #[test]
    fn each_thing_that_is_wrong_is_told_and_orders_are_not() {
        let down = DownCause::Unanswered(Suspicion::Idle);
        let absent = |missing| State::Down(DownCause::Absent(missing));
        let cases: [(State, usize, usize, &[&str]); 8] = [
            (State::Up, 2, 2, &[]),
            (State::Up, 4, 0, &["lossy"]),
            (
                State::PossiblyDown(Suspicion::Silent),
                4,
                3,
                &["lossy", "flapping"],
            ),
            (State::Down(down), 40, 1, &["down"]),
            (
                State::Down(DownCause::HeldDown),
                0,
                5,
                &["down", "flapping"],
            ),
            (State::Down(DownCause::Portal), 0, 0, &["captive"]),
            (absent(Missing::Carrier), 0, 0, &["absent"]),
            (absent(Missing::Gateway), 0, 0, &["unconfigured"]),
        ];
        for (state, lost, falls, words) in cases {
            let path = path(state, lost, falls);
            let of = |admin| Alarm::of(admin, &path);
            let told: Vec<&str> = of(Admin::Up).iter().map(Alarm::word).collect();
            assert_eq!(told, words, "{state:?}");
            assert_eq!(of(Admin::Down), [], "{state:?}");
        }
        let lossy = Alarm::of(Admin::Up, &path(State::Up, 4, 0))[0].to_string();
        assert_eq!(
            lossy,
            "lossy: 8 % of the last minute's probes are lost, 4 of 50"
        );
    }
}
