//! What the gateway is told: links, routes, settings, choices.

use std::net::{IpAddr, Ipv6Addr};

use anabranch_core::{Choice, ClassId, DataPlane, Family, LinkId};
use anabranch_dataplane::{LinkPath, Role, Route, Settings, Verdict};

use super::{LOOPBACK, MTU, Rig, site_of};
use crate::{common::settings, site::SITES};

impl Rig {
    /// Tells of both links for the family of these addresses; what was told of routes in it is forgotten.
    pub fn tell_links(&mut self, external: [IpAddr; 2], mtu: [u32; 2]) {
        let family = Family::from(external[0]);
        let site = site_of(family);
        let lan = on_device(LOOPBACK, None);
        self.routes
            .retain(|route| Family::from(route.prefix.0) != family);
        self.routes.extend([
            route(site.lan, lan),
            route(
                site.host(site.gateway_lan),
                Verdict::LocalInLan { ifindex: LOOPBACK },
            ),
        ]);
        for (link, external) in external.into_iter().enumerate() {
            self.tell_link(link as u16, external, mtu[link], None);
            if site.external.contains(&external) {
                self.routes.push(route(site.host(external), Verdict::Local));
            }
        }
        self.set_routes();
    }

    /// Tells of one link for the family of its address.
    pub fn tell_link(
        &mut self,
        link: u16,
        external: IpAddr,
        mtu: u32,
        prefix: Option<(Ipv6Addr, u8)>,
    ) {
        let family = Family::from(external);
        let path = LinkPath {
            external,
            gateway: Some(site_of(family).isp[usize::from(link)]),
            prefix,
            inbound: self.open >> link & 1 == 1,
            ifindex: LOOPBACK,
            mtu,
            point_to_point: false,
            shares_segment: self.shares_segment,
        };
        self.plane()
            .set_link(LinkId(link), family, Some(&path))
            .unwrap();
        let (IpAddr::V6(lan), length) = site_of(family).lan else {
            return;
        };
        let image = prefix.and_then(|prefix| anabranch_dataplane::beyond(prefix, (lan, length)));
        if let Some((network, length)) = image {
            let link = LinkId(link);
            let image = (network.into(), length);
            self.routes
                .push(route(image, Verdict::Prefix { link, lan }));
            self.set_routes();
        }
    }

    /// Links of which a prefix is told from now on let the outside begin there.
    pub fn let_in(&mut self, links: u32) {
        self.open = links;
    }

    /// Both links are on one segment from now on.
    pub fn share_segment(&mut self) {
        self.shares_segment = true;
        for site in SITES {
            self.tell_links(site.external, [MTU; 2]);
        }
    }

    fn set_routes(&mut self) {
        let plane = self.plane.as_mut().expect("it lives as long as the rig");
        plane.set_routes(&self.routes).unwrap();
    }

    /// Some of the LAN is behind another device, which takes packets of `mtu` bytes. Its packets still arrive where all do.
    pub fn add_lan(&mut self, prefix: (IpAddr, u8), ifindex: u32, mtu: u32) {
        self.add_device("lan", ifindex);
        let role = self.lan_role();
        self.plane().attach(ifindex, role, false, mtu).unwrap();
        let lan = on_device(ifindex, None);
        self.routes.push(route(prefix, lan));
        self.set_routes();
    }

    /// Some of the LAN is behind a router in it.
    pub fn add_router(&mut self, prefix: (IpAddr, u8), router: IpAddr) {
        let behind = on_device(LOOPBACK, Some(router));
        self.routes.push(route(prefix, behind));
        self.set_routes();
    }

    /// A specific route goes over a link, by a router of its own there or to neighbours on the link.
    pub fn add_link_route(&mut self, prefix: (IpAddr, u8), link: u16, via: Option<IpAddr>) {
        let link = LinkId(link);
        self.routes.push(route(prefix, Verdict::Link { link, via }));
        self.set_routes();
    }

    /// It is there no more.
    pub fn remove_route(&mut self, prefix: (IpAddr, u8)) {
        self.routes.retain(|route| route.prefix != prefix);
        self.set_routes();
    }

    /// The gateway has no address of its own in the LAN.
    pub fn have_no_address(&mut self) {
        self.addresses.clear();
    }

    pub(super) fn lan_role(&self) -> Role {
        Role::lan(self.addresses.iter().copied())
    }

    pub fn set(&mut self, change: impl FnOnce(&mut Settings)) {
        let mut settings = settings();
        change(&mut settings);
        self.plane().set_settings(&settings).unwrap();
    }

    /// For both families.
    pub fn install(&mut self, choice: &Choice) {
        for family in Family::ALL {
            self.install_for(family, choice);
        }
    }

    /// The same, where that has connections race.
    pub fn race(&mut self, choice: &Choice) {
        self.races = true;
        self.install(choice);
    }

    pub fn install_for(&mut self, family: Family, choice: &Choice) {
        self.plane()
            .install(ClassId::DEFAULT, family, choice)
            .unwrap();
    }

    /// One more device in the rig's namespace.
    pub fn add_device(&self, name: &str, ifindex: u32) {
        let add = format!("link add {name} index {ifindex} type veth peer name {name}-end");
        self.namespace.ip(&add).unwrap();
    }
}

fn on_device(ifindex: u32, via: Option<IpAddr>) -> Verdict {
    Verdict::Lan { ifindex, via }
}

fn route(prefix: (IpAddr, u8), verdict: Verdict) -> Route {
    Route { prefix, verdict }
}
