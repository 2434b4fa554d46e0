/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Where would this packet go, and why? The same functions are called in the same order as for packets, but nothing is bound or
 * sent. */
#ifndef ANABRANCH_EXPLAIN_H
#define ANABRANCH_EXPLAIN_H

#include "outbound.h"

/* The sender of the packet: the MAC that the host's neighbour table has for p's source, if any. */
static __noinline void find_sender(struct __sk_buff *skb, const struct packet *p, struct flow_room *s)
{
	struct bpf_fib_lookup way = { .family = ANABRANCH_AF_INET6, .ifindex = p->ifindex };
	__builtin_memcpy(way.ipv6_dst, &p->src, sizeof(way.ipv6_dst));
	if (p->family == AB_IPV4) {
		way.family = ANABRANCH_AF_INET;
		way.ipv4_dst = p->src.word[3];
	}
	bpf_fib_lookup(skb, &way, sizeof(way), BPF_FIB_LOOKUP_OUTPUT);
	__builtin_memcpy(s->opening.mac, way.dmac, sizeof(s->opening.mac));
	name_sender(s, p);
}

/* Like `admit`, but only for the question. */
static __always_inline int may_open(const struct flow_room *s, const struct ab_settings *set)
{
	if (table_flows() >= set->flows_max)
		return AB_REASON_REFUSED_FULL;
	struct ab_host *host = bpf_map_lookup_elem(&hosts, &s->host_key);
	return host && live_flows(host) >= (__s64)set->quota_per_host ? AB_REASON_REFUSED_QUOTA : 0;
}

/* Writes the values from which links are chosen. */
static __always_inline void tell_numbers(const struct ab_choice *now, struct ab_explanation *e)
{
	const struct ab_gauges *all = all_gauges();
	if (!all)
		return;
	__u64 active = ab_counts_active(now);
	e->count = now->count;
	e->usable = now->usable.word[0];
	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		e->weight[i] = now->target[i].weight;
		e->load[i] = ab_load_of(active, &now->target[i], &all->target[i]);
	}
}

static __noinline int explain_new(struct __sk_buff *skb, struct packet *p, struct ab_explanation *e)
{
	const struct ab_settings *set = current_settings();
	struct flow_room *s = flow_room();
	if (!set || !s)
		return AB_REASON_NOT_CONFIGURED;
	int reason = gate(skb, p);
	if (!reason) {
		s->opening.layer3 = is_layer3(p->ifindex);
		s->opening.via_router |= s->opening.layer3;
		find_sender(skb, p, s);
		reason = may_open(s, set);
	}
	if (reason)
		return set->fallback_mark && way_around(reason) ? way_around(reason) : reason;
	make_usual_key(&s->lan_key, p);
	s->opening.class = e->class;
	s->opening.family = p->family;
	begin_choice(p);
	s->request.race = may_race(p);
	choose_link(0, 0);
	e->why = s->decision.why;
	e->link = s->decision.target;
	if (e->link == AB_NO_TARGET)
		return reason_without_link(e->class, p->family);
	if (is_helped(p))
		return AB_REASON_FALLBACK_HELPER;
	const struct ab_choice *now = choice_of(e->class, p->family);
	return now && now->granularity == AB_PER_PACKET ? AB_REASON_ROUTED_OUT : AB_REASON_TRANSLATED_OUT;
}

/* Explains the choice of the packet's class. */
static __noinline int tell_choice(const struct packet *p, struct ab_explanation *e)
{
	const struct ab_choice *now = choice_of(e->class, p->family);
	if (!now)
		return 0;
	tell_numbers(now, e);
	e->hash = packet_hash(now, p);
	struct flow_room *s = flow_room();
	if (!s)
		return 0;
	know_paths(s, now, p);
	e->fresh = s->request.fresh;
	__builtin_memcpy(e->response_us, s->request.response_us, sizeof(e->response_us));
	return 0;
}

/* Like leads_apart, without changing anything. */
static __noinline int explain_remote(struct __sk_buff *skb, struct packet *p, struct ab_flow *flow)
{
	struct flow_room *s = flow_room();
	if (!s)
		return 0;
	const struct ab_flow *permission = permission_of(s, p, flow);
	if (!permission || !is_granted_to(permission, flow))
		return judge_remote(skb, p, flow);
	if (permission->state & AB_STATE_APART && permission->why == AB_WHY_ROUTE)
		return 1;
	return !(permission->state & AB_STATE_HAIRPIN) && are_there_rules() && find_class(p) != flow->class;
}

AB_SCRATCH(explanation, struct ab_explanation)

/* Returns the family of the packet: enum ab_family. */
static __always_inline __u32 explain_packet(struct __sk_buff *skb, struct ab_explanation *e)
{
	struct packet_room *room = fresh_room();
	e->link = AB_NO_TARGET;
	if (!room)
		return AB_IPV4;
	struct packet *p = &room->packet;
	e->reason = parse_packet(skb, p, ETH_HLEN);
	if (e->reason || p->kind != PACKET_FLOW)
		return p->family;
	/* As if it came in from the device of its source. */
	const struct ab_route *from = find_route(&p->src);
	p->ifindex = from ? from->ifindex : 0;
	make_usual_key(&room->key, p);
	struct ab_flow *flow = find_flow(&room->key);
	e->class = find_class(p);
	if (flow && is_mapping(p->proto) && !is_first_remote(p, flow)) {
		int apart = explain_remote(skb, p, flow);
		if (apart < 0) {
			e->reason = -apart;
			return p->family;
		}
		if (apart) {
			p->flags |= PACKET_APART;
			flow = find_again(p);
		}
	}
	if (flow)
		e->class = flow->class;
	tell_choice(p, e);
	if (!flow) {
		e->reason = explain_new(skb, p, e);
		return p->family;
	}
	if (is_mapping(p->proto) && is_kernels(p)) {
		e->reason = AB_REASON_SPECIFIC_ROUTE;
		return p->family;
	}
	if (!is_mapping(p->proto) && flow->state & AB_STATE_HAIRPIN) {
		e->reason = AB_REASON_HAIRPIN;
		return p->family;
	}
	e->bound = 1;
	e->link = flow->link;
	e->why = flow->why;
	e->reason = AB_REASON_TRANSLATED_OUT;
	return p->family;
}

#endif
