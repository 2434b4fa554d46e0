//! Numbers the classes of traffic for the data path.
//!
//! Flow entries contain the number of their class, and outlive the daemon and its configuration. So a name keeps its number over
//! reloads and restarts. A class that left the configuration keeps its number until its last flow has ended; until then its flows
//! are treated as those of the default class.

use std::collections::BTreeMap;

use anabranch_core::rules::file::DEFAULT_CLASS;
use anabranch_core::{ClassId, ClassSpec, Classes, LinkId};
use anabranch_policy::abi::MAX_CLASSES;

use crate::config::Config;
use crate::slots::Slots;

/// The numbers of classes by their names, without the default class.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassSlots {
    wanted: BTreeMap<ClassId, String>,
    leaving: BTreeMap<ClassId, String>,
}

impl ClassSlots {
    /// Assigns numbers to the names that are `wanted`, fewer than [`MAX_CLASSES`]. `known` are the former numbers, `live` counts
    /// the flows of a number. If all other numbers belong to former classes with flows, the one with the fewest flows is reused,
    /// together with these flows.
    pub fn assign<'a>(
        known: &BTreeMap<ClassId, String>,
        live: impl Fn(ClassId) -> u64,
        wanted: impl Iterator<Item = &'a str> + Clone,
    ) -> Self {
        let id = |name: &str| known.iter().find(|(_, known)| *known == name);
        let kept = wanted.clone().filter_map(id);
        let mut slots = Self {
            wanted: kept.map(|(id, name)| (*id, name.clone())).collect(),
            leaving: BTreeMap::new(),
        };
        for name in wanted {
            if slots.id(name).is_none() {
                let id = slots.free(&live);
                slots.wanted.insert(id, name.to_owned());
            }
        }
        let is_leaving = |id: &ClassId| !slots.wanted.contains_key(id) && live(*id) > 0;
        let leaving = known.iter().filter(|(id, _)| is_leaving(id));
        slots.leaving = leaving.map(|(id, name)| (*id, name.clone())).collect();
        slots
    }

    /// The numbers for the classes of a configuration.
    pub fn of(
        config: &Config,
        known: &BTreeMap<ClassId, String>,
        live: impl Fn(ClassId) -> u64,
    ) -> Self {
        Self::assign(known, live, config.rules.iter().map(|rule| rule.name()))
    }

    fn free(&self, live: impl Fn(ClassId) -> u64) -> ClassId {
        let numbers = (1..MAX_CLASSES as u8).map(ClassId);
        let left = numbers.filter(|id| !self.wanted.contains_key(id));
        left.min_by_key(|id| (live(*id), *id))
            .expect("the configuration allows no more rules than there are numbers")
    }

    /// The number of the class of this name.
    pub fn id(&self, name: &str) -> Option<ClassId> {
        let mut names = self.wanted.iter();
        names.find(|(_, known)| *known == name).map(|(id, _)| *id)
    }

    /// The name of a class.
    pub fn name(&self, id: ClassId) -> Option<&str> {
        match id {
            ClassId::DEFAULT => Some(DEFAULT_CLASS),
            id => self
                .wanted
                .get(&id)
                .or(self.leaving.get(&id))
                .map(|name| &name[..]),
        }
    }

    /// Classes that left the configuration and still have flows.
    pub fn leaving(&self) -> impl Iterator<Item = ClassId> {
        self.leaving.keys().copied()
    }

    /// All names, as `known` for the next [`assign`](Self::assign).
    pub fn names(&self) -> BTreeMap<ClassId, String> {
        let all = self.wanted.iter().chain(&self.leaving);
        all.map(|(id, name)| (*id, name.clone())).collect()
    }

    /// The class of each rule, in the order of the file.
    pub fn of_rules(&self, config: &Config) -> Vec<ClassId> {
        let rules = config.rules.iter();
        rules.filter_map(|rule| self.id(rule.name())).collect()
    }

    /// The configuration of each class for the balancer.
    pub fn specs(&self, config: &Config, links: &Slots) -> Classes {
        let link = |name: &str| -> Option<LinkId> { links.id(name) };
        let policy = ClassSpec {
            sessions: config.sessions.clone(),
            ..config.policy.policy.into()
        };
        let default = ClassSpec::of(&config.default, &policy, link);
        let rules = config.rules.iter().filter_map(|rule| {
            let id = self.id(rule.name())?;
            Some((id, ClassSpec::of(&rule.class, &default, link)))
        });
        let leaving = self.leaving().map(|id| (id, default.clone()));
        let others = rules.chain(leaving);
        others
            .chain([(ClassId::DEFAULT, default.clone())])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use anabranch_core::OnReturn;
    use anabranch_core::rules::WhenNone;
    use anabranch_policy::Granularity;

    use super::*;

    /// Names by number, written as `1=bulk 7=video`.
    fn names(text: &str) -> BTreeMap<ClassId, String> {
        let one = |pair: &str| {
            let (id, name) = pair.split_once('=').unwrap();
            (ClassId(id.parse().unwrap()), name.to_owned())
        };
        text.split_whitespace().map(one).collect()
    }

    /// Numbers for `wanted` where the classes numbered in `live` have a flow each.
    fn assign(known: &str, live: &[u8], wanted: &str) -> ClassSlots {
        let live = |id: ClassId| u64::from(live.contains(&id.0));
        ClassSlots::assign(&names(known), live, wanted.split_whitespace())
    }

    fn leaving(slots: &ClassSlots) -> Vec<u8> {
        slots.leaving().map(|id| id.0).collect()
    }

    #[test]
    fn a_name_keeps_its_number_whatever_stands_before_it() {
        let slots = assign("1=bulk 2=video", &[], "voice video bulk");
        assert_eq!(slots.names(), names("1=bulk 2=video 3=voice"));
        assert_eq!(slots.name(ClassId(3)), Some("voice"));
        assert_eq!(slots.name(ClassId::DEFAULT), Some("default"));
    }

    #[test]
    fn a_class_that_leaves_keeps_its_number_while_it_has_flows() {
        let slots = assign("1=bulk 2=video", &[1], "voice");
        assert_eq!(slots.names(), names("1=bulk 2=voice"));
        assert_eq!(leaving(&slots), [1]);
        let later = ClassSlots::assign(&slots.names(), |_| 0, ["voice"].into_iter());
        assert_eq!(later.names(), names("2=voice"));
    }

    #[test]
    fn a_number_without_flows_is_the_next_new_name_s() {
        let slots = assign("1=bulk 2=video", &[2], "voice radio");
        assert_eq!(slots.names(), names("1=voice 2=video 3=radio"));
        assert_eq!(leaving(&slots), [2]);
    }

    #[test]
    fn flows_without_a_known_name_keep_a_new_class_from_their_number() {
        assert_eq!(assign("", &[1, 2], "bulk").names(), names("3=bulk"));
    }

    #[test]
    fn a_class_that_comes_back_finds_its_number_and_its_flows() {
        let gone = assign("1=bulk 2=video", &[2], "bulk");
        assert_eq!(leaving(&gone), [2]);
        let known = gone.names();
        let back = ClassSlots::assign(&known, |_| 1, ["bulk", "video"].into_iter());
        assert_eq!(back.id("video"), Some(ClassId(2)));
        assert!(leaving(&back).is_empty());
    }

    #[test]
    fn where_no_number_is_free_the_one_with_the_fewest_flows_is_given_away() {
        let all: Vec<String> = (1..MAX_CLASSES).map(|i| format!("c{i}")).collect();
        let known = ClassSlots::assign(&BTreeMap::new(), |_| 0, all.iter().map(|name| &name[..]));
        assert_eq!(known.names().len(), 63);
        let wanted = all
            .iter()
            .map(|name| &name[..])
            .filter(|name| *name != "c7" && *name != "c9");
        let live = |id: ClassId| if id == ClassId(9) { 1 } else { 5 };
        let next = ClassSlots::assign(&known.names(), live, wanted.chain(["new"]));
        assert_eq!(next.id("new"), Some(ClassId(9)));
        assert_eq!(leaving(&next), [7]);
    }

    const CONFIG: &str = r#"
lan = ["eth0"]
policy = "RR"
link.fiber = { device = "eth1", down = "500mbit", up = "100mbit" }
link.lte = { device = "eth2", down = "50mbit", up = "10mbit" }
default.except = [5060]
[[rule]]
name = "bulk"
dscp = "cs1"
policy = "WSDM"
granularity = "host"
links = ["lte"]
then = ["fiber"]
none = "drop"
on_return = "move"
[[rule]]
name = "none"
to = "203.0.113.7"
links = []
none = "kernel"
"#;

    #[test]
    fn classes_are_told_to_the_balancer_as_the_file_says() {
        let config = Config::parse("anabranch.toml".as_ref(), CONFIG).unwrap();
        let links = Slots::default().assign(config.names());
        let known = names("1=gone 4=none");
        let live = |id: ClassId| u64::from(id == ClassId(1));
        let slots = ClassSlots::of(&config, &known, live);
        assert_eq!(slots.of_rules(&config), [ClassId(2), ClassId(4)]);
        let specs = slots.specs(&config, &links);
        let ids: Vec<u8> = specs.keys().map(|id| id.0).collect();
        assert_eq!(ids, [0, 1, 2, 4]);
        let (default, bulk, none) = (
            &specs[&ClassId(0)],
            &specs[&ClassId(2)],
            &specs[&ClassId(4)],
        );
        assert_eq!(default.algorithm, "RR".parse().unwrap());
        assert_eq!(specs[&ClassId(1)], *default, "flows of a class that left");
        assert_eq!(bulk.algorithm.granularity, Granularity::Host);
        assert_eq!(bulk.algorithm.measure.name, "st-mix");
        let tier = |id| [LinkId(id)].into_iter().collect();
        assert_eq!(bulk.tiers, Some(vec![tier(1), tier(0)]));
        assert_eq!(
            (bulk.when_none, bulk.on_return),
            (WhenNone::Drop, Some(OnReturn::Move))
        );
        assert_eq!(bulk.sessions.except, [5060]);
        assert_eq!(
            (&none.tiers, none.when_none),
            (&Some(vec![]), WhenNone::Kernel)
        );
        assert_eq!(none.algorithm, default.algorithm);
    }
}
