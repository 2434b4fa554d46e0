/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The race of a connection (FRRTDF in Peng 2005, OFRP in Lin, Tsao and Leong 2007): its first SYN takes all links that take new
 * flows, and the first answer binds it (tries.h). So a connection takes the path of the shortest round trip to its own
 * destination, of which nothing has to be known before.
 *
 * Or probes take them, and the SYN waits for the first answer (PCM, per-connection measurement in Peng 2005, chapter 4): a server
 * learns of one connection alone, which is opened by a round trip later. A probe is a segment with SYN and ACK, from the ports of
 * the connection to be, which a host answers with a RST and forgets (Akella et al. in Peng 2005, section 2.3; RFC 9293 section
 * 3.10.7.2). It acknowledges the number of the SYN that waits, which nobody off the path knows, and that is the number of its RST.
 *
 * What is bound by a route, a session or an endpoint races not; nor does a SYN that carries data, which a server might act upon
 * twice, nor what is beyond the rate of its class. For those, and for all that is not TCP, the class chooses as without races.
 * Links take turns in being the first, or the last would always be late.
 */
#ifndef ANABRANCH_POLICY_RACE_H
#define ANABRANCH_POLICY_RACE_H

#include "../include/choice.h"
#include "inline.h"
#include "set.h"
#include "tries.h"

#define AB_RACE_SECOND_NS 1000000000ull

/* Whether there is something that only a race tells: always, but where flows tell (paths.h). */
static __always_inline int ab_asks_race(const struct ab_choice *now, const struct ab_request *q)
{
	return !now->lifetime_ns || q->untold || q->unknown & now->usable.word[0];
}

/* Whether a flow that begins with a SYN of `payload` bytes may race, but for the rate. */
static __always_inline int ab_may_race(const struct ab_choice *now, const struct ab_request *q, __u32 payload)
{
	return now->races && !payload && q->route == AB_NO_TARGET && q->session == AB_NO_TARGET &&
	       q->endpoint == AB_NO_TARGET && ab_asks_race(now, q);
}

/*
 * A class has the races of one second at most. `full_ns` is when it will have all of them again: what it is after one more, or 0 if
 * none is left.
 */
static __always_inline __u64 ab_spend_race(const struct ab_choice *now, __u64 full_ns, __u64 now_ns)
{
	__u64 races = now->races ? now->races : 1, begins = full_ns > now_ns ? full_ns : now_ns;
	__u64 next = begins + AB_RACE_SECOND_NS / races;

	return next - now_ns > AB_RACE_SECOND_NS ? 0 : next;
}

/* The links beside `first` that its SYN takes, as bits, of those that ab_choose() has chosen among. */
static __always_inline __u32 ab_rivals(const struct ab_request *q, __u32 first)
{
	return ab_pool_links(q) & ~ab_rival(ab_try(first));
}

/* The link that comes `step` places behind `first`, and around. */
static __always_inline __u32 ab_next_rival(__u32 first, __u32 step)
{
	return (first + step) % AB_MAX_LINKS;
}

#endif
