/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Sets that forget: was this used lately? A key has the places of one row, by its hash, and takes the one that was used least
 * recently. The hash is by a secret, so that nobody can choose whose place that is. Above it there is room for a word on the key.
 */
#ifndef ANABRANCH_RECENT_H
#define ANABRANCH_RECENT_H

#include "../../policy/set.h"
#include "../packet/ambient.h"
#include "stats.h"

#define RECENT_ROWS 2048
#define RECENT_PLACES 8

struct ab_recent {
	struct {
		__u64 hash; /* of a key, and the word on it; 0: free */
		__u64 used_ns;
	} place[RECENT_PLACES];
};

#define RECENT_WORD_BITS 4

static __always_inline __u64 with_word(__u64 hash, __u32 word)
{
	return hash | (__u64)word << (64 - RECENT_WORD_BITS);
}

/* 0 if both are of one key. */
static __always_inline __u64 differ(__u64 a, __u64 b)
{
	return (a ^ b) & ~0ull >> RECENT_WORD_BITS;
}

/* Made when it is first asked for, and kept as long as the tables. */
static __always_inline __u64 secret(void)
{
	struct ab_table *counts = table_counts();
	if (!counts)
		return 0;
	if (!counts->secret)
		__sync_val_compare_and_swap(&counts->secret, 0, (__u64)draw() << 32 | draw() | 1);
	return counts->secret;
}

/* Of a key of so many words, a constant at every call. */
static __always_inline __u64 hash_recent(const __u32 *word, __u32 words)
{
	__u64 hash = secret();
	for (__u32 i = 0; i < words; i++) {
		hash = (hash ^ word[i]) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 32;
	}
	return hash >> RECENT_WORD_BITS | 1;
}

/* The row of a hash in a set of so many rows, a power of two. */
static __always_inline struct ab_recent *row_among(void *set, __u32 rows, __u64 hash)
{
	__u32 index = hash >> 1 & (rows - 1);
	return bpf_map_lookup_elem(set, &index);
}

static __always_inline struct ab_recent *row_in(void *set, __u64 hash)
{
	return row_among(set, RECENT_ROWS, hash);
}

/* The place of a hash in its row, or else the one used least recently. No branch per place: see set.h. */
static __always_inline __u32 place_in_row(const struct ab_recent *row, __u64 hash)
{
	__u64 best = 0, least = ~0ull >> 1;
	for (__u32 i = 0; i < RECENT_PLACES; i++) {
		__u64 is_other = 1 - ab_is_less(differ(row->place[i].hash, hash), 1);
		__u64 rank = (row->place[i].used_ns + 1) * is_other;
		__u64 is_less = ab_is_less(rank, least);
		best = ab_select(is_less, i, best);
		least = ab_select(is_less, rank, least);
	}
	return best & (RECENT_PLACES - 1);
}

/* What is in the row for this hash if it was used no longer ago than that, and from now on is used; 0: nothing. */
static __always_inline __u64 find_used_within(struct ab_recent *row, __u64 hash, __u64 limit_ns)
{
	__u32 place = row ? place_in_row(row, hash) : 0;
	if (!row || differ(row->place[place].hash, hash))
		return 0;
	__u64 now = tick_ns();
	if ((__s64)(now - row->place[place].used_ns) > (__s64)limit_ns)
		return 0;
	row->place[place].used_ns = now;
	return row->place[place].hash;
}

static __always_inline __u64 find_recent(struct ab_recent *row, __u64 hash)
{
	return find_used_within(row, hash, ~0ull >> 1);
}

static __always_inline int is_recent(struct ab_recent *row, __u64 hash)
{
	return find_recent(row, hash) != 0;
}

static __always_inline void enter_recent(struct ab_recent *row, __u64 hash)
{
	if (!row)
		return;
	__u32 place = place_in_row(row, hash);
	row->place[place].hash = hash;
	row->place[place].used_ns = tick_ns();
}

#endif
