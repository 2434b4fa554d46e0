//! `[workload]`

use std::time::Duration;

use anabranch_config::{BadInput, Bytes, Source, Span};
use anabranch_workload::{
    Arrival, ArrivalPlan, BadSize, Bursts, Class, ClassId, Extent, Mix, Pacing, Pattern,
    RemoteServerId, Size, Trace, UserId, Workload,
};

use super::written::{
    BurstsTable, Kind, RowTable, ServersText, SizeTable, SizeText, WorkloadTable,
};
use crate::Demand;

const USERS_MAX: u32 = 1_000_000;
const COUNT_MAX: u32 = 1_000_000;
/// Transfers of one run, and hosts that have some to begin: more do not fit into memory.
const TRANSFERS_MAX: f64 = 1e7;
/// Transfers that users keep going at the same time.
const AT_ONCE_MAX: u64 = 1_000_000;
/// Bursts that are drawn before the arrivals between them.
const BURSTS_MAX: f64 = 1e6;
/// Of users who keep links loaded, as in the demo.
const USERS_CONTINUOUS: u32 = 8;
const DOWNLOADS: u32 = 5;
const DOWNLOAD_BYTES: u64 = 250_000;
const ROUNDS: u32 = 10;

/// Reads one workload; the run's seed replaces the plan's.
struct Reader<'a> {
    source: &'a Source<'a>,
    table: WorkloadTable,
    /// Of the group that it is for.
    users: Option<u32>,
    limit: Duration,
}

/// What is asked for by all users, or by so many of a group.
pub(super) fn demand(
    source: &Source<'_>,
    written: Option<WorkloadTable>,
    users: Option<u32>,
    limit: Duration,
) -> Result<Demand, BadInput> {
    let Some(table) = written else {
        return Ok(Demand::Pages(Workload::continuous(
            users.unwrap_or(USERS_CONTINUOUS),
            DOWNLOADS,
            Size::Fixed(DOWNLOAD_BYTES),
            limit,
        )));
    };
    let reader = Reader {
        source,
        table,
        users,
        limit,
    };
    reader.refuse_what_is_of_another_kind()?;
    match reader.table.kind {
        Kind::Pages => reader.pages(),
        Kind::Continuous => reader.continuous(),
        Kind::Mix | Kind::Trace | Kind::Rows => reader.arrivals(),
    }
}

/// The keys of a kind, beside `kind`.
fn keys(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::Pages => &[
            "users", "files", "rounds", "size", "think", "period", "jitter",
        ],
        Kind::Continuous => &["users", "downloads", "size"],
        Kind::Mix => &["users", "servers", "duration", "exact", "class"],
        Kind::Trace => &[
            "users",
            "servers",
            "duration",
            "connections",
            "bytes",
            "size",
            "direction",
            "bursts",
        ],
        Kind::Rows => &["rows"],
    }
}

impl Reader<'_> {
    fn refuse_what_is_of_another_kind(&self) -> Result<(), BadInput> {
        let table = &self.table;
        let written = [
            ("users", table.users.is_some()),
            ("servers", table.servers.is_some()),
            ("files", table.files.is_some()),
            ("rounds", table.rounds.is_some()),
            ("think", table.think.is_some()),
            ("period", table.period.is_some()),
            ("jitter", table.jitter.is_some()),
            ("downloads", table.downloads.is_some()),
            ("size", table.size.is_some()),
            ("duration", table.duration.is_some()),
            ("class", table.class.is_some()),
            ("exact", table.exact.is_some()),
            ("connections", table.connections.is_some()),
            ("bytes", table.bytes.is_some()),
            ("direction", table.direction.is_some()),
            ("bursts", table.bursts.is_some()),
            ("rows", table.rows.is_some()),
        ];
        let allowed = keys(table.kind);
        match written
            .iter()
            .find(|(key, is)| *is && !allowed.contains(key))
        {
            None => Ok(()),
            Some((key, _)) => {
                let kind = format!("{:?}", table.kind).to_lowercase();
                let allowed = allowed.join(", ");
                Err(self.bad(
                    key,
                    format!("kind = \"{kind}\" has no such key; allowed: {allowed}"),
                ))
            }
        }
    }

    fn pages(&self) -> Result<Demand, BadInput> {
        let span = |written: Option<Span>, default| written.map_or(default, |Span(span)| span);
        let files = self.count("files", self.table.files, 1)?;
        let rounds = self.count("rounds", self.table.rounds, ROUNDS)?;
        self.at_once(Workload {
            pacing: Pacing {
                think: span(self.table.think, Pacing::PENG.think),
                min_period: span(self.table.period, Pacing::PENG.min_period),
                jitter: span(self.table.jitter, Pacing::PENG.jitter),
            },
            size: self.size("size", self.table.size)?.unwrap_or(Size::PENG),
            extent: Extent::Rounds(rounds),
            ..Workload::page_rounds(self.users(1)?, files, rounds)
        })
    }

    fn continuous(&self) -> Result<Demand, BadInput> {
        let size = self.size("size", self.table.size)?;
        self.at_once(Workload::continuous(
            self.users(USERS_CONTINUOUS)?,
            self.count("downloads", self.table.downloads, DOWNLOADS)?,
            size.unwrap_or(Size::Fixed(DOWNLOAD_BYTES)),
            self.limit,
        ))
    }

    fn at_once(&self, workload: Workload) -> Result<Demand, BadInput> {
        match workload.connections_at_once() {
            count if count > AT_ONCE_MAX => {
                let problem = format!("{count} transfers at once; at most {AT_ONCE_MAX}");
                Err(self.source.bad(&["workload"], problem))
            }
            _ => Ok(Demand::Pages(workload)),
        }
    }

    fn arrivals(&self) -> Result<Demand, BadInput> {
        let pattern = match self.table.kind {
            Kind::Mix => Pattern::Mix(self.mix()?),
            Kind::Trace => Pattern::Trace(self.trace()?),
            _ => Pattern::Rows(self.rows()?),
        };
        pattern
            .check()
            .map_err(|bad| self.source.bad(&["workload"], bad))?;
        bounded(&pattern).map_err(|problem| self.source.bad(&["workload"], problem))?;
        Ok(Demand::Arrivals(ArrivalPlan { pattern, seed: 1 }))
    }

    fn mix(&self) -> Result<Mix, BadInput> {
        let Some(tables) = &self.table.class else {
            return Err(self.bad(
                "class",
                r#"missing; write class.NAME = { per_user = "0.1/s", size = "10kB" }"#,
            ));
        };
        let mut tables: Vec<_> = tables.iter().collect();
        tables.sort_by_key(|(name, _)| self.source.position(&["workload", "class", name]));
        let servers = self.count("servers", self.table.servers, 1)?;
        let class = |(name, table): (&String, &super::written::ClassTable)| {
            let size = size(table.size);
            let size = size.map_err(|problem| {
                let key = ["workload", "class", name, "size"];
                self.source.bad(&key, problem)
            })?;
            Ok(Class {
                name: name.clone(),
                per_user_per_s: table.per_user.0,
                size,
                servers: self.servers(name, table.server.as_ref(), servers)?,
                direction: table.direction.unwrap_or_default(),
                bursts: table.bursts.map(bursts),
            })
        };
        Ok(Mix {
            users: self.users(1)?,
            servers,
            duration_s: self.duration_s()?,
            exact: self.table.exact.unwrap_or(false),
            classes: tables.into_iter().map(class).collect::<Result<_, _>>()?,
        })
    }

    /// Those that a class of a mix asks, of so many.
    fn servers(
        &self,
        class: &str,
        written: Option<&ServersText>,
        count: u32,
    ) -> Result<Vec<RemoteServerId>, BadInput> {
        let Some(ServersText(servers)) = written else {
            return Ok(Vec::new());
        };
        let bad = |problem: String| {
            let key = ["workload", "class", class, "server"];
            Err(self.source.bad(&key, problem))
        };
        if servers.is_empty() {
            return bad("an empty list; leave the key out for any".to_owned());
        }
        if servers.iter().any(|server| *server >= count) {
            let last = count - 1;
            return bad(format!(
                "0 to {last} are allowed; servers says how many there are"
            ));
        }
        if (1..servers.len()).any(|i| servers[..i].contains(&servers[i])) {
            return bad("a server is there twice".to_owned());
        }
        Ok(servers.iter().copied().map(RemoteServerId).collect())
    }

    fn trace(&self) -> Result<Trace, BadInput> {
        let missing = |key: &str| self.bad(key, "missing; a trace has connections, bytes and size");
        let size = self.size("size", self.table.size)?;
        Ok(Trace {
            connections: self
                .table
                .connections
                .ok_or_else(|| missing("connections"))?,
            bytes: self.table.bytes.ok_or_else(|| missing("bytes"))?.0,
            duration_s: self.duration_s()?,
            size: size.ok_or_else(|| missing("size"))?,
            direction: self.table.direction.unwrap_or_default(),
            users: self.users(1)?,
            servers: self.count("servers", self.table.servers, 1)?,
            bursts: self.table.bursts.map(bursts),
        })
    }

    fn rows(&self) -> Result<Vec<Arrival>, BadInput> {
        let Some(rows) = &self.table.rows else {
            return Err(self.bad(
                "rows",
                r#"missing; write rows = [{ at = "1s", size = "10kB" }]"#,
            ));
        };
        let arrival = |(index, row): (usize, &RowTable)| {
            let bad = |key: &str, problem: String| {
                let key = ["workload", "rows", &index.to_string(), key];
                Err(self.source.bad(&key, problem))
            };
            if row.at.0 >= self.limit {
                let end_s = self.limit.as_secs_f64();
                return bad("at", format!("is not before the end of the run, {end_s} s"));
            }
            let users = self.users.unwrap_or(USERS_MAX);
            for (key, number, count) in
                [("user", row.user, users), ("server", row.server, USERS_MAX)]
            {
                if number >= count {
                    return bad(key, format!("0 to {} are allowed", count - 1));
                }
            }
            Ok(Arrival {
                at: row.at.0,
                user: UserId(row.user),
                server: RemoteServerId(row.server),
                class: ClassId::default(),
                bytes: row.size.0,
                direction: row.direction.unwrap_or_default(),
            })
        };
        rows.iter().enumerate().map(arrival).collect()
    }

    fn users(&self, default: u32) -> Result<u32, BadInput> {
        if self.users.is_some() && self.table.users.is_some() {
            return Err(self.bad("users", "groups say how many users they have; leave it out"));
        }
        let default = self.users.unwrap_or(default);
        match self.table.users.unwrap_or(default) {
            users if (1..=USERS_MAX).contains(&users) => Ok(users),
            _ => Err(self.bad("users", format!("1 to {USERS_MAX} users are allowed"))),
        }
    }

    fn count(&self, key: &str, written: Option<u32>, default: u32) -> Result<u32, BadInput> {
        match written.unwrap_or(default) {
            count if (1..=COUNT_MAX).contains(&count) => Ok(count),
            _ => Err(self.bad(key, format!("1 to {COUNT_MAX} are allowed"))),
        }
    }

    fn duration_s(&self) -> Result<f64, BadInput> {
        let duration = self.table.duration.map_or(self.limit, |Span(span)| span);
        if duration > self.limit {
            return Err(self.bad("duration", "is longer than the run; make length longer"));
        }
        Ok(duration.as_secs_f64())
    }

    fn size(&self, key: &str, written: Option<SizeText>) -> Result<Option<Size>, BadInput> {
        let size = written.map(size).transpose();
        size.map_err(|problem| self.bad(key, problem))
    }

    fn bad(&self, key: &str, problem: impl std::fmt::Display) -> BadInput {
        self.source.bad(&["workload", key], problem)
    }
}

/// Whether what the pattern draws fits into memory.
fn bounded(pattern: &Pattern) -> Result<(), String> {
    let within = |count: f64, max: f64, what: &str| match count > max {
        true => Err(format!("{count:.0} {what}; at most {max:.0}")),
        false => Ok(()),
    };
    // A user's next transfer may begin long after the run has ended; 40 means are enough.
    let drawn = |bursts: Option<Bursts>, until_s: f64| {
        let bursts = bursts.map_or(0.0, |bursts| until_s / (bursts.burst_s + bursts.quiet_s));
        within(bursts, BURSTS_MAX, "bursts")
    };
    match pattern {
        Pattern::Mix(mix) => {
            let users = f64::from(mix.users);
            let per_user_per_s: f64 = mix.classes.iter().map(|class| class.per_user_per_s).sum();
            let transfers = users * per_user_per_s * mix.duration_s;
            within(transfers, TRANSFERS_MAX, "transfers are expected")?;
            let sources = users * mix.classes.len() as f64;
            within(sources, TRANSFERS_MAX, "users times classes")?;
            mix.classes.iter().try_for_each(|class| {
                drawn(class.bursts, mix.duration_s + 40.0 / class.per_user_per_s)
            })
        }
        Pattern::Trace(trace) => {
            let connections = f64::from(trace.connections);
            within(connections, TRANSFERS_MAX, "connections")?;
            drawn(trace.bursts, trace.duration_s)
        }
        Pattern::Rows(_) => Ok(()),
    }
}

fn size(written: SizeText) -> Result<Size, String> {
    let size = match written {
        SizeText::Fixed(Bytes(bytes)) => Size::Fixed(bytes),
        SizeText::Drawn(table) => drawn(table)?,
    };
    size.check().map_err(|bad: BadSize| bad.to_string())?;
    Ok(size)
}

fn drawn(table: SizeTable) -> Result<Size, String> {
    match table {
        SizeTable {
            exponential: Some(mean),
            lognormal: None,
            sigma: None,
            pareto: None,
            min: None,
            max: None,
        } => Ok(Size::Exponential {
            mean_bytes: mean.0 as f64,
        }),
        SizeTable {
            exponential: None,
            lognormal: Some(median),
            sigma: Some(sigma),
            pareto: None,
            min: None,
            max: None,
        } => Ok(Size::Lognormal {
            median_bytes: median.0 as f64,
            sigma,
        }),
        SizeTable {
            exponential: None,
            lognormal: None,
            sigma: None,
            pareto: Some(alpha),
            min: Some(min),
            max: Some(max),
        } => Ok(Size::BoundedPareto {
            alpha,
            min_bytes: min.0,
            max_bytes: max.0,
        }),
        _ => Err(
            r#"write one of { exponential = MEAN }, { lognormal = MEDIAN, sigma = 1.5 }, { pareto = 1.2, min = "4kB", max = "1MB" }"#
                .to_owned(),
        ),
    }
}

fn bursts(written: BurstsTable) -> Bursts {
    Bursts {
        burst_s: written.burst.0.as_secs_f64(),
        quiet_s: written.quiet.0.as_secs_f64(),
        share: written.share.0,
    }
}
