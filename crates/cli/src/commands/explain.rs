//! Which link a flow would take, and why: the loaded program's own answer.

use anabranch_api::{Explanation, Proto};
use anabranch_api::{Request, Response};
use serde_json::json;

use crate::args::{ExplainArgs, ExplainProto};
use crate::control::{Daemon, Names, unexpected};
use crate::output::{print, print_json};
use crate::table::{self, Columns};

pub fn run(instance: &str, args: &ExplainArgs) -> anyhow::Result<()> {
    let proto = match args.proto {
        ExplainProto::Tcp => Proto::Tcp,
        ExplainProto::Udp => Proto::Udp,
    };
    let mut daemon = Daemon::of(instance)?;
    let names = daemon.names()?;
    let request = Request::Explain {
        from: args.from,
        to: args.to,
        proto,
    };
    let explanation = match daemon.ask(&request)? {
        Response::Explanation(explanation) => *explanation,
        other => return unexpected(&other),
    };
    if args.json {
        print_json(&as_json(&explanation, &names))
    } else {
        let sentence = sentence(args, &explanation, &names);
        print(format!("{sentence}\n{}", weighed(&explanation, &names)))
    }
}

/// The answer with names for numbers.
fn as_json(explanation: &Explanation, names: &Names) -> serde_json::Value {
    let weighed = explanation.weighed.iter().map(|each| {
        json!({ "link": names.of(each.link), "usable": each.usable, "weight": each.weight, "load": each.load })
    });
    json!({
        "link": explanation.link.map(|link| names.of(link)),
        "why": explanation.why,
        "bound": explanation.bound,
        "hash": explanation.hash,
        "weighed": weighed.collect::<Vec<_>>(),
    })
}

fn sentence(args: &ExplainArgs, explanation: &Explanation, names: &Names) -> String {
    let ExplainArgs { from, to, .. } = args;
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
    let mut columns = Columns::new(&["link", "usable", ">weight", ">load"]);
    for each in &explanation.weighed {
        let usable = if each.usable { "yes" } else { "no" };
        columns.row([
            names.of(each.link),
            usable.to_owned(),
            each.weight.to_string(),
            each.load.to_string(),
        ]);
    }
    format!("\n{columns}")
}
