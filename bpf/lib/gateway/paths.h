/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The measurements of paths (policy/paths.h), in a table that replaces its least recently used entry.
 * A prefix gets an entry with its first SYN/ACK. To forge one, the SYN's sequence number must be known, so neither a flood
 * of SYNs nor forged answers fill the table. Nor can one host that connects everywhere: each host has a share of the new
 * entries. Classes without measurements have no cost.
 */
#ifndef ANABRANCH_PATHS_H
#define ANABRANCH_PATHS_H

#include "../../policy/paths.h"
#include "admit.h"
#include "flow.h"

/* User space sets its size before loading. */
AB_MAP(prefixes, BPF_MAP_TYPE_LRU_HASH, 1, struct ab_prefix, struct ab_paths, 0);

/* Whose silence it is, and to where. */
struct ab_silence_key {
	struct ab_host_key host;
	struct ab_prefix prefix;
};
AB_SCRATCH(silence_room, struct ab_silence_key)

/* Silence that hosts have met, which counts only for them (policy/paths.h). */
AB_MAP(silences, BPF_MAP_TYPE_LRU_HASH, 4096, struct ab_silence_key, struct ab_silence, 0);

/* When silence was last recorded, so that `silences` need not be looked up if there is none. */
AB_MAP(last_silence, BPF_MAP_TYPE_ARRAY, 1, __u32, __u64, 0);

/* When a host may begin all prefixes of its share again: 256 at once, and as many a minute. In a lifetime of a minute that is less
 * than a tenth of the table. */
AB_MAP(teachers, BPF_MAP_TYPE_LRU_HASH, 1024, struct ab_host_key, __u64, 0);
static const struct rate prefixes_of_host = { SECOND_NS / 4, 64 * SECOND_NS };

static __noinline struct ab_paths *paths_to(const union ab_addr *remote)
{
	struct ab_prefix prefix;
	ab_prefix_of(&prefix, remote);
	return bpf_map_lookup_elem(&prefixes, &prefix);
}

AB_SCRATCH(fresh_paths, struct ab_paths)

/* The same, but creates an empty entry if there is none. NULL if there is no room. */
static __noinline struct ab_paths *begin_paths(const union ab_addr *remote)
{
	struct ab_prefix prefix;
	struct ab_paths *fresh = fresh_paths();
	if (!fresh)
		return NULL;
	ab_prefix_of(&prefix, remote);
	__builtin_memset(fresh, 0, sizeof(*fresh));
	bpf_map_update_elem(&prefixes, &prefix, fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&prefixes, &prefix);
}

/* Whether the host of s->host_key may begin one more. */
static __noinline int may_begin_paths(struct flow_room *s)
{
	__u64 *full_ns = bpf_map_lookup_elem(&teachers, &s->host_key);
	if (!full_ns) {
		__u64 full = 0;
		bpf_map_update_elem(&teachers, &s->host_key, &full, BPF_NOEXIST);
		full_ns = bpf_map_lookup_elem(&teachers, &s->host_key);
	}
	return full_ns && take_token(full_ns, tick_ns(), &prefixes_of_host);
}

/* The silence that the host of s->host_key has met on paths to `remote`; NULL: none. */
static __noinline struct ab_silence *silence_of(struct flow_room *s, const union ab_addr *remote)
{
	struct ab_silence_key *key = silence_room();
	if (!key)
		return NULL;
	key->host = s->host_key;
	ab_prefix_of(&key->prefix, remote);
	return bpf_map_lookup_elem(&silences, key);
}

static __always_inline struct ab_silence *begin_silence(struct flow_room *s, const union ab_addr *remote)
{
	struct ab_silence none = {}, *known = silence_of(s, remote);
	__u32 zero = 0;
	__u64 *last_ns = bpf_map_lookup_elem(&last_silence, &zero);
	if (last_ns)
		*last_ns = tick_ns();
	const struct ab_silence_key *key = silence_room();
	if (known || !key)
		return known;
	bpf_map_update_elem(&silences, key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&silences, key);
}

/* The part of it that is valid now; NULL: nothing. */
static __always_inline const struct ab_silence *heeded_silence(struct flow_room *s, const struct ab_choice *now,
							       const union ab_addr *remote)
{
	__u32 zero = 0;
	const __u64 *last_ns = bpf_map_lookup_elem(&last_silence, &zero);
	if (!s->request.fresh || !last_ns || !ab_is_fresh(*last_ns, tick_ns(), now->lifetime_ns))
		return NULL;
	return silence_of(s, remote);
}

/* Adds the measurements for p's destination to s->request, for the host of s->host_key, and stores the time in s->opening if `p`
 * itself measures. */
static __always_inline void know_paths(struct flow_room *s, const struct ab_choice *now, const struct packet *p)
{
	__u32 tells = p->proto == IPPROTO_TCP && is_first_syn(p) && !now->surveys;
	ab_know_nothing(&s->request, tells && now->lifetime_ns);
	s->opening.sent = 0;
	s->opening.surveys = now->surveys && p->proto == IPPROTO_TCP;
	if (!now->lifetime_ns)
		return;
	ab_know(now, paths_to(&p->dst), &s->request, tick_ns(), tells);
	const struct ab_silence *silence = heeded_silence(s, now, &p->dst);
	if (silence)
		s->request.fresh = ab_heeded(now, silence, s->request.fresh, tick_ns());
	if (tells)
		s->opening.sent = ab_syn_sent(time_ns());
}

/* Called when the flow of s->decision was bound. If it measures links, no other flow tries them. */
static __noinline int note_asked(const struct flow_room *s, const struct packet *p)
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

/* Takes from a link entry when its SYN was sent; 0: it was sent twice, or was measured already. */
static __always_inline __u32 take_sent(struct ab_flow *wan)
{
	__u32 sent = wan->tcp.tries;
	wan->tcp.tries = 0;
	return sent;
}

/* On whose behalf the entry of a prefix may be created. */
enum teacher {
	TEACHER_NONE,
	TEACHER_HOST, /* the host of s->host_key, within its share */
	TEACHER_OWN,  /* user space */
};

/* Records that `p` answers a SYN that took `link` at `sent`, for `class`. */
__noinline int learn_response(struct packet *p, __u32 class, __u32 sent, __u32 link, __u32 teacher)
{
	struct flow_room *s = flow_room();
	const struct ab_choice *now = s && p && sent ? choice_of(class, p->family) : NULL;
	if (!now || !now->lifetime_ns)
		return 0;
	struct ab_paths *paths = paths_to(&p->src);
	if (!paths && (teacher == TEACHER_OWN || (teacher == TEACHER_HOST && may_begin_paths(s))))
		paths = begin_paths(&p->src);
	if (paths)
		ab_learn_answer(now, &paths->path[link & (AB_MAX_LINKS - 1)], sent, time_ns());
	return 0;
}

/* Records the first matching answer `p` to the attempt of `wan`, whose SYN took `link`. */
__noinline int learn_answer(struct packet *p, struct ab_flow *wan, __u32 link)
{
	struct flow_room *s = flow_room();
	if (!s || !p || !wan || (p->tcp_flags & (AB_TCP_SYN | AB_TCP_ACK)) != (AB_TCP_SYN | AB_TCP_ACK))
		return 0;
	__u32 sent = take_sent(wan);
	if (!sent)
		return 0;
	make_holder_key(&s->host_key, wan, &wan->other_local);
	return learn_response(p, wan->class, sent, link, TEACHER_HOST);
}

/* Records a matching answer `p` to a losing try over `link`. */
__noinline int learn_losing_copy(struct packet *p, struct ab_losing_copy *losing_copy, __u32 link)
{
	if (!p || !losing_copy)
		return 0;
	__u32 sent = losing_copy->sent;
	losing_copy->sent = 0;
	return learn_response(p, losing_copy->class, sent, link, TEACHER_NONE);
}

struct silence {
	const struct ab_choice *now;
	struct ab_flow *lan;
	struct ab_paths *paths; /* NULL if unknown, like the next; then nothing is recorded */
	struct ab_silence *met; /* silence that its host has met */
	__u64 now_ns;
};

static __always_inline void learn_silence_of(struct silence *silence, struct ab_flow *wan, __u32 link)
{
	__u32 sent = take_sent(wan);
	if (sent && silence->paths && silence->met)
		ab_learn_silence(silence->now, &silence->paths->path[link & (AB_MAX_LINKS - 1)], silence->met, link,
				 sent, silence->now_ns);
}

static long learn_nth_silence(__u32 i, struct silence *silence)
{
	struct flow_room *s = flow_room();
	__u32 one = ab_tries_at(silence->lan->tcp.tries, i);
	if (!s || !one || !make_try_key(&s->race_copy_key, &s->lan_key, silence->lan, ab_try_link(one)))
		return 0;
	struct ab_flow *wan = find_entry(&s->race_copy_key);
	if (wan)
		learn_silence_of(silence, wan, ab_try_link(one));
	return 0;
}

/* Records that the SYN of the flow of s->lan_key was retransmitted without an answer; in a race, for all its links. */
__noinline int learn_silence(struct packet *p, struct ab_flow *lan)
{
	struct flow_room *s = flow_room();
	const struct ab_choice *now = p && lan ? choice_of(lan->class, p->family) : NULL;
	if (!s || !now || !now->lifetime_ns)
		return 0;
	struct silence silence = { .now = now, .lan = lan, .paths = paths_to(&p->dst), .now_ns = time_ns() };
	if (silence.paths) {
		make_holder_key(&s->host_key, lan, &s->lan_key.local);
		silence.met = begin_silence(s, &p->dst);
	}
	struct ab_flow *wan = find_other(&s->lan_key, lan, &s->wan_key);
	if (wan)
		learn_silence_of(&silence, wan, lan->link);
	if (ab_is_race(lan->tcp.tries))
		bpf_loop(AB_TRIES_OTHERS, learn_nth_silence, &silence, 0);
	return 0;
}

#endif
