//! What the state machine of one link has to know about the other links.

use crate::targets::KindsHeard;
use crate::time::Time;

/// The other links of a family, together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// When a packet or answer last came over any of them; none if there are no others.
    pub heard: Option<Time>,
    /// When a connection last made progress over any of them.
    pub carried: Option<Time>,
    /// All of them and this one fell silent at the same time, and no host beyond any gateway was heard since.
    pub all_silent: bool,
    /// When each kind of far targets last answered over any of them.
    pub kinds: KindsHeard,
    /// Since when one host's SYNs fail over one of them. Then the other links are probed by every kind, for comparison.
    pub complained: Option<Time>,
}

impl Others {
    /// This with one more link.
    pub fn with(self, one: Others) -> Others {
        Others {
            heard: self.heard.max(one.heard),
            carried: self.carried.max(one.carried),
            all_silent: self.all_silent,
            kinds: self.kinds.with(one.kinds),
            complained: self.complained.max(one.complained),
        }
    }
}
