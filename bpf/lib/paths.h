/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What flows tell of the way to their destinations (policy/paths.h), in a table of which what was used least recently makes room.
 * A prefix has an entry from its first SYN/ACK on, of which nobody who does not know a SYN's number can send one: neither a flood
 * of SYNs nor who forges answers fills the table. Classes that do not learn pay nothing.
 */
#ifndef ANABRANCH_PATHS_H
#define ANABRANCH_PATHS_H

#include "../policy/paths.h"
#include "flow.h"

/* Its size is set by user space before loading. */
AB_MAP(prefixes, BPF_MAP_TYPE_LRU_HASH, 1, struct ab_prefix, struct ab_paths, 0);

static __noinline struct ab_paths *paths_to(const union ab_addr *remote)
{
	struct ab_prefix prefix;
	ab_prefix_of(&prefix, remote);
	return bpf_map_lookup_elem(&prefixes, &prefix);
}

/* The same, which begin with nothing known. NULL if there is no room. */
static __noinline struct ab_paths *begin_paths(struct ab_scratch *s, const union ab_addr *remote)
{
	struct ab_prefix prefix;
	ab_prefix_of(&prefix, remote);
	__builtin_memset(&s->paths, 0, sizeof(s->paths));
	bpf_map_update_elem(&prefixes, &prefix, &s->paths, BPF_NOEXIST);
	return bpf_map_lookup_elem(&prefixes, &prefix);
}

/* Has s->request know what is known of the destination of `p`, and s->opening the time if `p` is to tell. */
static __always_inline void know_paths(struct ab_scratch *s, const struct ab_choice *now, const struct packet *p)
{
	__u32 tells = p->proto == IPPROTO_TCP && is_first_syn(p) && !now->surveys;
	ab_know_nothing(&s->request, tells && now->lifetime_ns);
	s->opening.sent = 0;
	s->opening.surveys = now->surveys && p->proto == IPPROTO_TCP;
	if (!now->lifetime_ns)
		return;
	ab_know(now, paths_to(&p->dst), &s->request, tick_ns(), tells);
	if (tells)
		s->opening.sent = ab_syn_sent(time_ns());
}

/* The flow that s->decision is of has been bound. If it asks, no other does. */
static __noinline int note_asked(const struct ab_scratch *s, const struct packet *p)
{
	__u32 asked = s->opening.sent ? ab_asked_links(&s->request, &s->decision) : 0;
	struct ab_paths *paths = asked ? paths_to(&p->dst) : NULL;
	if (!paths)
		return 0;
	__u64 now_ns = tick_ns();
	for (__u32 i = 0; i < AB_MAX_LINKS; i++)
		if (asked >> i & 1)
			paths->path[i].asked_ns = now_ns;
	return 0;
}

/* What a link entry knows of when its SYN was sent; 0: it was sent twice, or has told already. */
static __always_inline __u32 take_sent(struct ab_flow *wan)
{
	__u32 sent = wan->tcp.tries;
	wan->tcp.tries = 0;
	return sent;
}

/* `p` answers what took `link` at `sent`, for `class`. */
__noinline int learn_response(struct packet *p, __u32 class, __u32 sent, __u32 link)
{
	struct ab_scratch *s = scratch();
	const struct ab_choice *now = s && p && sent ? choice_of(class, p->family) : NULL;
	if (!now || !now->lifetime_ns)
		return 0;
	struct ab_paths *paths = paths_to(&p->src) ?: begin_paths(s, &p->src);
	if (paths)
		ab_learn_answer(now, &paths->path[link & (AB_MAX_LINKS - 1)], sent, time_ns());
	return 0;
}

/* `p` is the first that answers the attempt of `wan`, whose SYN took `link`: it fits that. */
__noinline int learn_answer(struct packet *p, struct ab_flow *wan, __u32 link)
{
	if (!p || !wan || (p->tcp_flags & (TCP_SYN | TCP_ACK)) != (TCP_SYN | TCP_ACK))
		return 0;
	return learn_response(p, wan->class, take_sent(wan), link);
}

/* `p` answers the try over `link` that another has beaten: it fits that. */
__noinline int learn_loser(struct packet *p, struct ab_loser *loser, __u32 link)
{
	if (!p || !loser)
		return 0;
	__u32 sent = loser->sent;
	loser->sent = 0;
	return learn_response(p, loser->class, sent, link);
}

struct silence {
	const struct ab_choice *now;
	struct ab_flow *lan;
	struct ab_paths *paths; /* NULL: of what nothing is known nothing is learned */
	__u64 now_ns;
};

static __always_inline void learn_silence_of(struct silence *silence, struct ab_flow *wan, __u32 link)
{
	__u32 sent = take_sent(wan);
	if (sent && silence->paths)
		ab_learn_silence(silence->now, &silence->paths->path[link & (AB_MAX_LINKS - 1)], sent, silence->now_ns);
}

static long learn_nth_silence(__u32 i, struct silence *silence)
{
	struct ab_scratch *s = scratch();
	__u32 one = ab_tries_at(silence->lan->tcp.tries, i);
	if (!s || !one || !make_try_key(&s->rival_key, &s->lan_key, silence->lan, ab_try_link(one)))
		return 0;
	struct ab_flow *wan = find_entry(&s->rival_key);
	if (wan)
		learn_silence_of(silence, wan, ab_try_link(one));
	return 0;
}

/* The SYN of the flow of s->lan_key is repeated before anything has answered it; in a race, over all its links. */
__noinline int learn_silence(struct packet *p, struct ab_flow *lan)
{
	struct ab_scratch *s = scratch();
	const struct ab_choice *now = p && lan ? choice_of(lan->class, p->family) : NULL;
	if (!s || !now || !now->lifetime_ns)
		return 0;
	struct silence silence = { .now = now, .lan = lan, .paths = paths_to(&p->dst), .now_ns = time_ns() };
	struct ab_flow *wan = find_other(&s->lan_key, lan, &s->wan_key);
	if (wan)
		learn_silence_of(&silence, wan, lan->link);
	if (ab_is_race(lan->tcp.tries))
		bpf_loop(AB_TRIES_OTHERS, learn_nth_silence, &silence, 0);
	return 0;
}

#endif
