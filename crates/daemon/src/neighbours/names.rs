//! The names of findings.

macro_rules! names {
    ($($constant:ident = $name:literal;)+) => {
        /// Every kind of finding, as `survey.ignore` and the status name it.
        pub const NAMES: &[&str] = &[$($constant),+];
        $(pub(super) const $constant: &str = $name;)+
    };
}

names! {
    BRIDGE_PORT = "bridge-port";
    OUR_MARKS = "our-marks";
    INGRESS_QDISC = "ingress-qdisc";
    FORWARD_FILTER = "forward-filter";
    INGRESS_FILTER = "ingress-filter";
    PREROUTING_FILTER = "prerouting-filter";
    LEGACY_IPTABLES = "legacy-iptables";
    PORT_FORWARD = "port-forward";
    LAN_REDIRECT = "lan-redirect";
    MARK_RULE = "mark-rule";
    ROUTING_RULE = "routing-rule";
    GOTO_RULE = "goto-rule";
    MULTIPATH_DEFAULT = "multipath-default";
    MANY_ROUTES = "many-routes";
    SETTING_UNDONE = "setting-undone";
    UNLISTED_NETWORK = "unlisted-network";
    DUPLICATE_ADDRESS = "duplicate-address";
    SHARED_SEGMENT = "shared-segment";
    DHCP_CLIENT = "dhcp-client";
    DHCP_CLIENTS = "dhcp-clients";
    CONNTRACK_FULL = "conntrack-full";
    NEIGHBOUR_TABLE_FULL = "neighbour-table-full";
}
