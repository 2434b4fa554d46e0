/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Measuring paths by the flows that use them (passive measurement: Akella et al. in Peng 2005, section 2.3). For each prefix and
 * link it is recorded how long a SYN waits for its SYN/ACK. The response time is the time since the SYN was sent over that link. If
 * a SYN was sent twice over a link, nothing is recorded, because the answer may belong to either (Karn and Partridge 1987).
 *
 * A retransmitted SYN shows that nothing has answered. The reason may be the link, the port, or a host that wants to mislead. So
 * silence is not a response time, and only flows of the same host take it into account: for a lifetime they avoid the links that
 * were silent to that host, as long as others are known. If a port is silent over all links, that says nothing about links.
 *
 * A measurement is valid for a lifetime. Of the links with a valid one, the fastest is chosen. A link without one, for the first
 * time or again, is tried: one flow is sent over it, and no other within a lifetime, whatever the result. So n links cost a prefix
 * n flows in a lifetime (Peng eq. 12), and no flow uses an expired value. If nothing is known and all links were tried, and for a
 * prefix that never answered, the class chooses as without measurements.
 *
 * A class whose flows may race (race.h) tries links by races instead, each over all links at once, and only if there is something
 * to learn, or if the prefix never answered. The answers of losing copies are recorded, too.
 *
 * A class may also compare links by loss: loss.h. Then silence counts for all hosts, once for each host in a lifetime.
 */
#ifndef ANABRANCH_POLICY_PATHS_H
#define ANABRANCH_POLICY_PATHS_H

#include "../include/anabranch.h"
#include "family.h"
#include "inline.h"
#include "loss.h"
#include "set.h"

/* A SYN that is repeated sooner than this was not repeated for lack of an answer: the retransmission timer is one second (RFC 6298
 * section 2.1), and few hosts use a shorter one. */
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

/* The time at which a SYN is sent, in one word that is never 0: microseconds, unique within an hour. */
static __always_inline __u32 ab_syn_sent(__u64 now_ns)
{
	__u32 now_us = now_ns / 1000;

	return now_us ? now_us : 1;
}

/* 1 if something happened at `at_ns`, less than a lifetime ago. The clocks of two CPUs may differ a little. */
static __always_inline __u64 ab_is_fresh(__u64 at_ns, __u64 now_ns, __u64 lifetime_ns)
{
	return ab_is_less(0, at_ns) & ab_is_less(now_ns - at_ns, lifetime_ns);
}

/* Adds a response time, smoothed like TCP's round trips (RFC 6298 section 2.3). An expired value is not included. */
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

/* Records the answer to a SYN that was sent over the link at `sent` (of ab_syn_sent()) and at no other time. */
static __always_inline void ab_learn_answer(const struct ab_choice *now, struct ab_path *path, __u32 sent, __u64 now_ns)
{
	ab_learn(path, ab_syn_sent(now_ns) - sent, now_ns, now->lifetime_ns);
	path->samples = ab_one_more(path->samples);
	if (now->by_loss)
		ab_fade_loss(path);
}

/* Records that such a SYN was not answered but retransmitted. `silence` is the record of its host. */
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

/* The links of `fresh` that the flow may use, given the silence that its host has met. If loss counts, silence is part of the loss
 * instead. */
static __always_inline __u32 ab_heeded(const struct ab_choice *now, const struct ab_silence *silence, __u32 fresh,
				       __u64 now_ns)
{
	__u32 others = fresh & ~silence->links;
	__u64 heeds = ab_is_fresh(silence->since_ns, now_ns, now->lifetime_ns) & ab_is_less(0, others) &
		      ab_is_less(now->by_loss, 1);

	return ab_select(heeds, others, fresh);
}

/* Adds what is known of its destination to a request. `tells`: the flow itself can measure. */
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

/* The same if nothing is known of the destination. */
static __always_inline void ab_know_nothing(struct ab_request *q, __u32 tells)
{
	q->fresh = 0;
	q->unknown = 0;
	q->untold = tells;
}

/* The link of `links` with the least response time; `links` must not be empty. */
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

/* The links of the pool with a valid measurement for the destination. */
static __always_inline __u32 ab_known_links(const struct ab_request *q)
{
	return q->fresh & ab_pool_links(q);
}

/* Whether the flow is sent over a link of the pool in order to measure it. A flow that has failed on a link, or found no port
 * there, is not. */
static __always_inline int ab_ask_path(const struct ab_request *q, struct ab_decision *d)
{
	__u32 unknown = q->unknown & ab_pool_links(q);

	if (!unknown || q->avoid.word[0])
		return 0;
	d->target = ab_nth_bit(unknown, 0);
	d->why = AB_WHY_UNKNOWN;
	return 1;
}

/* Whether the measurements of the destination decide among the pool. */
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

/* Called when the flow of the decision is bound. The links that it measures are not tried by other flows within a lifetime: a race
 * measures all of the pool. Returns them, as bits. */
static __always_inline __u32 ab_asked_links(const struct ab_request *q, const struct ab_decision *d)
{
	if (d->why == AB_WHY_RACE)
		return ab_pool_links(q);
	return d->why == AB_WHY_UNKNOWN ? 1u << (d->target & (AB_MAX_LINKS - 1)) : 0;
}

#endif
