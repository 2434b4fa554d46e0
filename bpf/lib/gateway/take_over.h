/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Takes over a former flow: first its link entries, of all its tries, then the LAN entry. The CPU that has inserted that into
 * our table removes it from the former one. If it is already gone there, another CPU was first, and the flow has ended since.
 *
 * A former program may still handle a packet that came before `taken`. It changes no entry without a trace (policy/trace.h), so
 * the trace is removed first: the state that is read then is final.
 */
#ifndef ANABRANCH_TAKE_OVER_H
#define ANABRANCH_TAKE_OVER_H

#include "flow.h"
#include "permission.h"

struct ab_passage {
	/* The key of the request. Before Linux 6.2 a map look-up does not accept a key that the verifier knows only as memory. */
	struct ab_flow_key key;
	struct ab_flow_key lan_key, wan_key;
	struct ab_flow lan, wan;
};
AB_SCRATCH(passage, struct ab_passage)
/* The one of `migrate`. */
AB_LOADED_MAP(walked, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_passage, 0);

static __always_inline void convert_flow(struct ab_flow *flow, const struct ab_former_flow *former)
{
	flow->opened_ns = former->opened_ns;
	flow->seen_ns = former->seen_ns;
	flow->packets = former->packets;
	flow->bytes = 0;
	flow->other_local = former->other_local;
	flow->tcp = former->tcp;
	flow->state = former->state;
	flow->lan_ifindex = former->lan_ifindex;
	flow->other_port = former->other_port;
	flow->first_remote_port = former->first_remote_port;
	flow->tried = former->tried;
	flow->link = former->link;
	flow->class = former->class;
	flow->why = former->why;
	flow->hairpin_link = former->hairpin_link;
	__builtin_memcpy(flow->mac, former->mac, sizeof(flow->mac));
	flow->host = former->host;
	flow->unconfirmed = former->unconfirmed;
}

/* The key of the same flow on the other side. Without a function call, because the stack may have only eight frames. */
static __always_inline void make_former_other_key(struct ab_flow_key *other, const struct ab_flow_key *key,
						  const struct ab_flow *flow)
{
	make_usual_other_key(other, key, flow);
	if (flow->state & AB_STATE_APART)
		name_remote(other, flow);
}

/* Inserts the link entry of g->wan_key, confirmed if its LAN entry is. */
static __always_inline void bring_link_entry(struct ab_passage *g)
{
	const struct ab_former_flow *former = find_former(&g->wan_key);
	if (!former)
		return;
	convert_flow(&g->wan, former);
	g->wan.state |= g->lan.state & AB_STATE_CONFIRMED;
	bpf_map_update_elem(&flows, &g->wan_key, &g->wan, BPF_NOEXIST);
}

/* The key of the flow's own link entry, or of that of another try. Returns 0 if there is none. */
static __always_inline int name_link_entry(struct ab_passage *g, __u32 i)
{
	if (i == AB_TRIES_OTHERS) {
		make_former_other_key(&g->wan_key, &g->lan_key, &g->lan);
		return 1;
	}
	__u32 one = has_other_tries(&g->lan_key, &g->lan) ? ab_tries_at(g->lan.tcp.tries, i) : 0;
	return one && make_try_key(&g->wan_key, &g->lan_key, &g->lan, ab_try_link(one));
}

static __always_inline void bring_link_entries(struct ab_passage *g)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i <= AB_TRIES_OTHERS; i++)
		if (name_link_entry(g, i))
			bring_link_entry(g);
}

/* How often it is retried if another CPU changes the entry at the same time. */
#define CLAIM_STEPS 8

/* Removes the trace of a former LAN entry. Returns its last state, with the trace; 0 if a former program is removing it, or if
 * the memory belongs to another entry by now. Several CPUs may do this. */
static __always_inline __u32 claim_former(const struct ab_flow_key *lan_key, struct ab_former_flow *former)
{
	__u32 trace = ab_trace(lan_key);
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i < CLAIM_STEPS; i++) {
		__u32 state = former->state, own = state & AB_STATE_TRACE;
		if (state & AB_STATE_LEAVING || (own && own != trace))
			return 0;
		if (__sync_val_compare_and_swap(&former->state, state, state & ~AB_STATE_TRACE) == state)
			return state | trace;
	}
	return 0;
}

/* Inserts the LAN entry of g->lan_key. Returns whether the flow is in our tables. */
static __always_inline int bring_lan_entry(struct ab_passage *g)
{
	long error = bpf_map_update_elem(&flows, &g->lan_key, &g->lan, BPF_NOEXIST);
	if (error)
		return error == -EEXIST;
	if (!bpf_map_delete_elem(&former_flows, &g->lan_key))
		return 1;
	bpf_map_delete_elem(&flows, &g->lan_key);
	return 0;
}

static __always_inline int bring_flow(struct ab_passage *g)
{
	/* In this order, because an entry that moves meanwhile is then found in one of the tables. */
	struct ab_former_flow *former = find_former(&g->lan_key);
	if (find_entry(&g->lan_key))
		return 1;
	__u32 state = former ? claim_former(&g->lan_key, former) : 0;
	if (!state)
		return 0;
	convert_flow(&g->lan, former);
	g->lan.state = state;
	/* The tries were claimed by a former program. */
	if (!is_mapping(g->lan_key.proto))
		g->lan.tcp.tries &= ~AB_TRIES_CLAIMED;
	bring_link_entries(g);
	return bring_lan_entry(g);
}

static __always_inline int bring_permission(struct ab_passage *g)
{
	const struct ab_former_flow *former = bpf_map_lookup_elem(&former_permissions, &g->key);
	if (!former)
		return 0;
	convert_flow(&g->wan, former);
	long error = bpf_map_update_elem(&permissions, &g->key, &g->wan, BPF_NOEXIST);
	if (!error)
		bpf_map_delete_elem(&former_permissions, &g->key);
	return !error || error == -EEXIST;
}

static __always_inline int bring(struct ab_passage *g)
{
	const struct ab_former_flow *found = find_former(&g->key);
	if (!found)
		return bring_permission(g);
	g->lan_key = g->key;
	if (g->key.side != AB_SIDE_LAN) {
		convert_flow(&g->wan, found);
		make_former_other_key(&g->lan_key, &g->key, &g->wan);
	}
	return bring_flow(g);
}

AB_GLOBAL int take_over(const struct ab_flow_key *key, __u32 walks)
{
	__u32 zero = 0;
	struct ab_passage *g = walks ? bpf_map_lookup_elem(&walked, &zero) : passage();
	if (!g || !key)
		return 0;
	g->key = *key;
	return bring(g);
}

struct migration {
	const struct ab_visit *visit;
	struct ab_upgrade *upgrade;
};

static long migrate_entry(__u32 index, struct migration *m)
{
	if (index >= AB_VISIT_MAX)
		return 1;
	const struct ab_flow_key *key = &m->visit->key[index];
	if (!take_over(key, 1))
		return 0;
	if (key->side == AB_SIDE_LAN)
		m->upgrade->flows++;
	else
		m->upgrade->permissions++;
	return 0;
}

static __always_inline void migrate_visited(void)
{
	__u32 zero = 0;
	struct migration m = {
		.visit = bpf_map_lookup_elem(&visits, &zero),
		.upgrade = bpf_map_lookup_elem(&upgrade, &zero),
	};
	if (!m.visit || !m.upgrade)
		return;
	bpf_loop(m.upgrade->count, migrate_entry, &m, 0);
}

#endif
