//! Every number and name by which the host knows what is ours, in one place.
//!
//! They live in a network namespace of their own kind (tables, rules, marks), so instances in different namespaces never
//! meet. Instances that share a namespace get different blocks by their names.

use anabranch_core::ClassId;
use anabranch_core::rules::RULES_MAX;
use anabranch_policy::abi::MAX_CLASSES;

use crate::observe::TABLE_MAIN;
use crate::plane::LinkId;

/// Marks routes and rules as ours (`ip rule` and `ip route` show it as `proto 171`).
pub const PROTOCOL: u8 = 0xAB;
const BLOCKS: u32 = 64;
const TABLES_PER_BLOCK: u32 = 32;
const TABLE_BASE: u32 = 0xAB00;
const FIRST_USABLE_SLOT: u32 = TABLES_PER_BLOCK - 1;
/// Tables of classes, behind those of links of all instances.
const CLASS_TABLE_BASE: u32 = TABLE_BASE + BLOCKS * TABLES_PER_BLOCK;
const CLASS_TABLES_PER_BLOCK: u32 = MAX_CLASSES as u32;
const PRIORITY_BASE: u32 = 20_000;
const PRIORITIES_PER_BLOCK: u32 = 2;
/// Where the earliest versions had what [`OWN_PRIORITY_BASE`] begins, those of all instances together.
const FORMER_OWN_PRIORITIES: [u32; 2] = [32_764, 32_765];
/// Where versions without rules for what the host itself sends had it.
const FORMER_OWN_PRIORITY_BASE: u32 = FORMER_OWN_PRIORITIES[0] - BLOCKS * PRIORITIES_PER_BLOCK;
/// Specific routes, every rule of the configuration, what is left.
const OWN_PRIORITIES_PER_BLOCK: u32 = RULES_MAX as u32 + 2;
/// The last before those and the main table's own (32766): every rule of an administrator stands before them.
const OWN_PRIORITY_BASE: u32 = FORMER_OWN_PRIORITY_BASE - BLOCKS * OWN_PRIORITIES_PER_BLOCK;
const MARK_BASE: u32 = 0xAB00_0000;

/// The numbers of routing tables, rules and marks that are an instance's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    block: u32,
}

impl Ids {
    /// The same for the same name, on every start.
    pub fn of(instance: &str) -> Self {
        let hash = instance.bytes().fold(5381_u32, |hash, byte| {
            hash.wrapping_mul(33) ^ u32::from(byte)
        });
        Self {
            block: hash % BLOCKS,
        }
    }

    /// Routing table of one link: its default route.
    pub fn link_table(self, link: LinkId) -> u32 {
        self.first_table() + u32::from(link.0)
    }

    /// Routing table of what the kernel's own NAT carries, and of what the host itself sends.
    pub fn first_usable_table(self) -> u32 {
        self.first_table() + FIRST_USABLE_SLOT
    }

    /// Routing table of what the host itself sends of one class.
    pub fn class_table(self, class: ClassId) -> u32 {
        self.first_class_table() + u32::from(class.0)
    }

    /// Whether a routing table is one of them.
    pub fn owns_table(self, table: u32) -> bool {
        let of_links = self.first_table()..self.first_table() + TABLES_PER_BLOCK;
        let of_classes =
            self.first_class_table()..self.first_class_table() + CLASS_TABLES_PER_BLOCK;
        of_links.contains(&table) || of_classes.contains(&table)
    }

    /// Rules that let specific routes of the main table win.
    pub fn specific_priority(self) -> u32 {
        PRIORITY_BASE + self.block * PRIORITIES_PER_BLOCK
    }

    /// Rules that send what is left to one of our tables.
    pub fn table_priority(self) -> u32 {
        self.specific_priority() + 1
    }

    /// Rules for what the host itself sends: specific routes of the main table, ...
    pub fn own_specific_priority(self) -> u32 {
        OWN_PRIORITY_BASE + self.block * OWN_PRIORITIES_PER_BLOCK
    }

    /// ... then what a rule of the configuration takes, by its place there, ...
    pub fn own_rule_priority(self, place: usize) -> u32 {
        self.own_specific_priority() + 1 + place as u32
    }

    /// ... then the table of what is left.
    pub fn own_table_priority(self) -> u32 {
        self.own_specific_priority() + OWN_PRIORITIES_PER_BLOCK - 1
    }

    /// Whether a rule with our protocol number is of this instance.
    pub fn owns_rule(self, priority: u32) -> bool {
        let of_links = self.specific_priority()..=self.table_priority();
        let of_own_packets = self.own_specific_priority()..=self.own_table_priority();
        let former = FORMER_OWN_PRIORITY_BASE + self.block * PRIORITIES_PER_BLOCK;
        of_links.contains(&priority)
            || of_own_packets.contains(&priority)
            || (former..former + PRIORITIES_PER_BLOCK).contains(&priority)
    }

    /// Priority and table of the rules that the earliest versions of this instance had for what the host itself sends. The
    /// first may be another instance's, unless the second is there.
    pub fn former_rules(self) -> [(u32, u32); 2] {
        let [specific, table] = FORMER_OWN_PRIORITIES;
        [(specific, TABLE_MAIN), (table, self.first_usable_table())]
    }

    /// Packet mark of what the kernel's own NAT is to carry.
    pub fn fallback_mark(self) -> u32 {
        MARK_BASE + self.block
    }

    fn first_table(self) -> u32 {
        TABLE_BASE + self.block * TABLES_PER_BLOCK
    }

    fn first_class_table(self) -> u32 {
        CLASS_TABLE_BASE + self.block * CLASS_TABLES_PER_BLOCK
    }
}

/// A table of any instance.
pub fn is_own_table(table: u32) -> bool {
    (TABLE_BASE..CLASS_TABLE_BASE + BLOCKS * CLASS_TABLES_PER_BLOCK).contains(&table)
}

#[cfg(test)]
mod tests {
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
            let links = ids.specific_priority()..=ids.table_priority();
            for priority in links.chain(first..=ids.own_table_priority()) {
                assert_eq!(owners(&|ids| ids.owns_rule(priority)), 1, "{priority}");
            }
            let classes = (1..=RULES_MAX as u8).map(|class| ids.class_table(ClassId(class)));
            for table in classes.chain([ids.link_table(LinkId(0)), ids.first_usable_table()]) {
                assert_eq!(owners(&|ids| ids.owns_table(table)), 1, "{table}");
                assert!(is_own_table(table));
            }
        }
    }
}
