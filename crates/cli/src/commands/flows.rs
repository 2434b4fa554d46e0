//! Flows and the links that carry them.

use anabranch_api::FlowRow;
use anabranch_api::{Request, Response};
use anabranch_console::output::{print, print_json};
use anabranch_console::table::{self, Columns};
use serde::Serialize;
use serde_json::json;

use crate::args::{FlowProto, FlowsArgs};
use crate::control::{Daemon, Names, unexpected};

/// Rows asked of the daemon when only some of them are wanted: the daemon does not choose.
const ALL: usize = usize::MAX;

/// A row with names for numbers.
#[derive(Serialize)]
struct Row {
    link: String,
    class: String,
    tried: Vec<String>,
    #[serde(flatten)]
    flow: serde_json::Map<String, serde_json::Value>,
}

pub fn run(instance: &str, args: &FlowsArgs) -> anyhow::Result<()> {
    let mut daemon = Daemon::of(instance)?;
    let names = daemon.names()?;
    if let Some(link) = &args.link {
        names.check_link(link)?;
    }
    if let Some(class) = &args.class {
        names.check_class(class)?;
    }
    let chosen = args.link.is_some() || args.class.is_some() || args.proto.is_some();
    let limit = if chosen { ALL } else { args.limit };
    let Found { total, flows } = ask(&mut daemon, limit)?;
    let mut flows: Vec<FlowRow> = flows
        .into_iter()
        .filter(|flow| is_wanted(args, &names, flow))
        .collect();
    let total = if chosen { flows.len() } else { total };
    flows.truncate(args.limit);
    if args.json {
        let rows = flows
            .iter()
            .map(|flow| row(flow, &names))
            .collect::<Result<Vec<_>, _>>()?;
        print_json(&json!({ "total": total, "flows": rows }))
    } else {
        let table = table(&flows, &names);
        print(format!(
            "{table}{} of {total} flows
",
            flows.len()
        ))
    }
}

struct Found {
    total: usize,
    flows: Vec<FlowRow>,
}

fn ask(daemon: &mut Daemon, limit: usize) -> anyhow::Result<Found> {
    match daemon.ask(&Request::Flows { limit })? {
        Response::Flows { total, flows } => Ok(Found { total, flows }),
        other => unexpected(&other),
    }
}

fn is_wanted(args: &FlowsArgs, names: &Names, flow: &FlowRow) -> bool {
    let link = args
        .link
        .as_ref()
        .is_none_or(|link| names.of(flow.link) == *link);
    let proto = args
        .proto
        .is_none_or(|proto| words(proto).contains(&flow.proto.as_str()));
    let class = args
        .class
        .as_ref()
        .is_none_or(|class| names.of_class(flow.class) == *class);
    link && class && proto
}

/// As flows name it, in either family.
fn words(proto: FlowProto) -> &'static [&'static str] {
    match proto {
        FlowProto::Tcp => &["tcp"],
        FlowProto::Udp => &["udp"],
        FlowProto::Icmp => &["icmp", "icmp6"],
    }
}

fn row(flow: &FlowRow, names: &Names) -> serde_json::Result<Row> {
    let mut fields = match serde_json::to_value(flow)? {
        serde_json::Value::Object(fields) => fields,
        _ => serde_json::Map::new(),
    };
    fields.remove("link");
    fields.remove("class");
    fields.remove("tried");
    Ok(Row {
        link: names.of(flow.link),
        class: names.of_class(flow.class),
        tried: flow.tried.iter().map(|link| names.of(*link)).collect(),
        flow: fields,
    })
}

fn table(flows: &[FlowRow], names: &Names) -> Columns {
    let has_classes = names.has_classes();
    let mut titles = vec![
        "proto", "local", "external", "remote", "link", "state", ">out", ">in", ">age", ">idle",
    ];
    titles.extend(has_classes.then_some("class"));
    titles.push("why");
    let mut columns = Columns::new(&titles);
    for flow in flows {
        let mut cells = vec![
            flow.proto.clone(),
            flow.local.to_string(),
            flow.external.to_string(),
            flow.remote.to_string(),
            names.of(flow.link),
            format!("{:?}", flow.state).to_lowercase(),
            table::amount(flow.bytes_out),
            table::amount(flow.bytes_in),
            table::time(flow.age_ms as f64 / 1e3),
            table::time(flow.idle_ms as f64 / 1e3),
        ];
        cells.extend(has_classes.then(|| names.of_class(flow.class)));
        cells.push(flow.why.clone());
        columns.cells(cells);
    }
    columns
}
