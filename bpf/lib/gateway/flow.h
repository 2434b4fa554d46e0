/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The flow table: two entries a flow, one per side, and their life.
 *
 * A flow begins as an embryo, of which every host has a share, until it is confirmed: a TCP handshake that completes, a UDP or
 * ICMP mapping that was answered or lasts. So a host's flood of first packets evicts its own first packets and nothing else
 * (embryo.h). The LAN entry is the authority on the state of the pair.
 */
#ifndef ANABRANCH_FLOW_H
#define ANABRANCH_FLOW_H

#include "../../policy/tcp.h"
#include "../../policy/trace.h"
#include "attempt.h"
#include "endpoint.h"
#include "host.h"

/* UDP that keeps sending without an answer is confirmed after this long: a flood of single packets never is. */
#define UDP_STREAM_NS 1000000000ull

static __always_inline int is_mapping(__u8 proto)
{
	return proto != IPPROTO_TCP;
}

/* The LAN key of an outbound packet, or the link key of an inbound one. */
static __always_inline void make_key(struct ab_flow_key *key, __u8 proto, __u8 side, const union ab_addr *local,
				     __be16 local_port, const union ab_addr *remote, __be16 remote_port)
{
	key->local = *local;
	key->local_port = local_port;
	key->proto = proto;
	key->side = side;
	key->zero = 0;
	if (is_mapping(proto)) {
		__builtin_memset(&key->remote, 0, sizeof(key->remote));
		key->remote_port = 0;
	} else {
		key->remote = *remote;
		key->remote_port = remote_port;
	}
}

/* The LAN key of a mapping that is apart. */
static __always_inline void make_apart_key(struct ab_flow_key *key, __u8 proto, const union ab_addr *local,
					   __be16 local_port, const union ab_addr *remote, __be16 remote_port)
{
	make_key(key, proto, AB_SIDE_LAN, local, local_port, remote, remote_port);
	key->remote = *remote;
	key->remote_port = proto == IPPROTO_UDP ? remote_port : 0;
}

/* Of a packet from the LAN, whose mapping is not apart. */
static __always_inline void make_usual_key(struct ab_flow_key *key, const struct packet *p)
{
	make_key(key, p->proto, AB_SIDE_LAN, &p->src, p->sport, &p->dst, p->dport);
}

/* Of a packet from the LAN. */
static __always_inline void make_lan_key(struct ab_flow_key *key, const struct packet *p)
{
	if (p->flags & PACKET_APART)
		make_apart_key(key, p->proto, &p->src, p->sport, &p->dst, p->dport);
	else
		make_usual_key(key, p);
}

/* Only in the LAN the mapping is told by its remote end: there others have the endpoint, too. */
static __always_inline void name_remote(struct ab_flow_key *key, const struct ab_flow *flow)
{
	__builtin_memset(&key->remote, 0, sizeof(key->remote));
	key->remote_port = 0;
	if (key->side != AB_SIDE_LAN)
		return;
	__builtin_memcpy(&key->remote, &flow->tcp, sizeof(key->remote));
	key->remote_port = flow->first_remote_port;
}

/* The key of the same flow on the other side, but of a mapping that is apart. */
static __always_inline void make_usual_other_key(struct ab_flow_key *other, const struct ab_flow_key *key,
						 const struct ab_flow *flow)
{
	other->local = flow->other_local;
	other->remote = key->remote;
	other->local_port = flow->other_port;
	other->remote_port = key->remote_port;
	other->proto = key->proto;
	other->side = key->side != AB_SIDE_LAN	      ? AB_SIDE_LAN
		      : flow->state & AB_STATE_ROUTED ? AB_SIDE_ROUTED
						      : AB_SIDE_LINK(flow->link);
	other->zero = 0;
}

static __noinline void name_remote_apart(struct ab_flow_key *key, const struct ab_flow *flow)
{
	name_remote(key, flow);
}

/* The key of the same flow on the other side. */
static __always_inline void make_other_key(struct ab_flow_key *other, const struct ab_flow_key *key,
					   const struct ab_flow *flow)
{
	make_usual_other_key(other, key, flow);
	if (flow->state & AB_STATE_APART)
		name_remote_apart(other, flow);
}

/* The flow of `p`. Not inlined: its key would stand in the frame below which flows are opened. */
static __noinline struct ab_flow *find_again(const struct packet *p)
{
	struct ab_flow_key key;
	make_lan_key(&key, p);
	return find_flow(&key);
}

/* Without NAT there is one link entry, whatever link the flow moves to. */
static __always_inline int is_other_of(const struct ab_flow *other, const struct ab_flow_key *key,
				       const struct ab_flow *flow)
{
	return (other->link == flow->link || flow->state & AB_STATE_ROUTED) && other->other_port == key->local_port &&
	       is_same_addr(&other->other_local, &key->local);
}

/*
 * The entry of the same flow on the other side, and its key. NULL if it is gone, even where another flow has taken its
 * place since: on another CPU the flow may be ending.
 */
static __always_inline struct ab_flow *find_other(const struct ab_flow_key *key, const struct ab_flow *flow,
						  struct ab_flow_key *other_key)
{
	make_other_key(other_key, key, flow);
	struct ab_flow *other = find_entry(other_key);
	return other && is_other_of(other, key, flow) ? other : NULL;
}

static __always_inline int is_entry_of(const struct ab_flow *lan, const struct ab_flow_key *lan_key)
{
	return (lan->state & AB_STATE_TRACE) == ab_trace(lan_key);
}

/* Sets a bit of the LAN entry of a key. The state before; 0 if the memory is that entry's no more, which then stays as it is. */
static __noinline __u32 mark_entry(const struct ab_flow_key *lan_key, struct ab_flow *lan, __u32 bit)
{
	if (!is_entry_of(lan, lan_key))
		return 0;
	__u32 before = __sync_fetch_and_or(&lan->state, bit);
	if ((before & AB_STATE_TRACE) == ab_trace(lan_key))
		return before;
	if (!(before & bit))
		__sync_fetch_and_and(&lan->state, ~bit);
	return 0;
}

/* The same of taking bits away. */
static __always_inline __u32 unmark_entry(const struct ab_flow_key *lan_key, struct ab_flow *lan, __u32 bits)
{
	if (!is_entry_of(lan, lan_key))
		return 0;
	__u32 before = __sync_fetch_and_and(&lan->state, ~bits);
	if ((before & AB_STATE_TRACE) == ab_trace(lan_key))
		return before;
	__sync_fetch_and_or(&lan->state, before & bits);
	return 0;
}

/* Sets bits of the link entry of a flow, unless its memory is that flow's no more. */
static __always_inline void mark_other(struct ab_flow *wan, const struct ab_flow_key *lan_key,
				       const struct ab_flow *lan, __u32 bits)
{
	__u32 before = __sync_fetch_and_or(&wan->state, bits);
	if (!is_other_of(wan, lan_key, lan))
		__sync_fetch_and_and(&wan->state, before | ~bits);
}

/* Counts the end of a flow, once, whoever comes first. */
static __always_inline int close_flow(const struct ab_flow_key *lan_key, struct ab_flow *lan)
{
	__u32 before = mark_entry(lan_key, lan, AB_STATE_CLOSED);
	if (!before || before & AB_STATE_CLOSED)
		return 0;
	gauge_add(lan->link, 0, 0, 1);
	class_add(lan->class, 0, 1);
	if (before & AB_STATE_CONFIRMED && !is_mapping(lan_key->proto))
		clear_endpoints(lan_key, lan);
	if (has_other_tries(lan_key, lan))
		retire_tries(lan_key, lan);
	release_flow(lan_key, lan);
	return 1;
}

/*
 * Takes both entries of a flow out of the table, live or closed. One CPU does, which has set LEAVING, and nothing comes under the
 * LAN key before that: otherwise another CPU, stopped between its look at a flow and the deletion, would delete the next flow of
 * that key, which nobody has closed.
 */
static __always_inline void take_flow(const struct ab_flow_key *lan_key, struct ab_flow *lan, __u32 is_confirmed,
				      struct ab_flow_key *wan_key)
{
	/* Its memory may be another flow's as soon as it is deleted. */
	struct ab_embryo_key place = { .host = lan->host, .number = lan->embryo };
	__u32 device = device_counted(lan);
	if (find_other(lan_key, lan, wan_key))
		bpf_map_delete_elem(&flows, wan_key);
	close_flow(lan_key, lan);
	if (bpf_map_delete_elem(&flows, lan_key))
		unmark_entry(lan_key, lan, AB_STATE_LEAVING);
	else if (is_confirmed)
		table_add(0, 1);
	else
		release_embryo(&place, device);
}

/* The same of what stands under the key, not what was found there before, which another CPU may have forgotten. */
static __always_inline void forget_flow(const struct ab_flow_key *lan_key, struct ab_flow_key *wan_key)
{
	struct ab_flow *lan = find_entry(lan_key);
	__u32 before = lan ? mark_entry(lan_key, lan, AB_STATE_LEAVING) : 0;
	if (lan && before && !(before & AB_STATE_LEAVING))
		take_flow(lan_key, lan, before & AB_STATE_CONFIRMED, wan_key);
}

/* The same of the flow whose keys are s->lan_key and s->wan_key. Verified by itself, as the next. */
__noinline int forget_own(void)
{
	struct flow_room *s = flow_room();
	if (s)
		forget_flow(&s->lan_key, &s->wan_key);
	return 0;
}

/* The same of that of s->evicted_lan_key and s->evicted_wan_key. */
__noinline int forget_evicted(void)
{
	struct flow_room *s = flow_room();
	if (s)
		forget_flow(&s->evicted_lan_key, &s->evicted_wan_key);
	return 0;
}

/* Sets a bit of an embryo's LAN entry that has none of `others`, in one operation: an embryo is confirmed or evicted, never both.
 * Whether it did. */
static __always_inline int claim_embryo(const struct ab_flow_key *lan_key, struct ab_flow *lan, __u32 bit, __u32 others)
{
	__u32 state = lan->state;
	if ((state & AB_STATE_TRACE) != ab_trace(lan_key) || state & others)
		return 0;
	return __sync_val_compare_and_swap(&lan->state, state, state | bit) == state;
}

/* The embryo of s->lan_key is one no more, unless it is closed or there are as many flows as there may be: then it works as
 * long as its host does not evict it. */
__noinline int confirm_flow(struct ab_flow *lan)
{
	struct flow_room *s = flow_room();
	const struct ab_settings *set = current_settings();
	if (!s || !set || !lan || !ab_may_confirm(lan->state) || table_flows() >= set->flows_max)
		return 0;
	struct ab_embryo_key place = { .host = lan->host, .number = lan->embryo };
	__u32 device = device_counted(lan);
	struct ab_flow *wan = find_other(&s->lan_key, lan, &s->wan_key);
	if (!wan || !claim_embryo(&s->lan_key, lan, AB_STATE_CONFIRMED | AB_STATE_REPLIED, AB_STATE_SETTLED))
		return 0;
	mark_other(wan, &s->lan_key, lan, AB_STATE_CONFIRMED | AB_STATE_REPLIED);
	table_add(1, 0);
	release_embryo(&place, device);
	if (!is_mapping(s->lan_key.proto))
		leave_endpoints();
	return 1;
}

/* Whether it is confirmed, and not between hosts of the LAN. */
static __always_inline int is_under_way(const struct ab_flow *flow)
{
	return (flow->state & (AB_STATE_CONFIRMED | AB_STATE_HAIRPIN)) == AB_STATE_CONFIRMED;
}

/* One packet of a flow's direction. */
static __always_inline void touch_flow(struct ab_flow *flow, __u64 now, __u32 packets, __u32 bytes)
{
	flow->seen_ns = now;
	flow->packets += packets;
#ifdef AB_FORMER
	(void)bytes;
#else
	flow->bytes += bytes;
#endif
}

/* It has had none. */
static __always_inline void clear_load(struct ab_flow *flow)
{
	flow->packets = 0;
#ifndef AB_FORMER
	flow->bytes = 0;
#endif
}

/* Adds bits to the state, without the cost of an atomic operation when they are there already. */
static __always_inline void learn_state(struct ab_flow *flow, __u32 bits)
{
	if ((flow->state & bits) != bits)
		__sync_fetch_and_or(&flow->state, bits);
}

#endif
