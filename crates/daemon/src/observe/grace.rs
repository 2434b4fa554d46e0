//! Keeps the path of a link while the host is being reconfigured.
//!
//! A program that renews a lease, is restarted, or applies another configuration removes routes and addresses and adds
//! them again a moment later. So a link keeps its path for some seconds as long as the device has its carrier:
//!
//! - Without its default route it continues as before, because our own table still has the route.
//! - Without its address it takes no new flows and is not judged, and its flows wait. If the address comes back they continue; if
//!   another comes in its place they end, as after any change of address.
//!
//! A device that does not exist or has no carrier is lost at once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use anabranch_core::{Family, LinkId, Time};

use super::{Desired, LinkView, Missing, PathView, Snapshot};

/// What a link lacks temporarily.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// A default route through its device.
    Route,
    /// The address that its flows have.
    Address,
}

/// The paths that links had while nothing was missing.
#[derive(Debug, Default)]
pub struct Grace {
    whole: BTreeMap<(LinkId, Family), PathView>,
    /// Since when a path lacks something.
    since: BTreeMap<(LinkId, Family), Time>,
}

impl Grace {
    /// Restores the former path of a link that has lacked something for less than `patience`.
    pub fn hold(&mut self, now: Time, patience: Duration, host: &Snapshot, wanted: &mut Desired) {
        let has = |ifindex: u32, address: &IpAddr| {
            let mut devices = host.devices.values();
            let device = devices.find(|device| device.ifindex == ifindex);
            device.is_some_and(|device| device.has(*address))
        };
        let links = &wanted.links;
        self.whole.retain(|(id, _), _| links.contains_key(id));
        for (id, view) in &mut wanted.links {
            for family in Family::ALL {
                let key = (*id, family);
                let held = self
                    .former(key, view)
                    .filter(|_| now.since(*self.since.entry(key).or_insert(now)) < patience);
                let Some(held) = held else {
                    self.note(key, view);
                    continue;
                };
                let keeps = |path: &super::LinkPath| has(path.ifindex, &path.external);
                let lacks = match held.path.as_ref().is_ok_and(keeps) {
                    true => Lack::Route,
                    false => Lack::Address,
                };
                view.paths[family] = PathView {
                    lacks: Some(lacks),
                    ..held
                };
            }
        }
    }

    /// Whether the grace period of a path has ended.
    pub fn is_over(&self, now: Time, patience: Duration) -> bool {
        let mut all = self.since.values();
        all.any(|since| now.since(*since) >= patience)
    }

    /// The former path, if it may come back.
    fn former(&self, key: (LinkId, Family), view: &LinkView) -> Option<PathView> {
        let may_return = matches!(
            view.paths[key.1].path,
            Err(Missing::Address(_) | Missing::ConfiguredAddress(_) | Missing::Gateway(_))
        );
        let former = self.whole.get(&key)?;
        let device = former.path.as_ref().ok()?.ifindex;
        let stands = view.running && view.ifindex == Some(device);
        (may_return && stands).then(|| former.clone())
    }

    fn note(&mut self, key: (LinkId, Family), view: &LinkView) {
        self.since.remove(&key);
        let path = &view.paths[key.1];
        if view.running && path.path.is_ok() {
            self.whole.insert(key, path.clone());
        } else {
            self.whole.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{FIBER, host, prefix};
    use super::super::{Device, LinkPath};
    use super::*;
    use crate::config::Config;
    use crate::slots::Slots;
    use anabranch_core::{self as core, LinkState};

    const PATIENCE: Duration = Duration::from_secs(5);
    const FIBER_ID: LinkId = LinkId(0);

    /// A host that is looked at now and then.
    struct Looks {
        grace: Grace,
        now: Time,
        host: Snapshot,
    }

    impl Looks {
        fn new() -> Self {
            let mut looks = Self {
                grace: Grace::default(),
                now: Time::ZERO,
                host: host(),
            };
            assert_eq!(looks.after(0, |_| {}), LinkState::Present);
            looks
        }

        /// The state of the link for IPv4 when `change` has been made, so many milliseconds later.
        fn after(&mut self, ms: u64, change: impl FnOnce(&mut Snapshot)) -> LinkState {
            change(&mut self.host);
            self.view(ms).state(Family::V4)
        }

        fn view(&mut self, ms: u64) -> LinkView {
            self.now = self.now + Duration::from_millis(ms);
            let text = "lan = [\"lan0\"]\npolicy = \"rr\"\nlink.fiber = { device = \"wan0\" }\nlink.lte = { device = \"ppp0\" }\n";
            let config = Config::parse(std::path::Path::new("a.toml"), text).unwrap();
            let slots = Slots::default().assign(config.names());
            let mut desired = Desired::derive(&config, &slots, &self.host);
            self.grace
                .hold(self.now, PATIENCE, &self.host, &mut desired);
            desired.links.remove(&FIBER_ID).unwrap()
        }

        fn path(&mut self) -> LinkPath {
            self.view(0).path(Family::V4).unwrap().clone()
        }
    }

    fn fiber(host: &mut Snapshot) -> &mut Device {
        host.devices.get_mut("wan0").unwrap()
    }

    fn take_route(host: &mut Snapshot) {
        host.routes
            .retain(|route| route.prefix.length > 0 || route.hops[0].ifindex != FIBER);
    }

    fn take_all(host: &mut Snapshot) {
        take_route(host);
        fiber(host).addresses.clear();
    }

    const ABSENT: LinkState = LinkState::Absent(core::Missing::Gateway);

    #[test]
    fn without_its_default_route_a_link_goes_on_for_some_seconds() {
        let mut looks = Looks::new();
        let path = looks.path();
        assert_eq!(looks.after(100, take_route), LinkState::Present);
        assert_eq!(looks.path(), path);
        assert_eq!(looks.after(4800, |_| {}), LinkState::Present);
        assert!(!looks.grace.is_over(looks.now, PATIENCE));
        looks.now = looks.now + Duration::from_millis(300);
        assert!(looks.grace.is_over(looks.now, PATIENCE));
        assert_eq!(looks.after(0, |_| {}), ABSENT);
        assert_eq!(looks.after(100, |_| {}), ABSENT, "no second grace");
    }

    #[test]
    fn without_its_address_a_link_waits_and_goes_on_when_it_is_back() {
        let mut looks = Looks::new();
        let (path, before) = (looks.path(), looks.host.clone());
        assert_eq!(looks.after(100, take_all), LinkState::Changing);
        assert_eq!(looks.path(), path);
        assert_eq!(
            looks.after(2000, |host| *host = before.clone()),
            LinkState::Present
        );
        assert_eq!(
            looks.after(10_000, take_all),
            LinkState::Changing,
            "the time begins anew"
        );
    }

    #[test]
    fn another_address_ends_the_wait_as_soon_as_it_leads_somewhere() {
        let mut looks = Looks::new();
        let routes = looks.host.routes.clone();
        looks.after(100, take_all);
        let renumbered = |host: &mut Snapshot| fiber(host).addresses.push(prefix("203.0.113.9/24"));
        assert_eq!(
            looks.after(100, renumbered),
            LinkState::Changing,
            "no gateway yet"
        );
        assert_eq!(
            looks.after(100, |host| host.routes = routes),
            LinkState::Present
        );
        assert_eq!(looks.path().external.to_string(), "203.0.113.9");
    }

    #[test]
    fn a_lost_carrier_or_another_device_is_no_change_of_configuration() {
        let mut looks = Looks::new();
        let unplug = |host: &mut Snapshot| {
            take_route(host);
            fiber(host).running = false;
        };
        assert_eq!(looks.after(100, unplug), ABSENT);
        assert_eq!(looks.after(100, |host| fiber(host).running = true), ABSENT);

        let mut looks = Looks::new();
        looks.after(100, take_route);
        assert_eq!(looks.after(100, |host| fiber(host).running = false), ABSENT);

        let mut looks = Looks::new();
        let anew = |host: &mut Snapshot| {
            take_all(host);
            fiber(host).ifindex = 77;
        };
        assert_eq!(looks.after(100, anew), ABSENT);
    }
}
