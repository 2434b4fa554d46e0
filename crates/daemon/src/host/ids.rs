//! Every number and name by which the host knows what is ours, in one place.
//!
//! They live in a network namespace of their own kind (tables, rules, marks), so instances in different namespaces never
//! meet. Instances that share a namespace get different blocks by their names.

use crate::observe::TABLE_MAIN;
use crate::plane::LinkId;

/// Marks routes and rules as ours (`ip rule` and `ip route` show it as `proto 171`).
pub const PROTOCOL: u8 = 0xAB;
const BLOCKS: u32 = 64;
const TABLES_PER_BLOCK: u32 = 32;
const TABLE_BASE: u32 = 0xAB00;
const FIRST_USABLE_SLOT: u32 = TABLES_PER_BLOCK - 1;
const PRIORITY_BASE: u32 = 20_000;
const PRIORITIES_PER_BLOCK: u32 = 2;
/// Where earlier versions had what [`OWN_PRIORITY_BASE`] begins, those of all instances together.
const FORMER_OWN_PRIORITIES: [u32; 2] = [32_764, 32_765];
/// The last before those and the main table's own (32766): every rule of an administrator stands before them.
const OWN_PRIORITY_BASE: u32 = FORMER_OWN_PRIORITIES[0] - BLOCKS * PRIORITIES_PER_BLOCK;
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

    /// Whether a routing table is one of them.
    pub fn owns_table(self, table: u32) -> bool {
        (self.first_table()..self.first_table() + TABLES_PER_BLOCK).contains(&table)
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
        OWN_PRIORITY_BASE + self.block * PRIORITIES_PER_BLOCK
    }

    /// ... then one of our tables.
    pub fn own_table_priority(self) -> u32 {
        self.own_specific_priority() + 1
    }

    /// Whether a rule with our protocol number is of this instance.
    pub fn owns_rule(self, priority: u32) -> bool {
        let of_links = self.specific_priority()..=self.table_priority();
        let of_own_packets = self.own_specific_priority()..=self.own_table_priority();
        of_links.contains(&priority) || of_own_packets.contains(&priority)
    }

    /// Priority and table of the rules that an earlier version of this instance had for what the host itself sends. The
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
}

/// A table of any instance.
pub fn is_own_table(table: u32) -> bool {
    (TABLE_BASE..TABLE_BASE + BLOCKS * TABLES_PER_BLOCK).contains(&table)
}
