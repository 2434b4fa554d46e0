/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The race of a connection (FRRTDF in Peng 2005, OFRP in Lin, Tsao and Leong 2007): its first SYN takes all links that take new
 * flows, and the first answer binds it (tries.h). So a connection takes the path with the shortest round trip to its own
 * destination, and nothing has to be known of that before.
 *
 * In another form, probes take the links while the SYN waits for the first answer (PCM, per-connection measurement in Peng 2005,
 * chapter 4). The server then sees only one connection, which opens one round trip later. A probe is a segment with SYN and ACK,
 * from the ports of the future connection. A host answers it with a RST and keeps no state (Akella et al. in Peng 2005, section
 * 2.3; RFC 9293 section 3.10.7.2). It acknowledges the sequence number of the waiting SYN, which nobody off the path knows, and the
 * RST has that number.
 *
 * These do not race: a flow that is bound by a route, a session or an endpoint; a SYN with data, because a server might act on it
 * twice; and flows beyond the rate of the class. For these, and for all protocols but TCP, the class chooses as without races.
 * Links take turns in being the first, because otherwise the same link would always be late.
 */
#ifndef ANABRANCH_POLICY_RACE_H
#define ANABRANCH_POLICY_RACE_H

#include "../include/choice.h"
#include "bucket.h"
#include "inline.h"
#include "set.h"
#include "tries.h"

/* Whether a race has something to measure: always, unless flows measure (paths.h). */
static __always_inline int ab_asks_race(const struct ab_choice *now, const struct ab_request *q)
{
	return !now->lifetime_ns || q->untold || q->unknown & now->usable.word[0];
}

/* Whether a flow that begins with a SYN of `payload` bytes may race, not considering the rate. */
static __always_inline int ab_may_race(const struct ab_choice *now, const struct ab_request *q, __u32 payload)
{
	return now->races && !payload && q->route == AB_NO_TARGET && q->session == AB_NO_TARGET &&
	       q->endpoint == AB_NO_TARGET && ab_asks_race(now, q);
}

/* Takes a race from the class's bucket, see ab_take_token(). */
static __always_inline __u64 ab_spend_race(const struct ab_choice *now, __u64 full_ns, __u64 now_ns)
{
	return ab_take_token(now->races, full_ns, now_ns);
}

/* The links that race copies take, beside `first`, as bits: those that ab_choose() has chosen among. */
static __always_inline __u32 ab_race_copies(const struct ab_request *q, __u32 first)
{
	return ab_pool_links(q) & ~ab_race_copy(ab_try(first));
}

/* The link that is `step` places after `first`, cyclically. */
static __always_inline __u32 ab_next_race_copy(__u32 first, __u32 step)
{
	return (first + step) % AB_MAX_LINKS;
}

#endif
