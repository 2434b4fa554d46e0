/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Finds the flow of a TCP endpoint, of the LAN or external.
 *
 * A port serves several LAN endpoints at once, towards different remote ends (RFC 7857 section 3). So the keys of flows have both
 * ends, and no flow can be looked up by one end. Therefore a confirmed flow writes its remote end to a place of its LAN endpoint
 * and to one of its external endpoint. An endpoint and the remote end at its place are the key of a flow; whoever reads the place
 * looks that up and requires it to be live. So the place of a flow that has ended is free, and a live flow keeps its place against
 * others of its endpoint. If endpoints share a place, the last writer has it.
 */
#ifndef ANABRANCH_ENDPOINT_H
#define ANABRANCH_ENDPOINT_H

#include "../packet/parse.h"
#include "former.h"

#define ENDPOINT_PLACES 65536

struct ab_endpoint {
	union ab_addr remote;
	__be16 remote_port;
	__u16 zero;
	__u32 trace; /* of the endpoint; 0: free */
};
/* The places of external endpoints, then those of LAN endpoints. */
AB_MAP(endpoints, BPF_MAP_TYPE_ARRAY, 2 * ENDPOINT_PLACES, __u32, struct ab_endpoint, 0);

#define PLACE_SPREAD 2654435761u

/* The place of the endpoint that is local in a key, and the value that distinguishes it from others at the same place. */
struct place {
	__u32 index, trace;
};

static __always_inline struct place place_of(const union ab_addr *local, __be16 port, __u32 side)
{
	__u32 host = fold_addr(local) * PLACE_SPREAD;
	/* No two ports of one link share a place. */
	__u32 spread = side == AB_SIDE_LAN ? host : side * PLACE_SPREAD;
	__u32 index = (bpf_ntohs(port) + (spread >> 16)) % ENDPOINT_PLACES;
	return (struct place){
		.index = side == AB_SIDE_LAN ? ENDPOINT_PLACES + index : index,
		.trace = (host ^ port ^ side << 16) | 1,
	};
}

static __always_inline struct ab_endpoint *endpoint_at(const struct place *at)
{
	return bpf_map_lookup_elem(&endpoints, &at->index);
}

/* Completes `key`, whose local end is an endpoint, by the remote end at its place. Returns whether there is one. */
static __always_inline int recall_remote(struct ab_flow_key *key)
{
	struct place at = place_of(&key->local, key->local_port, key->side);
	const struct ab_endpoint *endpoint = endpoint_at(&at);
	if (!endpoint || endpoint->trace != at.trace)
		return 0;
	key->remote = endpoint->remote;
	key->remote_port = endpoint->remote_port;
	return 1;
}

static __always_inline void leave_remote(const struct ab_flow_key *key)
{
	struct place at = place_of(&key->local, key->local_port, key->side);
	struct ab_endpoint *endpoint = endpoint_at(&at);
	if (!endpoint)
		return;
	endpoint->remote = key->remote;
	endpoint->remote_port = key->remote_port;
	endpoint->trace = at.trace;
}

static __always_inline struct ab_flow *find_confirmed(const struct ab_flow_key *key)
{
	struct ab_flow *flow = find_flow(key);
	return flow && flow->state & AB_STATE_CONFIRMED ? flow : NULL;
}

/* The LAN entry of a live flow with the LAN endpoint of s->lan_key. Its key is s->endpoint_key. */
static __always_inline struct ab_flow *flow_of_lan_endpoint(struct flow_room *s)
{
	s->endpoint_key = s->lan_key;
	struct ab_flow *flow = recall_remote(&s->endpoint_key) ? find_confirmed(&s->endpoint_key) : NULL;
	return flow && !(flow->state & AB_STATE_CLOSED) ? flow : NULL;
}

/* The link entry of a flow whose external endpoint is local in s->endpoint_key, which becomes its key. */
static __always_inline struct ab_flow *flow_of_external_endpoint(struct flow_room *s)
{
	return recall_remote(&s->endpoint_key) ? find_confirmed(&s->endpoint_key) : NULL;
}

/* Writes the remote end of a newly confirmed TCP flow (s->lan_key and s->wan_key) to the places of both its endpoints. */
__noinline int leave_endpoints(void)
{
	struct flow_room *s = flow_room();
	if (!s)
		return 0;
	if (!flow_of_lan_endpoint(s))
		leave_remote(&s->lan_key);
	s->endpoint_key = s->wan_key;
	if (!flow_of_external_endpoint(s))
		leave_remote(&s->wan_key);
	return 0;
}

/* Removes the remote end of `lan_key` from one of its flow's places. */
static __always_inline void clear_endpoint(const struct ab_flow_key *lan_key, const struct place *at)
{
	struct ab_endpoint *endpoint = endpoint_at(at);
	if (endpoint && endpoint->trace == at->trace && endpoint->remote_port == lan_key->remote_port &&
	    is_same_addr(&endpoint->remote, &lan_key->remote))
		endpoint->trace = 0;
}

/* The same for both places when the TCP flow ends, so that later look-ups fail at once. */
static __noinline int clear_endpoints(const struct ab_flow_key *lan_key, const struct ab_flow *lan)
{
	struct place own = place_of(&lan_key->local, lan_key->local_port, AB_SIDE_LAN);
	struct place external = place_of(&lan->other_local, lan->other_port, AB_SIDE_LINK(lan->link));
	clear_endpoint(lan_key, &own);
	clear_endpoint(lan_key, &external);
	return 0;
}

/*
 * Endpoint-independent mapping (RFC 5382 REQ-1): finds the external endpoint that the LAN endpoint of s->lan_key has already, and
 * writes it to s->opening.kept_link and kept_port, if its link still has that address.
 */
__noinline int find_kept(void)
{
	struct flow_room *s = flow_room();
	if (!s)
		return 0;
	s->opening.kept_link = AB_NO_TARGET;
	const struct ab_flow *flow = s->lan_key.proto == IPPROTO_TCP ? flow_of_lan_endpoint(s) : NULL;
	const struct ab_link *link = flow ? link_at(flow->link, s->opening.family) : NULL;
	if (!link || !(link->flags & AB_LINK_PRESENT) || !is_same_addr(&link->external, &flow->other_local))
		return 0;
	s->opening.kept_link = flow->link;
	s->opening.kept_port = flow->other_port;
	return 1;
}

#endif
