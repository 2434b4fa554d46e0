//! What the connections of a server show of it, and when that casts doubt on it.
//!
//! The programs of services note for each server how long it keeps somebody waiting while it sends no packet at all, how many SYNs
//! were sent again before it answered, and how many it refused. Clients can bring all of this about: by SYNs that never reach the
//! server, because their checksum is wrong or their time to live is too short, or by segments with a server's address. So a doubt is no
//! verdict. It has the server's check ask at once ([`Checks::suspect`](crate::checks::Checks::suspect)), which decides.
//!
//! Of a server that answers clients itself its answers are not seen. It counts as heard when a client goes on after its SYN, so the time
//! that the client takes is part of what is noted.
//!
//! Connections are ended by more than that: by a check that fails, and by the server's silence to everybody for three seconds. An
//! overloaded server that fails its check still acknowledges what established connections send.

use std::time::Duration;

use crate::time::Time;

/// Silence that casts doubt on a server. TCP may delay an acknowledgement of data for that long.
const SILENCE: Duration = Duration::from_millis(200);
/// Silence of a server that fails its check after which its connections are over. A virtual machine that moves from one host to
/// another, or a network that learns a new path, is silent for less.
const DEAD: Duration = Duration::from_secs(3);

/// What was counted of a server since it was given its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evidence {
    /// Connections that it was given.
    pub opened: u64,
    /// SYNs that were sent again before it answered.
    pub repeated: u64,
    /// SYNs that it answered by a RST.
    pub refused: u64,
    /// Since when somebody waits for it and it has sent nothing to anybody; none if it has.
    pub waits_since: Option<Time>,
}

/// Why a server is doubted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It refuses connections.
    Refuses,
    /// SYNs to it are sent again.
    Repeated,
    /// It sends nothing to anybody.
    Silent,
}

/// Watches one server.
#[derive(Clone, Debug, Default)]
pub struct Passive {
    /// What was seen last.
    seen: Option<Evidence>,
    /// What was seen when it was last doubted for its silence.
    doubted: Evidence,
}

impl Passive {
    /// Reports what is counted, and returns the doubt that has newly arisen.
    pub fn observe(&mut self, now: Time, seen: Evidence) -> Option<Doubt> {
        // Earlier counts are those of another process.
        let before = self.seen.replace(seen)?;
        if seen.refused > before.refused {
            return Some(Doubt::Refuses);
        }
        if seen.repeated > before.repeated {
            return Some(Doubt::Repeated);
        }
        let is_new =
            seen.waits_since != self.doubted.waits_since || seen.opened > self.doubted.opened;
        if !is_new || self.silent_for(now) < SILENCE {
            return None;
        }
        self.doubted = seen;
        Some(Doubt::Silent)
    }

    /// Whether the connections of a server that fails its check are over.
    pub fn is_dead(&self, now: Time) -> bool {
        self.silent_for(now) >= DEAD
    }

    fn silent_for(&self, now: Time) -> Duration {
        let since = self.seen.and_then(|seen| seen.waits_since);
        since.map_or(Duration::ZERO, |since| now.since(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Time = Time::from_millis;

    /// Who has been read once.
    fn watched() -> Passive {
        let mut passive = Passive::default();
        assert_eq!(passive.observe(MS(0), Evidence::default()), None);
        passive
    }

    #[test]
    fn counts_of_an_earlier_process_prove_nothing() {
        let before = Evidence {
            opened: 9,
            repeated: 9,
            refused: 9,
            waits_since: None,
        };
        let mut passive = Passive::default();
        assert_eq!(passive.observe(MS(0), before), None);
        assert_eq!(passive.observe(MS(100), before), None);
    }

    #[test]
    fn each_refusal_and_each_repeated_syn_casts_doubt_once() {
        let mut passive = watched();
        let repeated = Evidence {
            repeated: 1,
            ..Evidence::default()
        };
        let both = Evidence {
            refused: 1,
            ..repeated
        };
        for (at, seen, doubt) in [
            (100, repeated, Some(Doubt::Repeated)),
            (200, repeated, None),
            (300, both, Some(Doubt::Refuses)),
            (400, both, None),
        ] {
            assert_eq!(passive.observe(MS(at), seen), doubt, "{at}");
        }
    }

    #[test]
    fn silence_casts_doubt_once_and_again_when_more_is_sent() {
        let mut passive = watched();
        let waits = |since, opened| Evidence {
            opened,
            waits_since: Some(MS(since)),
            ..Evidence::default()
        };
        for (at, seen, doubt) in [
            (100, waits(50, 1), None),
            (249, waits(50, 1), None),
            (250, waits(50, 1), Some(Doubt::Silent)),
            (1000, waits(50, 1), None),
            (1100, waits(50, 2), Some(Doubt::Silent)),
            (1300, Evidence::default(), None),
            (1400, waits(1390, 2), None),
            (1590, waits(1390, 2), Some(Doubt::Silent)),
        ] {
            assert_eq!(passive.observe(MS(at), seen), doubt, "{at}");
        }
        assert!(!passive.is_dead(MS(4389)));
        assert!(passive.is_dead(MS(4390)));
    }
}
