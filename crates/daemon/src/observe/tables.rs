//! The kernel's own routing tables.

/// The routing table that the host's own routes stand in.
pub const TABLE_MAIN: u32 = libc::RT_TABLE_MAIN as u32;
/// The routing table of the host's own addresses.
pub const TABLE_LOCAL: u32 = libc::RT_TABLE_LOCAL as u32;
