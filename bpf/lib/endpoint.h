/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What a TCP endpoint stands for: the LAN's on a link, and back.
 *
 * A port serves several LAN endpoints at once, towards different remote ends (RFC 7857 section 4), so flows are keyed by both
 * ends and none is found by one. A confirmed flow leaves its LAN key in a place of its LAN endpoint and in one of its
 * external endpoint. The place says only where to look: whoever reads it looks up the flow, which must be live and of this
 * endpoint. So a place of a flow that has ended is free, and a live flow keeps its own against others.
 */
#ifndef ANABRANCH_ENDPOINT_H
#define ANABRANCH_ENDPOINT_H

#include "maps.h"
#include "parse.h"

#define ENDPOINT_PLACES 65536
/* First those of external endpoints, then those of the LAN. */
AB_MAP(endpoints, BPF_MAP_TYPE_ARRAY, 2 * ENDPOINT_PLACES, __u32, struct ab_flow_key, 0);

#define PLACE_SPREAD 2654435761u

/* Of one link no two ports share a place. */
static __always_inline __u32 place_of_external(__u32 link, __be16 port)
{
	return (bpf_ntohs(port) + (link * PLACE_SPREAD >> 16)) % ENDPOINT_PLACES;
}

static __always_inline __u32 place_of_lan(const struct ab_flow_key *lan_key)
{
	const __u32 *word = lan_key->local.word;
	__u32 host = (word[0] ^ word[1] ^ word[2] ^ word[3]) * PLACE_SPREAD >> 16;
	return ENDPOINT_PLACES + (bpf_ntohs(lan_key->local_port) + host) % ENDPOINT_PLACES;
}

/* Copies the LAN key at a place to s->endpoint_key. Whether there is one. */
static __always_inline int read_place(struct ab_scratch *s, __u32 place)
{
	const struct ab_flow_key *found = bpf_map_lookup_elem(&endpoints, &place);
	if (!found || !found->proto)
		return 0;
	s->endpoint_key = *found;
	return 1;
}

/* The LAN entry of s->endpoint_key, if its flow is live. */
static __always_inline struct ab_flow *live_flow(const struct ab_scratch *s)
{
	struct ab_flow *flow = bpf_map_lookup_elem(&flows, &s->endpoint_key);
	return flow && !(flow->state & AB_STATE_CLOSED) ? flow : NULL;
}

/* The LAN entry of a live flow whose LAN endpoint is that of s->lan_key. */
static __noinline struct ab_flow *flow_of_lan_endpoint(struct ab_scratch *s)
{
	if (!read_place(s, place_of_lan(&s->lan_key)) || s->endpoint_key.local_port != s->lan_key.local_port ||
	    !is_same_addr(&s->endpoint_key.local, &s->lan_key.local))
		return NULL;
	return live_flow(s);
}

/* The LAN entry of a live flow whose external endpoint this is. */
static __noinline struct ab_flow *flow_of_external(struct ab_scratch *s, __u32 link, __be32 address, __be16 port)
{
	struct ab_flow *flow = read_place(s, place_of_external(link, port)) ? live_flow(s) : NULL;
	if (!flow || flow->link != link || flow->other_port != port || flow->other_local.word[3] != address)
		return NULL;
	return flow;
}

static __always_inline void set_place(__u32 place, const struct ab_flow_key *lan_key)
{
	struct ab_flow_key *at = bpf_map_lookup_elem(&endpoints, &place);
	if (at)
		*at = *lan_key;
}

static __always_inline void claim_place(struct ab_scratch *s, __u32 place)
{
	if (!read_place(s, place) || !live_flow(s))
		set_place(place, &s->lan_key);
}

/* Leaves the key of a TCP flow that was confirmed, s->lan_key with the entry s->lan, under both its endpoints. */
__noinline int leave_endpoints(void)
{
	struct ab_scratch *s = scratch();
	if (!s)
		return 0;
	claim_place(s, place_of_external(s->lan.link, s->lan.other_port));
	claim_place(s, place_of_lan(&s->lan_key));
	return 0;
}

static __always_inline int is_same_key(const struct ab_flow_key *a, const struct ab_flow_key *b)
{
	return a->local_port == b->local_port && a->remote_port == b->remote_port && a->proto == b->proto &&
	       a->side == b->side && is_same_addr(&a->local, &b->local) && is_same_addr(&a->remote, &b->remote);
}

static __always_inline void clear_place(__u32 place, const struct ab_flow_key *lan_key)
{
	struct ab_flow_key *at = bpf_map_lookup_elem(&endpoints, &place);
	if (at && is_same_key(at, lan_key))
		at->proto = 0;
}

/* Takes the key of a TCP flow that ends out of its places, so that whoever comes next need not look for the flow. */
static __noinline int clear_endpoints(const struct ab_flow_key *lan_key, const struct ab_flow *lan)
{
	clear_place(place_of_external(lan->link, lan->other_port), lan_key);
	clear_place(place_of_lan(lan_key), lan_key);
	return 0;
}

/*
 * Endpoint-independent mapping (RFC 5382 REQ-1): what the LAN endpoint of s->lan_key stands for already, as
 * s->opening.kept_link and kept_port, if its link has that address still.
 */
__noinline int find_kept(void)
{
	struct ab_scratch *s = scratch();
	if (!s)
		return 0;
	s->opening.kept_link = AB_NO_TARGET;
	const struct ab_flow *flow = s->lan_key.proto == IPPROTO_TCP ? flow_of_lan_endpoint(s) : NULL;
	const struct ab_link *link = flow ? link_at(flow->link) : NULL;
	if (!link || !(link->flags & AB_LINK_PRESENT) || link->external.word[3] != flow->other_local.word[3])
		return 0;
	s->opening.kept_link = flow->link;
	s->opening.kept_port = flow->other_port;
	return 1;
}

#endif
