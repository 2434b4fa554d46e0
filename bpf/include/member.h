/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The contract of the member programs: a server that has the virtual addresses of services, and answers clients itself. Balancers
 * send it clients' packets as they are, or in a tunnel: IP in IP, or generic UDP encapsulation (GUE, draft-ietf-intarea-gue, variant
 * 0 without flags and optional fields). Either family may carry either.
 */
#ifndef ANABRANCH_MEMBER_H
#define ANABRANCH_MEMBER_H

#include <linux/types.h>
#include "anabranch.h"
#include "limits.h"
#include "reasons.h"

/* The version of its pinned maps. */
#define AB_MEMBER_ABI_VERSION 1

/* Virtual addresses, and balancers. */
#define AB_MEMBER_ADDRESSES_MAX 256

struct ab_member {
	__be16 gue_port;
	__u8 has_sources; /* only tunnels of the hosts in `member_sources` are taken off */
	__u8 zero;
};

/* A virtual address. */
struct ab_member_address {
	__u64 seen_ns;	   /* when a packet had outer headers as long; noted once in AB_OUTER_NOTED_NS */
	__u32 outer_bytes; /* of the longest outer headers that a packet for it had lately; 0: none came in a tunnel */
	__u32 zero;
};
#define AB_OUTER_NOTED_NS 1000000000ull
/* After this time without longer headers the next packet's count. Anybody can send some, if no sources are named. */
#define AB_OUTER_LASTS_NS 60000000000ull

/* Every way a packet can leave the member programs: X(name, fate, words). Of what is sent, only SYN_ACK is counted. */
#define AB_MEMBER_REASONS(X)                                                                                           \
	X(IPIP, PASSED, "IP in IP: outer header taken off")                                                            \
	X(GUE, PASSED, "GUE: outer headers taken off")                                                                 \
	X(SENT_AGAIN, SENT, "outer headers of the other family taken off, and received once more (before Linux 6.3)")  \
	X(SYN_ACK, PASSED, "SYN/ACK to a client whose packets come in a tunnel: its MSS fits that")                    \
	X(NOT_TUNNELLED, PASSED, "neither IP in IP nor GUE")                                                           \
	X(OTHER_ADDRESS, PASSED, "in a tunnel, for another address: left to the host")                                 \
	X(OTHER_SOURCE, PASSED, "in a tunnel of a host that `from` does not name: left to the host")                   \
	X(OTHER_TARGET, PASSED, "in a tunnel to another host, to which this one forwards it")                          \
	X(OTHER_SHAPE, PASSED, "in a tunnel, with options, extensions, fragmented or cut short: left to the host")     \
	X(NOT_CONFIGURED, PASSED, "settings are not loaded")                                                           \
	X(CONGESTED, DROPPED, "marked as congested on a way to an end that does not understand marks (RFC 6040)")      \
	X(UNTAKEN, DROPPED, "kernel helper refused to take outer headers off")

enum ab_member_reason {
#define AB_MEMBER_REASON_ENUM(name, fate, words) AB_MEMBER_REASON_##name,
	AB_MEMBER_REASONS(AB_MEMBER_REASON_ENUM)
#undef AB_MEMBER_REASON_ENUM
		AB_MEMBER_REASON_COUNT,
};

#endif
