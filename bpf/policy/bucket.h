/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A token bucket in one word, so that no lock is needed: it holds the tokens of one second. */
#ifndef ANABRANCH_POLICY_BUCKET_H
#define ANABRANCH_POLICY_BUCKET_H

#include <linux/types.h>

#include "inline.h"

#define AB_BUCKET_NS 1000000000ull

/* Takes a token from a bucket that is full again at `full_ns` and gets `per_s` tokens a second. Returns when it is full again after
 * that, or 0 if there was no token. */
static __always_inline __u64 ab_take_token(__u32 per_s, __u64 full_ns, __u64 now_ns)
{
	__u64 rate = per_s ? per_s : 1, begins = full_ns > now_ns ? full_ns : now_ns;
	__u64 next = begins + AB_BUCKET_NS / rate;

	return next - now_ns > AB_BUCKET_NS ? 0 : next;
}

#endif
