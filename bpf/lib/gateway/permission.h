/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The remote addresses from which a UDP or ICMP mapping accepts packets (address-dependent filtering, RFC 4787 REQ-8). The first
 * needs no entry. Each further one has an entry in `permissions`, under the mapping's link key with that address, which counts
 * against the LAN host. Neither other hosts' first packets nor their permissions displace it. It is only valid for the mapping for
 * which it was created, which is recognised by the time of its begin.
 */
#ifndef ANABRANCH_PERMISSION_H
#define ANABRANCH_PERMISSION_H

#include "../packet/ambient.h"
#include "flow.h"

static __always_inline void make_permission_key(struct ab_flow_key *key, const struct ab_flow_key *wan_key,
						const union ab_addr *remote)
{
	*key = *wan_key;
	key->remote = *remote;
}

static __always_inline struct ab_flow *find_permission(const struct ab_flow_key *key)
{
	struct ab_flow *permission = bpf_map_lookup_elem(&permissions, key);
	return permission || !came_over(key) ? permission : bpf_map_lookup_elem(&permissions, key);
}

static __always_inline int is_granted_to(const struct ab_flow *permission, const struct ab_flow *mapping)
{
	return permission->opened_ns == mapping->opened_ns;
}

static __always_inline struct ab_host *host_of_permission(const struct ab_flow *permission)
{
	return host_of_flow(permission, &permission->other_local);
}

/* Called by whoever removes it from the table: returns it to the host's quota. */
static __always_inline void end_permission(const struct ab_flow_key *key, const struct ab_flow *permission)
{
	struct ab_host *host = host_of_permission(permission);
	if (!bpf_map_delete_elem(&permissions, key) && host)
		__sync_fetch_and_add(&host->permissions, -1);
}

/*
 * Adds the permission of s->lan_key to the mapping of `lan`, and why that remote end has a mapping of its own, if it has. A host
 * may have as many permissions as flows; beyond that its packets are sent, but the answers are not accepted.
 */
static __always_inline void grant_permission(struct flow_room *s, const struct packet *p, const struct ab_flow *lan,
					     __u32 state, __u8 why)
{
	const struct ab_settings *set = current_settings();
	struct ab_flow *permission = &s->wan;
	__builtin_memset(permission, 0, sizeof(*permission));
	permission->opened_ns = lan->opened_ns;
	permission->seen_ns = tick_ns();
	permission->other_local = p->src;
	permission->lan_ifindex = lan->lan_ifindex;
	__builtin_memcpy(permission->mac, lan->mac, sizeof(permission->mac));
	permission->link = lan->link;
	permission->why = why;
	permission->first_remote_port = p->dport;
	permission->state = AB_STATE_PERMISSION | state | (lan->state & AB_STATE_VIA_ROUTER);
	struct ab_host *host = host_of_permission(permission);
	if (!set || !host)
		return;
	if (__sync_fetch_and_add(&host->permissions, 1) >= set->quota_per_host ||
	    bpf_map_update_elem(&permissions, &s->lan_key, permission, BPF_NOEXIST))
		__sync_fetch_and_add(&host->permissions, -1);
}

#endif
