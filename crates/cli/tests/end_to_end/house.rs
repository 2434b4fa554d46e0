//! A house with three access lines, and what a test asks of its gateway.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anabranch_api::FlowRow;
use anabranch_api::Paths;
use anabranch_api::{Client, GatewayStatus, LinkAction, LinkState, LinkStatus, Request, Response};
use anabranch_lab::topology::{Anabranch, Gateway, Lab, LabSpec, configuration};
use anabranch_scenario::Families;
use anabranch_testbed::netns::Namespace;

/// Of every wait: enough for a busy machine, and for an emulated one.
pub const DEADLINE: Duration = Duration::from_secs(120);
/// A file that is not worth its connection.
pub const SMALL_BYTES: u64 = 100;
pub const PAGE_BYTES: u64 = 20_000;

/// Name, down and up in bit/s, round trip in ms. Little enough for two busy cores to emulate.
const LINKS: [(&str, u64, u64, u64); 3] = [
    ("fiber", 24_000_000, 12_000_000, 8),
    ("cable", 16_000_000, 8_000_000, 16),
    ("lte", 8_000_000, 4_000_000, 30),
];

/// The fields go in their order: the gateway ends before its house.
pub struct House {
    pub gateway: Anabranch,
    pub lab: Lab,
    _turn: Turn,
}

impl House {
    pub fn new(settings: &str) -> Self {
        Self::of(&three_links(), settings)
    }

    /// With addresses of these families.
    pub fn with(families: Families, settings: &str) -> Self {
        let spec = LabSpec {
            families,
            ..three_links()
        };
        Self::of(&spec, settings)
    }

    pub fn of(spec: &LabSpec, settings: &str) -> Self {
        let turn = take_turn();
        Self::around(turn, build(spec), settings)
    }

    /// Starts the gateway of a lab that is there.
    pub fn around(turn: Turn, lab: Lab, settings: &str) -> Self {
        let text = configuration(lab.spec(), &with_probes(settings, lab.spec().server()));
        let gateway = Anabranch::start(lab.gateway(), &binary(), &text)
            .unwrap_or_else(|error| panic!("{error}"));
        let house = Self {
            gateway,
            lab,
            _turn: turn,
        };
        until("every link is up", || {
            status(&house.gateway)
                .links
                .iter()
                .all(|link| link.state == LinkState::Up)
        });
        house
    }
}

pub type Turn = MutexGuard<'static, ()>;

/// Held by the one house that stands. A test that failed has cleared its place all the same.
pub fn take_turn() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lab whose gateway runs nothing.
pub fn build(spec: &LabSpec) -> Lab {
    Lab::build(spec, &Gateway::Nothing).unwrap_or_else(|error| panic!("{error}"))
}

pub fn binary() -> PathBuf {
    Path::new(env!("CARGO_BIN_EXE_anabranch")).to_owned()
}

pub fn three_links() -> LabSpec {
    LabSpec {
        file_bytes: vec![SMALL_BYTES, PAGE_BYTES],
        ..LabSpec::of_lines(&LINKS)
    }
}

/// Only one host of this internet answers, so it is the one that probes ask.
pub fn with_probes(settings: &str, server: SocketAddr) -> String {
    let address = server.ip();
    format!("{settings}\nprobe.targets = [\"icmp:{address}\", \"tcp:{server}\"]\n")
}

// ---- waiting

/// Waits until something holds, and tells how long that took.
#[track_caller]
pub fn until(what: &str, holds: impl FnMut() -> bool) -> Duration {
    anabranch_testbed::wait::until(what, DEADLINE, holds)
}

/// Waits until some program in the namespace accepts connections at a port.
pub fn until_listening(namespace: &Namespace, port: u16) {
    let filter = format!("sport = :{port}");
    until(&format!("port {port} listens"), || {
        !namespace
            .exec("ss", &["-Hltn", &filter])
            .unwrap()
            .is_empty()
    });
}

// ---- asking the daemon

pub fn call(gateway: &Anabranch, request: &Request) -> Response {
    let paths = Paths::new(gateway.instance()).unwrap();
    Client::connect(&paths.socket())
        .and_then(|mut client| client.call(request))
        .unwrap_or_else(|error| panic!("{error}\n{}", log(gateway)))
}

pub fn status(gateway: &Anabranch) -> GatewayStatus {
    match call(gateway, &Request::Status) {
        Response::Status(status) => *status.gateway.expect("a gateway"),
        other => panic!("{other:?}"),
    }
}

pub fn link(gateway: &Anabranch, name: &str) -> LinkStatus {
    let links = status(gateway).links;
    links
        .into_iter()
        .find(|link| link.name == name)
        .unwrap_or_else(|| panic!("no link {name}"))
}

pub fn flows(gateway: &Anabranch) -> Vec<FlowRow> {
    match call(gateway, &Request::Flows { limit: usize::MAX }) {
        Response::Flows { flows, .. } => flows,
        other => panic!("{other:?}"),
    }
}

pub fn order(gateway: &Anabranch, name: &str, action: LinkAction) {
    let response = call(
        gateway,
        &Request::Link {
            name: name.into(),
            action,
            force: false,
        },
    );
    assert!(matches!(response, Response::Done), "{response:?}");
}

/// Packets that left the programs for a reason, by its words.
pub fn counted(gateway: &Anabranch, words: &str) -> u64 {
    let reasons = status(gateway).reasons;
    reasons
        .iter()
        .filter(|reason| reason.words == words)
        .map(|reason| reason.packets)
        .sum()
}

pub fn until_state(gateway: &Anabranch, name: &str, state: LinkState) {
    until(&format!("{name} is {state:?}"), || {
        link(gateway, name).state == state
    });
}

/// Waits until no flow is live.
pub fn until_quiet(gateway: &Anabranch) {
    until("no flow is live", || {
        status(gateway)
            .links
            .iter()
            .all(|link| link.flows.live == 0)
    });
}

fn log(gateway: &Anabranch) -> String {
    std::fs::read_to_string(gateway.log()).unwrap()
}

/// Lines of the daemon's log that contain `words`.
pub fn logged(gateway: &Anabranch, words: &str) -> Vec<String> {
    log(gateway)
        .lines()
        .filter(|line| line.contains(words))
        .map(str::to_owned)
        .collect()
}

// ---- addresses

/// How many of `addresses` belong to each link. An address of no link stands for itself.
pub fn by_link(lab: &Lab, addresses: impl IntoIterator<Item = IpAddr>) -> BTreeMap<String, usize> {
    let external = lab.external_addresses();
    let mut counts = BTreeMap::new();
    for address in addresses {
        let link = external
            .get(&address)
            .cloned()
            .unwrap_or_else(|| address.to_string());
        *counts.entry(link).or_default() += 1;
    }
    counts
}
