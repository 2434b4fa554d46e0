/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What flows tell of the way to their destinations (passive measurement: Akella et al. in Peng 2005, section 2.3): for each prefix
 * and link how long a SYN waits for its SYN/ACK. A flow whose SYN is answered tells what has passed since that took the link. What was
 * sent twice over a link tells nothing: nobody knows which of the two was answered (Karn and Partridge 1987).
 *
 * A SYN that is repeated tells that nothing has answered, be it for the link, the port, or the host that made it so that nobody would.
 * So silence is no response time, and heeded by the flows of its own host alone: for a lifetime they leave the links that were silent to
 * it, as long as others are known. A port that is silent everywhere says nothing of links.
 *
 * What was told is known for a lifetime, and of the links of which something is known the fastest is chosen. A link of which
 * nothing is known, for the first time or again, is asked: one flow is sent over it, and no other in a lifetime, whatever
 * becomes of that one. So n links cost a prefix n flows in a lifetime (Peng eq. 12), and no flow follows a value that has expired.
 * Where nothing is known and all have been asked, and for a prefix from which nothing ever came, the class chooses as if it did
 * not learn.
 *
 * A class whose flows may race (race.h) asks by races instead, each of all links at once, and only where there is something to
 * ask; so does a flow to a prefix from which nothing ever came. The answers of losers tell, too.
 *
 * A class may have links compared by what they lose, too: loss.h. There a silence is told to all, of each host once in a lifetime.
 */
#ifndef ANABRANCH_POLICY_PATHS_H
#define ANABRANCH_POLICY_PATHS_H

#include "../include/anabranch.h"
#include "family.h"
#include "inline.h"
#include "loss.h"
#include "set.h"

/* A SYN that is repeated sooner is not repeated because nothing has answered: the timer is one second (RFC 6298 section 2.1), and
 * those of few hosts are shorter. */
#define AB_SILENCE_US 500000u

static __always_inline void ab_prefix_of(struct ab_prefix *prefix, const union ab_addr *addr)
{
	__builtin_memset(prefix, 0, sizeof(*prefix));
	if (ab_is_v4_mapped(addr)) {
		__builtin_memcpy(prefix->byte, addr->byte + 12, 3);
		return;
	}
	__builtin_memcpy(prefix->byte, addr->byte, 6);
	prefix->family = AB_IPV6;
}

/* When a SYN takes a link, in one word that is never 0: microseconds, which are told apart for an hour. */
static __always_inline __u32 ab_syn_sent(__u64 now_ns)
{
	__u32 now_us = now_ns / 1000;

	return now_us ? now_us : 1;
}

/* 1 if something happened at `at_ns`, and less than a lifetime ago. Clocks of two CPUs may differ a little. */
static __always_inline __u64 ab_is_fresh(__u64 at_ns, __u64 now_ns, __u64 lifetime_ns)
{
	return ab_is_less(0, at_ns) & ab_is_less(now_ns - at_ns, lifetime_ns);
}

/* Smoothed as TCP does its round trips (RFC 6298 section 2.3); what has expired counts no more. */
static __always_inline void ab_learn(struct ab_path *path, __u32 response_us, __u64 now_ns, __u64 lifetime_ns)
{
	__u64 known = path->response_us;
	__u64 is_fresh = ab_is_fresh(path->learned_ns, now_ns, lifetime_ns);

	path->response_us = ab_select(is_fresh, (7 * known + response_us) / 8, response_us);
	path->learned_ns = now_ns;
}

static __always_inline __u16 ab_one_more(__u16 count)
{
	return count + ab_is_less(count, 0xffff);
}

/* The SYN that was sent over the link at `sent`, of ab_syn_sent(), and at no other time, has been answered. */
static __always_inline void ab_learn_answer(const struct ab_choice *now, struct ab_path *path, __u32 sent, __u64 now_ns)
{
	ab_learn(path, ab_syn_sent(now_ns) - sent, now_ns, now->lifetime_ns);
	path->samples = ab_one_more(path->samples);
	if (now->by_loss)
		ab_fade_loss(path);
}

/* The same has not, and is repeated; `silence` is what its host has met before. */
static __always_inline void ab_learn_silence(const struct ab_choice *now, struct ab_path *path,
					     struct ab_silence *silence, __u32 link, __u32 sent, __u64 now_ns)
{
	__u64 is_fresh = ab_is_fresh(silence->since_ns, now_ns, now->lifetime_ns);
	__u32 links = ab_select(is_fresh, silence->links, 0), one = 1u << (link & (AB_MAX_LINKS - 1));

	if (ab_syn_sent(now_ns) - sent < AB_SILENCE_US)
		return;
	silence->since_ns = ab_select(is_fresh, silence->since_ns, now_ns);
	silence->links = links | one;
	if (links & one)
		return;
	path->failures = ab_one_more(path->failures);
	if (now->by_loss)
		ab_fade_loss(path);
}

/* The links of `fresh` that a flow of the host of `silence` goes by. Where loss counts, silence is told as that. */
static __always_inline __u32 ab_heeded(const struct ab_choice *now, const struct ab_silence *silence, __u32 fresh,
				       __u64 now_ns)
{
	__u32 others = fresh & ~silence->links;
	__u64 heeds = ab_is_fresh(silence->since_ns, now_ns, now->lifetime_ns) & ab_is_less(0, others) &
		      ab_is_less(now->by_loss, 1);

	return ab_select(heeds, others, fresh);
}

/* Has a request know what is known of its destination; `tells`: what it is of can tell. */
AB_GLOBAL int ab_know(const struct ab_choice *now, const struct ab_paths *paths, struct ab_request *q, __u64 now_ns,
		      __u64 tells)
{
	__u32 fresh = 0, unknown = 0;

	if (!now || !paths || !q)
		return 0;
	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		const struct ab_path *path = &paths->path[i];
		__u64 is_fresh = ab_is_fresh(path->learned_ns, now_ns, now->lifetime_ns);
		__u64 is_asked = ab_is_fresh(path->asked_ns, now_ns, now->lifetime_ns);

		fresh |= is_fresh << i;
		unknown |= (1 - is_fresh) * (1 - is_asked) << i;
		q->response_us[i] = path->response_us;
	}
	q->fresh = fresh;
	q->unknown = tells ? unknown : 0;
	q->untold = 0;
	return now->by_loss ? ab_know_loss(paths, q) : 0;
}

/* Nothing is known of its destination; `tells`: it would tell. */
static __always_inline void ab_know_nothing(struct ab_request *q, __u32 tells)
{
	q->fresh = 0;
	q->unknown = 0;
	q->untold = tells;
}

/* The link of the least response time; there is one in `links`. */
AB_GLOBAL __u32 ab_fastest(const struct ab_request *q, __u32 links)
{
	__u64 leader = 0, least = ~0ull >> 1;

	if (!q)
		return AB_NO_TARGET;
	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		__u64 is_out = 1 - (links >> i & 1);
		__u64 rank = q->response_us[i] | is_out << 32;
		__u64 is_faster = ab_is_less(rank, least);

		leader = ab_select(is_faster, i, leader);
		least = ab_select(is_faster, rank, least);
	}
	return leader;
}

/* The links of the pool that are known for the destination. */
static __always_inline __u32 ab_known_links(const struct ab_request *q)
{
	return q->fresh & ab_pool_links(q);
}

/* Whether the flow is sent to a link of the pool to tell. What has failed on a link, or found no port, asks nothing. */
static __always_inline int ab_ask_path(const struct ab_request *q, struct ab_decision *d)
{
	__u32 unknown = q->unknown & ab_pool_links(q);

	if (!unknown || q->avoid.word[0])
		return 0;
	d->target = ab_nth_bit(unknown, 0);
	d->why = AB_WHY_UNKNOWN;
	return 1;
}

/* Whether what is known of the destination chooses among the pool. */
static __always_inline int ab_choose_path(const struct ab_choice *now, const struct ab_request *q,
					  struct ab_decision *d)
{
	__u32 fresh = ab_known_links(q);

	if (ab_ask_path(q, d))
		return 1;
	if (!fresh)
		return 0;
	d->target = now->by_loss ? ab_least_lossy(q, fresh) : ab_fastest(q, fresh);
	d->why = now->by_loss ? AB_WHY_LOSS : AB_WHY_RESPONSE;
	return 1;
}

/* The flow of the decision has been bound: links that it is to tell of are asked by no other in a lifetime. A race asks all of the
 * pool. Returns them, as bits. */
static __always_inline __u32 ab_asked_links(const struct ab_request *q, const struct ab_decision *d)
{
	if (d->why == AB_WHY_RACE)
		return ab_pool_links(q);
	return d->why == AB_WHY_UNKNOWN ? 1u << (d->target & (AB_MAX_LINKS - 1)) : 0;
}

#endif
