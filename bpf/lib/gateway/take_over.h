/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * How a former flow comes over: its link entries first, under all that it tried, then the LAN entry. Whoever has put that into
 * our table takes it out of the former one, and if it is gone from there, another CPU was first, and the flow has ended since.
 *
 * A former program may still be at a packet that came before `taken`. It marks no entry whose trace is gone (policy/trace.h), so
 * that is taken off first: the state that is read then is the last.
 */
#ifndef ANABRANCH_TAKE_OVER_H
#define ANABRANCH_TAKE_OVER_H

#include "flow.h"
#include "permission.h"

struct ab_passage {
	/* What was asked for: before Linux 6.2 no map is asked by what the verifier knows as memory alone. */
	struct ab_flow_key key;
	struct ab_flow_key lan_key, wan_key;
	struct ab_flow lan, wan;
};
AB_SCRATCH(passage, struct ab_passage)
/* That of `migrate`. */
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
	flow->turned = former->turned;
	__builtin_memcpy(flow->mac, former->mac, sizeof(flow->mac));
	flow->host = former->host;
	flow->embryo = former->embryo;
}

/* The key of the same flow on the other side. Nothing is called: eight frames are all that there may be. */
static __always_inline void make_former_other_key(struct ab_flow_key *other, const struct ab_flow_key *key,
						  const struct ab_flow *flow)
{
	make_usual_other_key(other, key, flow);
	if (flow->state & AB_STATE_APART)
		name_remote(other, flow);
}

/* The link entry of g->wan_key, confirmed as its LAN entry is. */
static __always_inline void bring_link_entry(struct ab_passage *g)
{
	const struct ab_former_flow *former = find_former(&g->wan_key);
	if (!former)
		return;
	convert_flow(&g->wan, former);
	g->wan.state |= g->lan.state & AB_STATE_CONFIRMED;
	bpf_map_update_elem(&flows, &g->wan_key, &g->wan, BPF_NOEXIST);
}

/* The key of the flow's own link entry, or of another try's. 0 if there is none. */
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

/* Somebody marks the entry at the very moment: how often that is tolerated. */
#define CLAIM_STEPS 8

/* Takes the trace off a former LAN entry. Its last state, with the trace; 0 if a former program is taking it out of its table, or if
 * the memory is another entry's by now. More than one CPU may. */
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

/* The LAN entry of g->lan_key. Whether the flow is in our tables. */
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
	/* In this order: what goes from one to the other meanwhile is in one of them. */
	struct ab_former_flow *former = find_former(&g->lan_key);
	if (find_entry(&g->lan_key))
		return 1;
	__u32 state = former ? claim_former(&g->lan_key, former) : 0;
	if (!state)
		return 0;
	convert_flow(&g->lan, former);
	g->lan.state = state;
	/* Who has claimed them was a former program. */
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
