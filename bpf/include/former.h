/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The contract before this one, where it differs: what an upgrade takes over (gateway/former.h). Maps whose shape and meaning are
 * the same are used on.
 *
 * No contract was released yet. The former one of today is made up, so that upgrades are tested before there is one: it is the
 * present one, but flows do not count their bytes. former.bpf.c are the programs that go by it. CONTRIBUTING.md tells what takes
 * its place after a release.
 */
#ifndef ANABRANCH_FORMER_H
#define ANABRANCH_FORMER_H

#include "anabranch.h"
#include "bins.h"

#define AB_FORMER_VERSION (AB_ABI_VERSION - 1)
#define AB_TRUNK_FORMER_VERSION (AB_TRUNK_ABI_VERSION - 1)

/* Under the same key as now. */
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
	__u8 turned;
	__u8 mac[6];
	__u32 host;
	__u32 embryo;
};

#endif
