//! Who serves and whose flows are watched.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc};

use anabranch_workload::client::Stop;

use super::flows::{Ledger, Target, Watch, serve, watch};
use super::ground::{BOX, Ground, KERNEL_PORT, PORT, VIRTUAL, servers};
use super::judge::{Part, Way};
use super::plan::{Choices, LINKS};
use super::services::{CONTAINER, MESH_PEER, PUBLISHED_PORT, SERVICE_PORT};
use crate::topology::{Result, io_error};
use anabranch_testbed::netns::Namespace;

/// What is done in a namespace for as long as the soak lasts.
pub(super) struct Role<'a> {
    namespace: &'a Namespace,
    /// Answers at these over TCP, and at those over UDP.
    serves: [Vec<SocketAddr>; 2],
    watches: Vec<Watch>,
}

impl Role<'_> {
    pub fn serve(&self, ready: mpsc::Sender<()>, stop: &Stop) -> Result<()> {
        let [streams, datagrams] = &self.serves;
        self.inside("servers", || serve(streams, datagrams, ready, stop))
    }

    pub fn watch(&self, ledger: &Arc<Ledger>, stop: &Stop) -> Result<()> {
        self.inside("clients", || watch(&self.watches, ledger, stop))
    }

    fn inside(&self, who: &str, work: impl FnOnce() -> std::io::Result<()> + Send) -> Result<()> {
        let failed = io_error(format!("{who} in {}", self.namespace.name()));
        self.namespace.run(work)?.map_err(failed)
    }

    pub fn neighbours(&self) -> impl Iterator<Item = &'static str> {
        self.watches.iter().map(|watch| watch.neighbour)
    }
}

/// Everybody, in the order of the report.
///
/// With `nat.forwards = "kernel"` UDP of the LAN to an endpoint that has answered the kernel first is left to the kernel: whom the kernel
/// forwards for asks other ports.
pub(super) fn roles(ground: &Ground, choices: Choices) -> Vec<Role<'_>> {
    let ([v4, v6], [others, _]) = (servers(PORT), servers(KERNEL_PORT));
    let (to_v4, to_v6, to_others) = (at(&v4), at(&v6), at(&others));
    let all = [v4, v6, others].concat();
    let mut from_the_internet = vec![from_outside("outside to the box", PORT)];
    if choices.published {
        let published = from_outside("outside to a published port", PUBLISHED_PORT);
        from_the_internet.push(published.needing(Part::Netfilter));
    }
    vec![
        watcher(
            &ground.host,
            vec![
                balanced("LAN host", &to_v4, [9, 4]),
                balanced("LAN host, IPv6", &to_v6, [6, 3]).needing(Part::Advertisements),
                inside("LAN host to the box", BOX, PORT),
                inside("LAN host to the virtual address", VIRTUAL, PORT)
                    .needing(Part::VirtualAddress),
                inside("LAN host by the policy table", MESH_PEER, PORT).needing(Part::PolicyTable),
            ],
        ),
        watcher(
            &ground.user,
            vec![
                balanced("LAN host behind the virtual address", &to_v4, [3, 2])
                    .needing(Part::VirtualAddress),
            ],
        ),
        watcher(
            &ground.guest,
            vec![
                steered("LAN host with a source rule", &to_v4, [3, 2]),
                steered("LAN host with a source rule, IPv6", &to_v6, [3, 2]),
            ],
        ),
        Role {
            serves: [vec![endpoint("0.0.0.0", PORT)], vec![]],
            ..watcher(
                &ground.the_box,
                vec![through("the box itself", &to_others, [3, 3])],
            )
        },
        Role {
            serves: [vec![endpoint(CONTAINER, SERVICE_PORT)], vec![]],
            ..watcher(
                &ground.container,
                vec![through("container", &to_others, [3, 2]).masqueraded()],
            )
        },
        watcher(
            &ground.warrior,
            vec![
                through("VPN client", &to_others, [3, 2])
                    .masqueraded()
                    .needing(Part::Link(LINKS - 1))
                    .needing(Part::Gateway),
            ],
        ),
        Role {
            serves: [vec![endpoint(MESH_PEER, PORT)], vec![]],
            ..watcher(&ground.mesh, vec![])
        },
        Role {
            serves: [all.clone(), all],
            ..watcher(&ground.internet, from_the_internet)
        },
    ]
}

fn watcher(namespace: &Namespace, watches: Vec<Watch>) -> Role<'_> {
    Role {
        namespace,
        serves: [vec![], vec![]],
        watches,
    }
}

/// Flows to the internet, by whichever link.
fn through(neighbour: &'static str, targets: &[Target], long: [usize; 2]) -> Watch {
    Watch {
        neighbour,
        targets: targets.to_vec(),
        needs: vec![],
        way: Way::Any,
        masqueraded: false,
        long,
    }
}

/// The same by the gateway, over all links.
fn balanced(neighbour: &'static str, targets: &[Target], long: [usize; 2]) -> Watch {
    Watch {
        way: Way::Spread,
        ..through(neighbour, targets, long).needing(Part::Gateway)
    }
}

/// The same, but for a routing rule that comes and goes.
fn steered(neighbour: &'static str, targets: &[Target], long: [usize; 2]) -> Watch {
    Watch {
        way: Way::Steered,
        ..balanced(neighbour, targets, long)
    }
}

/// TCP flows to something that no link leads to.
fn inside(neighbour: &'static str, address: &str, port: u16) -> Watch {
    Watch {
        way: Way::Fixed,
        ..through(neighbour, &at(&[endpoint(address, port)]), [2, 0])
    }
}

/// TCP flows to a port at each link's address.
fn from_outside(neighbour: &'static str, port: u16) -> Watch {
    let targets: Vec<_> = (0..LINKS).map(|link| Target::Link(link, port)).collect();
    Watch {
        way: Way::Fixed,
        ..through(neighbour, &targets, [LINKS, 0])
    }
}

fn at(servers: &[SocketAddr]) -> Vec<Target> {
    servers.iter().copied().map(Target::At).collect()
}

fn endpoint(address: &str, port: u16) -> SocketAddr {
    let address: IpAddr = address.parse().expect("written as an address");
    (address, port).into()
}
