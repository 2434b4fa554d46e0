//! Links, rates, flows, and what became of packets.

use anabranch_daemon::control::{LinkState, LinkStatus, Rates, Status};

use crate::control::Daemon;
use crate::output::{print, print_json};
use crate::table::{self, Columns, optional};

pub fn run(instance: &str, json: bool) -> anyhow::Result<()> {
    let status = Daemon::of(instance)?.status()?;
    if json {
        return print_json(&status);
    }
    print(format!(
        "{}\n\n{}\n{}",
        head(&status),
        links(&status.links),
        reasons(&status)
    ))
}

fn head(status: &Status) -> String {
    let Status {
        version,
        pid,
        policy,
        flows,
        ..
    } = status;
    let adopted = if status.adopted {
        ", took over the flows of an earlier daemon"
    } else {
        ""
    };
    format!(
        "anabranch {version}, pid {pid}, up {}{adopted}\npolicy {policy}, {} flows live, {} of {} places taken",
        table::time(status.uptime_s),
        flows.live,
        flows.confirmed,
        flows.limit
    )
}

fn links(links: &[LinkStatus]) -> Columns {
    let mut columns = Columns::new(&[
        "link", "device", "address", "gateway", "state", ">for", ">down", ">up", ">flows",
        ">weight", ">RTT", "why",
    ]);
    for link in links {
        let declared = |direction: fn(Rates) -> Option<u64>| link.rate.and_then(direction);
        columns.row([
            link.name.clone(),
            link.device.clone(),
            optional(link.address),
            optional(link.gateway),
            state(link),
            table::time(link.since_s),
            table::rate_of(link.traffic.rx_bps, declared(|rates| rates.down_bps)),
            table::rate_of(link.traffic.tx_bps, declared(|rates| rates.up_bps)),
            link.flows.live.to_string(),
            link.weight.to_string(),
            optional(link.probe.round_trip_ms.map(|ms| table::time(ms / 1e3))),
            link.why.clone(),
        ]);
    }
    columns
}

fn state(link: &LinkStatus) -> String {
    match link.state {
        LinkState::Up if link.usable => table::good("up").to_string(),
        // Metered, and another link is usable.
        LinkState::Up => "standby".to_owned(),
        LinkState::PossiblyDown => table::doubtful("possibly down").to_string(),
        LinkState::Down => table::bad("DOWN").to_string(),
        LinkState::Absent => table::bad("absent").to_string(),
        LinkState::Drained => table::doubtful("drained").to_string(),
        LinkState::Disabled => table::doubtful("disabled").to_string(),
    }
}

fn reasons(status: &Status) -> Columns {
    let mut columns = Columns::new(&[">packets", "fate", "because"]);
    for reason in &status.reasons {
        columns.row([
            reason.packets.to_string(),
            reason.fate.clone(),
            reason.words.clone(),
        ]);
    }
    columns
}
