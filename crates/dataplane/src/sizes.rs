//! How large the tables are.

/// How many flows and hosts the tables hold. Fixed while pinned maps live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Confirmed flows, about 430 bytes of kernel memory each, taken as needed.
    pub flows_max: u32,
    /// Flows that are not confirmed, about 430 bytes of kernel memory each, taken as needed, and 100 reserved at once.
    pub unconfirmed_max: u32,
    /// LAN hosts counted for quotas. Fewer than unconfirmed flows, or hosts that are invented could take all of those.
    pub hosts_max: u32,
    /// Prefixes of destinations of which flows tell (`bpf/policy/paths.h`), about 460 bytes of kernel memory each, reserved at once.
    pub prefixes_max: u32,
}

/// [`Settings::unconfirmed_per_host`] of a gateway of default size: a sixteenth of its unconfirmed flows. A host that opens a
/// thousand flows a second waits two seconds for their answers.
///
/// [`Settings::unconfirmed_per_host`]: anabranch_policy::abi::Settings
pub const UNCONFIRMED_PER_HOST: u32 = 2048;

impl Default for Sizes {
    fn default() -> Self {
        Sizes {
            flows_max: 262_144,
            unconfirmed_max: 32_768,
            hosts_max: 16_384,
            prefixes_max: 8192,
        }
    }
}
