//! What was understood of a configuration, and whether this host is as it says.

use std::path::Path;

use anabranch_daemon::config::{Config, Rate};
use anabranch_daemon::observe::{Desired, LinkView, Netlink, Snapshot};
use anabranch_daemon::{Slots, preflight};

use crate::output::print;
use crate::table::{self, Columns, optional};

pub fn run(path: &Path, offline: bool) -> anyhow::Result<()> {
    if offline {
        return print(understood(&Config::load(path)?, None));
    }
    let config = preflight::check(path)?;
    print(understood(&config, Some(&host()?)))
}

fn host() -> anyhow::Result<Snapshot> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async { Netlink::connect()?.snapshot().await })
}

fn understood(config: &Config, host: Option<&Snapshot>) -> String {
    let verdict = if host.is_some() {
        "the configuration is right, and this host can run it"
    } else {
        "the configuration is right; the host was not looked at"
    };
    format!(
        "LAN     {}\npolicy  {}\n\n{}\n{verdict}\n",
        config.lan.join(", "),
        config.policy,
        links(config, host)
    )
}

fn links(config: &Config, host: Option<&Snapshot>) -> Columns {
    let slots = Slots::default().assign(config.links.iter().map(|link| link.name.as_str()));
    let views = host
        .map(|host| Desired::derive(config, &slots, host).links)
        .unwrap_or_default();
    let mut columns = Columns::new(&[
        "link", "device", "address", "gateway", ">MTU", ">down", ">up", ">weight", "metered",
        "remark",
    ]);
    for link in &config.links {
        let view = slots.id(&link.name).and_then(|id| views.get(&id));
        let path = view.and_then(|view| view.path.as_ref().ok());
        columns.row([
            link.name.clone(),
            link.device.clone(),
            optional(path.map(|path| path.external).or(link.address)),
            optional(path.map_or(link.gateway, |path| path.gateway)),
            optional(path.map(|path| path.mtu)),
            rate(link.down),
            rate(link.up),
            optional(link.weight),
            if link.metered { "yes" } else { "no" }.to_owned(),
            view.map_or_else(String::new, remark),
        ]);
    }
    columns
}

fn rate(rate: Option<Rate>) -> String {
    optional(rate.map(|rate| table::rate(rate.bps() as f64)))
}

/// Why the link could not be used as the host stands.
fn remark(view: &LinkView) -> String {
    match &view.path {
        Err(missing) => table::doubtful(missing).to_string(),
        Ok(_) if !view.running => {
            table::doubtful("the device is down or has no carrier").to_string()
        }
        Ok(path) if path.gateway.is_none() => "point to point".to_owned(),
        Ok(_) => String::new(),
    }
}
