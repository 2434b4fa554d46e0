/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Upgrades without loss: the tables of the former contract (include/former.h) beside the present ones.
 *
 * The programs of an upgrade (upgrade.bpf.c) are attached before the former ones, and let all packets pass until user space sets
 * `taken`. From then on they handle all packets. A former flow is taken over with its next packet, or by `migrate`,
 * whichever comes first (take_over.h). When all are taken over, the gateway's own programs, which have none of this, replace them.
 */
#ifndef ANABRANCH_LIB_FORMER_H
#define ANABRANCH_LIB_FORMER_H

#include "../../include/former.h"
#include "maps.h"

#ifdef AB_UPGRADES

AB_MAP(upgrade, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_upgrade, 0);

/* Loaded with the maps of the former programs. */
AB_LOADED_MAP(former_flows, BPF_MAP_TYPE_HASH, 1, struct ab_flow_key, struct ab_former_flow, BPF_F_NO_PREALLOC);
AB_LOADED_MAP(former_permissions, BPF_MAP_TYPE_HASH, 1, struct ab_flow_key, struct ab_former_flow, BPF_F_NO_PREALLOC);

/* Whether the former programs still handle the packets. */
static __always_inline int stands_by(void)
{
	__u32 zero = 0;
	const struct ab_upgrade *now = bpf_map_lookup_elem(&upgrade, &zero);
	return !now || !now->taken;
}

static __always_inline struct ab_former_flow *find_former(const struct ab_flow_key *key)
{
	return bpf_map_lookup_elem(&former_flows, key);
}

/* Whether a former flow has this external endpoint towards this remote end. */
static __always_inline int stood_formerly(const struct ab_flow_key *wan_key)
{
	return find_former(wan_key) != NULL;
}

/* Takes over the entry under `key` of a former table, a flow or permission. Returns whether this or another CPU has done that.
 * `walks` is set by `migrate`, which the forwarding programs may interrupt. */
int take_over(const struct ab_flow_key *key, __u32 walks);

/* Called when `key` was not found. Returns whether another look-up may find it. */
static __always_inline int came_over(const struct ab_flow_key *key)
{
	return take_over(key, 0);
}

#else

static __always_inline int stands_by(void)
{
	return 0;
}

static __always_inline int stood_formerly(const struct ab_flow_key *wan_key)
{
	(void)wan_key;
	return 0;
}

static __always_inline int came_over(const struct ab_flow_key *key)
{
	(void)key;
	return 0;
}

#endif

static __always_inline struct ab_flow *find_entry(const struct ab_flow_key *key)
{
	return bpf_map_lookup_elem(&flows, key);
}

/* Looks up a key that was not found, after taking it over if necessary. */
static __always_inline struct ab_flow *find_missing(const struct ab_flow_key *key)
{
	return came_over(key) ? find_entry(key) : NULL;
}

static __always_inline struct ab_flow *find_flow(const struct ab_flow_key *key)
{
	struct ab_flow *flow = find_entry(key);
	return flow ? flow : find_missing(key);
}

#endif
