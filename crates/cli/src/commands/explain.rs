//! Which link a flow would take, or which server a client would get, and why: the loaded program's own answer.

use std::net::SocketAddr;

use anabranch_api::{Explained, Explanation, Proto, Request, Response, Served};
use anabranch_console::output::{print, print_json};
use anabranch_console::table::{self, Columns, optional};
use anabranch_core::ServerAt;
use serde_json::json;

use crate::args::{ExplainArgs, ExplainProto};
use crate::control::{Daemon, Names, unexpected};
use crate::{commands::service, words};

pub fn run(instance: &str, args: &ExplainArgs) -> anyhow::Result<()> {
    let proto = match args.proto {
        ExplainProto::Tcp => Proto::Tcp,
        ExplainProto::Udp => Proto::Udp,
    };
    let mut daemon = Daemon::of(instance)?;
    let (from, to) = match (&args.service, args.client, args.from, args.to) {
        (Some(service), Some(client), ..) => {
            let request = Request::ExplainService {
                service: service.clone(),
                client,
                called: args.to,
                proto,
            };
            return match daemon.ask(&request)? {
                Response::Served(served) => show_served(client, &served, args.json),
                other => unexpected(&other),
            };
        }
        (.., Some(from), Some(to)) => (from, to),
        _ => anyhow::bail!("write --from and --to, or --service and a client"),
    };
    let names = daemon.names()?;
    let request = Request::Explain { from, to, proto };
    let explained = match daemon.ask(&request)? {
        Response::Explanation(explained) => *explained,
        other => return unexpected(&other),
    };
    if args.json {
        return print_json(&as_json(&explained, &names));
    }
    let explanation = &explained.explanation;
    let class = match names.has_classes() {
        true => rules(&explained),
        false => String::new(),
    };
    print(format!(
        "{}\n{class}{}{}",
        sentence((from, to), explanation, &names),
        each_packet(&explained),
        weighed(explanation, &names)
    ))
}

fn show_served(client: SocketAddr, served: &Served, json: bool) -> anyhow::Result<()> {
    if json {
        return print_json(served);
    }
    let Served {
        called,
        why,
        service,
        ..
    } = served;
    let sentence = match served.server.map(|at| table::good(ServerAt(at))) {
        Some(server) if served.bound => format!("{client} -> {called} has {server}: {why}"),
        Some(server) => format!("{client} -> {called} would get {server}: {why}"),
        None => format!("{client} -> {called} would get no server: {why}"),
    };
    let mut columns = Columns::new(&[
        "server", "state", ">weight", "backup", ">active", ">limit", "why",
    ]);
    for server in &service.servers {
        columns.row([
            ServerAt(server.endpoint).to_string(),
            service::state(server),
            server.weight.to_string(),
            if server.backup { "yes" } else { "no" }.to_owned(),
            server.active.to_string(),
            optional(server.limit),
            server.why.clone().unwrap_or_default(),
        ]);
    }
    print(format!(
        "{sentence}\n   service {}, policy {}\n\n{columns}",
        service.name, service.policy
    ))
}

/// Nothing where the link is that of a flow.
fn each_packet(explained: &Explained) -> &'static str {
    match &explained.granularity[..] {
        words::PACKET => "   each packet is sent by itself: the next may take another link\n",
        _ => "",
    }
}

/// The class that takes the flow, and the rules that do not.
fn rules(explained: &Explained) -> String {
    let passed = explained.passed.iter();
    let passed = passed.map(|rule| format!("   not {}: {}\n", rule.rule, rule.because.join("; ")));
    format!(
        "   class {}\n{}",
        explained.class,
        passed.collect::<String>()
    )
}

/// The answer with names for numbers.
fn as_json(explained: &Explained, names: &Names) -> serde_json::Value {
    let explanation = &explained.explanation;
    let weighed = explanation.weighed.iter().map(|each| {
        json!({ "link": names.of(each.link), "usable": each.usable, "weight": each.weight, "load": each.load,
                "response_ms": each.response_us.map(|us| f64::from(us) / 1e3) })
    });
    json!({
        "link": explanation.link.map(|link| names.of(link)),
        "class": explained.class,
        "granularity": explained.granularity,
        "passed": explained.passed,
        "why": explanation.why,
        "bound": explanation.bound,
        "hash": explanation.hash,
        "weighed": weighed.collect::<Vec<_>>(),
    })
}

fn sentence(
    (from, to): (SocketAddr, SocketAddr),
    explanation: &Explanation,
    names: &Names,
) -> String {
    let why = &explanation.why;
    match explanation.link {
        Some(link) if explanation.bound => {
            format!(
                "{from} -> {to} is a flow of {}: {why}",
                table::good(names.of(link))
            )
        }
        Some(link) => format!(
            "{from} -> {to} would take {}: {why}",
            table::good(names.of(link))
        ),
        None => format!("{from} -> {to} would take no link: {why}"),
    }
}

fn weighed(explanation: &Explanation, names: &Names) -> String {
    if explanation.weighed.is_empty() {
        return String::new();
    }
    let mut columns = Columns::new(&["link", "usable", ">weight", ">load", ">response"]);
    for each in &explanation.weighed {
        let usable = if each.usable { "yes" } else { "no" };
        columns.row([
            names.of(each.link),
            usable.to_owned(),
            each.weight.to_string(),
            each.load.to_string(),
            optional(each.response_us.map(|us| table::time(f64::from(us) / 1e6))),
        ]);
    }
    format!("\n{columns}")
}

#[cfg(test)]
mod tests {
    use anabranch_api::PassedRule;

    use super::*;

    #[test]
    fn the_class_is_named_and_each_rule_that_was_passed() {
        let passed = |rule: &str, because: &[&str]| PassedRule {
            rule: rule.into(),
            because: because.iter().map(|word| (*word).into()).collect(),
        };
        let explained = Explained {
            explanation: Explanation {
                link: Some(0),
                class: 3,
                why: "the only link".into(),
                bound: false,
                hash: 0,
                weighed: Vec::new(),
            },
            class: "video".into(),
            granularity: "packet".into(),
            passed: vec![
                passed("bulk", &["dscp: 0, not 8", "protocol: tcp, not udp"]),
                passed("night", &["when: mon 09:00, not 22:00-06:00"]),
            ],
        };
        let each_packet = each_packet(&explained);
        assert!(each_packet.contains("another link"), "{each_packet}");
        assert_eq!(
            rules(&explained),
            "   class video\n   not bulk: dscp: 0, not 8; protocol: tcp, not udp\n   not night: when: mon 09:00, not 22:00-06:00\n"
        );
    }
}
