/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A race in the tables (policy/race.h): its rivals' link entries are tries as any (attempt.h), all of them there before the LAN
 * entry is. rival.h sends what takes their links.
 */
#ifndef ANABRANCH_RACE_H
#define ANABRANCH_RACE_H

#include "../../policy/race.h"
#include "flow.h"
#include "held.h"
#include "tcp.h"

/* When each class will have all its races again. */
AB_MAP(races, BPF_MAP_TYPE_ARRAY, AB_MAX_CLASSES, __u32, __u64, 0);

/* Whether `p`, which `begin_choice` was asked about, may begin a race, but for the rate. Without NAT all tries would be one
 * connection to the server. */
__noinline int may_race(struct packet *p)
{
	struct flow_room *s = flow_room();
	const struct ab_settings *set = current_settings();
	const struct ab_choice *now = s ? choice_of(s->opening.class, s->opening.family) : NULL;
	if (!p || !now || !set || p->proto != IPPROTO_TCP || !is_first_syn(p) || is_fragment(p) || p->ttl <= 1)
		return 0;
	return !routed_links(set, p->family) && ab_may_race(now, &s->request, p->end - p->seq - 1);
}

/* Takes a race from the class. Whether there was one; of two CPUs at once, one has none. */
__noinline int take_race(__u32 class, __u32 family)
{
	const struct ab_choice *now = choice_of(class, family);
	__u64 *full_ns = bpf_map_lookup_elem(&races, &class);
	if (!now || !full_ns)
		return 0;
	__u64 before = *full_ns, next = ab_spend_race(now, before, tick_ns());
	return next && __sync_val_compare_and_swap(full_ns, before, next) == before;
}

/* Whether the flow that `p` begins and begin_choice was asked about is to race. Where it is by probes, the SYN waits from here on. */
__noinline int begin_race(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	if (!s || !p || s->opening.waited || !may_race(p) || !take_race(s->opening.class, s->opening.family))
		return 0;
	const struct ab_choice *now = choice_of(s->opening.class, s->opening.family);
	return now && (!now->holds || hold_syn(skb, p));
}

struct rivals {
	__u32 wanted, entered; /* links, as bits */
};

/* Gives the attempt of s->lan_key and s->wan a try over a link, under the port that it has already. */
static long enter_rival(__u32 link, struct rivals *rivals)
{
	struct flow_room *s = flow_room();
	const struct ab_link *there = s ? link_at(link, s->opening.family) : NULL;
	if (!there || !(rivals->wanted >> (link & (AB_MAX_LINKS - 1)) & 1) || there->prefix_len)
		return 0;
	if (!make_try_key(&s->rival_key, &s->lan_key, &s->lan, link))
		return 0;
	s->wan.link = link;
	if (stood_formerly(&s->rival_key) || bpf_map_update_elem(&flows, &s->rival_key, &s->wan, BPF_NOEXIST))
		return 0;
	rivals->entered |= 1u << (link & (AB_MAX_LINKS - 1));
	gauge_add(link, 1, 0, 0);
	return 0;
}

/* The same over all links that s->decision says, where it is a race. Those that have the port taken are left out. */
__noinline int enter_rivals(void)
{
	struct flow_room *s = flow_room();
	if (!s || (s->decision.why != AB_WHY_RACE && s->decision.why != AB_WHY_PROBED) || s->opening.keeps_port)
		return 0;
	__u32 waits = s->decision.why == AB_WHY_PROBED;
	struct rivals rivals = { .wanted = ab_rivals(&s->request, s->decision.target) };
	s->lan.other_port = s->wan_key.local_port;
	bpf_loop(AB_MAX_LINKS, enter_rival, &rivals, 0);
	if (rivals.entered)
		s->lan.tcp.tries = waits ? ab_tries_probe(rivals.entered) : ab_tries_race(rivals.entered);
	return rivals.entered != 0;
}

#endif
