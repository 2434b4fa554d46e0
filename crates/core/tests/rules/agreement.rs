//! `ab_class_of`, over what the compiler made of random rules, against a matcher that asks every rule for every field.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anabranch_core::rules::{Class, Matches, Moment, Origin, Prefix, Rule, Schedule, compile};
use anabranch_policy::Traits;
use anabranch_policy::abi::BePort;
use anabranch_policy::splitmix::SplitMix64;

const LISTS: usize = 400;
const FLOWS: usize = 100;
const DEVICES: [(&str, Option<u32>); 4] = [
    ("lan", Some(3)),
    ("guests", Some(0x1_0003)),
    ("phones", Some(u32::MAX)),
    ("unplugged", None),
];

#[test]
fn the_program_and_a_naive_matcher_agree() {
    let seed = match std::env::var("ANABRANCH_SEED") {
        Ok(seed) => seed.parse().expect("ANABRANCH_SEED is a number"),
        Err(_) => 12,
    };
    println!("seed {seed}");
    let mut random = Random(SplitMix64(seed));
    let mut seen = [0_u32; 2];
    for _ in 0..LISTS {
        let rules: Vec<Rule> = (0..random.below(64)).map(|_| random.rule()).collect();
        let at = random.moment();
        let compiled = compile(&rules, at, ifindex).expect("as many pieces as there is room for");
        for _ in 0..FLOWS {
            let traits = random.traits(&rules);
            let naive = class_of(&rules, at, &traits);
            assert_eq!(
                usize::from(compiled.class_of(&traits)),
                naive,
                "{traits:?} at {at} of {rules:#?}"
            );
            seen[usize::from(naive > 0)] += 1;
        }
    }
    assert!(seen.iter().all(|seen| *seen > 5000), "{seen:?}");
}

fn ifindex(name: &str) -> Option<u32> {
    DEVICES.iter().find(|(known, _)| *known == name)?.1
}

fn class_of(rules: &[Rule], at: Moment, traits: &Traits) -> usize {
    let first = rules
        .iter()
        .position(|rule| fits(&rule.matches, at, traits));
    first.map_or(0, |index| index + 1)
}

fn fits(rule: &Matches, at: Moment, traits: &Traits) -> bool {
    let has_ports = traits.proto == 6 || traits.proto == 17;
    let port = |ports: &[std::ops::RangeInclusive<u16>], port: BePort| {
        ports.is_empty() || has_ports && ports.iter().any(|range| range.contains(&port.get()))
    };
    let from = rule.from.iter().any(|origin| match origin {
        Origin::Host => traits.ifindex == 0,
        Origin::Prefix(prefix) => traits.ifindex != 0 && holds(*prefix, traits.src.ip()),
    });
    let device = |name: &String| traits.ifindex != 0 && ifindex(name) == Some(traits.ifindex);
    (rule.from.is_empty() || from)
        && (rule.to.is_empty() || rule.to.iter().any(|to| holds(*to, traits.dst.ip())))
        && (rule.protocols.is_empty() || rule.protocols.contains(&traits.proto))
        && port(&rule.ports, traits.dport)
        && port(&rule.source_ports, traits.sport)
        && (rule.dscp.is_empty() || rule.dscp.contains(&traits.dscp))
        && (rule.devices.is_empty() || rule.devices.iter().any(device))
        && rule.when.as_ref().is_none_or(|when| when.holds(at))
}

/// Bit by bit, from the network as it is written.
fn holds(prefix: Prefix, address: IpAddr) -> bool {
    let text = prefix.to_string();
    let (network, length) = text.split_once('/').unwrap_or((&text, "128"));
    let network: IpAddr = network.parse().unwrap();
    let length: usize = length.parse().unwrap();
    let length = if network.is_ipv4() && text.contains('/') {
        length + 96
    } else {
        length
    };
    bits(network)
        .zip(bits(address))
        .take(length)
        .all(|(one, other)| one == other)
}

fn bits(address: IpAddr) -> impl Iterator<Item = bool> {
    let mapped = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    (0..128).map(move |bit| mapped.octets()[bit / 8] >> (7 - bit % 8) & 1 == 1)
}

/// Few values of each kind, so that rules overlap and flows hit them, and their neighbours.
struct Random(SplitMix64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0.draw() % end
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u64) as usize]
    }

    /// None half of the time, else up to three.
    fn some<T>(&mut self, mut value: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.one_of(&[0, 0, 0, 1, 2, 3]);
        (0..count).map(|_| value(self)).collect()
    }

    fn rule(&mut self) -> Rule {
        let matches = Matches {
            from: self.some(|random| match random.below(4) {
                0 => Origin::Host,
                _ => Origin::Prefix(random.prefix()),
            }),
            to: self.some(Self::prefix),
            protocols: self.some(Self::protocol),
            ports: self.some(Self::ports),
            source_ports: match self.below(3) {
                0 => self.some(Self::ports),
                _ => Vec::new(),
            },
            dscp: match self.below(3) {
                0 => self.some(Self::dscp),
                _ => Vec::new(),
            },
            devices: match self.below(3) {
                0 => self.some(|random| random.one_of(&DEVICES).0.to_owned()),
                _ => Vec::new(),
            },
            when: match self.below(3) {
                0 => Some(self.schedule()),
                _ => None,
            },
        };
        Rule {
            matches,
            class: Class::default(),
        }
    }

    fn prefix(&mut self) -> Prefix {
        match self.below(2) {
            0 => Prefix::new(self.v6().into(), self.one_of_lengths(128)),
            _ => Prefix::new(self.v4().into(), self.one_of_lengths(32)),
        }
    }

    fn one_of_lengths(&mut self, most: u8) -> u8 {
        let any = self.below(u64::from(most) + 1) as u8;
        self.one_of(&[0, 8, 24, most - 1, most, any])
    }

    fn v4(&mut self) -> Ipv4Addr {
        let any = self.0.draw() as u32;
        let base = self.one_of(&[0, 0x0a00_0000, 0xc0a8_0100, 0xcb00_7100, u32::MAX, any]);
        let near = self.one_of(&[0, 1, 255, 256, u32::MAX]);
        Ipv4Addr::from_bits(base.wrapping_add(near))
    }

    fn v6(&mut self) -> Ipv6Addr {
        let any = u128::from(self.0.draw()) << 64 | u128::from(self.0.draw());
        let carry = u128::from(u64::MAX);
        let base = self.one_of(&[0, 0x2001_0db8 << 96, carry, 0xffff << 32, u128::MAX, any]);
        let near = self.one_of(&[0, 1, u128::MAX]);
        Ipv6Addr::from_bits(base.wrapping_add(near))
    }

    fn ports(&mut self) -> std::ops::RangeInclusive<u16> {
        let first = self.port();
        let length = self.one_of(&[0, 0, 1, 10, 1000, u16::MAX]);
        first..=first.saturating_add(length)
    }

    fn port(&mut self) -> u16 {
        let any = self.0.draw() as u16;
        let base = self.one_of(&[0, 22, 53, 80, 443, 5000, u16::MAX, any]);
        let near = self.one_of(&[0, 0, 1, 10, u16::MAX]);
        base.wrapping_add(near)
    }

    fn protocol(&mut self) -> u8 {
        let any = self.0.draw() as u8;
        self.one_of(&[6, 6, 17, 17, 1, 58, 0, 255, any])
    }

    fn dscp(&mut self) -> u8 {
        self.one_of(&[0, 0, 46, 34, 63, 8])
    }

    fn schedule(&mut self) -> Schedule {
        let texts = [
            "mon-fri 08:00-18:00",
            "sat,sun",
            "22:00-06:00",
            "sun 23:00-01:00",
        ];
        self.one_of(&texts).parse().unwrap()
    }

    fn moment(&mut self) -> Moment {
        let minute = self.one_of(&[0, 59, 60, 479, 480, 1079, 1080, 1319, 1439]);
        Moment::new(self.below(7) as u8, minute)
    }

    /// Half of the flows fit a rule in all its fields, or miss it narrowly in one.
    fn traits(&mut self, rules: &[Rule]) -> Traits {
        let mut traits = Traits {
            src: self.address().into(),
            dst: self.address().into(),
            sport: BePort::new(self.port()),
            dport: BePort::new(self.port()),
            proto: self.protocol(),
            dscp: self.dscp(),
            zero: 0,
            ifindex: self.one_of(&[0, 1, 3, 3, 3, 0x1_0003, u32::MAX]),
        };
        if let Some(rule) = rules.get(self.below(128) as usize) {
            self.aim(&mut traits, &rule.matches);
        }
        traits
    }

    fn address(&mut self) -> IpAddr {
        match self.below(2) {
            0 => self.v6().into(),
            _ => self.v4().into(),
        }
    }

    fn aim(&mut self, traits: &mut Traits, rule: &Matches) {
        if let Some(origin) = self.of_list(&rule.from) {
            match origin {
                Origin::Host => traits.ifindex = 0,
                Origin::Prefix(prefix) => traits.src = self.edge(prefix.range()),
            }
        }
        if let Some(prefix) = self.of_list(&rule.to) {
            traits.dst = self.edge(prefix.range());
        }
        traits.proto = self.of_list(&rule.protocols).unwrap_or(traits.proto);
        traits.dscp = self.of_list(&rule.dscp).unwrap_or(traits.dscp);
        if let Some(ports) = self.of_list(&rule.ports) {
            traits.dport = BePort::new(self.one_of(&[*ports.start(), *ports.end()]));
        }
        if let Some(ports) = self.of_list(&rule.source_ports) {
            traits.sport = BePort::new(self.one_of(&[*ports.start(), *ports.end()]));
        }
        if let Some(device) = self.of_list(&rule.devices) {
            traits.ifindex = ifindex(&device).unwrap_or(traits.ifindex);
        }
    }

    fn of_list<T: Clone>(&mut self, values: &[T]) -> Option<T> {
        let index = self.below(values.len().max(1) as u64) as usize;
        values.get(index).cloned()
    }

    /// The first or last address of the range, or the one before or behind it.
    fn edge(&mut self, range: std::ops::RangeInclusive<u128>) -> anabranch_policy::abi::Addr {
        let (first, last) = range.into_inner();
        let edges = [
            first,
            first,
            last,
            last,
            first.wrapping_sub(1),
            last.wrapping_add(1),
        ];
        Ipv6Addr::from_bits(self.one_of(&edges)).into()
    }
}
