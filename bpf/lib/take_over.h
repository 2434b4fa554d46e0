/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * How a former flow comes over: its link entries first, under all that it tried, then the LAN entry. Whoever has put that into
 * our table takes it out of the former one, and if it is gone from there, another CPU was first, and the flow has ended since.
 *
 * A former program may still be at a packet that came before `taken`. It marks no entry whose trace is gone (policy/trace.h), so
 * what it has marked before is learnt, and what it would mark after is not counted by it.
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

#define FORMER_TRY_MASK ((1u << AB_FORMER_TRY_BITS) - 1)

static __always_inline __u32 convert_tries(__u32 former)
{
	__u32 tries = former & AB_TRIES_ANSWERED;
	for (__u32 i = 0; i < AB_TRIES_EARLIER; i++)
		tries |= (former >> (AB_FORMER_TRY_BITS * i) & FORMER_TRY_MASK) << (AB_TRY_BITS * i);
	return tries;
}

static __always_inline void convert_flow(struct ab_flow *flow, const struct ab_former_flow *former, __u8 proto)
{
	flow->opened_ns = former->opened_ns;
	flow->seen_ns = former->seen_ns;
	flow->packets = former->packets;
	flow->bytes = former->bytes;
	flow->other_local = former->other_local;
	flow->tcp = former->tcp;
	if (!is_mapping(proto))
		flow->tcp.tries = convert_tries(former->tcp.tries);
	flow->state = former->state & ~AB_STATE_LEAVING;
	flow->lan_ifindex = former->lan_ifindex;
	flow->other_port = former->other_port;
	flow->first_remote_port = former->first_remote_port;
	flow->tried = former->tried;
	flow->link = former->link;
	flow->why = former->why;
	flow->turned = former->turned;
	__builtin_memcpy(flow->mac, former->mac, sizeof(flow->mac));
	flow->host = former->host;
	flow->embryo = former->embryo;
}

/* The link entry of g->wan_key, confirmed as its LAN entry will be. */
static __always_inline void bring_link_entry(struct ab_passage *g, __u32 confirmed)
{
	const struct ab_former_flow *former = find_former(&g->wan_key);
	if (!former)
		return;
	convert_flow(&g->wan, former, g->wan_key.proto);
	g->wan.state |= confirmed;
	bpf_map_update_elem(&flows, &g->wan_key, &g->wan, BPF_NOEXIST);
}

/* The key of the flow's own link entry, or of an earlier try's. 0 if there is none. */
static __always_inline int name_link_entry(struct ab_passage *g, __u32 i)
{
	if (i == AB_TRIES_EARLIER) {
		make_usual_other_key(&g->wan_key, &g->lan_key, &g->lan);
		return 1;
	}
	__u32 one = has_other_tries(&g->lan_key, &g->lan) ? ab_tries_at(g->lan.tcp.tries, i) : 0;
	return one && make_try_key(&g->wan_key, &g->lan_key, &g->lan, ab_try_link(one));
}

static __always_inline void bring_link_entries(struct ab_passage *g, __u32 confirmed)
{
#pragma clang loop unroll(disable)
	for (__u32 i = 0; i <= AB_TRIES_EARLIER; i++)
		if (name_link_entry(g, i))
			bring_link_entry(g, confirmed);
}

/* Ends what the former programs do with a LAN entry. What they made of its state meanwhile; 0 if it is gone. */
static __always_inline __u32 close_former(const struct ab_flow_key *lan_key, struct ab_former_flow *former)
{
	__u32 before = __sync_fetch_and_and(&former->state, ~AB_STATE_TRACE);
	if ((before & AB_STATE_TRACE) == ab_trace(lan_key))
		return before;
	__sync_fetch_and_or(&former->state, before & AB_STATE_TRACE);
	return 0;
}

/* Deletes the former LAN entry. 0 if another CPU has. One that a former program is moving to its main table, that deletes. */
static __always_inline int delete_former(const struct ab_flow_key *lan_key, __u32 moves)
{
	return moves || !bpf_map_delete_elem(&former_flows, lan_key) || !bpf_map_delete_elem(&former_embryos, lan_key);
}

static __always_inline void learn_late(const struct ab_passage *g, __u32 last)
{
	__u32 late = last & ~(g->lan.state | AB_STATE_TRACE | AB_STATE_LEAVING | AB_STATE_CONFIRMED);
	struct ab_flow *flow = late ? find_entry(&g->lan_key) : NULL;
	if (flow)
		__sync_fetch_and_or(&flow->state, late);
}

/* The LAN entry of g->lan_key. Whether the flow is in our tables. */
static __always_inline int bring_lan_entry(struct ab_passage *g, struct ab_former_flow *former, __u32 moves)
{
	long error = bpf_map_update_elem(&flows, &g->lan_key, &g->lan, BPF_NOEXIST);
	if (error)
		return error == -EEXIST;
	__u32 last = close_former(&g->lan_key, former);
	if (!delete_former(&g->lan_key, moves)) {
		bpf_map_delete_elem(&flows, &g->lan_key);
		return 0;
	}
	learn_late(g, last);
	return 1;
}

static __always_inline int bring_flow(struct ab_passage *g)
{
	struct ab_former_flow *former = bpf_map_lookup_elem(&former_flows, &g->lan_key);
	__u32 moves = !former;
	if (find_entry(&g->lan_key))
		return 1;
	if (!former)
		former = bpf_map_lookup_elem(&former_embryos, &g->lan_key);
	if (!former)
		return 0;
	convert_flow(&g->lan, former, g->lan_key.proto);
	bring_link_entries(g, g->lan.state & AB_STATE_CONFIRMED);
	return bring_lan_entry(g, former, moves && g->lan.state & AB_STATE_CONFIRMED);
}

static __always_inline int bring_permission(struct ab_passage *g)
{
	const struct ab_former_flow *former = bpf_map_lookup_elem(&former_permissions, &g->key);
	if (!former)
		return 0;
	convert_flow(&g->wan, former, g->key.proto);
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
		convert_flow(&g->wan, found, g->key.proto);
		make_usual_other_key(&g->lan_key, &g->key, &g->wan);
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

/* What the former programs have counted since. */
static __always_inline void move_gauges(void)
{
	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		__u32 link = i;
		struct ab_gauge *former = bpf_map_lookup_elem(&former_gauges, &link);
		if (!former)
			continue;
		gauge_add(i, __sync_lock_test_and_set(&former->dispatched, 0),
			  __sync_lock_test_and_set(&former->opened, 0), __sync_lock_test_and_set(&former->closed, 0));
	}
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
	move_gauges();
}

#endif
