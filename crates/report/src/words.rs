//! What a run was, in words: one fact per row of the report. `manifest.json` has the same exactly and for machines.

use std::time::Duration;

use anabranch_scenario::{
    Access, Buffer, Codel, Control, Declared, Demand, Event, Group, Growth, Line, LinkPlan, Load,
    Network, Ports, Queue, Recovery, Run, Tcp, TraceSource, Trunk, format, loss_text,
};
use anabranch_workload::{ArrivalPlan, Bursts, Direction, Extent, Pattern, Size, Workload};

type Fact = (String, String);

/// The plan of a run: what there is, what happens to it, what is asked for, and how TCP behaves.
pub(crate) fn plan(run: &Run) -> Vec<Fact> {
    let scenario = &run.scenario;
    let mut facts = match &scenario.network {
        Network::Site(site) => {
            let links = site.links.iter().flat_map(link).collect::<Vec<_>>();
            let nat = if site.links.iter().all(|link| link.nat) {
                " behind NAT"
            } else {
                ""
            };
            let count = format!("{}{nat}", counted(site.links.len(), "link"));
            [vec![fact("site", count)], links].concat()
        }
        Network::Trunk(plan) => trunk(plan),
    };
    facts.extend(scenario.faults.iter().map(|fault| {
        let event = match &scenario.network {
            Network::Site(_) => Event::of(fault),
            Network::Trunk(_) => Event::of_sublink(fault),
        };
        fact(format!("at {}", time(fault.at)), event.text)
    }));
    facts.extend(load(&scenario.load));
    facts.push(fact("policy", &run.policy_name));
    facts.push(fact(
        "length",
        format!(
            "{}, a sample every {}, patience {}",
            time(scenario.limit),
            time(scenario.sample),
            time(scenario.patience)
        ),
    ));
    if !matches!(scenario.load, Load::Groups(_)) {
        facts.push(fact("TCP", tcp(&scenario.tcp)));
    }
    facts
}

fn fact(key: impl ToString, value: impl ToString) -> Fact {
    (key.to_string(), value.to_string())
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

fn time(time: Duration) -> String {
    format::seconds(time.as_secs_f64())
}

fn line(line: &Line) -> String {
    let rate = format::bps(line.rate_bps as f64) + trace(line);
    let buffer = match line.buffer {
        Buffer::Bytes(bytes) => format!("a buffer of {}", format::bytes(bytes)),
        Buffer::Packets(packets) => format!("a buffer of {packets} packets"),
        Buffer::Unlimited => "an unlimited buffer".to_owned(),
    };
    let queue = queue(&line.queue);
    let delay = time(line.delay);
    format!(
        "{rate}, {delay} away, {buffer}{queue}, {}",
        loss_text(line.loss)
    )
}

fn trace(line: &Line) -> &'static str {
    match line.trace {
        None => "",
        Some(TraceSource::Recorded { .. }) => " in the mean of a recorded trace",
        Some(TraceSource::Lte(_)) => " in the mean of a trace as LTE has it",
        Some(TraceSource::Cable(_)) => " that last of a trace as cable has it",
    }
}

fn queue(queue: &Queue) -> String {
    let ecn = |marks| {
        if marks {
            ", marking ECN-capable packets"
        } else {
            ""
        }
    };
    let codel = |codel: &Codel| {
        let (target, interval) = (time(codel.target), time(codel.interval));
        format!("{target} in {interval}{}", ecn(codel.ecn))
    };
    match queue {
        Queue::DropTail => String::new(),
        Queue::Red(red) => format!(
            ", {}RED from {} to {} of mean queue (weight {}) up to {}{}",
            if red.gentle { "gentle " } else { "" },
            format::bytes(red.min_bytes),
            format::bytes(red.max_bytes),
            red.weight,
            format::percent(red.max_probability),
            ecn(red.ecn)
        ),
        Queue::Codel(plan) => format!(", CoDel to {}", codel(plan)),
        Queue::FqCodel(fq) => format!(
            ", FQ-CoDel to {}, {} queues in turns of {}",
            codel(&fq.codel),
            fq.flows,
            format::bytes(fq.quantum_bytes.into())
        ),
    }
}

fn link(link: &LinkPlan) -> Vec<Fact> {
    let name = &link.name;
    let mut facts = vec![
        fact(format!("{name} down"), line(&link.down)),
        fact(format!("{name} up"), line(&link.up)),
    ];
    if let Some(beyond) = &link.beyond {
        let shared = beyond.shared.as_ref();
        let shared = shared.map_or_else(String::new, |line| format!(", {line}, which links share"));
        for (direction, hop) in [("down", &beyond.down), ("up", &beyond.up)] {
            facts.push(fact(
                format!("beyond {name}, {direction}"),
                line(hop) + &shared,
            ));
        }
    }
    let weight = link.weight.map(|weight| format!("weight {weight}"));
    let metered = link.metered.then(|| "metered".to_owned());
    let declared = match link.declared {
        Declared::Actual(true) => None,
        Declared::Actual(false) => Some("its rates are not told to the gateway".to_owned()),
        Declared::Rates { down_bps, up_bps } => Some(format!(
            "the gateway is told {} down and {} up",
            format::bps(down_bps as f64),
            format::bps(up_bps as f64)
        )),
    };
    let routed = (!link.nat).then(|| "without NAT".to_owned());
    let told = [routed, weight, metered, declared];
    let told: Vec<String> = told.into_iter().flatten().collect();
    if !told.is_empty() {
        facts.push(fact(name, told.join(", ")));
    }
    facts
}

fn trunk(trunk: &Trunk) -> Vec<Fact> {
    let control = &trunk.control;
    let mut facts = vec![fact("trunk", counted(trunk.sublinks.len(), "sublink"))];
    let equal = trunk.sublinks.iter().all(|line| *line == trunk.sublinks[0]);
    match equal {
        true => facts.push(fact("each sublink", line(&trunk.sublinks[0]))),
        false => facts.extend(
            (0..)
                .zip(&trunk.sublinks)
                .map(|(number, sublink): (u32, _)| {
                    fact(format!("sublink {number}"), line(sublink))
                }),
        ),
    }
    facts.extend([
        fact("undivided link", line(&trunk.single)),
        fact("line back", line(&trunk.back)),
        fact("access of a client", line(&trunk.access)),
        fact("access of a server", line(&trunk.server_access)),
        fact("hosts", format!("{} clients, {} servers", trunk.clients, trunk.servers)),
        fact(
            "DH and DHFV",
            format!(
                "look at queues every {}, overloaded above {} % of a buffer unless shrinking by {} %; DH moves {} % of the bins, target {}; DHFV sums {} slots of {}",
                time(control.check_period),
                control.overload_percent,
                control.shrink_percent,
                control.moved_percent,
                control.target,
                control.slots,
                time(control.slot)
            ),
        ),
    ]);
    facts
}

fn load(load: &Load) -> Vec<Fact> {
    match load {
        Load::Pages(workload) => vec![fact("workload", pages(workload))],
        Load::Arrivals(plan) => arrivals(plan),
        Load::Groups(groups) => groups.iter().flat_map(group).collect(),
    }
}

fn group(group: &Group) -> Vec<Fact> {
    let name = format!("group {}", group.name);
    let mut facts = vec![fact(&name, counted(group.users as usize, "user"))];
    if let Some(Access { down, up }) = &group.access {
        facts.push(fact(format!("{name}, to each user"), line(down)));
        facts.push(fact(format!("{name}, from each user"), line(up)));
    }
    facts.push(fact(format!("{name}, TCP"), tcp(&group.tcp)));
    let asked = match &group.demand {
        Demand::Pages(workload) => vec![fact("workload", pages(workload))],
        Demand::Arrivals(plan) => arrivals(plan),
    };
    let asked = asked.into_iter();
    facts.extend(asked.map(|(key, value)| fact(format!("{name}, {key}"), value)));
    facts
}

fn pages(workload: &Workload) -> String {
    let users = counted(workload.users as usize, "user");
    let bytes = size(&workload.size);
    match workload.extent {
        Extent::Duration(_) => format!(
            "{users}, each with {} of {bytes} at any time",
            counted(workload.tabs_per_user as usize, "download")
        ),
        Extent::Rounds(rounds) => format!(
            "{users}, each asks for {} of {bytes} at once in each of {}, {} after the last and {} after its beginning at least",
            counted(workload.files_per_round as usize, "file"),
            counted(rounds as usize, "round"),
            time(workload.pacing.think),
            time(workload.pacing.min_period)
        ),
    }
}

fn arrivals(plan: &ArrivalPlan) -> Vec<Fact> {
    let ends = |users, servers| format!("{users} users, {servers} servers");
    match &plan.pattern {
        Pattern::Mix(mix) => {
            let exact = if mix.exact { ", exact totals" } else { "" };
            let ends = ends(mix.users, mix.servers);
            let all = format!("{ends}, {}{exact}", format::seconds(mix.duration_s));
            let classes = mix.classes.iter().map(|class| {
                let value = format!(
                    "{} per user and second, {}, {}{}",
                    class.per_user_per_s,
                    size(&class.size),
                    way(class.direction),
                    crowded(class.bursts)
                );
                fact(format!("class {}", class.name), value)
            });
            std::iter::once(fact("workload", all))
                .chain(classes)
                .collect()
        }
        Pattern::Trace(trace) => vec![fact(
            "workload",
            format!(
                "a trace of {} connections and {} {} in {}, sizes like {}, {}{}",
                trace.connections,
                format::bytes(trace.bytes),
                way(trace.direction),
                format::seconds(trace.duration_s),
                size(&trace.size),
                ends(trace.users, trace.servers),
                crowded(trace.bursts)
            ),
        )],
        Pattern::Rows(rows) => {
            let bytes = rows.iter().map(|row| row.bytes).sum();
            let bytes = format::bytes(bytes);
            let transfers = counted(rows.len(), "transfer");
            vec![fact("workload", format!("{transfers} as listed, {bytes}"))]
        }
    }
}

fn way(direction: Direction) -> &'static str {
    match direction {
        Direction::Down => "down",
        Direction::Up => "up",
    }
}

fn crowded(bursts: Option<Bursts>) -> String {
    let words = |bursts: Bursts| {
        format!(
            ", {} of it in bursts of {} with {} of quiet between",
            format::percent(bursts.share),
            format::seconds(bursts.burst_s),
            format::seconds(bursts.quiet_s)
        )
    };
    bursts.map(words).unwrap_or_default()
}

fn size(size: &Size) -> String {
    let bytes = |bytes: f64| format::bytes(bytes.round() as u64);
    match *size {
        Size::Fixed(fixed) => format::bytes(fixed),
        Size::Exponential { mean_bytes } => format!("{} exponentially", bytes(mean_bytes)),
        Size::Lognormal {
            median_bytes,
            sigma,
        } => format!("{} lognormally (median, σ {sigma})", bytes(median_bytes)),
        Size::BoundedPareto {
            alpha,
            min_bytes,
            max_bytes,
        } => format!(
            "{} to {} (Pareto, α {alpha})",
            format::bytes(min_bytes),
            format::bytes(max_bytes)
        ),
    }
}

fn tcp(tcp: &Tcp) -> String {
    let control = match (tcp.control, tcp.hystart) {
        (Control::Reno, _) => "Reno",
        (Control::Cubic, true) => "CUBIC with HyStart++",
        (Control::Cubic, false) => "CUBIC without HyStart++",
        (Control::CubicLinux, true) => "Linux's CUBIC with HyStart",
        (Control::CubicLinux, false) => "Linux's CUBIC without HyStart",
        (Control::Bbr, _) => "BBR",
    };
    let paced = if tcp.pacing { ", paced" } else { "" };
    let recovery = match tcp.recovery {
        Recovery::Reno => "recovery of Reno",
        Recovery::NewReno => "recovery of NewReno",
        Recovery::NewRenoSlowButSteady => "recovery of NewReno, slow but steady",
        Recovery::Sack => "SACK",
        Recovery::Rack => "RACK-TLP",
    };
    let dsack = if tcp.dsack { " with DSACK" } else { "" };
    let ecn = if tcp.ecn { ", ECN" } else { "" };
    let growth = match tcp.growth {
        Growth::PerAck => "acknowledgement",
        Growth::PerSegment => "acknowledged segment",
    };
    let delayed = match tcp.delayed_ack {
        Some(delay) => format!("acknowledgements delayed by {} at most", time(delay)),
        None => "every segment acknowledged at once".to_owned(),
    };
    let ports = match tcp.ports {
        Ports::Random => "",
        Ports::Consecutive => ", consecutive ports",
    };
    let overhead = match tcp.overhead.is_zero() {
        true => String::new(),
        false => format!(", packets leave hosts up to {} late", time(tcp.overhead)),
    };
    format!(
        "{control}{paced}, {recovery}{dsack}{ecn}, the window grows by {growth}, {delayed}, windows of {} (first, 1 after {} lost SYNs) and \
         {} segments (receiver) of {} bytes with headers of {}, timeouts of {} at least{overhead}{ports}",
        tcp.initial_window,
        tcp.lost_syns,
        tcp.receive_window,
        tcp.mss_bytes,
        tcp.header_bytes,
        time(tcp.min_rto)
    )
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use anabranch_scenario::ScenarioFile;

    use super::*;

    fn told(text: &str) -> String {
        let file = ScenarioFile::parse(Path::new("house.toml"), text).unwrap();
        let facts = plan(&file.runs()[0]);
        let rows: Vec<String> = facts.iter().map(|(k, v)| format!("{k}: {v}")).collect();
        rows.join("\n").replace('\u{202f}', " ")
    }

    #[test]
    fn a_site_is_told_line_by_line() {
        let told = told(
            r#"
            length = "9s"
            fault = [{ at = "3s", link = "lte", rate = "1mbit" }]
            workload = { kind = "mix", class.web = { per_user = "0.5/s", size = { lognormal = "10kB", sigma = 1.5 } } }
            [link.lte]
            down = { rate = "15mbit", delay = "22.5ms", loss = "1%" }
            up = "8mbit"
            metered = true
            beyond = { rate = "100mbit", queue = { kind = "red", min = "15kB", max = "45kB" } }
            "#,
        );
        for row in [
            "site: 1 link behind NAT",
            "lte down: 15.0 Mbit/s, 22.5 ms away, a buffer of 188 kB, loses 1.00 % of packets",
            "beyond lte, up: 100 Mbit/s, 0 s away, a buffer of 1.25 MB, RED from 15.0 kB to 45.0 kB of mean queue (weight 0.002) up to 10.0 %, loses no packets",
            "lte: metered",
            "at 3.00 s: lte has 1.00 Mbit/s",
            "class web: 0.5 per user and second, 10.0 kB lognormally (median, σ 1.5), down",
            "policy: WSDM",
            "length: 9.00 s, a sample every 100 ms, patience 10.0 s",
            "TCP: CUBIC with HyStart++, SACK, ",
        ] {
            assert!(told.contains(row), "{row} is not in\n{told}");
        }
    }

    #[test]
    fn groups_and_queues_are_told_one_by_one() {
        let told = told(
            r#"
            link.a = { rate = "20mbit", queue = { kind = "codel", ecn = true }, up = { rate = "9mbit", queue = "fq-codel" } }
            tcp.control = "reno"
            group.near = { users = 1, workload = { kind = "pages" } }
            group.far = { users = 2, delay = "7ms", tcp.control = "cubic" }
            "#,
        );
        for row in [
            "a buffer of 250 kB, CoDel to 5.00 ms in 100 ms, marking ECN-capable packets, loses",
            ", FQ-CoDel to 5.00 ms in 100 ms, 1024 queues in turns of 1.50 kB, loses",
            "group near: 1 user\ngroup near, TCP: Reno, ",
            "group near, workload: 1 user, each asks for 1 file of 50.2 kB",
            "group far, to each user: 1.00 Gbit/s, 7.00 ms away",
            "group far, TCP: CUBIC with HyStart++, ",
            "group far, workload: 2 users, each with 5 downloads",
        ] {
            assert!(told.contains(row), "{row} is not in\n{told}");
        }
        assert!(!told.contains("\nTCP: "), "{told}");
    }

    #[test]
    fn a_trunk_is_told_with_sublinks_that_differ_and_as_one_line_if_none_does() {
        let equal = told("trunk = { sublinks = 3, rate = \"3mbit\" }");
        assert!(equal.contains("trunk: 3 sublinks\neach sublink: 1.00 Mbit/s, "));
        assert!(equal.contains("workload: 8 users, each with 5 downloads of 250 kB at any time"));
        let other = told("trunk = { sublinks = 2, rate = \"2mbit\", sublink.1.delay = \"7ms\" }");
        assert!(
            other.contains("sublink 1: 1.00 Mbit/s, 7.00 ms away"),
            "{other}"
        );
    }
}
