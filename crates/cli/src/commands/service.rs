//! Services and their servers.

use anabranch_api::{CheckStatus, Request, Response, ServerAction, ServerStatus, ServiceStatus};
use anabranch_console::output::{print, print_json};
use anabranch_console::table::{self, Columns};
use anabranch_core::ServerAt;

use crate::args::{ServerName, ServiceCommand};
use crate::control::{Daemon, unexpected};

pub fn run(instance: &str, command: ServiceCommand) -> anyhow::Result<()> {
    let daemon = Daemon::of(instance)?;
    match command {
        ServiceCommand::List { json } => list(&services(daemon)?, json),
        ServiceCommand::Show { name, json } => show(&services(daemon)?, &name, json),
        ServiceCommand::Drain { server } => order(daemon, server, ServerAction::Drain),
        ServiceCommand::Up { server } => order(daemon, server, ServerAction::Up),
    }
}

fn services(mut daemon: Daemon) -> anyhow::Result<Vec<ServiceStatus>> {
    let services = daemon.status()?.services;
    Ok(services.map_or(Vec::new(), |services| services.services))
}

fn order(mut daemon: Daemon, server: ServerName, action: ServerAction) -> anyhow::Result<()> {
    let ServerName { service, server } = server;
    match daemon.ask(&Request::Server {
        service,
        server,
        action,
    })? {
        Response::Done => Ok(()),
        other => unexpected(&other),
    }
}

fn list(services: &[ServiceStatus], json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(&services);
    }
    let titles = [
        "service",
        "listens at",
        "policy",
        ">servers",
        ">up",
        ">opened",
        ">active",
    ];
    let mut columns = Columns::new(&titles);
    for service in services {
        let sum = |of: fn(&ServerStatus) -> u64| service.servers.iter().map(of).sum::<u64>();
        columns.row([
            service.name.clone(),
            table::list(&service.listen),
            service.policy.clone(),
            service.servers.len().to_string(),
            sum(|server| server.usable.into()).to_string(),
            sum(|server| server.opened).to_string(),
            sum(|server| server.active).to_string(),
        ]);
    }
    print(columns)
}

fn show(services: &[ServiceStatus], name: &str, json: bool) -> anyhow::Result<()> {
    let Some(service) = services.iter().find(|service| service.name == name) else {
        let names: Vec<&str> = services.iter().map(|one| one.name.as_str()).collect();
        anyhow::bail!("no service {name:?}; there are: {}", table::list(&names));
    };
    if json {
        return print_json(service);
    }
    let titles = [
        "server",
        "state",
        ">weight",
        "backup",
        ">opened",
        ">active",
        ">limit",
        ">load",
        "check",
        "last results",
        "why",
    ];
    let mut columns = Columns::new(&titles);
    for server in &service.servers {
        columns.row([
            ServerAt(server.endpoint).to_string(),
            state(server),
            server.weight.to_string(),
            if server.backup { "yes" } else { "no" }.to_owned(),
            server.opened.to_string(),
            server.active.to_string(),
            table::optional(server.limit),
            table::optional(server.load),
            table::optional(server.check.as_ref().map(|check| &check.check)),
            table::optional(server.check.as_ref().map(results)),
            server.why.clone().unwrap_or_default(),
        ]);
    }
    let listen = table::list(&service.listen);
    let names: String = service
        .names
        .iter()
        .map(|one| format!("   {one}\n"))
        .collect();
    let polled = service.polled.map(|polled| {
        format!(
            "   asked for load {} times, answered {} times, {} bytes\n",
            polled.questions, polled.answers, polled.bytes
        )
    });
    print(format!(
        "{name} at {listen}, policy {}\n{names}{}\n{columns}",
        service.policy,
        polled.unwrap_or_default()
    ))
}

/// In a word, as `status` has it, too.
pub fn state(server: &ServerStatus) -> String {
    match (server.usable, server.drained) {
        (true, _) if server.is_full() => "full".to_owned(),
        (true, _) => table::good("up").to_string(),
        (false, true) => "drained".to_owned(),
        (false, false) => table::bad("DOWN").to_string(),
    }
}

fn results(check: &CheckStatus) -> String {
    let words = if check.succeeds { "passed" } else { "failed" };
    match check.in_a_row {
        0 => "none yet".to_owned(),
        times => format!("{words} {times} times"),
    }
}
