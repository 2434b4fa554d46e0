//! What happened during a run, and when.

use serde::{Deserialize, Serialize};

use crate::{Change, Direction, Fault, Loss, Passage, Place, format};

/// A moment that the reader wants marked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Since the epoch of the run.
    pub t_s: f64,
    /// What happened.
    pub kind: EventKind,
    /// Whose; none if it concerns no link alone.
    pub link: Option<String>,
    /// A sentence for the time-line.
    pub text: String,
}

/// What happened to a link, in the world or in the gateway's belief.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The link was cut by the run.
    Cut,
    /// The run made the link whole again.
    Restored,
    /// The gateway doubts the link.
    Suspect,
    /// The gateway declared the link down.
    Down,
    /// The gateway declared the link usable.
    Up,
    /// Anything else.
    Note,
}

impl EventKind {
    /// What happened, in a word or two.
    pub fn word(self) -> &'static str {
        match self {
            EventKind::Cut => "cut",
            EventKind::Restored => "restored",
            EventKind::Suspect => "suspected",
            EventKind::Down => "declared down",
            EventKind::Up => "declared up",
            EventKind::Note => "note",
        }
    }
}

impl Event {
    /// A fault in words, at its time.
    pub fn of(fault: &Fault) -> Event {
        let link = &fault.link;
        let place = match fault.place {
            Place::LastMile => "",
            Place::Beyond => " beyond the last mile",
        };
        let way = match fault.direction {
            None => "",
            Some(Direction::Down) => " downwards",
            Some(Direction::Up) => " upwards",
        };
        let (kind, change) = match fault.change {
            Change::Cut => (EventKind::Cut, "is cut".to_owned()),
            Change::Restore => (EventKind::Restored, "is whole again".to_owned()),
            Change::Rate(rate_bps) => {
                let rate = format::bps(rate_bps as f64);
                (EventKind::Note, format!("has {rate}"))
            }
            Change::Loss(loss) => (EventKind::Note, loss_text(loss)),
            Change::Delay(delay) => {
                let delay = format::seconds(delay.as_secs_f64());
                (EventKind::Note, format!("has a delay of {delay}"))
            }
            Change::Jitter(jitter) => {
                let jitter = format::seconds(jitter.as_secs_f64());
                (EventKind::Note, format!("has a jitter of {jitter}"))
            }
            Change::Mtu(None) => (EventKind::Note, "carries packets of any size".to_owned()),
            Change::Mtu(Some(bytes)) => {
                let text = format!("swallows packets of more than {bytes} bytes");
                (EventKind::Note, text)
            }
            Change::Passage(passage) => (EventKind::Note, passage_text(passage)),
        };
        let what = match fault.change {
            Change::Cut => ": its packets vanish, its carrier stays",
            _ => "",
        };
        Event {
            t_s: fault.at.as_secs_f64(),
            kind,
            link: Some(link.clone()),
            text: format!("{link} {change}{way}{place}{what}"),
        }
    }

    /// The same of a sublink, whose line ends at the trunk's own devices: cut, it loses its carrier.
    pub fn of_sublink(fault: &Fault) -> Event {
        let event = Event::of(fault);
        let text = match fault.change {
            Change::Cut => format!("sublink {} loses its carrier", fault.link),
            Change::Restore => format!("sublink {} has its carrier again", fault.link),
            _ => format!("sublink {}", event.text),
        };
        Event { text, ..event }
    }
}

fn passage_text(passage: Passage) -> String {
    match passage {
        Passage::All => "carries all packets".to_owned(),
        Passage::Only(service) => format!("is captive: it carries {service} and nothing else"),
        Passage::AllBut(service) => format!("filters {service}"),
    }
}

/// What a line loses, as the end of a sentence about it.
pub fn loss_text(loss: Loss) -> String {
    match loss {
        Loss::None => "loses no packets".to_owned(),
        Loss::Independent { probability } => {
            format!("loses {} of packets", format::percent(probability))
        }
        Loss::PerHop { probability } => {
            let share = format::percent(probability);
            format!("loses {share} of packets at each hop to their server")
        }
        Loss::Bursty {
            good_to_bad,
            bad_to_good,
            loss_good,
            loss_bad,
        } => {
            let bad = match good_to_bad {
                0.0 => 0.0,
                enter => enter / (enter + bad_to_good),
            };
            let mean = loss_good * (1.0 - bad) + loss_bad * bad;
            format!("loses {} of packets in bursts", format::percent(mean))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_has_words() {
        let said = |place, direction, change| {
            let fault = Fault {
                at: std::time::Duration::from_millis(1500),
                link: "lte".into(),
                place,
                direction,
                change,
            };
            let event = Event::of(&fault);
            assert_eq!((event.t_s, event.link.as_deref()), (1.5, Some("lte")));
            event.text
        };
        let near = Place::LastMile;
        assert_eq!(
            said(near, None, Change::Cut),
            "lte is cut: its packets vanish, its carrier stays"
        );
        let cut = Fault {
            at: std::time::Duration::ZERO,
            link: "3".into(),
            place: near,
            direction: None,
            change: Change::Cut,
        };
        let of_sublink = |change| {
            Event::of_sublink(&Fault {
                change,
                ..cut.clone()
            })
            .text
        };
        assert_eq!(of_sublink(Change::Cut), "sublink 3 loses its carrier");
        assert_eq!(
            of_sublink(Change::Rate(5_000)),
            "sublink 3 has 5.00\u{202f}kbit/s"
        );
        assert_eq!(
            said(Place::Beyond, Some(Direction::Up), Change::Restore),
            "lte is whole again upwards beyond the last mile"
        );
        assert_eq!(
            said(near, Some(Direction::Down), Change::Rate(5_000)),
            "lte has 5.00\u{202f}kbit/s downwards"
        );
        let jitter = Change::Jitter(std::time::Duration::from_millis(20));
        assert_eq!(
            said(near, None, jitter),
            "lte has a jitter of 20.0\u{202f}ms"
        );
        assert_eq!(
            said(near, None, Change::Mtu(Some(1400))),
            "lte swallows packets of more than 1400 bytes"
        );
        assert_eq!(
            said(near, Some(Direction::Up), Change::Mtu(None)),
            "lte carries packets of any size upwards"
        );
        let dns = crate::Service::Dns;
        assert_eq!(
            [Passage::Only(dns), Passage::AllBut(dns), Passage::All].map(|passage| said(
                near,
                None,
                Change::Passage(passage)
            )),
            [
                "lte is captive: it carries DNS and nothing else",
                "lte filters DNS",
                "lte carries all packets"
            ]
        );
        let bursts = Loss::Bursty {
            good_to_bad: 0.01,
            bad_to_good: 0.25,
            loss_good: 0.0,
            loss_bad: 1.0,
        };
        assert_eq!(
            said(near, None, Change::Loss(bursts)),
            "lte loses 3.85\u{202f}% of packets in bursts"
        );
    }

    #[test]
    fn bursts_that_never_begin_lose_what_the_good_state_loses() {
        let never = Loss::Bursty {
            good_to_bad: 0.0,
            bad_to_good: 0.0,
            loss_good: 0.01,
            loss_bad: 1.0,
        };
        assert_eq!(loss_text(never), "loses 1.00\u{202f}% of packets in bursts");
    }
}
