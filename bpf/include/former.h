/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The contract before this one, where it differs: what an upgrade takes over (lib/former.h). Maps whose shape is the same
 * (versions.h) are simply used on.
 */
#ifndef ANABRANCH_FORMER_H
#define ANABRANCH_FORMER_H

#include "anabranch.h"
#include "bins.h"

#define AB_FORMER_VERSION 5
#define AB_FORMER_TRY_BITS 5

/* Under the same key as now, and with the same bits of state. */
struct ab_former_flow {
	__u64 opened_ns;
	__u64 seen_ns;
	__u64 packets;
	__u64 bytes;
	union ab_addr other_local;
	struct ab_flow_tcp tcp;
	__u32 state;
	__u32 lan_ifindex;
	__be16 other_port;
	__be16 first_remote_port;
	__u16 tried;
	__u8 link;
	__u8 why;
	__u8 mac[6];
	__u8 turned;
	__u8 zero;
	__u32 host;
	__u32 embryo;
};

struct ab_former_device {
	__u32 ifindex;
	__u8 role;
	__u8 link;
	__u8 layer3;
	__u8 zero;
	__u32 mtu;
	union ab_addr address;
};

struct ab_former_link {
	union ab_addr external;
	union ab_addr gateway;
	__u32 ifindex;
	__u32 mtu;
	__u32 flags;
	__u32 zero;
};

struct ab_former_route {
	__u8 verdict;
	__u8 link;
	__u16 zero;
	__u32 ifindex;
	union ab_addr via;
};

struct ab_former_settings {
	__u64 tcp_established_ns;
	__u64 tcp_transitory_ns;
	__u64 udp_ns;
	__u64 icmp_ns;
	__u64 embryo_ns;
	__u32 forwards_kernel;
	__u32 quota_per_host;
	__u32 flows_max;
	__u16 port_min;
	__u16 port_max;
	__u16 ephemeral_min;
	__u16 ephemeral_max;
	__u32 udp_filter_open;
	__u32 fallback_mark;
	__u32 embryos_per_host;
	__u32 flows_per_device;
	__u32 embryos_per_device;
	__u32 lan_sources_loose;
	__u32 routed;
	__u16 reserved[AB_RESERVED_MAX];
};

struct ab_former_choice {
	__u32 dispatch;
	__u32 load;
	__u32 count;
	__u32 usable;
	__u32 syn_retry;
	__u32 granularity;
	__u32 stick;
	__be16 except[AB_EXCEPT_MAX];
	struct ab_target target[AB_MAX_LINKS];
};

/* ---- of the trunk ---- */

#define AB_TRUNK_FORMER_VERSION 2

struct ab_former_spreading {
	__u32 count;
	__u32 usable;
	__u32 weight[AB_MAX_LINKS];
	__u32 load[AB_MAX_LINKS];
	__u32 spread;
	__u32 zero;
	__u64 flowlet_gap_ns;
	__u32 quantum[AB_MAX_LINKS];
};

#define AB_FORMER_SUBLINK_PRESENT 1 /* of flags: device and next hop are known */

struct ab_former_sublink {
	__u32 ifindex;
	__u32 flags;
	__be32 next_hop;
	__u32 zero;
};

struct ab_former_table_of_bins {
	__u8 sublink[AB_BINS];
};

#endif
