//! Links, rates, flows, and what became of packets.

use anabranch_daemon::control::{LinkState, LinkStatus, Rates, Status};

use crate::control::Daemon;
use crate::table::{self, Columns, NOTHING, number, optional, text};

pub fn run(instance: &str, json: bool) -> anyhow::Result<()> {
    let status = Daemon::of(instance)?.status()?;
    if json {
        println!("{}", serde_json::to_string_pretty(&status)?);
        return Ok(());
    }
    println!("{}\n", head(&status));
    println!("{}", links(&status.links));
    print!("{}", reasons(&status));
    Ok(())
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
        "link", "device", "address", "gateway", "state", "for", "down now", "of", "up now", "of",
        "flows", "opened", "weight", "RTT", "why",
    ]);
    for link in links {
        columns.row([
            text(&link.name),
            text(&link.device),
            text(optional(link.address)),
            text(optional(link.gateway)),
            text(state(link)),
            number(table::time(link.since_s)),
            number(table::rate(link.traffic.rx_bps)),
            number(declared(link.rate, |rates| rates.down_bps)),
            number(table::rate(link.traffic.tx_bps)),
            number(declared(link.rate, |rates| rates.up_bps)),
            number(link.flows.live),
            number(link.flows.opened),
            number(link.weight),
            number(optional(
                link.probe.round_trip_ms.map(|ms| table::time(ms / 1e3)),
            )),
            text(&link.why),
        ]);
    }
    columns
}

fn declared(rates: Option<Rates>, direction: impl Fn(Rates) -> Option<u64>) -> String {
    rates.and_then(direction).map_or_else(
        || NOTHING.to_owned(),
        |rate_bps| table::rate(rate_bps as f64),
    )
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
    let mut columns = Columns::new(&["packets", "fate", "because"]);
    for reason in &status.reasons {
        columns.row([
            number(reason.packets),
            text(&reason.fate),
            text(&reason.words),
        ]);
    }
    columns
}
