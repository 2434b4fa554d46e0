//! Destinations, and what flows have told of the way there.

use anabranch_api::{PathRow, PrefixRow, Request, Response};
use anabranch_console::output::{print, print_json};
use anabranch_console::table::{self, Columns, optional};
use serde_json::json;

use crate::args::PrefixesArgs;
use crate::control::{Daemon, Names, unexpected};

pub fn run(instance: &str, args: &PrefixesArgs) -> anyhow::Result<()> {
    let mut daemon = Daemon::of(instance)?;
    let names = daemon.names()?;
    let request = Request::Prefixes { limit: args.limit };
    let (total, limit, prefixes) = match daemon.ask(&request)? {
        Response::Prefixes {
            total,
            limit,
            prefixes,
        } => (total, limit, prefixes),
        other => return unexpected(&other),
    };
    if args.json {
        let rows: Vec<_> = prefixes.iter().map(|row| as_json(row, &names)).collect();
        return print_json(&json!({ "total": total, "limit": limit, "prefixes": rows }));
    }
    print(format!(
        "{}{} of {total} prefixes, room for {limit}\n",
        table(&prefixes, &names),
        prefixes.len()
    ))
}

/// A row with names for numbers.
fn as_json(row: &PrefixRow, names: &Names) -> serde_json::Value {
    let paths = row.paths.iter().map(|path| {
        json!({
            "link": names.of(path.link),
            "response_ms": path.response_us.map(|us| f64::from(us) / 1e3),
            "learned_ms_ago": path.learned_ms_ago,
            "asked_ms_ago": path.asked_ms_ago,
            "samples": path.samples,
            "failures": path.failures,
        })
    });
    json!({ "prefix": row.prefix, "listed": row.listed, "paths": paths.collect::<Vec<_>>() })
}

fn table(prefixes: &[PrefixRow], names: &Names) -> Columns {
    let mut columns = Columns::new(&[
        "prefix",
        "link",
        ">response",
        ">learned",
        ">asked",
        ">answers",
        ">failures",
    ]);
    for row in prefixes {
        for path in &row.paths {
            let listed = if row.listed { " *" } else { "" };
            columns.row(cells(&format!("{}{listed}", row.prefix), path, names));
        }
    }
    columns
}

fn cells(prefix: &str, path: &PathRow, names: &Names) -> [String; 7] {
    let ago =
        |ms: Option<u64>| optional(ms.map(|ms| format!("{} ago", table::time(ms as f64 / 1e3))));
    [
        prefix.to_owned(),
        names.of(path.link),
        optional(path.response_us.map(|us| table::time(f64::from(us) / 1e6))),
        ago(path.learned_ms_ago),
        ago(path.asked_ms_ago),
        path.samples.to_string(),
        path.failures.to_string(),
    ]
}
