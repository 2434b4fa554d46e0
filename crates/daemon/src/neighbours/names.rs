//! What findings are called.

/// Every kind of finding, as `survey.ignore` and the status name it.
pub const NAMES: [&str; 22] = [
    BRIDGE_PORT,
    OUR_MARKS,
    INGRESS_QDISC,
    FORWARD_FILTER,
    INGRESS_FILTER,
    PREROUTING_FILTER,
    LEGACY_IPTABLES,
    PORT_FORWARD,
    LAN_REDIRECT,
    MARK_RULE,
    ROUTING_RULE,
    GOTO_RULE,
    MULTIPATH_DEFAULT,
    MANY_ROUTES,
    SETTING_UNDONE,
    UNLISTED_NETWORK,
    DUPLICATE_ADDRESS,
    SHARED_SEGMENT,
    DHCP_CLIENT,
    DHCP_CLIENTS,
    CONNTRACK_FULL,
    NEIGHBOUR_TABLE_FULL,
];
pub(super) const BRIDGE_PORT: &str = "bridge-port";
pub(super) const OUR_MARKS: &str = "our-marks";
pub(super) const INGRESS_QDISC: &str = "ingress-qdisc";
pub(super) const FORWARD_FILTER: &str = "forward-filter";
pub(super) const INGRESS_FILTER: &str = "ingress-filter";
pub(super) const PREROUTING_FILTER: &str = "prerouting-filter";
pub(super) const LEGACY_IPTABLES: &str = "legacy-iptables";
pub(super) const PORT_FORWARD: &str = "port-forward";
pub(super) const LAN_REDIRECT: &str = "lan-redirect";
pub(super) const MARK_RULE: &str = "mark-rule";
pub(super) const ROUTING_RULE: &str = "routing-rule";
pub(super) const MULTIPATH_DEFAULT: &str = "multipath-default";
pub(super) const MANY_ROUTES: &str = "many-routes";
pub(super) const UNLISTED_NETWORK: &str = "unlisted-network";
pub(super) const DUPLICATE_ADDRESS: &str = "duplicate-address";
pub(super) const SETTING_UNDONE: &str = "setting-undone";
pub(super) const GOTO_RULE: &str = "goto-rule";
pub(super) const SHARED_SEGMENT: &str = "shared-segment";
pub(super) const DHCP_CLIENT: &str = "dhcp-client";
pub(super) const DHCP_CLIENTS: &str = "dhcp-clients";
pub(super) const CONNTRACK_FULL: &str = "conntrack-full";
pub(super) const NEIGHBOUR_TABLE_FULL: &str = "neighbour-table-full";
