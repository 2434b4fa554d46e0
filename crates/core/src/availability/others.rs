//! What other links tell of one that is judged.

use crate::targets::KindsHeard;
use crate::time::Time;

/// What is known of the other links of a family, while one is judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// When any of them was last heard of; none: there are no others.
    pub heard: Option<Time>,
    /// When a connection last made progress over one of them.
    pub carried: Option<Time>,
    /// All of them and this one fell silent at once, and nothing beyond any gateway was heard since.
    pub all_silent: bool,
    /// When each kind of far targets last answered over any of them.
    pub kinds: KindsHeard,
    /// Since when one host complains of one of them: which kinds answer over the others is asked.
    pub complained: Option<Time>,
}

impl Others {
    /// What is known of these and of one more.
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
