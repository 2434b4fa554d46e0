/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The contract of the trunk program, and the input of its choices. A sublink is a target: an index below
 * AB_MAX_LINKS. Times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef ANABRANCH_BINS_H
#define ANABRANCH_BINS_H

#include <linux/types.h>
#include "anabranch.h"
#include "choice.h"
#include "limits.h"
#include "reasons.h"

/* The version of all its pinned maps. Raised when the shape or meaning of one changes after a release (former.h). */
#define AB_TRUNK_ABI_VERSION 4

/* Bins of a trunk (Jo 2002, section III.D). A flow is in the bin of its hash; a table gives each bin a sublink. */
#define AB_BINS 1024

/* Packets of one bin without a long gap between them. All zero before the first packet. */
struct ab_flowlet {
	__u64 seen_ns; /* its last packet */
	__u32 sublink;
	__u32 begun; /* 1 as soon as there was a packet */
};

/* Deficit round robin over the sublinks. All zero before the first packet. */
struct ab_drr {
	__u64 deficit[AB_MAX_LINKS]; /* bytes granted and not yet used */
	__u32 visited;		     /* the sublink whose turn it is */
	__u32 begun;		     /* 1 as soon as the first visit was granted its quantum */
};

/* How the sublink of a packet is chosen. */
enum ab_spread {
	AB_SPREAD_HASH = 0,	  /* SH */
	AB_SPREAD_BINS = 1,	  /* by the table that DH and DHFV maintain */
	AB_SPREAD_RENDEZVOUS = 2, /* weighted, by the flow's hash */
	AB_SPREAD_FLOWLET = 3,	  /* at random by weight, again after each gap of a bin */
	AB_SPREAD_PACKET = 4,	  /* packet by packet, by deficit round robin */
};

/* The sublinks of a trunk as a choice sees them. Bit i of `usable` says that sublink i may take packets. */
struct ab_sublinks {
	__u64 usable;
	__u32 count;
	__u32 zero;
	__u32 weight[AB_MAX_LINKS];
};

/* The settings of the trunk, by user space. */
struct ab_spreading {
	struct ab_sublinks sublinks[AB_FAMILIES];
	__u32 spread; /* enum ab_spread */
	__u32 zero;
	__u64 flowlet_gap_ns;
	__u32 quantum[AB_MAX_LINKS]; /* bytes a visit grants, for AB_SPREAD_PACKET */
};

enum ab_sublink_flags {
	AB_SUBLINK_POINT_TO_POINT = 1 << 1, /* a layer-3 device: no neighbour to resolve */
};

struct ab_sublink {
	__u32 ifindex;
	__u32 flags;			     /* enum ab_sublink_flags */
	union ab_addr next_hop[AB_FAMILIES]; /* the other node's addresses on this sublink; all zero: none */
};

/* Packets and bytes sent over one sublink; per CPU. */
struct ab_carried {
	__u64 packets; /* GSO segments counted one by one */
	__u64 bytes;   /* with Ethernet headers, as the sublink's queue counts them */
	__u64 opened;  /* TCP segments with SYN: one per connection and direction, and one per retransmission */
};

/* Every way a packet can leave the trunk program: X(name, fate, words). */
#define AB_TRUNK_REASONS(X)                                                                                            \
	X(SPREAD, SENT, "sent over a sublink")                                                                         \
	X(SPREAD_AROUND, SENT, "sent over another sublink: its bin's own is not usable")                               \
	X(NOT_IP, PASSED, "neither IPv4 nor IPv6, or neighbour discovery: left to the trunk device")                   \
	X(NOT_UNICAST, PASSED, "multicast or broadcast: left to the trunk device")                                     \
	X(NOT_TOLD, PASSED, "the trunk's settings are not loaded: left to the trunk device")                           \
	X(CUT_SHORT, DROPPED, "IP header cut short")                                                                   \
	X(NO_SUBLINK, DROPPED, "no usable sublink")                                                                    \
	X(NO_NEXT_HOP, DROPPED, "a sublink without device or next hop was chosen")                                     \
	X(UNSENT, DROPPED, "kernel helper refused to send")

enum ab_trunk_reason {
#define AB_TRUNK_REASON_ENUM(name, fate, words) AB_TRUNK_REASON_##name,
	AB_TRUNK_REASONS(AB_TRUNK_REASON_ENUM)
#undef AB_TRUNK_REASON_ENUM
		AB_TRUNK_REASON_COUNT,
};

#endif
