/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The tries of one connection attempt: the links over which its SYN was sent, from the same external port.
 *
 * When a SYN is retransmitted, either a path has failed or its round trip is longer than the SYN's timer. This cannot be told yet.
 * So the attempt continues over another link, and the earlier tries remain candidates. The first answer that matches the SYN wins,
 * whichever try it belongs to. Later answers to other tries are reset.
 *
 * A flow is bound to one try at a time, which is its link. The earlier tries are a list of three in one word, the youngest in the
 * lowest bits. The word is also the lock of both: a change claims it by compare-and-swap, changes the flow's link, and stores the
 * new word. Once an answer was accepted, the word is never claimed again.
 *
 * A race (race.h) tries many links at once, in no order. Its word is the set of these links, and no try is dropped for another. In
 * a race of probes, the SYN waits until the first probe is answered, and then tries only that link.
 */
#ifndef ANABRANCH_POLICY_TRIES_H
#define ANABRANCH_POLICY_TRIES_H

#include "../include/choice.h"
#include "inline.h"
#include "set.h"

#define AB_TRIES_EARLIER 3
#define AB_TRY_BITS 9
#define AB_TRY_MASK ((1u << AB_TRY_BITS) - 1)
#define AB_TRIES_MASK ((1u << (AB_TRY_BITS * AB_TRIES_EARLIER)) - 1)
/* Maximum number of other tries in a word. */
#define AB_TRIES_OTHERS AB_MAX_LINKS
#define AB_TRIES_WAITS (1u << 28)
#define AB_TRIES_RACE (1u << 29)
#define AB_TRIES_CLAIMED (1u << 30)
#define AB_TRIES_ANSWERED (1u << 31)

/* What an answer means for the attempt. */
enum ab_answer {
	AB_ANSWER_FOREIGN = 0, /* its try does not belong to this attempt */
	AB_ANSWER_FIRST = 1,   /* its try wins, if it can be claimed */
	AB_ANSWER_AGAIN = 2,   /* belongs to the try that has won */
	AB_ANSWER_LATE = 3,    /* another try has won: it is reset */
	AB_ANSWER_BUSY = 4,    /* the tries are claimed: it is dropped */
};

/* The number of a try over a link; never zero. */
static __always_inline __u32 ab_try(__u32 link)
{
	return link % AB_MAX_TARGETS + 1;
}

static __always_inline __u32 ab_try_link(__u32 one)
{
	return (one - 1) % AB_MAX_TARGETS;
}

/* Whether the other tries are a set. */
static __always_inline int ab_is_race(__u32 tries)
{
	return tries >> 29 & 1;
}

/* Whether the SYN waits while probes take the links. */
static __always_inline int ab_waits(__u32 tries)
{
	return tries >> 28 & 1;
}

/* The following functions have no branches: see set.h. */
/* The bit of a try in the set of a race. */
static __always_inline __u32 ab_race_copy(__u32 one)
{
	return 1u << (one - 1) % AB_MAX_LINKS;
}

/* The word of an attempt whose SYN takes these links, as bits, in addition to its own. */
static __always_inline __u32 ab_tries_race(__u32 race_copies)
{
	return AB_TRIES_RACE | (race_copies & ((1u << AB_MAX_LINKS) - 1));
}

/* The same if probes take the links and the SYN waits. */
static __always_inline __u32 ab_tries_probe(__u32 race_copies)
{
	return ab_tries_race(race_copies) | AB_TRIES_WAITS;
}

/* The i-th try of a list. */
static __always_inline __u32 ab_listed(__u32 tries, __u32 i)
{
	return (tries & AB_TRIES_MASK) >> (AB_TRY_BITS * i) & AB_TRY_MASK;
}

/* The i-th of the other tries, i below AB_TRIES_OTHERS; zero if there is none. */
static __always_inline __u32 ab_tries_at(__u32 tries, __u32 i)
{
	return ab_select(ab_is_race(tries), (tries >> i & 1) * ab_try(i),
			 i < AB_TRIES_EARLIER ? ab_listed(tries, i) : 0);
}

/* Whether the attempt may continue over another link, or accept an answer. */
static __always_inline int ab_tries_are_free(__u32 tries)
{
	return !(tries & (AB_TRIES_ANSWERED | AB_TRIES_CLAIMED));
}

static __always_inline __u32 ab_tries_claim(__u32 tries)
{
	return tries | AB_TRIES_CLAIMED;
}

static __always_inline int ab_tries_hold(__u32 tries, __u32 one)
{
	__u64 listed = ab_is_less(ab_listed(tries, 0) ^ one, 1) | ab_is_less(ab_listed(tries, 1) ^ one, 1) |
		       ab_is_less(ab_listed(tries, 2) ^ one, 1);

	return ab_select(ab_is_race(tries), tries >> (one - 1) % AB_MAX_LINKS & 1, listed);
}

/* Replaces `from` in the list by `to`, if it is there. */
static __always_inline __u32 ab_tries_replace(__u32 tries, __u32 from, __u32 to)
{
	__u32 listed = 0, set = (tries | ab_race_copy(to)) & ~ab_race_copy(from) & (AB_TRIES_MASK | AB_TRIES_RACE);

	for (__u32 i = 0; i < AB_TRIES_EARLIER; i++) {
		__u32 one = ab_listed(tries, i);

		listed |= ab_select(ab_is_less(one ^ from, 1), to, one) << (AB_TRY_BITS * i);
	}
	return ab_select(ab_is_race(tries), set, listed);
}

/* The earlier try that is dropped from the list when `next` follows; zero if none is. */
static __always_inline __u32 ab_tries_given_up(__u32 tries, __u32 next)
{
	return ab_select(ab_is_race(tries) | ab_tries_hold(tries, next), 0, ab_listed(tries, AB_TRIES_EARLIER - 1));
}

/* The earlier tries after `next` follows `current`. If `next` was tried before, the two change places. */
static __always_inline __u32 ab_tries_next(__u32 tries, __u32 current, __u32 next)
{
	return ab_select(ab_is_race(tries) | ab_tries_hold(tries, next), ab_tries_replace(tries, next, current),
			 (tries << AB_TRY_BITS | current) & AB_TRIES_MASK);
}

static __always_inline enum ab_answer ab_tries_judge(__u32 tries, __u32 current, __u32 from)
{
	if (tries & AB_TRIES_CLAIMED)
		return AB_ANSWER_BUSY;
	if (from != current && !ab_tries_hold(tries, from))
		return AB_ANSWER_FOREIGN;
	if (!(tries & AB_TRIES_ANSWERED))
		return AB_ANSWER_FIRST;
	return from == current ? AB_ANSWER_AGAIN : AB_ANSWER_LATE;
}

/* The other tries after `winner` was answered and became the flow's own. It may be `current` itself, which is in no list or set. */
static __always_inline __u32 ab_tries_answered(__u32 tries, __u32 current, __u32 winner)
{
	return ab_tries_replace(tries, winner, current) | AB_TRIES_ANSWERED;
}

#endif
