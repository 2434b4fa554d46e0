/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What is remembered of a session, in one word: a trace (a hash of its key), when its last flow began, and its link. A session is
 * forgotten when no flow has begun for as long as the class says. Times are unique within three days.
 */
#ifndef ANABRANCH_POLICY_SESSION_H
#define ANABRANCH_POLICY_SESSION_H

#include "../include/choice.h"
#include "inline.h"

/* Bits of the link. */
#define AB_SESSION_LINK_BITS 8
/* Bits of the time, in units of 2^32 ns: four seconds. */
#define AB_SESSION_TIME_BITS 16
#define AB_SESSION_UNIT_BITS 32
/* Set in every trace, so that no word is 0. */
#define AB_SESSION_TRACED (1ull << (AB_SESSION_LINK_BITS + AB_SESSION_TIME_BITS))

static __always_inline __u64 ab_session_trace(__u64 hash)
{
	return (hash & ~(AB_SESSION_TRACED - 1)) | AB_SESSION_TRACED;
}

static __always_inline __u64 ab_session_time(__u64 now_ns)
{
	return now_ns >> AB_SESSION_UNIT_BITS & ((1 << AB_SESSION_TIME_BITS) - 1);
}

/* The word of a session whose flow begins now. */
static __always_inline __u64 ab_session_word(__u64 trace, __u32 link, __u64 now_ns)
{
	return trace | ab_session_time(now_ns) << AB_SESSION_LINK_BITS | (link & ((1 << AB_SESSION_LINK_BITS) - 1));
}

/* The link of the session with this trace, if the word belongs to it and is not forgotten; otherwise AB_NO_TARGET. */
static __always_inline __u32 ab_session_link(const struct ab_choice *now, __u64 word, __u64 trace, __u64 now_ns)
{
	__u64 age = (ab_session_time(now_ns) - (word >> AB_SESSION_LINK_BITS)) & ((1 << AB_SESSION_TIME_BITS) - 1);

	if (ab_session_trace(word) != trace)
		return AB_NO_TARGET;
	/* One unit more, so that it is not forgotten too early. */
	if (now->session_ns && age > (now->session_ns >> AB_SESSION_UNIT_BITS) + 1)
		return AB_NO_TARGET;
	return word & ((1 << AB_SESSION_LINK_BITS) - 1);
}

#endif
