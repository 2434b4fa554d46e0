/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The choice of a target, written once: clang compiles it into the BPF programs, cc into crates/policy.
 *
 * The pool is what is usable less what failed this very flow (`avoid`). If the flow has failed everywhere, the avoid
 * mask is forgotten: trying again beats refusing. Within the pool the dispatching scheme decides.
 *
 * The scans over the targets have no branches: the verifier walks each once, whatever the program around it, instead
 * of once for every way the comparisons can turn out. Outcomes are bits to multiply with, not masks: Linux 6.18 walks on
 * from an AND with a mask of all ones or zero as from a branch. Weights are clamped to [AB_WEIGHT_MIN, AB_WEIGHT_MAX], so that
 * no product or key reaches 2^63 and a comparison is the sign of a difference.
 */
#ifndef ANABRANCH_POLICY_PICK_H
#define ANABRANCH_POLICY_PICK_H

#include "../include/choice.h"
#include "inline.h"

/* 1 if a < b, else 0; a and b below 2^63. The barrier keeps the compiler from making it a branch. */
static __always_inline __u64 ab_is_less(__u64 a, __u64 b)
{
	__u64 bit = (a - b) >> 63;

	__asm__ volatile("" : "+r"(bit));
	return bit;
}

static __always_inline __u64 ab_select(__u64 bit, __u64 yes, __u64 no)
{
	return no + (yes - no) * bit;
}

/* The weight of target i, zero outside the pool. */
static __always_inline __u64 ab_weight(const struct ab_candidates *c, __u32 pool, __u32 i)
{
	__u64 weight = c->weight[i];

	weight = ab_select(ab_is_less(weight, AB_WEIGHT_MIN), AB_WEIGHT_MIN, weight);
	weight = ab_select(ab_is_less(AB_WEIGHT_MAX, weight), AB_WEIGHT_MAX, weight);
	return weight * (pool >> i & 1);
}

static __always_inline __u32 ab_usable(const struct ab_candidates *c)
{
	__u32 count = c->count < AB_MAX_LINKS ? c->count : AB_MAX_LINKS;

	return c->usable & ((1u << count) - 1);
}

static __always_inline __u32 ab_pool_size(__u32 pool)
{
	__u32 n = 0;

	for (__u32 i = 0; i < AB_MAX_LINKS; i++)
		n += pool >> i & 1;
	return n;
}

/* The n-th target of the pool, from 0: its index is the number of prefixes that hold at most n of the pool. */
static __always_inline __u8 ab_pick_nth(__u32 pool, __u32 n)
{
	__u64 held = 0, index = 0;

	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		held += pool >> i & 1;
		index += ab_is_less(held, (__u64)n + 1);
	}
	return index;
}

/* argmin load / weight (Peng eq. 4). Ties go to the greater weight, then to the lower index. */
static __always_inline __u8 ab_pick_weighted(const struct ab_candidates *c, __u32 pool)
{
	__u64 best = AB_NO_TARGET, best_load = 1, best_weight = 0; /* load / weight of no target: infinite */

	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		__u64 load = c->load[i], weight = ab_weight(c, pool, i);
		__u64 ours = load * best_weight, theirs = best_load * weight;
		__u64 worse = ab_is_less(theirs, ours);
		__u64 better = ab_is_less(ours, theirs) | ((1 - worse) & ab_is_less(best_weight, weight));

		best = ab_select(better, i, best);
		best_load = ab_select(better, load, best_load);
		best_weight = ab_select(better, weight, best_weight);
	}
	return best;
}

/* argmax weight. Ties go to the lower load, then to the lower index. */
static __always_inline __u8 ab_pick_best(const struct ab_candidates *c, __u32 pool)
{
	__u64 best = AB_NO_TARGET, best_key = 0;

	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		__u64 key = ab_weight(c, pool, i) << 32 | (~c->load[i] * (pool >> i & 1));
		__u64 better = ab_is_less(best_key, key);

		best = ab_select(better, i, best);
		best_key = ab_select(better, key, best_key);
	}
	return best;
}

/* `size`, of the pool, is not zero. */
static __always_inline struct ab_decision ab_dispatch(const struct ab_candidates *c, const struct ab_request *q,
						      __u32 pool, __u32 size)
{
	struct ab_decision d;

	switch (q->dispatch) {
	case AB_DISPATCH_BEST:
		d.target = ab_pick_best(c, pool);
		d.why = AB_WHY_BEST;
		break;
	case AB_DISPATCH_RANDOM:
		d.target = ab_pick_nth(pool, (__u64)q->random * size >> 32);
		d.why = AB_WHY_RANDOM;
		break;
	case AB_DISPATCH_HASH:
		d.target = ab_pick_nth(pool, q->hash % size);
		d.why = AB_WHY_HASH;
		break;
	default:
		d.target = ab_pick_weighted(c, pool);
		d.why = AB_WHY_WEIGHTED;
	}
	return d;
}

static __always_inline struct ab_decision ab_pick(const struct ab_candidates *c, const struct ab_request *q)
{
	struct ab_decision d = { .target = AB_NO_TARGET, .why = AB_WHY_NONE_USABLE };
	__u32 usable = ab_usable(c);
	__u32 pool = usable & ~q->avoid;
	__u32 retried = usable && !pool;
	__u32 size;

	if (!usable)
		return d;
	if (retried)
		pool = usable;
	size = ab_pool_size(pool);
	d = ab_dispatch(c, q, pool, size);
	if (size == 1)
		d.why = AB_WHY_ONLY_ONE;
	if (retried)
		d.why = AB_WHY_RETRIED;
	return d;
}

#endif
