/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Sets of recently used keys. A key hashes to a row and may be in any place of it; a new key replaces the least recently used one.
 * The hash depends on a secret, so that nobody can choose whose place is replaced. The upper bits of a place hold a value for the
 * key.
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
		__u64 hash; /* hash of a key and its value; 0: free */
		__u64 used_ns;
	} place[RECENT_PLACES];
};

#define RECENT_WORD_BITS 4

static __always_inline __u64 with_word(__u64 hash, __u32 word)
{
	return hash | (__u64)word << (64 - RECENT_WORD_BITS);
}

/* 0 if both are of the same key. */
static __always_inline __u64 differ(__u64 a, __u64 b)
{
	return (a ^ b) & ~0ull >> RECENT_WORD_BITS;
}

/* Created at the first use, and kept as long as the tables. */
static __always_inline __u64 secret(void)
{
	struct ab_table *counts = table_counts();
	if (!counts)
		return 0;
	if (!counts->secret)
		__sync_val_compare_and_swap(&counts->secret, 0, (__u64)draw() << 32 | draw() | 1);
	return counts->secret;
}

/* The hash of a key with this number of words, which is a constant in every call. */
static __always_inline __u64 hash_recent(const __u32 *word, __u32 words)
{
	__u64 hash = secret();
	for (__u32 i = 0; i < words; i++) {
		hash = (hash ^ word[i]) * 0x9e3779b97f4a7c15ull;
		hash ^= hash >> 32;
	}
	return hash >> RECENT_WORD_BITS | 1;
}

/* The row of a hash in a set with this number of rows, a power of two. */
static __always_inline struct ab_recent *row_among(void *set, __u32 rows, __u64 hash)
{
	__u32 index = hash >> 1 & (rows - 1);
	return bpf_map_lookup_elem(set, &index);
}

static __always_inline struct ab_recent *row_in(void *set, __u64 hash)
{
	return row_among(set, RECENT_ROWS, hash);
}

/* The place of a hash in its row, or else the least recently used one. No branch per place: see set.h. */
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

/* The entry for this hash if it was used within this time; marks it as used now. 0: none. */
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
