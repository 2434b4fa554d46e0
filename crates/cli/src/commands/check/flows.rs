//! A list of flows, and which rule takes each: tests of one's own rules.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use anabranch_config::{BadInput, did_you_mean, read_text};
use anabranch_console::output::print;
use anabranch_console::table;
use anabranch_core::rules::file::{DEFAULT_CLASS, protocol_of};
use anabranch_core::rules::{Class, Moment, Sample, Trial, Verdict, dscp_of};
use anabranch_daemon::config::{Config, Configuration};
use anyhow::ensure;

use crate::args::CLIENT_PORT;

const SHAPE: &str = r#"write a flow like: tcp 192.168.1.20 > 203.0.113.7:443 dscp ef device eth0 at "mon 09:00" = video"#;
const ICMP: &str = "icmp";

/// A line of the file.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    sample: Sample,
    at: Option<Moment>,
    /// The class that is to take it.
    expected: Option<String>,
}

pub fn explain(config: &Path, flows: &Path) -> anyhow::Result<()> {
    let Some(config) = Configuration::load(config)?.gateway else {
        let problem = format!("{}: a trunk has no rules", config.display());
        return Err(BadInput::new(problem).into());
    };
    let text = read_text(flows)?;
    let lines = (1..).zip(text.lines()).map(|(number, line)| {
        let asked = parse(line).and_then(|asked| asked.map(|a| complete(&config, a)).transpose());
        asked
            .map_err(|problem| BadInput::new(format!("{}:{number}: {problem}", flows.display())))
            .map(|asked| asked.map(|asked| (number, line, asked)))
    });
    let asked: Vec<_> = lines
        .filter_map(Result::transpose)
        .collect::<Result<_, _>>()?;
    let mut trial = Trial::new(&config.rules, &config.lan)?;
    let (mut told, mut wrong) = (String::new(), 0);
    for (number, line, asked) in &asked {
        let at = asked.at.unwrap_or(Moment::new(0, 0));
        let verdict = trial.verdict(&asked.sample, at);
        writeln!(told, "{number}: {}", without_comment(line).trim())?;
        told += &answer(&config, asked, &verdict);
        wrong += usize::from(!is_expected(&config, asked, &verdict));
    }
    let expected = asked
        .iter()
        .filter(|(_, _, a)| a.expected.is_some())
        .count();
    print(format!(
        "{told}\n{} flows, {} of {expected} expectations met\n",
        asked.len(),
        expected - wrong
    ))?;
    ensure!(
        wrong == 0,
        "{}: {wrong} of {expected} expectations not met",
        flows.display()
    );
    Ok(())
}

fn class_of<'a>(config: &'a Config, verdict: &Verdict) -> &'a Class {
    let rule = verdict.taken.and_then(|rule| config.rules.get(rule));
    rule.map_or(&config.default, |rule| &rule.class)
}

fn is_expected(config: &Config, asked: &Asked, verdict: &Verdict) -> bool {
    let expected = asked.expected.as_ref();
    expected.is_none_or(|name| *name == class_of(config, verdict).name)
}

/// Which rule takes the flow and by which links, and what it misses of those before.
fn answer(config: &Config, asked: &Asked, verdict: &Verdict) -> String {
    let class = class_of(config, verdict);
    let mut lines = vec![format!("{}: {}", table::good(&class.name), class.path())];
    for (rule, missed) in config.rules.iter().zip(&verdict.passed) {
        let misses = rule.misses(missed, &asked.sample, asked.at);
        lines.push(format!("not {}: {}", rule.name(), misses.join("; ")));
    }
    if let Some(expected) = &asked.expected
        && !is_expected(config, asked, verdict)
    {
        let problem = format!("WRONG: {expected} was to take it, {} does", class.name);
        lines.push(table::bad(problem).to_string());
    }
    lines.iter().map(|line| format!("   {line}\n")).collect()
}

/// Fills in the only LAN device; refuses what the configuration does not know, and what has to be said for its rules.
fn complete(config: &Config, mut asked: Asked) -> Result<Asked, String> {
    let lan = || config.lan.iter().map(String::as_str);
    let allowed = || lan().collect::<Vec<_>>().join(", ");
    match (&asked.sample.device, &config.lan[..]) {
        (Some(device), _) if !config.lan.contains(device) => {
            let meant = did_you_mean(device, lan());
            return Err(format!(
                "device {device}: not a LAN device; allowed: {}{meant}",
                allowed()
            ));
        }
        (Some(_), _) if asked.sample.from.is_none() => {
            return Err("the gateway's own traffic comes by no device".to_owned());
        }
        (None, [only]) if asked.sample.from.is_some() => asked.sample.device = Some(only.clone()),
        (None, _) if asked.sample.from.is_some() => {
            let named = config
                .rules
                .iter()
                .find(|rule| !rule.matches.devices.is_empty());
            if let Some(rule) = named {
                let name = rule.name();
                return Err(format!(
                    "no device, which {name} looks at; write device and one of {}",
                    allowed()
                ));
            }
        }
        _ => {}
    }
    let timed = config.rules.iter().find(|rule| rule.matches.when.is_some());
    if let (Some(rule), None) = (timed, asked.at) {
        let name = rule.name();
        return Err(format!(
            r#"no time, which {name} looks at; write it like at "mon 09:00""#
        ));
    }
    let names = || {
        config
            .rules
            .iter()
            .map(|rule| rule.name())
            .chain([DEFAULT_CLASS])
    };
    match &asked.expected {
        Some(name) if !names().any(|known| known == name) => {
            let meant = did_you_mean(name, names());
            let allowed: Vec<&str> = names().collect();
            Err(format!(
                "no rule has the name {name}; allowed: {}{meant}",
                allowed.join(", ")
            ))
        }
        _ => Ok(asked),
    }
}

fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

/// A flow; none on a line without one.
fn parse(line: &str) -> Result<Option<Asked>, String> {
    let words = words(without_comment(line))?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [protocol, from, ">", to, rest @ ..] = &words[..] else {
        return match words.is_empty() {
            true => Ok(None),
            false => Err(SHAPE.to_owned()),
        };
    };
    let has_ports = !protocol.eq_ignore_ascii_case(ICMP);
    let protocol = protocol_of(protocol).ok_or(format!("{protocol}: allowed: tcp, udp, icmp"))?;
    let (from, source_port) = match *from {
        "self" => (None, None),
        from => endpoint(from).map(|(address, port)| (Some(address), port))?,
    };
    let (to, port) = endpoint(to)?;
    if has_ports != port.is_some() || !has_ports && source_port.is_some() {
        return Err("tcp and udp have a port, like 203.0.113.7:443, and icmp has none".to_owned());
    }
    let mut asked = Asked {
        sample: Sample {
            from,
            source_port: source_port.unwrap_or(if has_ports { CLIENT_PORT } else { 0 }),
            to,
            port: port.unwrap_or(0),
            protocol,
            dscp: 0,
            device: None,
        },
        at: None,
        expected: None,
    };
    for pair in rest.chunks(2) {
        match *pair {
            ["dscp", text] => {
                let code = dscp_of(text);
                asked.sample.dscp = code.ok_or(format!(
                    "dscp {text}: a number from 0 to 63, or a name like ef"
                ))?;
            }
            ["device", name] => asked.sample.device = Some(name.to_owned()),
            ["at", text] => {
                let at = text.parse().map_err(|bad| format!("at {text}: {bad}"))?;
                asked.at = Some(at);
            }
            ["=", name] => asked.expected = Some(name.to_owned()),
            _ => return Err(format!("{}: {SHAPE}", pair.join(" "))),
        }
    }
    Ok(Some(asked))
}

/// Split at spaces, but for what stands between quotation marks.
fn words(line: &str) -> Result<Vec<String>, String> {
    let parts: Vec<&str> = line.split('"').collect();
    if parts.len().is_multiple_of(2) {
        return Err("a quotation mark that is not closed".to_owned());
    }
    let words = parts
        .iter()
        .enumerate()
        .flat_map(|(index, part)| match index % 2 {
            0 => part.split_whitespace().map(str::to_owned).collect(),
            _ => vec![(*part).to_owned()],
        });
    Ok(words.collect())
}

/// `192.168.1.20:40000`, or an address alone.
fn endpoint(text: &str) -> Result<(IpAddr, Option<u16>), String> {
    let (address, port) = match text.split_once(':') {
        Some((address, port)) => (address, Some(port)),
        None => (text, None),
    };
    let bad = || format!("{text}: write an IPv4 address, with a port like 203.0.113.7:443");
    let address: Ipv4Addr = address.parse().map_err(|_| bad())?;
    let port = port.map(|port| port.parse().ok().filter(|port| *port > 0).ok_or_else(bad));
    Ok((address.into(), port.transpose()?))
}
