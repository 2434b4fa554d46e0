/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The flow table: two entries for each flow, one for each side, and their life cycle.
 *
 * A flow is unconfirmed until a TCP handshake completes, or until a UDP or ICMP mapping is answered or lasts. Each host has a share
 * of unconfirmed flows. So a host's flood of first packets evicts only its own unconfirmed flows (unconfirmed.h). The LAN entry has
 * the state of both.
 */
#ifndef ANABRANCH_FLOW_H
#define ANABRANCH_FLOW_H

#include "../../policy/tcp.h"
#include "../../policy/trace.h"
#include "attempt.h"
#include "endpoint.h"
#include "host.h"

/* UDP that is sent for this long without an answer is confirmed. Single packets, as in a flood, never are. */
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

/* The LAN key of a mapping for one remote end only. */
static __always_inline void make_apart_key(struct ab_flow_key *key, __u8 proto, const union ab_addr *local,
					   __be16 local_port, const union ab_addr *remote, __be16 remote_port)
{
	make_key(key, proto, AB_SIDE_LAN, local, local_port, remote, remote_port);
	key->remote = *remote;
	key->remote_port = proto == IPPROTO_UDP ? remote_port : 0;
}

/* The LAN key of a packet whose mapping is for all remote ends. */
static __always_inline void make_usual_key(struct ab_flow_key *key, const struct packet *p)
{
	make_key(key, p->proto, AB_SIDE_LAN, &p->src, p->sport, &p->dst, p->dport);
}

/* The key of a packet from the LAN. */
static __always_inline void make_lan_key(struct ab_flow_key *key, const struct packet *p)
{
	if (p->flags & PACKET_APART)
		make_apart_key(key, p->proto, &p->src, p->sport, &p->dst, p->dport);
	else
		make_usual_key(key, p);
}

/* The remote end is part of the key only on the LAN side, where other mappings share the endpoint. */
static __always_inline void name_remote(struct ab_flow_key *key, const struct ab_flow *flow)
{
	__builtin_memset(&key->remote, 0, sizeof(key->remote));
	key->remote_port = 0;
	if (key->side != AB_SIDE_LAN)
		return;
	__builtin_memcpy(&key->remote, &flow->tcp, sizeof(key->remote));
	key->remote_port = flow->first_remote_port;
}

/* The key of the same flow on the other side; not for a mapping for one remote end. */
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

/* The flow of `p`. Not inlined, so that its key is not on the stack of the functions that open flows. */
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
 * The entry of the same flow on the other side, and its key. NULL if it does not exist, also if another flow has its
 * place: the flow may be ending on another CPU.
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

/* Sets a bit of the LAN entry of a key. Returns the state before; 0 if the memory belongs to another entry by now, which is not
 * changed. */
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

/* The same for clearing bits. */
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

/* Sets bits of the link entry of a flow, unless its memory belongs to another flow by now. */
static __always_inline void mark_other(struct ab_flow *wan, const struct ab_flow_key *lan_key,
				       const struct ab_flow *lan, __u32 bits)
{
	__u32 before = __sync_fetch_and_or(&wan->state, bits);
	if (!is_other_of(wan, lan_key, lan))
		__sync_fetch_and_and(&wan->state, before | ~bits);
}

/* Closes a flow and counts that once, even if several CPUs do it. */
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
 * Removes both entries of a flow, live or closed. Only the CPU that has set LEAVING does this, and no new flow gets the LAN key
 * before it is done. Otherwise another CPU, interrupted between reading a flow and deleting it, would delete the next flow with the
 * same key, which was not closed.
 */
static __always_inline void take_flow(const struct ab_flow_key *lan_key, struct ab_flow *lan, __u32 is_confirmed,
				      struct ab_flow_key *wan_key)
{
	/* Read before the deletion, because the memory may then be reused. */
	struct ab_unconfirmed_key place = { .host = lan->host, .number = lan->unconfirmed };
	__u32 device = device_counted(lan);
	if (find_other(lan_key, lan, wan_key))
		bpf_map_delete_elem(&flows, wan_key);
	close_flow(lan_key, lan);
	if (bpf_map_delete_elem(&flows, lan_key))
		unmark_entry(lan_key, lan, AB_STATE_LEAVING);
	else if (is_confirmed)
		table_add(0, 1);
	else
		release_unconfirmed(&place, device);
}

/* The same for the flow that the key has now; the one that was found before may have been removed by another CPU. */
static __always_inline void forget_flow(const struct ab_flow_key *lan_key, struct ab_flow_key *wan_key)
{
	struct ab_flow *lan = find_entry(lan_key);
	__u32 before = lan ? mark_entry(lan_key, lan, AB_STATE_LEAVING) : 0;
	if (lan && before && !(before & AB_STATE_LEAVING))
		take_flow(lan_key, lan, before & AB_STATE_CONFIRMED, wan_key);
}

/* The same for the flow with keys s->lan_key and s->wan_key. A global function, like the next one. */
__noinline int forget_own(void)
{
	struct flow_room *s = flow_room();
	if (s)
		forget_flow(&s->lan_key, &s->wan_key);
	return 0;
}

/* The same for the flow with keys s->evicted_lan_key and s->evicted_wan_key. */
__noinline int forget_evicted(void)
{
	struct flow_room *s = flow_room();
	if (s)
		forget_flow(&s->evicted_lan_key, &s->evicted_wan_key);
	return 0;
}

/* Sets a bit of an unconfirmed flow's LAN entry if it has none of `others`, in one operation, so that a flow is either confirmed or
 * evicted. Returns whether the bit was set. */
static __always_inline int claim_unconfirmed(const struct ab_flow_key *lan_key, struct ab_flow *lan, __u32 bit,
					     __u32 others)
{
	__u32 state = lan->state;
	if ((state & AB_STATE_TRACE) != ab_trace(lan_key) || state & others)
		return 0;
	return __sync_val_compare_and_swap(&lan->state, state, state | bit) == state;
}

/* Confirms the flow of s->lan_key, unless it is closed, or the maximum number of flows is reached. In that case it works until
 * its host evicts it. */
__noinline int confirm_flow(struct ab_flow *lan)
{
	struct flow_room *s = flow_room();
	const struct ab_settings *set = current_settings();
	if (!s || !set || !lan || !ab_may_confirm(lan->state) || table_flows() >= set->flows_max)
		return 0;
	struct ab_unconfirmed_key place = { .host = lan->host, .number = lan->unconfirmed };
	__u32 device = device_counted(lan);
	struct ab_flow *wan = find_other(&s->lan_key, lan, &s->wan_key);
	if (!wan || !claim_unconfirmed(&s->lan_key, lan, AB_STATE_CONFIRMED | AB_STATE_REPLIED, AB_STATE_SETTLED))
		return 0;
	mark_other(wan, &s->lan_key, lan, AB_STATE_CONFIRMED | AB_STATE_REPLIED);
	table_add(1, 0);
	release_unconfirmed(&place, device);
	if (!is_mapping(s->lan_key.proto))
		leave_endpoints();
	return 1;
}

/* Whether it is confirmed, and not between LAN hosts. */
static __always_inline int is_under_way(const struct ab_flow *flow)
{
	return (flow->state & (AB_STATE_CONFIRMED | AB_STATE_HAIRPIN)) == AB_STATE_CONFIRMED;
}

/* Counts packets of a flow's direction. */
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

/* Clears its counts. */
static __always_inline void clear_load(struct ab_flow *flow)
{
	flow->packets = 0;
#ifndef AB_FORMER
	flow->bytes = 0;
#endif
}

/* Adds bits to the state, without an atomic operation if they are set already. */
static __always_inline void learn_state(struct ab_flow *flow, __u32 bits)
{
	if ((flow->state & bits) != bits)
		__sync_fetch_and_or(&flow->state, bits);
}

#endif
