//! All numbers and names that mark things on the host as ours.
//!
//! Tables, rules and marks belong to a network namespace, so instances in different namespaces never
//! conflict. Instances that share a namespace have different blocks ([`Numbers`](crate::lock::Numbers)).

use anabranch_core::ClassId;
use anabranch_core::rules::RULES_MAX;
use anabranch_policy::abi::{CONNECTION_MARK, FALLBACK_LINK_SHIFT, FALLBACK_MARK, MAX_CLASSES};

use crate::observe::TABLE_MAIN;
use crate::plane::LinkId;

/// Marks routes and rules as ours (`ip rule` and `ip route` show it as `proto 171`).
pub const PROTOCOL: u8 = 0xAB;
/// How many instances may share a network namespace.
pub const BLOCKS: u32 = 64;
const TABLES_PER_BLOCK: u32 = 32;
const TABLE_BASE: u32 = 0xAB00;
const FIRST_USABLE_SLOT: u32 = TABLES_PER_BLOCK - 1;
/// Tables of classes, after those of the links of all instances.
const CLASS_TABLE_BASE: u32 = TABLE_BASE + BLOCKS * TABLES_PER_BLOCK;
const CLASS_TABLES_PER_BLOCK: u32 = MAX_CLASSES as u32;
/// Rules of links begin at this priority, ...
const PRIORITY_BASE: u32 = 20_000;
const PRIORITIES_PER_BLOCK: u32 = 2;
/// ... and before them come rules for destinations that two links have in common.
const NEAR_BEFORE: u32 = BLOCKS;
/// A rule that is added without a priority goes before all others: `fib_default_rule_pref` of linux/net/core/fib_rules.c. Then
/// our rules move by this step, so as to stay before it.
const STEP: u32 = 256;
const STEPS: u32 = 16;
/// This many rules may be added before ours.
const ADDED_MAX: u32 = 32;
/// Priorities of the earliest versions for what now begins at [`OWN_PRIORITY_BASE`], of all instances together.
const FORMER_OWN_PRIORITIES: [u32; 2] = [32_764, 32_765];
/// Priorities of versions without rules for the host's own traffic. Now the rules for traffic that the host forwards for others are
/// there.
const FORMER_OWN_PRIORITY_BASE: u32 = FORMER_OWN_PRIORITIES[0] - BLOCKS * PRIORITIES_PER_BLOCK;
/// Number of rules for the host's own traffic: specific routes, each rule of the configuration, and the rest.
const OWN_PRIORITIES_PER_BLOCK: u32 = RULES_MAX as u32 + 2;
/// The last priorities before those above and the main table's rule (32766), so that every rule of an administrator comes before
/// them.
const OWN_PRIORITY_BASE: u32 = FORMER_OWN_PRIORITY_BASE - BLOCKS * OWN_PRIORITIES_PER_BLOCK;
/// Rules for the host's own traffic to destinations that two links have in common, and before them copies of others' rules.
const OWN_NEAR_BASE: u32 = OWN_PRIORITY_BASE - BLOCKS;
/// Rules of others that the kernel would look up only after ours are copied to this priority.
pub const COPY_BASE: u32 = OWN_NEAR_BASE - BLOCKS;
/// Layout of a connection mark: instance, direction, link + 1.
const CONNECTION_BLOCK_SHIFT: u32 = 16;
const CONNECTION_LEFT: u32 = 1 << 8;
/// The part of a connection mark that identifies its owner.
pub const CONNECTION_MARK_MASK: u32 = 0xFFFF_0000;

/// The numbers of routing tables, rules and marks of one instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    block: u32,
}

impl Ids {
    /// Those of a block below [`BLOCKS`].
    pub fn of_block(block: u32) -> Self {
        Self { block }
    }

    /// Those that an instance prefers, if no other instance has them.
    pub fn of(instance: &str) -> Self {
        Self::of_block(preferred_block(instance))
    }

    /// Routing table with the default route of one link.
    pub fn link_table(self, link: LinkId) -> u32 {
        self.first_table() + u32::from(link.0)
    }

    /// Routing table for the kernel's own NAT and for the host's own traffic: the first usable link.
    pub fn first_usable_table(self) -> u32 {
        self.first_table() + FIRST_USABLE_SLOT
    }

    /// Routing table for the host's own traffic of one class.
    pub fn class_table(self, class: ClassId) -> u32 {
        self.first_class_table() + u32::from(class.0)
    }

    /// Whether a routing table belongs to this instance.
    pub fn owns_table(self, table: u32) -> bool {
        let of_links = self.first_table()..self.first_table() + TABLES_PER_BLOCK;
        let of_classes =
            self.first_class_table()..self.first_class_table() + CLASS_TABLES_PER_BLOCK;
        of_links.contains(&table) || of_classes.contains(&table)
    }

    /// Where the rules of links go among those of others, given the others' priorities: before rules that were added without a
    /// priority after ours, so that the order does not depend on which came first.
    pub fn place(self, others: impl Iterator<Item = u32> + Clone) -> Place {
        let is_before = |step: &u32| {
            let first = PRIORITY_BASE - step * STEP;
            let added = first - NEAR_BEFORE - ADDED_MAX..first + self.block * PRIORITIES_PER_BLOCK;
            others.clone().any(|priority| added.contains(&priority))
        };
        let last = (0..STEPS).rev().find(is_before);
        let step = last.map_or(0, |step| (step + 1).min(STEPS - 1));
        Place {
            first: PRIORITY_BASE - step * STEP,
            block: self.block,
        }
    }

    /// Priority of copies of others' rules that the kernel would look up only after ours.
    pub fn copy_priority(self) -> u32 {
        COPY_BASE + self.block
    }

    /// Rules for the host's own traffic to destinations that two links have in common.
    pub fn own_near_priority(self) -> u32 {
        OWN_NEAR_BASE + self.block
    }

    /// Rules for traffic that the host forwards for others: specific routes of the main table, ...
    pub fn forwarded_specific_priority(self) -> u32 {
        FORMER_OWN_PRIORITY_BASE + self.block * PRIORITIES_PER_BLOCK
    }

    /// ... then the first usable link.
    pub fn forwarded_table_priority(self) -> u32 {
        self.forwarded_specific_priority() + 1
    }

    /// Rules for the host's own traffic: specific routes of the main table, ...
    pub fn own_specific_priority(self) -> u32 {
        OWN_PRIORITY_BASE + self.block * OWN_PRIORITIES_PER_BLOCK
    }

    /// ... then that of a rule of the configuration, by its index, ...
    pub fn own_rule_priority(self, place: usize) -> u32 {
        self.own_specific_priority() + 1 + place as u32
    }

    /// ... then the table for the rest.
    pub fn own_table_priority(self) -> u32 {
        self.own_specific_priority() + OWN_PRIORITIES_PER_BLOCK - 1
    }

    /// Whether a rule with our protocol number belongs to this instance.
    pub fn owns_rule(self, priority: u32) -> bool {
        let of_links = (0..STEPS).any(|step| {
            let place = Place {
                first: PRIORITY_BASE - step * STEP,
                block: self.block,
            };
            place.owns(priority)
        });
        let of_own_packets = self.own_specific_priority()..=self.own_table_priority();
        let forwarded = self.forwarded_specific_priority()..=self.forwarded_table_priority();
        of_links
            || of_own_packets.contains(&priority)
            || forwarded.contains(&priority)
            || [self.own_near_priority(), self.copy_priority()].contains(&priority)
    }

    /// Priority and table of the rules that the earliest versions of this instance had for the host's own traffic. The
    /// first may belong to another instance, unless the second exists.
    pub fn former_rules(self) -> [(u32, u32); 2] {
        let [specific, table] = FORMER_OWN_PRIORITIES;
        [(specific, TABLE_MAIN), (table, self.first_usable_table())]
    }

    /// Packet mark for the kernel's own NAT, over the first usable link.
    pub fn fallback_mark(self) -> u32 {
        FALLBACK_MARK + self.block
    }

    /// Packet mark for the kernel's own NAT over this link.
    pub fn fallback_mark_of(self, link: LinkId) -> u32 {
        self.fallback_mark() | (u32::from(link.0) + 1) << FALLBACK_LINK_SHIFT
    }

    /// Mark of connections that arrived over a link: their answers leave over it.
    pub fn arrived_mark(self, link: LinkId) -> u32 {
        self.connection_marks() | (u32::from(link.0) + 1)
    }

    /// Mark of connections of others that left over a link: they keep it as long as it works.
    pub fn left_mark(self, link: LinkId) -> u32 {
        self.arrived_mark(link) | CONNECTION_LEFT
    }

    /// The bits that all connection marks of this instance have in common.
    pub fn connection_marks(self) -> u32 {
        CONNECTION_MARK | self.block << CONNECTION_BLOCK_SHIFT
    }

    fn first_table(self) -> u32 {
        TABLE_BASE + self.block * TABLES_PER_BLOCK
    }

    fn first_class_table(self) -> u32 {
        CLASS_TABLE_BASE + self.block * CLASS_TABLES_PER_BLOCK
    }
}

/// A block that depends only on the name, and differs for most names.
pub fn preferred_block(instance: &str) -> u32 {
    let hash = instance.bytes().fold(5381_u32, |hash, byte| {
        hash.wrapping_mul(33) ^ u32::from(byte)
    });
    hash % BLOCKS
}

/// The priorities of an instance's rules of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    first: u32,
    block: u32,
}

impl Place {
    /// Rules for destinations that two links have in common: the link to which a socket is bound decides.
    pub fn near_priority(self) -> u32 {
        self.first - NEAR_BEFORE + self.block
    }

    /// Rules by which specific routes of the main table come first.
    pub fn specific_priority(self) -> u32 {
        self.first + self.block * PRIORITIES_PER_BLOCK
    }

    /// Rules that send the rest to one of our tables.
    pub fn table_priority(self) -> u32 {
        self.specific_priority() + 1
    }

    fn owns(self, priority: u32) -> bool {
        let of_links = self.specific_priority()..=self.table_priority();
        of_links.contains(&priority) || priority == self.near_priority()
    }
}

/// Whether it is a table of any instance.
pub fn is_own_table(table: u32) -> bool {
    (TABLE_BASE..=last_table()).contains(&table)
}

fn last_table() -> u32 {
    CLASS_TABLE_BASE + BLOCKS * CLASS_TABLES_PER_BLOCK - 1
}

#[cfg(test)]
mod tests {
    use anabranch_policy::abi::{MARK_KIND, OUR_MARKS, OUR_MARKS_MASK};

    use super::*;

    #[test]
    fn instances_of_different_blocks_share_no_rule_and_no_table() {
        let all: Vec<Ids> = (0..BLOCKS).map(|block| Ids { block }).collect();
        let owners = |owns: &dyn Fn(&Ids) -> bool| all.iter().filter(|ids| owns(ids)).count();
        for ids in &all {
            let first = ids.own_specific_priority();
            assert_eq!(ids.own_rule_priority(0), first + 1);
            assert_eq!(
                ids.own_rule_priority(RULES_MAX),
                ids.own_table_priority(),
                "behind the last rule"
            );
            let place = ids.place(std::iter::empty());
            let links = [
                place.near_priority(),
                place.specific_priority(),
                place.table_priority(),
                ids.own_near_priority(),
                ids.copy_priority(),
                ids.forwarded_specific_priority(),
                ids.forwarded_table_priority(),
            ];
            for priority in links.into_iter().chain(first..=ids.own_table_priority()) {
                assert_eq!(owners(&|ids| ids.owns_rule(priority)), 1, "{priority}");
            }
            let classes = (1..=RULES_MAX as u8).map(|class| ids.class_table(ClassId(class)));
            for table in classes.chain([ids.link_table(LinkId(0)), ids.first_usable_table()]) {
                assert_eq!(owners(&|ids| ids.owns_table(table)), 1, "{table}");
                assert!(is_own_table(table));
            }
        }
    }

    /// Who else is on the host reads there which numbers to leave alone.
    #[test]
    fn readme_tells_every_number() {
        let readme = include_str!("../../../../README.md");
        let readme = readme.split_whitespace().collect::<Vec<_>>().join(" ");
        let [first, last] = [OUR_MARKS, OUR_MARKS | !OUR_MARKS_MASK];
        let (kind, tables) = (CONNECTION_MARK, TABLE_BASE..=last_table());
        let links = PRIORITY_BASE - (STEPS - 1) * STEP - NEAR_BEFORE
            ..=PRIORITY_BASE + BLOCKS * PRIORITIES_PER_BLOCK - 1;
        let own = COPY_BASE..=FORMER_OWN_PRIORITY_BASE + BLOCKS * PRIORITIES_PER_BLOCK - 1;
        for told in [
            format!("from {first:#x} to {last:#x}"),
            format!("from {kind:#x} to {:#x}", kind | !MARK_KIND),
            format!("tables {} to {}", tables.start(), tables.end()),
            format!(
                "priorities {} to {} and {} to {}",
                links.start(),
                links.end(),
                own.start(),
                own.end()
            ),
        ] {
            assert!(readme.contains(&told), "{told}");
        }
    }

    #[test]
    fn links_come_before_what_was_added_without_a_priority_and_after_what_has_one() {
        let ids = Ids { block: 5 };
        let first = |others: &[u32]| ids.place(others.iter().copied()).specific_priority();
        assert_eq!(first(&[]), 20_010);
        assert_eq!(first(&[5270, 32_764, 32_765]), 20_010, "they stand there");
        let once = first(&[20_009, 20_008]);
        assert_eq!(once, 20_010 - STEP);
        assert_eq!(first(&[20_009, once - 1, once - 2]), once - STEP, "again");
        assert_eq!(first(&[once - 1]), once - STEP, "the first is gone");
        let all = Vec::from_iter(10_000..20_010);
        assert!(ids.owns_rule(first(&all)), "as far up as there is room");
    }

    #[test]
    fn marks_of_connections_are_an_instances_and_a_links() {
        let marks = |block| {
            let ids = Ids { block };
            let links = [LinkId(0), LinkId(1)];
            links.map(|link| [ids.arrived_mark(link), ids.left_mark(link)])
        };
        let all: Vec<u32> = [marks(0), marks(63)].concat().concat();
        let distinct = std::collections::BTreeSet::from_iter(&all);
        assert_eq!(distinct.len(), all.len());
        for mark in all {
            assert_eq!(mark >> 24, 0xA8);
        }
    }
}
