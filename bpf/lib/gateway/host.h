/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The resources of LAN hosts. A flow counts against its host, and with several LAN devices also against its device, from the moment
 * before it is opened until it is closed, so that no order of packets exceeds a limit. Entries of hosts are created only by opening
 * flows, and removed only by the sweep, when the host had no flows for a while.
 */
#ifndef ANABRANCH_HOST_H
#define ANABRANCH_HOST_H

#include "../packet/parse.h"
#include "maps.h"
#include "stats.h"

/* Added to `opened` of a host that the sweep is about to remove: far above every limit, so that no flow is opened. */
#define HOST_FORGOTTEN (1ull << 62)

static __always_inline void make_host_key(struct ab_host_key *key, __u32 ifindex, const __u8 *mac)
{
	__builtin_memset(key, 0, sizeof(*key));
	key->ifindex = ifindex;
	__builtin_memcpy(key->mac, mac, sizeof(key->mac));
}

static __always_inline void make_device_key(struct ab_host_key *key, __u32 ifindex)
{
	__builtin_memset(key, 0, sizeof(*key));
	__builtin_memset(&key->address, 0xff, sizeof(key->address));
	key->ifindex = ifindex;
}

/* The key of the host against which a flow counts. */
static __always_inline void make_holder_key(struct ab_host_key *key, const struct ab_flow *lan,
					    const union ab_addr *local)
{
	make_host_key(key, lan->lan_ifindex, lan->mac);
	if (lan->state & AB_STATE_VIA_ROUTER)
		key->address = host_address(local);
}

/* The host against which a flow counts; NULL if it was removed. */
static __always_inline struct ab_host *host_of_flow(const struct ab_flow *lan, const union ab_addr *local)
{
	struct ab_host_key key;
	make_holder_key(&key, lan, local);
	return bpf_map_lookup_elem(&hosts, &key);
}

/* The device against which a flow counts as well, or 0. */
static __always_inline __u32 device_counted(const struct ab_flow *lan)
{
	return lan->state & AB_STATE_SHARED ? lan->lan_ifindex : 0;
}

static __always_inline struct ab_host *share_of_device(__u32 ifindex)
{
	struct ab_host_key key;
	if (!ifindex)
		return NULL;
	make_device_key(&key, ifindex);
	return bpf_map_lookup_elem(&hosts, &key);
}

/* The value of ab_host_key.share for a class. */
static __always_inline __u16 share_in(__u32 class)
{
	return class + 1;
}

/* Returns a flow to its host's share of the class when it ends. */
__noinline int release_share(const struct ab_flow_key *lan_key, const struct ab_flow *lan)
{
	struct ab_host_key key;
	if (!lan_key || !lan)
		return 0;
	make_holder_key(&key, lan, &lan_key->local);
	key.share = share_in(lan->class);
	struct ab_host *share = bpf_map_lookup_elem(&hosts, &key);
	if (share)
		__sync_fetch_and_add(&share->closed, 1);
	return 0;
}

/* The entry of s->host_key, created if necessary. NULL if the table of hosts is full. */
static __always_inline struct ab_host *find_or_make_host(struct flow_room *s)
{
	struct ab_host *host = bpf_map_lookup_elem(&hosts, &s->host_key);
	struct ab_table *counts = host ? NULL : table_counts();
	if (!counts)
		return host;
	__builtin_memset(&s->host, 0, sizeof(s->host));
	s->host.id = __sync_fetch_and_add(&counts->hosts, 1);
	bpf_map_update_elem(&hosts, &s->host_key, &s->host, BPF_NOEXIST);
	return bpf_map_lookup_elem(&hosts, &s->host_key);
}

static __always_inline __s64 live_flows(const struct ab_host *host)
{
	return host->opened - host->closed;
}

/* Counts one more flow, unless that exceeds `limit`. Returns whether it did. */
static __always_inline int reserve_flow(struct ab_host *host, __u32 limit)
{
	__u64 opened = __sync_fetch_and_add(&host->opened, 1) + 1;
	if ((__s64)(opened - host->closed) <= (__s64)limit)
		return 1;
	__sync_fetch_and_add(&host->opened, -1);
	return 0;
}

/* Counts the end of a flow against its host, share and device. */
static __noinline void release_flow(const struct ab_flow_key *lan_key, const struct ab_flow *lan)
{
	struct ab_host *host = host_of_flow(lan, &lan_key->local);
	if (host) {
		__sync_fetch_and_add(&host->closed, 1);
		if (lan_key->proto != IPPROTO_TCP)
			__sync_fetch_and_add(&host->mappings, -1);
	}
	struct ab_host *device = share_of_device(device_counted(lan));
	if (device)
		__sync_fetch_and_add(&device->closed, 1);
	if (lan->state & AB_STATE_CLASSED)
		release_share(lan_key, lan);
}

/* The count of unconfirmed flows without a position, which hosts share by their ids. */
static __always_inline __u32 *unordered_of(__u32 host)
{
	__u32 index = host % AB_UNORDERED_HOSTS;
	return bpf_map_lookup_elem(&unordered, &index);
}

static __always_inline void leave_place(const struct ab_unconfirmed_key *place)
{
	__u32 *count = place->number == AB_UNORDERED ? unordered_of(place->host) : NULL;
	if (count)
		__sync_fetch_and_add(count, -1);
	else
		bpf_map_delete_elem(&unconfirmed_order, place);
}

/* Called when a flow is confirmed or evicted: its position is free, and its device has one less. */
static __noinline void release_unconfirmed(const struct ab_unconfirmed_key *place, __u32 ifindex)
{
	leave_place(place);
	struct ab_host *device = share_of_device(ifindex);
	if (device)
		__sync_fetch_and_add(&device->unconfirmed, -1);
}

#endif
