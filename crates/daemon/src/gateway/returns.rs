//! Moves the host's own UDP from a link when better links are back, as flows of the LAN are moved.
//!
//! Flows of the LAN are moved after some time even without a pause, because that costs them nothing. Sockets of the host get an
//! error instead, so they are moved only in a pause. Those without a pause are tried again as long as better links are available.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use anabranch_core::rules::OwnTraffic;
use anabranch_core::{ClassId, ClassSet, Family, LinkId, UDP_PAUSE};

use super::{GatewayRole, Surroundings};
use crate::driver::Ending;
use crate::host::{Conversation, Moved, Return};
use crate::plane::Plane;

/// A link that better links have replaced.
pub(super) struct Returning {
    /// The classes whose new flows take better links.
    classes: ClassSet,
    address: IpAddr,
    /// No conversation is left to move.
    is_done: bool,
    state: Arc<Mutex<Return>>,
}

/// Finds the class of the host's own conversations, and which of them have to move.
struct Leaving {
    classes: ClassSet,
    /// The rules for the host's own traffic, in the order of the configuration.
    rules: Vec<(Vec<OwnTraffic>, ClassId)>,
}

impl Leaving {
    fn takes(&self, conversation: &Conversation) -> bool {
        let Conversation { local, remote, .. } = conversation;
        let matches = |own: &OwnTraffic| own.takes_udp(local.port(), *remote);
        let mut rules = self.rules.iter();
        let rule = rules.find(|(taken, _)| taken.iter().any(matches));
        self.classes
            .contains(rule.map_or(ClassId::DEFAULT, |(_, class)| *class))
    }
}

impl<P: Plane, S: Surroundings> GatewayRole<P, S> {
    /// Starts to move the flows of some classes from a link that still works.
    pub(super) fn begin_return(&mut self, ending: Ending) {
        let key = (ending.link, ending.family);
        let Some(address) = self.externals.get(&key).map(|external| external.address) else {
            return;
        };
        let returning = self.returning.entry(key).or_insert_with(|| Returning {
            classes: ClassSet::default(),
            address,
            is_done: false,
            state: Arc::new(Mutex::new(Return::to_leave(address))),
        });
        returning.classes.extend(ending.classes.iter());
        returning.is_done = false;
        self.move_idle();
    }

    /// Stops for links that take new flows again, take none at all, or have another address.
    pub(super) fn end_returns(&mut self) {
        let (driver, externals) = (&self.driver, &self.externals);
        self.returning.retain(|(link, family), returning| {
            let classes = returning.classes.iter();
            let outranked = classes.filter(|class| !driver.is_usable(*class, *link, *family));
            returning.classes = outranked.collect();
            let external = externals.get(&(*link, *family));
            let has_address = external.is_some_and(|known| known.address == returning.address);
            has_address && driver.alive(*family).contains(*link) && !returning.classes.is_empty()
        });
    }

    /// Tries again where some conversations had no pause yet.
    pub(super) fn move_idle(&mut self) {
        if !self.moves.is_empty() {
            return;
        }
        let rules = self.ways.rules.iter().map(|way| {
            let matches = &self.config.rules[way.place].matches;
            (matches.own_traffic(), way.class)
        });
        let rules: Vec<_> = rules.collect();
        let all = self.returning.iter();
        for (key, returning) in all.filter(|(_, returning)| !returning.is_done) {
            let leaving = Leaving {
                classes: returning.classes,
                rules: rules.clone(),
            };
            let state = Arc::clone(&returning.state);
            let is_meant = move |conversation: &Conversation| leaving.takes(conversation);
            let moved = self.surroundings.move_idle(state, UDP_PAUSE, is_meant);
            let key = *key;
            self.moves.spawn(async move { (key, moved.await) });
        }
    }

    pub(super) fn moved(&mut self, (key, moved): ((LinkId, Family), anyhow::Result<Moved>)) {
        let link = self.slots.name(key.0).unwrap_or("of before");
        let left = match moved {
            Ok(Moved { moved, left }) => {
                if moved > 0 {
                    tracing::info!("link {link}: moving {moved} UDP conversations of this host's");
                }
                left
            }
            Err(error) => {
                tracing::warn!("link {link}: UDP of this host's stays with it: {error:#}");
                0
            }
        };
        if let Some(returning) = self.returning.get_mut(&key) {
            returning.is_done = left == 0;
        }
    }
}
