//! Who serves and whose flows are watched.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, mpsc};

use anabranch_workload::client::Stop;

use super::flows::{Ledger, Target, Watch, serve, watch};
use super::judge::Part;
use super::plan::LINKS;
use super::services::{CONTAINER, MESH_PEER, PUBLISHED_PORT, SERVICE_PORT, VIRTUAL};
use super::site::{BOX, Ground, KERNEL_PORT, PORT, servers};
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
pub(super) fn roles(ground: &Ground) -> Vec<Role<'_>> {
    let ([v4, v6], [others, _]) = (servers(PORT), servers(KERNEL_PORT));
    let (to_v4, to_v6, to_others) = (at(&v4), at(&v6), at(&others));
    let all = [v4, v6, others].concat();
    vec![
        watcher(
            &ground.host,
            vec![
                through("LAN host", &to_v4, [9, 4]),
                through("LAN host, IPv6", &to_v6, [6, 3]).needing(Part::Advertisements),
                inside("LAN host to the box", BOX, PORT),
                inside("LAN host to the virtual address", VIRTUAL, PORT)
                    .needing(Part::VirtualAddress),
                inside("LAN host by the policy table", MESH_PEER, PORT).needing(Part::PolicyTable),
            ],
        ),
        watcher(
            &ground.user,
            vec![
                through("LAN host behind the virtual address", &to_v4, [3, 2])
                    .needing(Part::VirtualAddress),
            ],
        ),
        Role {
            serves: [vec![endpoint("0.0.0.0", PORT)], vec![]],
            ..watcher(
                &ground.the_box,
                vec![through("the box itself", &to_v4, [3, 3])],
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
                    .needing(Part::Link(LINKS - 1)),
            ],
        ),
        Role {
            serves: [vec![endpoint(MESH_PEER, PORT)], vec![]],
            ..watcher(&ground.mesh, vec![])
        },
        Role {
            serves: [all.clone(), all],
            ..watcher(
                &ground.internet,
                vec![
                    from_outside("outside to the box", PORT),
                    from_outside("outside to a published port", PUBLISHED_PORT),
                ],
            )
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
        any_link: true,
        masqueraded: false,
        long,
    }
}

/// TCP flows to something that no link leads to.
fn inside(neighbour: &'static str, address: &str, port: u16) -> Watch {
    Watch {
        any_link: false,
        ..through(neighbour, &at(&[endpoint(address, port)]), [2, 0])
    }
}

/// TCP flows to a port at each link's address.
fn from_outside(neighbour: &'static str, port: u16) -> Watch {
    let targets: Vec<_> = (0..LINKS).map(|link| Target::Link(link, port)).collect();
    Watch {
        any_link: false,
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
