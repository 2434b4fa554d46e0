//! `[link]` and `[trunk]`

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anabranch_config::{BadInput, Bytes, Rate, Share, Source, Span, did_you_mean, is_name};
use anabranch_core::catalogue::TargetKind;
use anabranch_core::multilink;

use super::written::{
    BeyondText, BufferText, DeclaredText, File, HopTable, LineTable, LineText, LinkTable, LossText,
    MtuText, ServiceText, TraceText, TrunkTable, hop_of,
};
use super::{queue, trace};
use crate::{
    Beyond, Buffer, Declared, Impairments, Line, LinkPlan, Loss, MTU_MAX_BYTES, MTU_MIN_BYTES,
    Network, Passage, Probe, Queue, Red, Site, TraceSource, Trunk,
};

const NAME_CHARS_MAX: usize = 32;
pub(super) const DELAY_MAX: Duration = Duration::from_secs(10);
const DELAY_DEFAULT: Duration = Duration::from_millis(10);
const BUFFER_DEFAULT: Duration = Duration::from_millis(100);
/// What a buffer given as a time holds at least, in full packets.
const BUFFER_PACKETS_MIN: u64 = 10;
/// Of a buffer given in packets: more than any run sends.
const BUFFER_PACKETS_MAX: u64 = u32::MAX as u64;
/// Steps of a trunk's controllers; shorter ones than a packet takes say nothing.
const STEP_MIN: Duration = Duration::from_millis(1);
pub(super) const ACCESS_RATE_BPS: u64 = 100_000_000;
pub(super) const ACCESS_DELAY: Duration = Duration::from_millis(1);
const HOSTS_MAX: u32 = 1_000_000;

/// Resolves lines of one file.
pub(super) struct Lines<'a> {
    pub source: &'a Source<'a>,
    /// Of the file: where its traces are.
    pub folder: &'a Path,
    /// Of every run.
    pub limit: Duration,
    /// Of a full packet.
    pub packet_bytes: u64,
}

/// How fast a line is.
#[derive(Clone)]
struct Pace {
    rate_bps: u64,
    trace: Option<TraceSource>,
}

impl Pace {
    fn constant(rate_bps: u64) -> Pace {
        Pace {
            rate_bps,
            trace: None,
        }
    }
}

/// Where a line's key stands, and what holds if it does not.
type Key<'a> = &'a [&'a str];

/// Groups have `users` together, if there are groups.
pub(super) fn network(
    lines: &Lines<'_>,
    file: &File,
    users: Option<u32>,
) -> Result<Network, BadInput> {
    let source = lines.source;
    match (&file.trunk, file.link.is_empty()) {
        (Some(_), false) => Err(source.bad(&["link"], "a scenario has links or a trunk, not both")),
        (None, true) => Err(source.bad(
            &["link"],
            r#"no link; write link.NAME = { down = "40mbit", up = "20mbit", delay = "6ms" } or a [trunk]"#,
        )),
        (None, false) => site(lines, file).map(Network::Site),
        (Some(_), true) if !file.shared.is_empty() => {
            Err(source.bad(&["shared"], "a trunk has nothing beyond its sublinks; leave it out"))
        }
        (Some(_), true) if file.nat.is_some() => {
            Err(source.bad(&["nat"], "a trunk has no NAT; leave it out"))
        }
        (Some(_), true) if !file.probes.is_empty() => {
            Err(source.bad(&["probes"], "a trunk has no gateway that asks; leave it out"))
        }
        (Some(_), true) if !file.dead_servers.is_empty() => {
            Err(source.bad(&["dead_servers"], "all servers of a trunk answer; leave it out"))
        }
        (Some(table), true) => {
            let mut trunk = trunk(lines, table)?;
            trunk.clients = users.unwrap_or(trunk.clients);
            Ok(Network::Trunk(Box::new(trunk)))
        }
    }
}

fn site(lines: &Lines<'_>, file: &File) -> Result<Site, BadInput> {
    let source = lines.source;
    let weight = ("weight", |table: &&LinkTable| table.weight.is_some());
    let tables = TargetKind::Link.tables(source, &["link"], &file.link, weight)?;
    let shared = shared(lines, file)?;
    let links = tables
        .into_iter()
        .map(|(name, table)| link(lines, name, table, &shared, file.nat.unwrap_or(true)));
    let links = links.collect::<Result<_, _>>()?;
    if !file.probes.is_empty() && file.probes.iter().all(|probe| *probe == Probe::Gateway) {
        let problem = r#"name one on the internet at least: "dns", "tcp" or "icmp""#;
        return Err(source.bad(&["probes"], problem));
    }
    Ok(Site {
        probes: file.probes.clone(),
        dead_servers: file.dead_servers.clone(),
        ..Site::new(links)
    })
}

/// Lines beyond several links by their names; each has a link at least.
fn shared(lines: &Lines<'_>, file: &File) -> Result<BTreeMap<String, Beyond>, BadInput> {
    let line = |(name, hop): (&String, &HopTable)| {
        let key = ["shared", name];
        let bad = |problem: String| Err(lines.source.bad(&key, problem));
        if !is_name(name, NAME_CHARS_MAX) {
            return bad(format!(
                "a name has 1 to {NAME_CHARS_MAX} letters, digits, '-' and '_'"
            ));
        }
        if file.link.contains_key(name) {
            return bad("a link has this name; give the line another".to_owned());
        }
        let is_it = |link: &LinkTable| link.beyond == Some(BeyondText::Shared(name.clone()));
        if !file.link.values().any(is_it) {
            return bad(format!(
                r#"no link has it; write beyond = "{name}" in those that share it"#
            ));
        }
        let (down, up) = lines.hop(&key, hop, Duration::ZERO)?;
        let shared = Some(name.clone());
        Ok((name.clone(), Beyond { shared, down, up }))
    };
    file.shared.iter().map(line).collect()
}

fn beyond(
    lines: &Lines<'_>,
    name: &str,
    written: &BeyondText,
    shared: &BTreeMap<String, Beyond>,
) -> Result<Beyond, BadInput> {
    let key = ["link", name, "beyond"];
    match written {
        BeyondText::Own(hop) => {
            let (down, up) = lines.hop(&key, hop, Duration::ZERO)?;
            let shared = None;
            Ok(Beyond { shared, down, up })
        }
        BeyondText::Shared(line) => shared.get(line).cloned().ok_or_else(|| {
            let meant = did_you_mean(line, shared.keys().map(String::as_str));
            let problem = format!("no such line; write [shared.{line}]{meant}");
            lines.source.bad(&key, problem)
        }),
    }
}

/// `nat` holds where the link says nothing of it.
fn link(
    lines: &Lines<'_>,
    name: &str,
    table: &LinkTable,
    shared: &BTreeMap<String, Beyond>,
    nat: bool,
) -> Result<LinkPlan, BadInput> {
    let key = ["link", name];
    let bad = |part: &str, problem: &str| Err(lines.source.bad(&["link", name, part], problem));
    if !is_name(name, NAME_CHARS_MAX) {
        let allowed =
            format!("a link's name has 1 to {NAME_CHARS_MAX} letters, digits, '-' and '_'");
        return Err(lines.source.bad(&key, allowed));
    }
    if table
        .weight
        .is_some_and(|weight| !(1..=1000).contains(&weight))
    {
        return bad("weight", "a weight is a whole number from 1 to 1000");
    }
    let hop = HopTable {
        trace: table.trace.clone(),
        jitter: table.jitter,
        mtu: table.mtu,
        captive: table.captive,
        filter: table.filter,
        ..hop_of!(table)
    };
    let (down, up) = lines.hop(&key, &hop, DELAY_DEFAULT)?;
    let beyond = match &table.beyond {
        None => None,
        Some(written) => Some(beyond(lines, name, written, shared)?),
    };
    Ok(LinkPlan {
        name: name.to_owned(),
        down,
        up,
        beyond,
        declared: declared(table.declared),
        metered: table.metered,
        weight: table.weight,
        nat: table.nat.unwrap_or(nat),
    })
}

fn declared(written: Option<DeclaredText>) -> Declared {
    match written {
        None => Declared::Actual(true),
        Some(DeclaredText::Actual(told)) => Declared::Actual(told),
        Some(DeclaredText::Rates(rates)) => Declared::Rates {
            down_bps: rates.down.bps(),
            up_bps: rates.up.bps(),
        },
    }
}

fn trunk(lines: &Lines<'_>, table: &TrunkTable) -> Result<Trunk, BadInput> {
    let bad = |key: &str, problem: String| Err(lines.source.bad(&["trunk", key], problem));
    let sublinks = u64::from(table.sublinks);
    let max = TargetKind::Sublink.row().max;
    if !(1..=max as u64).contains(&sublinks) {
        return bad("sublinks", format!("a trunk has 1 to {max} sublinks"));
    }
    let each = LineTable {
        rate: None,
        delay: table.delay,
        loss: table.loss,
        buffer: table.buffer,
        queue: table.queue,
        ..LineTable::default()
    };
    let part_bps = table.rate.bps() / sublinks;
    if part_bps == 0 {
        return bad("rate", format!("is too little for {sublinks} sublinks"));
    }
    let pace = Pace::constant(part_bps);
    let sublink = lines.line(&["trunk"], &each, None, pace, DELAY_DEFAULT)?;
    let single = Line {
        rate_bps: table.rate.bps(),
        buffer: times(sublink.buffer, sublinks),
        queue: queue_times(sublink.queue, sublinks),
        ..sublink.clone()
    };
    let other = |part: &str, table: &Option<LineTable>, rate_bps, delay| {
        let table = table.clone().unwrap_or_default();
        lines.refuse_what_links_have(&["trunk", part], &table)?;
        let pace = Pace::constant(table.rate.map_or(rate_bps, Rate::bps));
        lines.line(&["trunk", part], &table, None, pace, delay)
    };
    Ok(Trunk {
        back: other("back", &table.back, table.rate.bps(), sublink.delay)?,
        access: other("access", &table.access, ACCESS_RATE_BPS, ACCESS_DELAY)?,
        server_access: other(
            "server_access",
            &table.server_access,
            ACCESS_RATE_BPS,
            ACCESS_DELAY,
        )?,
        sublinks: each_sublink(lines, table, &each, part_bps)?,
        single,
        clients: hosts(lines.source, "clients", table.clients)?,
        servers: hosts(lines.source, "servers", table.servers)?,
        control: control(lines.source, table)?,
    })
}

/// The sublinks by their numbers: each is as `each` says where its own table says nothing.
fn each_sublink(
    lines: &Lines<'_>,
    table: &TrunkTable,
    each: &LineTable,
    rate_bps: u64,
) -> Result<Vec<Line>, BadInput> {
    let numbers: Vec<String> = (0..table.sublinks).map(|i| i.to_string()).collect();
    for (number, own) in &table.sublink {
        let bad = |problem: String| Err(lines.source.bad(&["trunk", "sublink", number], problem));
        if !numbers.contains(number) {
            return bad(format!("no such sublink; allowed: {}", numbers.join(", ")));
        }
        lines.refuse_what_links_have(&["trunk", "sublink", number], own)?;
        if own.rate.is_some() {
            return bad("sublinks have equal parts of the trunk's rate; leave rate out".to_owned());
        }
    }
    let sublink = |number: &String| {
        let own = table.sublink.get(number).cloned().unwrap_or_default();
        let all = LineTable {
            rate: None,
            delay: own.delay.or(each.delay),
            loss: own.loss.or(each.loss),
            buffer: own.buffer.or(each.buffer),
            queue: own.queue.or(each.queue),
            ..LineTable::default()
        };
        let key = ["trunk", "sublink", number];
        lines.line(&key, &all, None, Pace::constant(rate_bps), DELAY_DEFAULT)
    };
    numbers.iter().map(sublink).collect()
}

fn hosts(source: &Source<'_>, key: &str, written: Option<u32>) -> Result<u32, BadInput> {
    match written.unwrap_or(1) {
        hosts if (1..=HOSTS_MAX).contains(&hosts) => Ok(hosts),
        _ => Err(source.bad(&["trunk", key], format!("1 to {HOSTS_MAX} are allowed"))),
    }
}

/// The undivided link has room for what all sublinks have.
fn times(buffer: Buffer, sublinks: u64) -> Buffer {
    match buffer {
        Buffer::Bytes(bytes) => Buffer::Bytes(bytes * sublinks),
        Buffer::Packets(packets) => Buffer::Packets(packets * sublinks),
        Buffer::Unlimited => Buffer::Unlimited,
    }
}

/// Lengths grow with the room; times and turns stay.
fn queue_times(queue: Queue, sublinks: u64) -> Queue {
    match queue {
        Queue::Red(red) => Queue::Red(Red {
            min_bytes: red.min_bytes * sublinks,
            max_bytes: red.max_bytes * sublinks,
            ..red
        }),
        other => other,
    }
}

fn control(source: &Source<'_>, table: &TrunkTable) -> Result<multilink::Parameters, BadInput> {
    let default = multilink::Parameters::default();
    let bad = |key: &str, problem: &str| source.bad(&["trunk", key], problem);
    let time = |key: &str, written: Option<Span>, default| {
        let time = written.map_or(default, |Span(time)| time);
        (time >= STEP_MIN)
            .then_some(time)
            .ok_or_else(|| bad(key, "must be 1 ms at least"))
    };
    let percent = |written: Option<Share>, default: u8| {
        written.map_or(default, |Share(share)| (share * 100.0).round() as u8)
    };
    let moved_percent = percent(table.moved, default.moved_percent);
    if moved_percent == 0 {
        return Err(bad("moved", "1% to 100%"));
    }
    let slots = table.slots.unwrap_or(default.slots);
    if !(1..=1000).contains(&slots) {
        return Err(bad("slots", "1 to 1000"));
    }
    Ok(multilink::Parameters {
        check_period: time("check", table.check, default.check_period)?,
        overload_percent: percent(table.overload, default.overload_percent),
        shrink_percent: percent(table.shrink, default.shrink_percent),
        moved_percent,
        slot: time("slot", table.slot, default.slot)?,
        slots,
        bin: table.bin.unwrap_or(default.bin),
        target: table.target.unwrap_or(default.target),
    })
}

impl Lines<'_> {
    /// Both directions of a hop, down and up.
    pub fn hop(
        &self,
        key: Key<'_>,
        table: &HopTable,
        delay: Duration,
    ) -> Result<(Line, Line), BadInput> {
        let of_both = [
            ("rate", table.rate.is_some()),
            ("trace", table.trace.is_some()),
        ];
        if let Some((part, _)) = of_both.iter().find(|(_, is)| *is && table.has_rates()) {
            let key = [key, &[part]].concat();
            let problem = "down and up have rates of their own; leave one of the three out";
            return Err(self.source.bad(&key, problem));
        }
        let direction = |name: &str, written: &Option<LineText>| {
            let both = LineTable {
                rate: table.rate,
                delay: table.delay,
                loss: table.loss,
                buffer: table.buffer,
                queue: table.queue,
                trace: table.trace.clone(),
                jitter: table.jitter,
                mtu: table.mtu,
                captive: table.captive,
                filter: table.filter,
            };
            let own = written.clone().map(|LineText(line)| line);
            let own_pace = match &own {
                None => None,
                Some(own) => self.pace(&[key, &[name]].concat(), own)?,
            };
            let pace = match own_pace {
                Some(pace) => Some(pace),
                None => self.pace(key, &both)?,
            };
            let Some(pace) = pace else {
                let problem = format!(r#"has no rate for {name}; write {name} = "40mbit""#);
                return Err(self.source.bad(key, problem));
            };
            let own = own.map(|own| (name, own));
            self.line(key, &both, own, pace, delay)
        };
        Ok((direction("down", &table.down)?, direction("up", &table.up)?))
    }

    /// What a table says of rate or trace, if anything.
    fn pace(&self, key: Key<'_>, table: &LineTable) -> Result<Option<Pace>, BadInput> {
        let bad = |problem: &str| self.source.bad(&[key, &["trace"]].concat(), problem);
        match (table.rate, &table.trace) {
            (None, None) => Ok(None),
            (Some(rate), None) => Ok(Some(Pace::constant(rate.bps()))),
            (Some(_), Some(_)) => Err(bad("a trace has the rate in it; leave one of the two out")),
            (None, Some(written)) => {
                let trace = self.trace(written).map_err(|problem| bad(&problem))?;
                Ok(Some(Pace {
                    rate_bps: trace.mean_bps(),
                    trace: Some(trace),
                }))
            }
        }
    }

    fn trace(&self, written: &TraceText) -> Result<TraceSource, String> {
        trace::trace(written, self.folder, self.limit)
    }

    /// Of lines that cannot have a trace or impairments.
    pub fn refuse_what_links_have(&self, key: Key<'_>, table: &LineTable) -> Result<(), BadInput> {
        let bad = |part, problem| Err(self.source.bad(&[key, &[part]].concat(), problem));
        if table.trace.is_some() {
            let problem = "only links and what is beyond them follow traces; write a rate";
            return bad("trace", problem);
        }
        let impairments = [
            ("jitter", table.jitter.is_some()),
            ("mtu", table.mtu.is_some()),
            ("captive", table.captive.is_some()),
            ("filter", table.filter.is_some()),
        ];
        match impairments.iter().find(|(_, is)| *is) {
            Some((part, _)) => bad(
                part,
                "only links and what is beyond them have it; leave it out",
            ),
            None => Ok(()),
        }
    }

    /// One direction of this pace: what its `own` table says, then the one for both directions, then the defaults.
    fn line(
        &self,
        key: Key<'_>,
        both: &LineTable,
        own: Option<(&str, LineTable)>,
        pace: Pace,
        delay: Duration,
    ) -> Result<Line, BadInput> {
        let (name, own) = own.unwrap_or_default();
        let own_key: Vec<&str> = key.iter().copied().chain([name]).collect();
        let at = |is_own: bool, part| {
            let table = if is_own { &own_key[..] } else { key };
            [table, &[part]].concat()
        };
        let delay = match own.delay.or(both.delay) {
            None => delay,
            Some(Span(delay)) if delay <= DELAY_MAX => delay,
            Some(_) => {
                let at = at(own.delay.is_some(), "delay");
                return Err(self.source.bad(&at, "a delay is at most 10 s"));
            }
        };
        let buffer = own.buffer.or(both.buffer);
        let buffer = self.buffer(buffer, pace.rate_bps).map_err(|problem| {
            self.source
                .bad(&at(own.buffer.is_some(), "buffer"), problem)
        })?;
        let queue = own.queue.or(both.queue);
        let queue = queue::queue(queue, buffer, self.packet_bytes)
            .map_err(|problem| self.source.bad(&at(own.queue.is_some(), "queue"), problem))?;
        Ok(Line {
            rate_bps: pace.rate_bps,
            trace: pace.trace,
            delay,
            buffer,
            loss: own.loss.or(both.loss).map_or(Loss::None, loss),
            queue,
            impairments: impairments(both, &own)
                .map_err(|(part, is_own, problem)| self.source.bad(&at(is_own, part), problem))?,
        })
    }

    fn buffer(&self, written: Option<BufferText>, rate_bps: u64) -> Result<Buffer, String> {
        let least = BUFFER_PACKETS_MIN * self.packet_bytes;
        let of_time = |time: Duration| {
            let bytes = rate_bps as f64 / 8.0 * time.as_secs_f64();
            Buffer::Bytes((bytes.round() as u64).max(least))
        };
        match written {
            None => Ok(of_time(BUFFER_DEFAULT)),
            Some(BufferText::Time(time)) => Ok(of_time(time)),
            Some(BufferText::Unlimited) => Ok(Buffer::Unlimited),
            Some(BufferText::Packets(0)) => Err("a buffer holds one packet at least".to_owned()),
            Some(BufferText::Packets(packets)) if packets > BUFFER_PACKETS_MAX => Err(format!(
                r#"at most {BUFFER_PACKETS_MAX} packets; or write "unlimited""#
            )),
            Some(BufferText::Packets(packets)) => Ok(Buffer::Packets(packets)),
            Some(BufferText::Bytes(bytes)) if bytes < self.packet_bytes => Err(format!(
                "a buffer holds one packet at least, which has {} bytes",
                self.packet_bytes
            )),
            Some(BufferText::Bytes(bytes)) => Ok(Buffer::Bytes(bytes)),
        }
    }
}

/// As the table for both directions says, but for what the one of its `own` does. Otherwise the key that is wrong, whether that is in
/// its own table, and why.
fn impairments(
    both: &LineTable,
    own: &LineTable,
) -> Result<Impairments, (&'static str, bool, String)> {
    let is_own = own.captive.is_some() || own.filter.is_some();
    let table = if is_own { own } else { both };
    let passage = passage(table.captive, table.filter)
        .map_err(|problem| ("captive", is_own, problem.to_owned()))?;
    let jitter = own
        .jitter
        .or(both.jitter)
        .map_or(Ok(Duration::ZERO), jitter);
    let mtu_bytes = own.mtu.or(both.mtu).map_or(Ok(None), mtu_bytes);
    Ok(Impairments {
        jitter: jitter.map_err(|problem| ("jitter", own.jitter.is_some(), problem))?,
        mtu_bytes: mtu_bytes.map_err(|problem| ("mtu", own.mtu.is_some(), problem))?,
        passage: passage.unwrap_or_default(),
    })
}

pub(super) fn jitter(Span(time): Span) -> Result<Duration, String> {
    match time <= DELAY_MAX {
        true => Ok(time),
        false => Err("a jitter is at most 10 s".to_owned()),
    }
}

pub(super) fn mtu_bytes(MtuText(written): MtuText) -> Result<Option<u32>, String> {
    let Some(Bytes(bytes)) = written else {
        return Ok(None);
    };
    let allowed = MTU_MIN_BYTES..=MTU_MAX_BYTES;
    let bytes = u32::try_from(bytes).ok().filter(|it| allowed.contains(it));
    bytes.map(Some).ok_or_else(|| {
        format!("an MTU is {MTU_MIN_BYTES} B to {MTU_MAX_BYTES} B, or false for any")
    })
}

/// None if nothing is said of it.
pub(super) fn passage(
    captive: Option<ServiceText>,
    filter: Option<ServiceText>,
) -> Result<Option<Passage>, &'static str> {
    let said = |written: Option<ServiceText>| written.and_then(|ServiceText(service)| service);
    match (said(captive), said(filter)) {
        (Some(_), Some(_)) => Err("a captive line carries nothing else; leave filter out"),
        (Some(service), None) => Ok(Some(Passage::Only(service))),
        (None, Some(service)) => Ok(Some(Passage::AllBut(service))),
        (None, None) => Ok((captive.is_some() || filter.is_some()).then_some(Passage::All)),
    }
}

pub(super) fn loss(written: LossText) -> Loss {
    match written {
        LossText::Independent(Share(0.0)) => Loss::None,
        LossText::Independent(Share(probability)) => Loss::Independent { probability },
        LossText::PerHop(Share(0.0)) => Loss::None,
        LossText::PerHop(Share(probability)) => Loss::PerHop { probability },
        LossText::Bursty(bursts) => Loss::Bursty {
            good_to_bad: bursts.good_to_bad.0,
            bad_to_good: bursts.bad_to_good.0,
            loss_good: bursts.loss_good.map_or(0.0, |share| share.0),
            loss_bad: bursts.loss_bad.map_or(1.0, |share| share.0),
        },
    }
}
