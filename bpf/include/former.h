/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The former contract where it differs from the present one. An upgrade takes over its maps (gateway/former.h). Maps with the same
 * shape and meaning stay in use.
 *
 * No contract was released yet. The present former contract is invented, so that upgrades can be tested before there is one: it is
 * the present contract without the byte counts of flows. former.bpf.c has the programs for it. CONTRIBUTING.md says what takes its
 * place after a release.
 */
#ifndef ANABRANCH_FORMER_H
#define ANABRANCH_FORMER_H

#include "anabranch.h"
#include "bins.h"

#define AB_FORMER_VERSION (AB_ABI_VERSION - 1)
#define AB_TRUNK_FORMER_VERSION (AB_TRUNK_ABI_VERSION - 1)

/* The key is the present one. */
struct ab_former_flow {
	__u64 opened_ns;
	__u64 seen_ns;
	__u64 packets;
	union ab_addr other_local;
	struct ab_flow_tcp tcp;
	__u32 state;
	__u32 lan_ifindex;
	__be16 other_port;
	__be16 first_remote_port;
	__u16 tried;
	__u8 link;
	__u8 class;
	__u8 why;
	__u8 hairpin_link;
	__u8 mac[6];
	__u32 host;
	__u32 unconfirmed;
};

#endif
