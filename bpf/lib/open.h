/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A flow begins: which link, which external port, and the two entries. */
#ifndef ANABRANCH_OPEN_H
#define ANABRANCH_OPEN_H

#include "../policy/hash.h"
#include "../policy/pick.h"
#include "flow.h"
#include "tcp.h"

#define PORT_ATTEMPTS 16
/* Neighbouring attempts far apart, so that a block of taken ports is left at once. */
#define PORT_STRIDE 7919

/* Not inlined: its key would stand in the frame of every caller, deepest where flows are opened. */
static __noinline const struct ab_route *find_route(__be32 addr)
{
	struct ab_route_key key = { .prefix_len = 128 };
	map_ipv4(&key.addr, addr);
	return bpf_map_lookup_elem(&routes, &key);
}

static __always_inline int is_lan_address(__be32 addr)
{
	const struct ab_route *route = find_route(addr);
	return route && route->verdict == AB_VERDICT_LAN;
}

static __always_inline int is_local_address(__be32 addr)
{
	const struct ab_route *route = find_route(addr);
	return route && route->verdict == AB_VERDICT_LOCAL;
}

/* 0/8, 127/8, 169.254/16, multicast, broadcast: never the internet's. */
static __always_inline int is_never_forwarded(__be32 addr)
{
	__u32 host = bpf_ntohl(addr);
	__u8 first = host >> 24;
	return first == 0 || first == 127 || first >= 224 || host >> 16 == 0xa9fe;
}

/* Never below zero, though a sweep may have taken a flow that was moving for an evicted one. No branch: see pick.h. */
static __always_inline __u32 active_flows(const struct ab_gauge *gauge)
{
	__s64 active = gauge->opened - gauge->closed;
	return active & ~(active >> 63);
}

static __always_inline void fill_candidates(struct ab_candidates *c, const struct ab_choice *now)
{
	c->count = now->count;
	c->usable = now->usable;
	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		__u32 index = i;
		struct ab_gauge *gauge = bpf_map_lookup_elem(&gauges, &index);
		c->weight[i] = now->target[i].weight;
		if (!gauge)
			c->load[i] = 0;
		else if (now->load == AB_LOAD_ACTIVE)
			c->load[i] = active_flows(gauge);
		else
			c->load[i] = (__u32)gauge->dispatched - now->target[i].dispatched_base;
	}
}

static __always_inline void make_session_key(struct ab_session_key *key, const struct packet *p)
{
	map_ipv4(&key->local, p->src);
	map_ipv4(&key->remote, p->dst);
}

static __noinline __u32 session_link(const struct packet *p)
{
	struct ab_session_key key;
	make_session_key(&key, p);
	__u32 *link = bpf_map_lookup_elem(&sessions, &key);
	return link ? *link : AB_NO_TARGET;
}

static __noinline int remember_session(const struct packet *p, __u32 link)
{
	struct ab_session_key key;
	make_session_key(&key, p);
	return bpf_map_update_elem(&sessions, &key, &link, BPF_ANY);
}

__noinline __u32 packet_hash(struct packet *p)
{
	if (!p)
		return 0;
	union ab_addr src, dst;
	map_ipv4(&src, p->src);
	map_ipv4(&dst, p->dst);
	return ab_flow_hash(&src, &dst, p->sport, p->dport);
}

/* Which link a new flow takes. Leaves the numbers it was decided from in s->candidates. */
__noinline int choose_link(struct packet *p, __u32 avoid, struct ab_decision *d)
{
	if (!p || !d)
		return 0;
	struct ab_scratch *s = scratch();
	const struct ab_choice *now = current_choice();
	d->target = AB_NO_TARGET;
	d->why = AB_WHY_NONE_USABLE;
	if (!s || !now)
		return 0;
	const struct ab_route *route = find_route(p->dst);
	if (route && route->verdict == AB_VERDICT_LINK && now->usable >> (route->link & 15) & 1) {
		d->target = route->link & 15;
		d->why = AB_WHY_ROUTE;
		return 0;
	}
	if (now->granularity == AB_PER_SESSION) {
		__u32 link = session_link(p);
		if (link < AB_MAX_LINKS && (now->usable & ~avoid) >> link & 1) {
			d->target = link;
			d->why = AB_WHY_SESSION;
			return 0;
		}
	}
	fill_candidates(&s->candidates, now);
	struct ab_request request = {
		.dispatch = now->dispatch,
		.avoid = avoid,
		.hash = now->dispatch == AB_DISPATCH_HASH ? packet_hash(p) : 0,
		.random = bpf_get_prandom_u32(),
	};
	*d = ab_pick(&s->candidates, &request);
	return 0;
}

/* How many ports NAT may use at and above 1024: the configured range, below and above the host's ephemeral range. */
static __always_inline __u32 ports_below(const struct ab_settings *set)
{
	__u32 end = set->ephemeral_min <= set->port_max ? set->ephemeral_min : set->port_max + 1u;
	return end > set->port_min ? end - set->port_min : 0;
}

static __always_inline __u32 first_above(const struct ab_settings *set)
{
	return set->ephemeral_max >= set->port_min ? set->ephemeral_max + 1u : set->port_min;
}

static __always_inline __u32 ports_above(const struct ab_settings *set)
{
	__u32 first = first_above(set);
	return set->port_max >= first ? set->port_max + 1u - first : 0;
}

static __always_inline int is_nat_port(const struct ab_settings *set, __u32 port)
{
	if (port < set->port_min || port > set->port_max)
		return 0;
	return port < set->ephemeral_min || port > set->ephemeral_max;
}

/* Attempt 0 preserves the port; later ones walk the range from `start`. Ports under 1024 stay there (RFC 4787 REQ-3). */
static __always_inline __u32 candidate_port(const struct ab_settings *set, __u32 original, __u32 start, __u32 attempt)
{
	if (original < 1024)
		return attempt ? 512 + (start + attempt * 97) % 512 : original;
	if (attempt == 0 && is_nat_port(set, original))
		return original;
	__u32 below = ports_below(set), all = below + ports_above(set);
	if (!all)
		return 0;
	__u32 nth = (start + attempt * PORT_STRIDE) % all;
	return nth < below ? set->port_min + nth : first_above(set) + (nth - below);
}

/* ICMP ids have no classes; 0xab00-0xabff are the daemon's own. */
static __always_inline __u32 candidate_id(__u32 original, __u32 start, __u32 attempt)
{
	__u32 id = attempt ? (start + attempt * PORT_STRIDE) & 0xffff : original;
	return id >> 8 == 0xab ? id ^ 0x8000 : id;
}

struct port_search {
	struct ab_scratch *scratch;
	const struct ab_settings *settings;
	__u32 original;
	__u32 start;
	__u32 found;
};

static long try_port(__u32 attempt, struct port_search *search)
{
	struct ab_scratch *s = search->scratch;
	__u32 icmp = s->lan_key.proto == IPPROTO_ICMP;
	__u32 port = icmp ? candidate_id(search->original, search->start, attempt)
			  : candidate_port(search->settings, search->original, search->start, attempt);
	if (!port && !icmp)
		return 1;
	s->wan_key.local_port = bpf_htons(port);
	if (bpf_map_lookup_elem(&flows, &s->wan_key))
		return 0;
	search->found = !bpf_map_update_elem(&embryos, &s->wan_key, &s->wan, BPF_NOEXIST);
	return search->found;
}

/* Inserts the link entry under the first free port. 0, or AB_REASON_REFUSED_PORTS. */
__noinline int bind_port(void)
{
	struct ab_scratch *s = scratch();
	if (!s)
		return AB_REASON_NOT_CONFIGURED;
	struct port_search search = {
		.scratch = s,
		.settings = current_settings(),
		.original = bpf_ntohs(s->lan_key.local_port),
		.start = bpf_get_prandom_u32() & 0xffffff,
	};
	if (!search.settings)
		return AB_REASON_NOT_CONFIGURED;
	bpf_loop(PORT_ATTEMPTS, try_port, &search, 0);
	return search.found ? 0 : AB_REASON_REFUSED_PORTS;
}

/* Whether this host, and the table, may take one more flow. 0, or the reason why not. */
static __always_inline int admit(const struct ab_settings *set, const union ab_addr *host)
{
	if (table_flows() >= set->flows_max)
		return AB_REASON_REFUSED_FULL;
	/* Where the host table was full, closed may be ahead of opened. */
	struct ab_host *counts = bpf_map_lookup_elem(&hosts, host);
	__s64 held = counts ? counts->opened - counts->closed : 0;
	return held >= (__s64)set->quota_per_host ? AB_REASON_REFUSED_QUOTA : 0;
}

/* What kernel NAT carries instead, if the host has it: connectivity without balancing (Guo, "state exhaustion"). */
static __always_inline int fall_back(const struct ab_settings *set, int refused)
{
	if (!set->fallback_mark)
		return refused;
	switch (refused) {
	case AB_REASON_REFUSED_QUOTA:
		return AB_REASON_FALLBACK_QUOTA;
	case AB_REASON_REFUSED_FULL:
		return AB_REASON_FALLBACK_FULL;
	case AB_REASON_REFUSED_PORTS:
		return AB_REASON_FALLBACK_PORTS;
	case AB_REASON_NO_FLOW_OUT:
		return AB_REASON_FALLBACK_UNKNOWN;
	case AB_REASON_REFUSED_PROTOCOL:
		return AB_REASON_FALLBACK_PROTOCOL;
	default:
		return refused;
	}
}

static __always_inline void fill_entries(struct ab_scratch *s, const struct packet *p, const struct ab_link *link,
					 const struct ab_decision *d, __u32 tried, __u64 now)
{
	struct ab_flow *lan = &s->lan, *wan = &s->wan;
	const struct ab_route *source = find_route(p->src);
	__builtin_memset(wan, 0, sizeof(*wan));
	wan->opened_ns = wan->seen_ns = now;
	wan->link = d->target;
	wan->why = d->why;
	wan->tried = tried;
	wan->lan_ifindex = source ? source->ifindex : 0;
	wan->state = source && source->via.word[3] ? AB_STATE_VIA_ROUTER : 0;
	*lan = *wan;
	lan->other_local = link->external;
	wan->other_local = s->lan_key.local;
	wan->other_port = s->lan_key.local_port;
	if (is_mapping(p->proto)) {
		map_ipv4(&lan->first_remote, p->dst);
		map_ipv4(&wan->first_remote, p->dst);
		lan->first_remote_port = wan->first_remote_port = p->proto == IPPROTO_UDP ? p->dport : 0;
	} else {
		lan->tcp.isn = p->seq;
	}
	s->wan_key = s->lan_key;
	s->wan_key.local = link->external;
	s->wan_key.side = AB_SIDE_LINK(d->target);
}

/*
 * Opens the flow of s->lan_key on a link outside `tried`. 0 with the entry in `embryos`, or the reason why not.
 */
__noinline int open_flow(struct packet *p, __u32 tried)
{
	if (!p)
		return AB_REASON_MALFORMED;
	struct ab_scratch *s = scratch();
	const struct ab_settings *set = current_settings();
	struct ab_decision d;
	if (!s || !set)
		return AB_REASON_NOT_CONFIGURED;
	int refused = admit(set, &s->lan_key.local);
	if (refused)
		return fall_back(set, refused);
	choose_link(p, tried, &d);
	const struct ab_link *link = d.target < AB_MAX_LINKS ? link_at(d.target) : NULL;
	if (!link || !(link->flags & AB_LINK_PRESENT))
		return AB_REASON_NO_LINK;
	fill_entries(s, p, link, &d, tried, bpf_ktime_get_coarse_ns());
	refused = bind_port();
	if (refused)
		return fall_back(set, refused);
	s->lan.other_port = s->wan_key.local_port;
	if (bpf_map_update_elem(&embryos, &s->lan_key, &s->lan, BPF_ANY)) {
		bpf_map_delete_elem(&embryos, &s->wan_key);
		return fall_back(set, AB_REASON_REFUSED_FULL);
	}
	gauge_add(d.target, 1, 1, 0);
	const struct ab_choice *now = current_choice();
	if (now && now->granularity == AB_PER_SESSION)
		remember_session(p, d.target);
	return 0;
}

#endif
