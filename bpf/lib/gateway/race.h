/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A race in the tables (policy/race.h). The link entries of its copies are ordinary tries (attempt.h), and all are inserted before
 * the LAN entry. race_copy.h sends the copies.
 */
#ifndef ANABRANCH_RACE_H
#define ANABRANCH_RACE_H

#include "../../policy/race.h"
#include "flow.h"
#include "held.h"
#include "tcp.h"

/* When each class has all its races again. */
AB_MAP(races, BPF_MAP_TYPE_ARRAY, AB_MAX_CLASSES, __u32, __u64, 0);

/* Whether `p`, which `begin_choice` has prepared, may begin a race, not considering the rate. Without NAT all tries would be the
 * same connection for the server. */
__noinline int may_race(struct packet *p)
{
	struct flow_room *s = flow_room();
	const struct ab_settings *set = current_settings();
	const struct ab_choice *now = s ? choice_of(s->opening.class, s->opening.family) : NULL;
	if (!p || !now || !set || p->proto != IPPROTO_TCP || !is_first_syn(p) || is_fragment(p) || p->ttl <= 1)
		return 0;
	return !routed_links(set, p->family) && ab_may_race(now, &s->request, p->end - p->seq - 1);
}

/* Takes a race from the class's rate. Returns whether there was one; if two CPUs do it at once, one fails. */
__noinline int take_race(__u32 class, __u32 family)
{
	const struct ab_choice *now = choice_of(class, family);
	__u64 *full_ns = bpf_map_lookup_elem(&races, &class);
	if (!now || !full_ns)
		return 0;
	__u64 before = *full_ns, next = ab_spend_race(now, before, tick_ns());
	return next && __sync_val_compare_and_swap(full_ns, before, next) == before;
}

/* Whether the flow that begins with `p`, and that begin_choice has prepared, races. In a race of probes, the SYN waits from here
 * on. */
__noinline int begin_race(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	if (!s || !p || s->opening.waited || !may_race(p) || !take_race(s->opening.class, s->opening.family))
		return 0;
	const struct ab_choice *now = choice_of(s->opening.class, s->opening.family);
	return now && (!now->holds || hold_syn(skb, p));
}

struct race_copies {
	__u32 wanted, entered; /* links, as bits */
};

/* Adds a try over a link to the attempt of s->lan_key and s->wan, with the port that it has already. */
static long enter_race_copy(__u32 link, struct race_copies *race_copies)
{
	struct flow_room *s = flow_room();
	const struct ab_link *there = s ? link_at(link, s->opening.family) : NULL;
	if (!there || !(race_copies->wanted >> (link & (AB_MAX_LINKS - 1)) & 1) || there->prefix_len)
		return 0;
	if (!make_try_key(&s->race_copy_key, &s->lan_key, &s->lan, link))
		return 0;
	s->wan.link = link;
	if (stood_formerly(&s->race_copy_key) || bpf_map_update_elem(&flows, &s->race_copy_key, &s->wan, BPF_NOEXIST))
		return 0;
	race_copies->entered |= 1u << (link & (AB_MAX_LINKS - 1));
	gauge_add(link, 1, 0, 0);
	return 0;
}

/* The same over all links of s->decision, if it is a race. Links on which the port is taken are left out. */
__noinline int enter_race_copies(void)
{
	struct flow_room *s = flow_room();
	if (!s || (s->decision.why != AB_WHY_RACE && s->decision.why != AB_WHY_PROBED) || s->opening.keeps_port)
		return 0;
	__u32 waits = s->decision.why == AB_WHY_PROBED;
	struct race_copies race_copies = { .wanted = ab_race_copies(&s->request, s->decision.target) };
	s->lan.other_port = s->wan_key.local_port;
	bpf_loop(AB_MAX_LINKS, enter_race_copy, &race_copies, 0);
	if (race_copies.entered)
		s->lan.tcp.tries = waits ? ab_tries_probe(race_copies.entered) : ab_tries_race(race_copies.entered);
	return race_copies.entered != 0;
}

#endif
