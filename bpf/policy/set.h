/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Sets of targets, and arithmetic without branches. The verifier follows code without branches once,
 * instead of once for each combination of results. Results are bits to multiply with, not masks: Linux 6.18 treats
 * an AND with a mask of all ones or zero like a branch.
 */
#ifndef ANABRANCH_POLICY_SET_H
#define ANABRANCH_POLICY_SET_H

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

/* Keeps products of a load and a weight, and keys of both, below 2^63. */
static __always_inline __u64 ab_clamp_weight(__u64 weight)
{
	weight = ab_select(ab_is_less(weight, AB_WEIGHT_MIN), AB_WEIGHT_MIN, weight);
	return ab_select(ab_is_less(AB_WEIGHT_MAX, weight), AB_WEIGHT_MAX, weight);
}

/* Number of bits that are set. */
static __always_inline __u64 ab_count_bits(__u64 word)
{
	word -= word >> 1 & 0x5555555555555555ull;
	word = (word & 0x3333333333333333ull) + (word >> 2 & 0x3333333333333333ull);
	word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0full;
	return word * 0x0101010101010101ull >> 56;
}

/* The index of the n-th set bit, from 0. The word must have more than n. */
static __always_inline __u64 ab_nth_bit(__u64 word, __u64 n)
{
	__u64 place = 0;

	for (__u32 half = 32; half; half >>= 1) {
		__u64 low = ab_count_bits(word & ((1ull << half) - 1));
		__u64 above = 1 - ab_is_less(n, low);

		n -= low * above;
		word >>= half * above;
		place += half * above;
	}
	return place;
}

/* A word with the first `count` bits set; all if `count` is 64 or more. */
static __always_inline __u64 ab_first_bits(__u64 count)
{
	return ab_select(ab_is_less(count, 64), (1ull << (count & 63)) - 1, ~0ull);
}

static __always_inline int ab_has(const struct ab_set *set, __u32 target)
{
	return target < AB_MAX_TARGETS && set->word[target / 64 % AB_SET_WORDS] >> (target % 64) & 1;
}

/* The n-th target of the set, from 0. The set must have more than n. */
AB_GLOBAL __u32 ab_nth(const struct ab_set *set, __u64 n)
{
	__u64 word = 0, base = 0, found = 0;

	if (!set)
		return AB_NO_TARGET;
	for (__u32 w = 0; w < AB_SET_WORDS; w++) {
		__u64 size = ab_count_bits(set->word[w]);
		__u64 here = ab_is_less(n, size) & (1 - found);

		word = ab_select(here, set->word[w], word);
		base = ab_select(here, 64 * w, base);
		found |= here;
		n -= size * (1 - found);
	}
	return base + ab_nth_bit(word, n);
}

/* The links that a request may choose among, as bits. */
static __always_inline __u32 ab_pool_links(const struct ab_request *q)
{
	return q->pool.word[0] & ((1u << AB_MAX_LINKS) - 1);
}

#endif
