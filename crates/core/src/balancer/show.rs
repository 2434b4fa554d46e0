//! The balancer's state for display.

use anabranch_policy::{PerFamily, abi};

use super::links::{Link, Path};
use super::{Balancer, ClassStatus, FoundMtu, LinkStatus, NodeStatus, PathStatus};
use crate::bandwidth::AvailableBandwidth;
use crate::class::ClassId;
use crate::link::LinkId;
use crate::time::Time;

impl Balancer {
    /// Every link for display, in the order of their ids.
    pub fn status(&self, now: Time) -> Vec<LinkStatus> {
        self.links
            .iter()
            .map(|(id, link)| self.link_status(now, id, link))
            .collect()
    }

    /// Every class for display, in the order of their ids.
    pub fn class_status(&self) -> Vec<ClassStatus> {
        let classes = self.classes.iter();
        classes.map(|(id, class)| class.status(*id)).collect()
    }

    fn link_status(&self, now: Time, id: LinkId, link: &Link) -> LinkStatus {
        let default = self.classes.get(&ClassId::DEFAULT);
        LinkStatus {
            link: id,
            name: link.spec.name.clone(),
            admin: link.admin,
            metered: link.spec.metered,
            available_up_bps: link.load.up().map(AvailableBandwidth::bps),
            available_down_bps: link.load.down().map(AvailableBandwidth::bps),
            weight: default.map_or(abi::WEIGHT_MAX, |class| class.weight(id)),
            counters: link.counters,
            recent: link.recent.quality(now),
            node: self.links.node.map(|family| NodeStatus {
                family,
                sent: link.rounds.sent(),
                round_trip: link.rounds.last(),
            }),
            paths: PerFamily::from_fn(|family| {
                let usable = self.takes_flows(id, family);
                let mtu = self.links.found_mtu(id, family);
                path_status(now, &link.paths[family], usable, mtu)
            }),
        }
    }
}

fn path_status(now: Time, path: &Path, usable: bool, mtu: Option<FoundMtu>) -> PathStatus {
    let availability = &path.availability;
    let (probes_lost, probes_judged) = availability.loss();
    let (falls, first_fall) = availability.falls(now);
    PathStatus {
        state: path.shown_state(),
        since: path.changed,
        usable,
        probes_lost,
        probes_judged,
        probes_sent: availability.probes_sent(),
        probes_not_sent: availability.probes_not_sent(),
        round_trip: availability.round_trip(),
        targets: availability.targets().to_vec(),
        near_only: availability.is_near_only(now),
        held_until: availability.held_until(),
        falls,
        first_fall,
        falls_within_an_hour: availability.falls_within_an_hour(now),
        heard: availability.heard(),
        recent: availability.quality(now),
        filtered: availability.filtered(),
        portal: availability.portal(),
        mtu,
    }
}
