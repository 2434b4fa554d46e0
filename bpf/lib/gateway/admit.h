/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Decides who may open a flow, and what happens to those who may not. */
#ifndef ANABRANCH_ADMIT_H
#define ANABRANCH_ADMIT_H

#include "port.h"
#include "recent.h"

/* No reason: the packet is the answer to one that came by a link's prefix, and leaves there without a flow. */
#define BY_PREFIX (-3)

#define SECOND_NS 1000000000ull

/* A token bucket: its size and its rate, both as times. A token is the time in which one is added. */
struct rate {
	__u64 token_ns;
	__u64 full_ns;
};
/* New flows given to the kernel's NAT: by one host, and by all. The kernel's table holds some hundred thousand flows for
 * minutes, and the gateway itself needs it. */
static const struct rate fallback_of_host = { SECOND_NS / 64, 8 * SECOND_NS };
static const struct rate fallback_of_all = { SECOND_NS / 1024, 4 * SECOND_NS };
/* Segments of one host that may belong to flows of the kernel's NAT. */
static const struct rate unknown_of_host = { SECOND_NS / 256, 4 * SECOND_NS };

/*
 * The link of each pair of hosts that uses a protocol that the programs do not carry, beside connections that they do: the remote
 * end expects both from the same address. is_control() says which connections bind a pair to their link.
 */
struct ab_pair_key {
	union ab_addr local;
	union ab_addr remote;
};
AB_MAP(pairs, BPF_MAP_TYPE_LRU_HASH, 4096, struct ab_pair_key, __u32, 0);

#define PORT_PPTP 1723

/* A connection to PPTP's port negotiates GRE calls, which the kernel's NAT can only distinguish if its helper sees this connection
 * (RFC 2637). */
static __always_inline int is_pptp(const struct packet *p)
{
	return p->dport == bpf_htons(PORT_PPTP) && p->proto == IPPROTO_TCP;
}

/* Connections that negotiate a protocol without ports between the same two hosts: IKE for ESP and AH (RFC 7296), L2TP for itself
 * over ESP (RFC 3193), PPTP. */
static __always_inline int is_control(const struct packet *p)
{
	if (p->proto != IPPROTO_UDP)
		return is_pptp(p);
	return p->dport == bpf_htons(500) || p->dport == bpf_htons(4500) || p->dport == bpf_htons(1701);
}

/* Binds the other traffic of the packet's two hosts to this link from now on. */
__noinline int bind_pair(struct packet *p, __u32 link)
{
	if (!p || !is_control(p))
		return 0;
	struct ab_pair_key key = { .local = p->src, .remote = p->dst };
	return bpf_map_update_elem(&pairs, &key, &link, BPF_ANY);
}

/* The link of the packet's two hosts, plus one; 0: any link. */
__noinline int link_of_pair(struct packet *p)
{
	if (!p)
		return 0;
	struct ab_pair_key key = { .local = p->src, .remote = p->dst };
	const __u32 *found = bpf_map_lookup_elem(&pairs, &key);
	const struct ab_link *link = found ? link_at(*found, p->family) : NULL;
	return link && link->flags & AB_LINK_PRESENT ? *found + 1 : 0;
}

/* LAN keys of flows that were given to the kernel's NAT. */
AB_MAP(fallbacks, BPF_MAP_TYPE_ARRAY, RECENT_ROWS, __u32, struct ab_recent, 0);

/* Takes a token from a bucket that is full again at `*full_at`. Returns whether there was one. */
static __always_inline int take_token(__u64 *full_at, __u64 now, const struct rate *rate)
{
	__u64 at = *full_at, next = (at > now ? at : now) + rate->token_ns;
	return next - now <= rate->full_ns && __sync_val_compare_and_swap(full_at, at, next) == at;
}

/* Writes the owner of the flows of p's sender to s->host_key. */
static __always_inline void name_sender(struct flow_room *s, const struct packet *p)
{
	make_host_key(&s->host_key, s->opening.lan_ifindex, s->opening.mac);
	if (s->opening.via_router)
		s->host_key.address = host_address(&p->src);
}

/* The host, and its device, that opens a flow and will own it. */
struct opener {
	struct __sk_buff *skb;
	struct packet *packet;
	struct ab_host *host;
	struct ab_host *device; /* NULL: devices have no shares */
};

/* Finds the opener's entries, or creates them. False if there is no room for new ones. */
static __always_inline int find_opener(struct flow_room *s, const struct ab_settings *set, struct opener *o)
{
	o->host = o->device = NULL;
	if (set->flows_per_device) {
		make_device_key(&s->host_key, s->opening.lan_ifindex);
		o->device = find_or_make_host(s);
		if (!o->device)
			return 0;
	}
	name_sender(s, o->packet);
	o->host = find_or_make_host(s);
	return o->host != NULL;
}

/* Counts the flow against the share that its host (s->host_key) has of the class, if the class has a quota. Returns 0, or the
 * reason to refuse. A global function, so that the verifier does not follow the rest twice. */
__noinline int reserve_share(__u32 class)
{
	struct flow_room *s = flow_room();
	const struct ab_choice *now = s ? choice_of(class, s->opening.family) : NULL;
	struct ab_class *counts = class_counts(class);
	if (!s || !now || !counts)
		return AB_REASON_NOT_CONFIGURED;
	s->opening.is_classed = 0;
	if (!now->flows_per_host)
		return 0;
	s->host_key.share = share_in(class);
	struct ab_host *share = find_or_make_host(s);
	s->host_key.share = 0;
	if (!share)
		return AB_REASON_REFUSED_HOSTS;
	share->opened_ns = tick_ns();
	if (reserve_flow(share, now->flows_per_host)) {
		s->opening.is_classed = 1;
		return 0;
	}
	__sync_fetch_and_add(&counts->refused, 1);
	return AB_REASON_REFUSED_CLASS;
}

__noinline int return_share(__u32 class)
{
	struct flow_room *s = flow_room();
	if (!s || !s->opening.is_classed)
		return 0;
	s->host_key.share = share_in(class);
	struct ab_host *share = bpf_map_lookup_elem(&hosts, &s->host_key);
	s->host_key.share = 0;
	if (share)
		__sync_fetch_and_add(&share->opened, -1);
	return 0;
}

/* Counts the flow against its opener. Returns 0, or the reason to refuse; then nothing is counted. */
static __noinline int admit(struct flow_room *s, const struct ab_settings *set, struct opener *o)
{
	if (!find_opener(s, set, o))
		return AB_REASON_REFUSED_HOSTS;
	if (table_flows() >= set->flows_max)
		return AB_REASON_REFUSED_FULL;
	o->host->opened_ns = tick_ns();
	if (is_mapping(s->lan_key.proto) && (__s32)o->host->mappings >= (__s32)mappings_per_host(set))
		return AB_REASON_REFUSED_MAPPINGS;
	if (!reserve_flow(o->host, set->quota_per_host))
		return AB_REASON_REFUSED_QUOTA;
	int refused = reserve_share(s->opening.class);
	if (!refused && (!o->device || reserve_flow(o->device, set->flows_per_device)))
		return 0;
	__sync_fetch_and_add(&o->host->opened, -1);
	if (refused)
		return refused;
	return_share(s->opening.class);
	return AB_REASON_REFUSED_DEVICE;
}

static __always_inline void give_back(const struct flow_room *s, const struct opener *o)
{
	__sync_fetch_and_add(&o->host->opened, -1);
	if (o->device)
		__sync_fetch_and_add(&o->device->opened, -1);
	return_share(s->opening.class);
}

/* Which fallback of the kernel's NAT applies to a refusal; 0: none. */
static __always_inline int way_around(int refused)
{
	switch (refused) {
	case AB_REASON_REFUSED_QUOTA:
	case AB_REASON_REFUSED_MAPPINGS:
	case AB_REASON_REFUSED_DEVICE:
		return AB_REASON_FALLBACK_QUOTA;
	case AB_REASON_REFUSED_UNCONFIRMED:
	case AB_REASON_REFUSED_FULL:
		return AB_REASON_FALLBACK_FULL;
	case AB_REASON_REFUSED_PORTS:
		return AB_REASON_FALLBACK_PORTS;
	case AB_REASON_NO_CLASS_LINK:
		return AB_REASON_FALLBACK_CLASS;
	case AB_REASON_NO_FLOW_OUT:
		return AB_REASON_FALLBACK_UNKNOWN;
	case AB_REASON_REFUSED_PROTOCOL:
		return AB_REASON_FALLBACK_PROTOCOL;
	case AB_REASON_FALLBACK_HELPER:
	case AB_REASON_FALLBACK_ROUTES:
		return refused;
	default:
		return 0;
	}
}

/* Whether the host, and all hosts together, may give one more flow to the kernel. Returns 0, or the reason why not. */
static __always_inline int pay_fallback(struct ab_host *host, int way)
{
	__u64 now = tick_ns();
	struct ab_table *all = table_counts();
	if (way == AB_REASON_FALLBACK_UNKNOWN)
		return take_token(&host->unknown_ns, now, &unknown_of_host) ? 0 : AB_REASON_UNKNOWN_RATE;
	if (!take_token(&host->fallback_ns, now, &fallback_of_host))
		return AB_REASON_REFUSED_RATE_HOST;
	return all && take_token(&all->fallback_ns, now, &fallback_of_all) ? 0 : AB_REASON_REFUSED_RATE_ALL;
}

/*
 * Gives the flow of s->lan_key and the host of s->host_key to the kernel's NAT, if that is configured:
 * connectivity without balancing (Guo, "state exhaustion"). A flow takes a token only once.
 */
__noinline int fall_back(int refused)
{
	struct flow_room *s = flow_room();
	const struct ab_settings *set = current_settings();
	int way = way_around(refused);
	if (s && s->opening.asked_link != AB_NO_TARGET)
		return BY_PREFIX;
	if (!s || !set || !set->fallback_mark || !way || s->opening.is_hairpin)
		return refused;
	__u64 hash = hash_recent((const __u32 *)&s->lan_key, sizeof(s->lan_key) / 4);
	struct ab_recent *paid = row_in(&fallbacks, hash);
	if (is_recent(paid, hash))
		return way;
	struct ab_host *host = find_or_make_host(s);
	int unpaid = host ? pay_fallback(host, way) : AB_REASON_REFUSED_HOSTS;
	if (!unpaid)
		enter_recent(paid, hash);
	return unpaid ?: way;
}

#endif
