use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_policy::abi::{BePort, Traits};
use anabranch_policy::splitmix::SplitMix64;

use super::*;
use crate::rules::{Class, Origin, Prefix, Schedule, compile};

const LAN: [&str; 2] = ["eth0", "eth1"];

fn listed(rules: &[Matches]) -> Vec<Rule> {
    let rule = |matches: &Matches| Rule {
        matches: matches.clone(),
        class: Class::default(),
    };
    rules.iter().map(rule).collect()
}

fn seen(rules: &[Matches]) -> Vec<Sight> {
    coverage(&listed(rules), &LAN.map(str::to_owned))
}

fn to(prefix: &str) -> Matches {
    Matches {
        to: vec![prefix.parse().unwrap()],
        ..Matches::default()
    }
}

fn of(protocol: u8, ports: RangeInclusive<u16>) -> Matches {
    Matches {
        protocols: vec![protocol],
        ports: vec![ports],
        ..Matches::default()
    }
}

#[test]
fn a_rule_behind_one_that_takes_everything_never_matches() {
    let sights = seen(&[Matches::default(), to("10.0.0.0/8")]);
    assert_eq!(
        sights,
        [Sight::Clear, Sight::Never(Finding::Covered(vec![0]))]
    );
}

#[test]
fn several_rules_may_cover_one_together() {
    let rules = [
        to("10.0.0.0/9"),
        of(ICMP, 1..=1),
        to("192.168.0.0/16"),
        to("10.128.0.0/9"),
        to("10.0.0.0/8"),
    ];
    let sights = seen(&rules);
    assert!(matches!(sights[1], Sight::Never(Finding::Contradiction(_))));
    assert_eq!(sights[4], Sight::Never(Finding::Covered(vec![0, 3])));
}

#[test]
fn three_protocols_are_all_that_is_carried_of_each_family() {
    let of = |protocol| Matches {
        protocols: vec![protocol],
        ..Matches::default()
    };
    let sights = seen(&[of(TCP), of(UDP), of(ICMP), to("10.0.0.0/8")]);
    assert_eq!(sights[3], Sight::Never(Finding::Covered(vec![0, 1, 2])));
    let behind = ["10.0.0.0/8", "2001:db8::/32", "::/0"].map(to);
    let rules = [&[of(ICMP), of(ICMP6), of(TCP), of(UDP)][..], &behind].concat();
    let sights = seen(&rules);
    assert_eq!(sights[4], Sight::Never(Finding::Covered(vec![0, 2, 3])));
    assert_eq!(sights[5], Sight::Never(Finding::Covered(vec![1, 2, 3])));
    assert_eq!(sights[6], Sight::Never(Finding::Covered(vec![0, 1, 2, 3])));
}

#[test]
fn both_ends_of_a_flow_are_of_one_family() {
    let between = |from: &str, to: &str| Matches {
        from: vec![Origin::Prefix(from.parse().unwrap())],
        to: vec![to.parse().unwrap()],
        ..Matches::default()
    };
    let sights = seen(&[between("10.0.0.0/8", "2001:db8::/32")]);
    assert!(matches!(sights[0], Sight::Never(Finding::Contradiction(_))));
    let sights = seen(&[
        between("0.0.0.0/0", "::/0"),
        between("::/0", "2001:db8::/32"),
        between("10.0.0.0/8", "::/0"),
    ]);
    assert_eq!(sights[1], Sight::Clear);
    assert_eq!(sights[2], Sight::Never(Finding::Covered(vec![0])));
}

#[test]
fn networks_say_nothing_of_the_hosts_own_traffic() {
    let from = |prefix: &str| Matches {
        from: vec![Origin::Prefix(prefix.parse().unwrap())],
        ..Matches::default()
    };
    let host = Matches {
        from: vec![Origin::Host],
        ..Matches::default()
    };
    let sights = seen(&[from("0.0.0.0/0"), to("10.0.0.0/8")]);
    assert!(matches!(sights[1], Sight::Partly { .. }), "{sights:?}");
    let sights = seen(&[from("0.0.0.0/0"), host, to("10.0.0.0/8")]);
    assert_eq!(sights[2], Sight::Never(Finding::Covered(vec![0, 1])));
}

#[test]
fn an_exception_is_told_from_a_rule_that_crosses_another() {
    let sights = seen(&[of(UDP, 53..=53), of(UDP, 50..=60), of(UDP, 40..=52)]);
    let partly = |crossed: &[usize], within: &[usize]| Sight::Partly {
        crossed: crossed.to_vec(),
        within: within.to_vec(),
    };
    assert_eq!(sights, [Sight::Clear, partly(&[], &[0]), partly(&[1], &[])]);
}

#[test]
fn the_boxes_of_a_rule_are_bounded() {
    let scattered = |i: usize| {
        let dscp = (0..64).filter(|code| code >> (i % 6) & 1 == 0).collect();
        let bit = |value: u16| value >> (i % 9) & 1 == 0;
        let ports = |ports: RangeInclusive<u16>| {
            ports
                .filter(|port| bit(*port))
                .map(|port| port..=port)
                .collect()
        };
        Matches {
            dscp,
            ports: ports(1..=200),
            source_ports: ports(1..=160),
            to: (0..120)
                .filter(|value| bit(*value))
                .map(|value| Prefix::new([10, 0, 0, value as u8].into(), 32))
                .collect(),
            from: (0..110)
                .filter(|value| bit(value / 2))
                .map(|value| Origin::Prefix(Prefix::new([10, 9, 0, value as u8].into(), 32)))
                .collect(),
            ..Matches::default()
        }
    };
    let rules: Vec<Matches> = (0..62).map(scattered).chain([Matches::default()]).collect();
    let sights = seen(&rules);
    assert!(sights.contains(&Sight::Unknown), "{sights:?}");
    assert_eq!(sights[0], Sight::Clear);
}

/// Against every flow of a small world.
#[test]
fn what_is_said_is_what_enumeration_finds() {
    let seed = 7;
    println!("seed {seed}");
    let mut random = Random(SplitMix64(seed));
    let mut kinds = [0; 4];
    for _ in 0..60 {
        let rules: Vec<Matches> = (0..6).map(|_| random.matches()).collect();
        let world: Vec<Vec<bool>> = rules.iter().map(enumerate).collect();
        for (index, sight) in seen(&rules).into_iter().enumerate() {
            let expected = expected(&world, index);
            let kind = match (&sight, &expected) {
                (Sight::Never(Finding::Contradiction(_)), None) => 0,
                (sight, Some(expected)) if sight == expected => match sight {
                    Sight::Clear => 1,
                    Sight::Partly { .. } => 2,
                    _ => 3,
                },
                _ => panic!("rule {index}: {sight:?}, not {expected:?}, of {rules:#?}"),
            };
            kinds[kind] += 1;
        }
    }
    assert!(kinds.iter().all(|kind| *kind > 20), "{kinds:?}");
}

/// None if it matches no flow at all.
fn expected(world: &[Vec<bool>], index: usize) -> Option<Sight> {
    let own = &world[index];
    let common = |other: &[bool], own: &[bool]| own.iter().zip(other).any(|(a, b)| *a && *b);
    if !own.contains(&true) {
        return None;
    }
    let earlier: Vec<usize> = (0..index).filter(|j| common(&world[*j], own)).collect();
    let mut left = own.clone();
    let mut takers = Vec::new();
    for &other in &earlier {
        if common(&world[other], &left) {
            takers.push(other);
        }
        for (left, taken) in left.iter_mut().zip(&world[other]) {
            *left &= !taken;
        }
        if !left.contains(&true) {
            return Some(Sight::Never(Finding::Covered(takers)));
        }
    }
    if earlier.is_empty() {
        return Some(Sight::Clear);
    }
    let is_within = |j: &usize| world[*j].iter().zip(own).all(|(other, own)| !other || *own);
    let (within, crossed) = earlier.into_iter().partition(is_within);
    Some(Sight::Partly { crossed, within })
}

/// Whether the rule, alone, matches each flow of the small world.
fn enumerate(matches: &Matches) -> Vec<bool> {
    let mut found = Vec::new();
    for at in ["mon 12:00", "tue 12:00"] {
        let alone = compile(
            &listed(std::slice::from_ref(matches)),
            at.parse().unwrap(),
            |name| Some(1 + LAN.iter().position(|lan| *lan == name).unwrap() as u32),
        );
        let alone = alone.unwrap();
        for case in 0..2 * 5 * 5 * 3 * 4 * 3 * 3 * 3 {
            found.push(alone.class_of(&flow(case)) == 1);
        }
    }
    found
}

fn flow(mut case: u32) -> Traits {
    let mut next = |values: u32| {
        let value = case % values;
        case /= values;
        value
    };
    let family = Family::ALL[next(2) as usize];
    let (src, dst) = (address(family, next(5)), address(family, next(5)));
    let carried = PROTOCOLS.iter().filter(|(_, by)| by[family.index()]);
    let carried: Vec<u8> = carried.map(|(number, _)| *number).collect();
    Traits {
        src: src.into(),
        dst: dst.into(),
        proto: carried[next(3) as usize],
        dport: BePort::new(next(4) as u16),
        sport: BePort::new(next(3) as u16),
        dscp: next(3) as u8,
        zero: 0,
        ifindex: next(3),
    }
}

/// One of a few.
fn address(family: Family, last: u32) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::from_bits(0x0a00_0000 + last).into(),
        Family::V6 => Ipv6Addr::from_bits((0x2001_0db8 << 96) + u128::from(last)).into(),
    }
}

struct Random(SplitMix64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.draw() % end
    }

    fn some<T>(&mut self, value: impl Fn(u64) -> T) -> Vec<T> {
        let count = [0, 0, 0, 1, 2][self.below(5) as usize];
        (0..count).map(|_| value(self.0.draw())).collect()
    }

    fn matches(&mut self) -> Matches {
        let prefix = |draw: u64| {
            let family = Family::ALL[(draw >> 16) as usize % 2];
            let bits = if family == Family::V4 { 32 } else { 128 };
            let length = bits - (draw >> 8) as u8 % 3;
            Prefix::new(address(family, draw as u32 % 4), length)
        };
        let ports = |most: u16| {
            move |draw: u64| {
                let first = draw as u16 % most;
                first..=(first + (draw >> 32) as u16 % 3).min(most - 1)
            }
        };
        Matches {
            from: self.some(|draw| match draw >> 40 & 3 {
                0 => Origin::Host,
                _ => Origin::Prefix(prefix(draw)),
            }),
            to: self.some(prefix),
            protocols: self.some(|draw| PROTOCOLS[draw as usize % 4].0),
            ports: self.some(ports(3)),
            source_ports: self.some(ports(2)),
            dscp: self.some(|draw| draw as u8 % 2),
            devices: self.some(|draw| LAN[draw as usize % 2].to_owned()),
            when: match self.below(6) {
                0 => Some("mon".parse::<Schedule>().unwrap()),
                1 => Some("tue-sun".parse::<Schedule>().unwrap()),
                _ => None,
            },
        }
    }
}

#[test]
fn the_hours_of_a_week_are_a_field_like_others() {
    let when = |text: &str| Matches {
        when: Some(text.parse().unwrap()),
        ..Matches::default()
    };
    let sights = seen(&[
        when("mon-fri"),
        when("sat,sun 00:00-12:00"),
        when("sat-sun 11:00-24:00"),
        to("10.0.0.0/8"),
    ]);
    assert_eq!(sights[3], Sight::Never(Finding::Covered(vec![0, 1, 2])));
}
