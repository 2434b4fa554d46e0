//! The nftables table for packets that the data path leaves to the kernel. They may enter and leave only as the data path would
//! allow, their number is limited, and as a fallback they are translated.
//!
//! The table drops nothing that the host itself sends or receives, and nothing about which other tables decide: packets
//! that an administrator's own DNAT or NAT carries meet no condition by which it drops.

mod kernel;

use std::fmt::{self, Display, Formatter};
use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use anabranch_core::Family;
use anabranch_policy::abi::{INBOUND_MARK, STRAY_MARK, UNTRACKED_MARK};
use anyhow::{Context, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

pub use kernel::Generation;

use super::ids::CONNECTION_MARK_MASK;
use crate::config::Forwards;
use crate::observe::Prefix;
use crate::probe::PATIENCE;
use anabranch_api::ReasonCount;

const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum of connections that the kernel carries for one LAN host.
const PER_SOURCE_MAX: u32 = 1024;
/// New connections of one LAN host per second, and its burst.
const NEW_PER_SOURCE: (u32, u32) = (50, 100);
/// New connections of all hosts per second, and their burst. The cost of counting the present ones depends on it, and how fast the
/// count forgets those that never came to be (linux/net/netfilter/nf_conncount.c).
const NEW_IN_SUM: (u32, u32) = (500, 500);
/// All hosts together may use this fraction of the kernel's connection table, which can also be counted in little time.
const IN_SUM_PART: u32 = 4;
const IN_SUM_MAX: u32 = 8192;
const RESETS_PER_SECOND: u32 = 100;
/// Maximum of outstanding probes of one family and kind, ...
const ASKED_MAX: u32 = 4096;
/// ... and how long each is remembered.
const ASKED_SECONDS: u64 = PATIENCE.as_secs();

/// At most this many items of a foreign table are named.
const NAMED_MAX: usize = 4;

/// A counter of the table, and the reason that it stands for in the status.
struct Drop {
    name: &'static str,
    fate: &'static str,
    words: &'static str,
}

const FORWARD_IN: &str = "kernel-forward-in";
const STRAY: &str = "kernel-stray";
const FOREIGN_SOURCE: &str = "kernel-foreign-source";
const INVALID: &str = "kernel-invalid";
const UNKNOWN_RESET: &str = "kernel-unknown-reset";
const UNKNOWN: &str = "kernel-unknown";
const SOURCE_RATE: &str = "kernel-source-rate";
const SOURCE_COUNT: &str = "kernel-source-count";
const SUM: &str = "kernel-sum";

const DROPS: [Drop; 9] = [
    dropped(
        FORWARD_IN,
        "in nftables: from a link to the LAN, of no connection from there",
    ),
    dropped(
        STRAY,
        "in nftables: from a link to no socket of the host, and of no connection of the kernel's",
    ),
    dropped(
        FOREIGN_SOURCE,
        "in nftables: about to leave a link with a source that is not the link's",
    ),
    dropped(
        INVALID,
        "in nftables: from the LAN, of no connection and beginning none",
    ),
    Drop {
        name: UNKNOWN_RESET,
        fate: "refused",
        words: "in nftables: TCP segment of an unknown connection: answered with a RST",
    },
    dropped(
        UNKNOWN,
        "in nftables: the same, beyond the answers of a second",
    ),
    dropped(
        SOURCE_RATE,
        "in nftables: host begins connections for the kernel too fast",
    ),
    dropped(
        SOURCE_COUNT,
        "in nftables: host has as many connections in the kernel as it may",
    ),
    dropped(
        SUM,
        "in nftables: all hosts have as many connections in the kernel as they may",
    ),
];

const fn dropped(name: &'static str, words: &'static str) -> Drop {
    Drop {
        name,
        fate: "dropped",
        words,
    }
}

/// The input for the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard<'a> {
    pub lan: Vec<&'a str>,
    pub links: Vec<GuardedLink<'a>>,
    pub forwards: Forwards,
    /// Whether the table may use connection tracking: for our own NAT, or because firewalls or NAT of others use it. Otherwise our
    /// table would be the one that switches tracking on, for all packets that the host sends and forwards.
    pub tracks: bool,
    /// The host's ephemeral ports, if the kernel's own NAT carries what the data path does not.
    pub masquerade: Option<[u16; 2]>,
    /// Maximum number of entries in the kernel's connection table.
    pub conntrack_max: u32,
    /// Mark of packets that the programs leave to the kernel's own NAT.
    pub fallback_mark: u32,
    /// The bits that all our connection marks have in common, under [`CONNECTION_MARK_MASK`].
    pub connection_marks: u32,
    /// Public networks behind devices that are neither LAN nor link.
    pub public: Vec<(&'a str, Prefix)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuardedLink<'a> {
    pub device: &'a str,
    /// Networks that the ISP routes to the link, with their lengths.
    pub prefixes: &'a [(IpAddr, u8)],
    /// Without NAT the LAN's own addresses are reachable over the link, and both sides may open connections.
    pub nat: bool,
    /// Marks of connections that arrived over it, and of others' connections that left over it; none before the link has a number.
    pub marks: Option<[u32; 2]>,
}

impl Guard<'static> {
    /// A guard that uses everything, to test whether the kernel accepts it.
    pub fn example() -> Self {
        Self {
            lan: vec!["lan"],
            links: [("link", true), ("routed", false)]
                .map(|(device, nat)| GuardedLink {
                    device,
                    prefixes: &[],
                    nat,
                    marks: Some([1, 2]),
                })
                .to_vec(),
            forwards: Forwards::Drop,
            tracks: true,
            masquerade: Some([1024, u16::MAX]),
            conntrack_max: u32::MAX,
            fallback_mark: 1,
            connection_marks: 0,
            public: vec![("other", Prefix::everything(Family::V6))],
        }
    }

    /// A guard without any optional part.
    fn plain() -> Self {
        Self {
            tracks: false,
            masquerade: None,
            ..Self::example()
        }
    }
}

impl Guard<'_> {
    /// The table as text, which replaces one of the same name. Counters continue from `counted`.
    pub fn ruleset(&self, table: &str, counted: &[(String, u64)]) -> String {
        let counters: Vec<String> = DROPS
            .iter()
            .map(|drop| counter(drop.name, counted))
            .collect();
        let always = [self.strays(), self.forward(), self.leaving()].concat();
        let of_connections = [
            self.untracked(),
            self.connections(),
            self.outward(),
            self.nat(),
        ];
        format!(
            "{}table inet {table} {{\n\
             set sources {{ type ipv4_addr; size 65535; flags dynamic; }}\n\
             set rates {{ type ipv4_addr; size 65535; flags dynamic,timeout; timeout 1m; }}\n\
             set cards {{ type ether_addr; size 65535; flags dynamic; }}\n\
             set card_rates {{ type ether_addr; size 65535; flags dynamic,timeout; timeout 1m; }}\n\
             {}{}{}}}\n",
            removal(table),
            counters.concat(),
            self.where_tracked(&of_connections.concat()),
            always,
        )
    }

    /// Marked probes, and their answers, bypass connection tracking, so that they are sent even if others have filled its table.
    /// An answer has no mark; it is recognised because the request was recorded.
    fn untracked(&self) -> String {
        let links = quoted(&self.devices());
        let asked = format!("size {ASKED_MAX}; flags dynamic,timeout; timeout {ASKED_SECONDS}s;");
        let families = [("ip", "ipv4_addr", "icmp"), ("ip6", "ipv6_addr", "icmpv6")];
        let sets = families.map(|(family, address, icmp)| {
            format!(
                "set asked_{family} {{ type {address} . {address} . inet_proto . inet_service . inet_service; {asked} }}\n\
                 set echoes_{family} {{ typeof {family} daddr . {icmp} id; {asked} }}\n"
            )
        });
        let questions = families.map(|(family, _, icmp)| {
            format!(
                "meta mark {UNTRACKED_MARK:#x} meta l4proto {{ tcp, udp }} update @asked_{family} \
                 {{ {family} daddr . {family} saddr . meta l4proto . th dport . th sport }}\n\
                 meta mark {UNTRACKED_MARK:#x} {icmp} type echo-request update @echoes_{family} {{ {family} daddr . {icmp} id }}\n"
            )
        });
        let answers = families.map(|(family, _, icmp)| {
            format!(
                "iifname {links} {family} saddr . {family} daddr . meta l4proto . th sport . th dport @asked_{family} notrack\n\
                 iifname {links} {icmp} type echo-reply {family} saddr . {icmp} id @echoes_{family} notrack\n"
            )
        });
        format!(
            "{}chain questions {{\n\
             type filter hook output priority raw; policy accept;\n\
             {}meta mark {UNTRACKED_MARK:#x} notrack\n\
             }}\n\
             chain answered {{\n\
             type filter hook prerouting priority raw; policy accept;\n\
             {}}}\n",
            sets.concat(),
            questions.concat(),
            answers.concat(),
        )
    }

    /// Packets that the programs mark on a link belong to no socket of the host. They are answers to what the kernel translated,
    /// for our fallback or for other networks of the host, or they belong to nobody.
    fn strays(&self) -> String {
        let links = quoted(&self.devices());
        let marked = format!("iifname {links} meta mark {STRAY_MARK:#x}");
        let of_none = self.where_tracked("ct state { new, invalid, untracked }");
        format!(
            "chain strays {{\n\
             type filter hook prerouting priority mangle; policy accept;\n\
             {marked} {of_none} counter name {STRAY} drop\n\
             {marked} meta mark set 0\n\
             }}\n"
        )
    }

    /// The answer to what came by a link leaves by it, whoever answers and whatever is translated: the connection's mark is copied
    /// to the packet before it is routed, and a routing rule matches it. Answers of the host itself have the address that was
    /// asked, unless that was translated. Connections of others' networks stay on the link by which they began, because another
    /// link would end them. Marks of others are kept.
    fn connections(&self) -> String {
        let (links, lan) = (quoted(&self.devices()), quoted(&self.lan));
        let known = self
            .links
            .iter()
            .filter_map(|link| Some((link.device, link.marks?)));
        let (arrived, left): (Vec<String>, Vec<String>) = known
            .map(|(device, [arrived, left])| {
                (
                    format!("iifname {device:?} ct mark set {arrived:#x}\n"),
                    format!("oifname {device:?} ct mark set {left:#x}\n"),
                )
            })
            .unzip();
        let is_known = format!(
            "ct mark & {CONNECTION_MARK_MASK:#x} == {:#x}",
            self.connection_marks
        );
        format!(
            "chain arrived {{\n\
             ct mark != 0 return\n\
             ct direction reply return\n\
             {}}}\n\
             chain connections {{\n\
             type filter hook prerouting priority mangle + 1; policy accept;\n\
             iifname {links} goto arrived\n\
             meta mark {{ 0, {:#x} }} {is_known} meta mark set ct mark\n\
             }}\n\
             chain answers {{\n\
             type route hook output priority mangle + 1; policy accept;\n\
             ct status dnat ct direction reply meta mark 0 {is_known} meta mark set ct mark\n\
             }}\n\
             chain left {{\n\
             type filter hook postrouting priority mangle; policy accept;\n\
             iif 0 return\n\
             oifname != {links} return\n\
             iifname {links} return\n\
             iifname {lan} return\n\
             ct mark != 0 return\n\
             ct direction reply return\n\
             {}}}\n",
            arrived.concat(),
            self.fallback_mark,
            left.concat(),
        )
    }

    /// What arrived on a link with NAT is the kernel's to forward only if somebody asked for it: by rules of its own, or by letting
    /// the outside begin at a prefix, where the programs have marked it. Over one without, the kernel's connection table may see
    /// one direction alone, so that its states say nothing, and the LAN's own sources leave.
    fn forward(&self) -> String {
        let lan = quoted(&self.lan);
        let of_none = self.where_tracked("ct state != { established, related } ct status ! dnat");
        let translating = self.translating().map(|links| {
            let inward = match self.forwards {
                Forwards::Drop => format!(
                    "iifname {links} oifname {lan} {of_none} meta mark != {INBOUND_MARK:#x} counter name {FORWARD_IN} drop\n"
                ),
                Forwards::Kernel => String::new(),
            };
            let outward = format!("iifname {lan} oifname {links} jump outward\n");
            inward + self.where_tracked(&outward)
        });
        let routed = self.routed().map(|links| {
            let bounded = format!("iifname {lan} oifname {links} jump bounded\n");
            format!(
                "iifname {lan} oifname {links} fib saddr oifname != {lan} counter name {FOREIGN_SOURCE} drop\n\
                 {}",
                self.where_tracked(&bounded)
            )
        });
        format!(
            "chain forward {{\n\
             type filter hook forward priority filter; policy accept;\n\
             {}{}}}\n",
            translating.unwrap_or_default(),
            routed.unwrap_or_default()
        )
    }

    /// From the LAN out of a link: decided before the kernel's connection table takes it in. A host of IPv6 has as many addresses
    /// as it likes, and one network card.
    fn outward(&self) -> String {
        let ((rate, burst), (rate_in_sum, burst_in_sum)) = (NEW_PER_SOURCE, NEW_IN_SUM);
        let of_v6 = "meta nfproto ipv6";
        let in_sum = (self.conntrack_max / IN_SUM_PART).min(IN_SUM_MAX);
        format!(
            "chain unknown {{\n\
             limit rate {RESETS_PER_SECOND}/second counter name {UNKNOWN_RESET} reject with tcp reset\n\
             counter name {UNKNOWN} drop\n\
             }}\n\
             chain bounded {{\n\
             ct state != new return\n\
             update @rates {{ ip saddr limit rate over {rate}/second burst {burst} packets }} counter name {SOURCE_RATE} drop\n\
             {of_v6} update @card_rates {{ ether saddr limit rate over {rate}/second burst {burst} packets }} counter name {SOURCE_RATE} drop\n\
             limit rate over {rate_in_sum}/second burst {burst_in_sum} packets counter name {SUM} drop\n\
             add @sources {{ ip saddr ct count over {PER_SOURCE_MAX} }} counter name {SOURCE_COUNT} drop\n\
             {of_v6} add @cards {{ ether saddr ct count over {PER_SOURCE_MAX} }} counter name {SOURCE_COUNT} drop\n\
             ct count over {in_sum} counter name {SUM} drop\n\
             }}\n\
             chain outward {{\n\
             ct state invalid counter name {INVALID} drop\n\
             ct state != new return\n\
             meta l4proto tcp tcp flags & (fin | syn | rst | ack) != syn goto unknown\n\
             jump bounded\n\
             }}\n"
        )
    }

    /// After every translation. Packets of the host itself have no device of arrival; those that it wraps for a tunnel
    /// may have, and bear an address of the host; so may those of neighbour discovery and multicast listening, which have none
    /// while a device is still looking whether its own are unique (RFC 4862, RFC 3590). A network of public addresses that is
    /// routed to some other device is the internet's own, and nobody's to translate.
    fn leaving(&self) -> String {
        let links = quoted(&self.devices());
        let ours = quoted(&[&self.lan[..], &self.devices()[..]].concat());
        let prefixes = self.links.iter().map(GuardedLink::with_prefixes);
        let prefixes: String = prefixes.collect();
        let lan = quoted(&self.lan);
        let routed = self.routed();
        let routed = routed.map(|links| format!("oifname {links} iifname {lan} accept\n"));
        format!(
            "chain leaving {{\n\
             type filter hook postrouting priority srcnat + 200; policy accept;\n\
             oifname {links} fib saddr . oif type local accept\n\
             oifname {links} ip6 saddr :: accept\n\
             {prefixes}{}{}\
             oifname {links} iifname {ours} counter name {FOREIGN_SOURCE} drop\n\
             oifname {links} iif != 0 fib saddr type != local counter name {FOREIGN_SOURCE} drop\n\
             }}\n",
            self.public_leaves(&links),
            routed.unwrap_or_default()
        )
    }

    fn public_leaves(&self, links: &str) -> String {
        let rules = self.public.iter().map(|(device, network)| {
            let family = match network.family() {
                Family::V4 => "ip",
                Family::V6 => "ip6",
            };
            format!("oifname {links} iifname {device:?} {family} saddr {network} accept\n")
        });
        rules.collect()
    }

    /// External ports are the host's own ephemeral ones, which the data path does not use.
    fn nat(&self) -> String {
        let (Some([port_min, port_max]), Some(links)) = (self.masquerade, self.translating())
        else {
            return String::new();
        };
        let way = format!("iifname {} oifname {links}", quoted(&self.lan));
        format!(
            "chain postrouting {{\n\
             type nat hook postrouting priority srcnat; policy accept;\n\
             {way} meta l4proto {{ tcp, udp }} masquerade to :{port_min}-{port_max}\n\
             {way} masquerade\n\
             }}\n"
        )
    }

    /// A part of a rule, or rules, that ask for connections.
    fn where_tracked<'a>(&self, text: &'a str) -> &'a str {
        if self.tracks { text } else { "" }
    }

    fn devices(&self) -> Vec<&str> {
        self.links.iter().map(|link| link.device).collect()
    }

    /// The devices of the links with NAT; none if there are none.
    fn translating(&self) -> Option<String> {
        self.those(|link| link.nat)
    }

    /// Those of the links without.
    fn routed(&self) -> Option<String> {
        self.those(|link| !link.nat)
    }

    fn those(&self, is: impl Fn(&GuardedLink<'_>) -> bool) -> Option<String> {
        let fit = self.links.iter().filter(|link| is(link));
        let devices: Vec<&str> = fit.map(|link| link.device).collect();
        (!devices.is_empty()).then(|| quoted(&devices))
    }
}

impl GuardedLink<'_> {
    fn with_prefixes(&self) -> String {
        let (v4, v6): (Vec<_>, Vec<_>) = self.prefixes.iter().partition(|(at, _)| at.is_ipv4());
        let may_leave = |(family, prefixes): (&str, Vec<&(IpAddr, u8)>)| {
            let prefixes = prefixes.iter().map(|(at, length)| format!("{at}/{length}"));
            let prefixes: Vec<String> = prefixes.collect();
            let all = prefixes.join(", ");
            (!all.is_empty()).then(|| {
                format!(
                    "oifname {:?} {family} saddr {{ {all} }} accept\n",
                    self.device
                )
            })
        };
        let families = [("ip", v4), ("ip6", v6)];
        families.into_iter().filter_map(may_leave).collect()
    }
}

fn quoted(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    format!("{{ {} }}", names.join(", "))
}

fn counter(name: &str, counted: &[(String, u64)]) -> String {
    let packets = counted
        .iter()
        .find(|(known, _)| known == name)
        .map_or(0, |(_, packets)| *packets);
    format!("counter {name} {{ packets {packets} bytes 0\n}}\n")
}

/// A table that has the name of ours and is not as any of this version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Foreign {
    /// As `nft` calls it.
    pub family: &'static str,
    /// What it has beside ours, or lacks of it.
    more: Vec<String>,
    less: Vec<String>,
}

impl Foreign {
    /// What is wrong with a table that has `found` in it. None: nothing, or there is no table.
    fn of(family: &'static str, found: &[String]) -> Option<Self> {
        if found.is_empty() {
            return None;
        }
        // Former versions had a table of IPv4 alone.
        let (may, must) = match family {
            "inet" => (contents_of(&Guard::example()), contents_of(&Guard::plain())),
            _ => Default::default(),
        };
        let apart = |these: &[String], those: &[String]| {
            let apart = these.iter().filter(|item| !those.contains(item));
            apart.cloned().collect::<Vec<_>>()
        };
        let (more, less) = (apart(found, &may), apart(&must, found));
        (!more.is_empty() || !less.is_empty()).then_some(Self { family, more, less })
    }

    /// As `nft` lists it.
    pub async fn text(&self, table: &str) -> anyhow::Result<String> {
        ask(&["list", "table", self.family, table]).await
    }
}

impl Display for Foreign {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let listed = |items: &[String]| {
            let shown = items.iter().take(NAMED_MAX).map(String::as_str);
            let shown = shown.collect::<Vec<_>>().join(", ");
            match items.len().saturating_sub(NAMED_MAX) {
                0 => shown,
                more => format!("{shown} and {more} more"),
            }
        };
        let more =
            (!self.more.is_empty()).then(|| format!("with {} (not ours)", listed(&self.more)));
        let less = (!self.less.is_empty()).then(|| format!("without {}", listed(&self.less)));
        let found: Vec<String> = more.into_iter().chain(less).collect();
        f.write_str(&found.join(", "))
    }
}

/// What a guard's table has, as [`kernel::contents`] tells it.
fn contents_of(guard: &Guard<'_>) -> Vec<String> {
    let ruleset = guard.ruleset("", &[]);
    let words = ruleset.lines().map(|line| line.split_whitespace());
    let made = words.filter_map(|mut words| {
        let (kind, name, opens) = (words.next()?, words.next()?, words.next()?);
        let kind = match kind {
            "chain" | "set" => kind,
            "counter" => "object",
            _ => return None,
        };
        (opens == "{").then(|| format!("{kind} {name}"))
    });
    made.collect()
}

/// The tables in whose place ours is made, that are none of an earlier run of this version.
pub fn foreign(table: &str) -> anyhow::Result<Vec<Foreign>> {
    let mut all = Vec::new();
    for (family, number) in [("inet", libc::NFPROTO_INET), ("ip", libc::NFPROTO_IPV4)] {
        let found = kernel::contents(number, table).context("read the tables of nftables")?;
        all.extend(Foreign::of(family, &found));
    }
    Ok(all)
}

/// Deletes the table whether or not it exists, and that of IPv4 alone which former versions had.
pub fn removal(table: &str) -> String {
    let delete = |family| format!("table {family} {table}\ndelete table {family} {table}\n");
    ["inet", "ip"].map(delete).concat()
}

/// What the table has dropped, by the names of its counters; nothing if there is no such table.
pub fn counted(table: &str) -> anyhow::Result<Vec<(String, u64)>> {
    kernel::counters(table).context("read the counters of nftables")
}

/// The same, as the status tells it.
pub fn reasons(table: &str) -> anyhow::Result<Vec<ReasonCount>> {
    let known = |(name, packets): (String, u64)| {
        let drop = DROPS.iter().find(|drop| drop.name == name)?;
        Some(ReasonCount {
            name,
            fate: drop.fate.to_owned(),
            words: drop.words.to_owned(),
            packets,
        })
    };
    Ok(counted(table)?.into_iter().filter_map(known).collect())
}

/// Applies `script` as one transaction.
pub async fn run(script: &str) -> anyhow::Result<()> {
    speak(&["-f", "-"], script).await.map(drop)
}

/// Whether the nft command and the kernel's part of it take `script`, which is not applied.
pub async fn check(script: &str) -> anyhow::Result<()> {
    speak(&["--check", "-f", "-"], script).await.map(drop)
}

/// What nft prints.
pub async fn ask(arguments: &[&str]) -> anyhow::Result<String> {
    speak(arguments, "").await
}

async fn speak(arguments: &[&str], script: &str) -> anyhow::Result<String> {
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("run nft")?;
    let mut stdin = child.stdin.take().context("nft has no standard input")?;
    stdin
        .write_all(script.as_bytes())
        .await
        .context("write to nft")?;
    drop(stdin);
    let output = tokio::time::timeout(TIMEOUT, child.wait_with_output())
        .await
        .context("nft did not end")??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("nft: {}", said.lines().next().unwrap_or("failed").trim());
    }
    String::from_utf8(output.stdout).context("read what nft prints")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_table_of_ours_is_somebody_elses_whatever_it_is_made_for() {
        for tracks in [false, true] {
            for masquerade in [None, Some([1024, 2048])] {
                let guard = Guard {
                    tracks,
                    masquerade,
                    ..Guard::example()
                };
                let found = contents_of(&guard);
                assert_eq!(Foreign::of("inet", &found), None, "{guard:?}");
                let without_one = Foreign::of("inet", &found[1..]).unwrap();
                assert_eq!(without_one.less.len(), 1);
                assert!(Foreign::of("ip", &found[..1]).is_some());
            }
        }
        assert_eq!(Foreign::of("inet", &[]), None);
    }
}
