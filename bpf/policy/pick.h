/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Dispatch: chooses one target of a pool. If targets are compared, weights must be from AB_WEIGHT_MIN to AB_WEIGHT_MAX; the writer
 * of a choice ensures this. Other weights lead to another choice, but still to a target of the pool.
 */
#ifndef ANABRANCH_POLICY_PICK_H
#define ANABRANCH_POLICY_PICK_H

#include "set.h"

/* Entries of the consistent table that are tried before the hash alone decides. */
#define AB_CONSISTENT_STEPS 16
/* 2^32 / golden ratio, so that the entries that are tried are far apart. */
#define AB_CONSISTENT_STRIDE 0x9e3779b9u
/* Targets per scan. The verifier follows each iteration of a loop, and that of Linux 6.1 follows some of them again. */
#define AB_SCANNED 32

/* enum ab_ties. A build that chooses among links alone defines AB_AMONG_LINKS, and is spared what only servers have. */
static __always_inline __u32 ab_ties_of(const struct ab_choice *now)
{
#ifdef AB_AMONG_LINKS
	(void)now;
	return AB_TIES_BY_LOAD;
#else
	return now->ties;
#endif
}

/* Opened less closed. At least 0, although the two may be read at different times. */
static __always_inline __u32 ab_active_flows(const struct ab_gauge *gauge)
{
	__u64 active = gauge->opened - gauge->closed;

	return active * (1 - (active >> 63));
}

/* 1 if the load is the number of open flows, 0 if it is the number of dispatched flows. */
static __always_inline __u64 ab_counts_active(const struct ab_choice *now)
{
	return ab_is_less(now->load ^ AB_LOAD_ACTIVE, 1);
}

/* The load of a target, in flows. */
static __always_inline __u32 ab_load_of(__u64 counts_active, const struct ab_target *target,
					const struct ab_gauge *gauge)
{
	__u32 dispatched = (__u32)gauge->dispatched - target->dispatched_base;

	return ab_select(counts_active, ab_active_flows(gauge), dispatched);
}

/*
 * argmin load / weight (Peng eq. 4). Ties go to the greater weight, then to the lower index. A weight of 0 never leads.
 *
 * With branches, so that the products depend on the target before only if the leader changes. The verifier follows
 * them only once, in the global functions that compare, and this order leaves it the fewest states.
 */
static __always_inline void ab_lead_by_ratio(struct ab_leader *best, __u64 target, __u64 load, __u64 weight)
{
	__u64 ours = load * best->weight, theirs = best->load * weight;

	if (ours > theirs)
		return;
	if (ours < theirs || best->weight < weight) {
		best->target = target;
		best->load = load;
		best->weight = weight;
	}
}

/* The same for the greatest key, in place of the weight. Without branches, see set.h: keys are below 2^63, otherwise a target outside
 * of the pool might win. */
static __always_inline void ab_lead_by_key(struct ab_leader *best, __u64 target, __u64 key)
{
	__u64 better = ab_is_less(best->weight, key);

	best->target = ab_select(better, target, best->target);
	best->weight = ab_select(better, key, best->weight);
}

/* The barrier keeps the compiler from holding a pointer into each array, which would take stack. */
static __always_inline const struct ab_target *ab_target_at(const struct ab_choice *now, __u64 *i)
{
	__asm__ volatile("" : "+r"(*i));
	return &now->target[*i];
}

/* The bits of AB_SCANNED targets, beginning with `first`. */
static __always_inline __u32 ab_part(const struct ab_set *pool, __u32 first)
{
	return pool->word[first / 64] >> first % 64;
}

/* Argmin load / weight among AB_SCANNED targets of q->scanned, beginning with `first`, and q->best, the leader so far. */
AB_GLOBAL int ab_scan_ratios(const struct ab_choice *now, const struct ab_gauges *gauges, struct ab_request *q,
			     __u32 first)
{
	struct ab_leader lead;
	__u64 active;
	__u32 part;

	if (!now || !gauges || !q)
		return 0;
	active = ab_counts_active(now);
	lead = q->best;
	first &= AB_MAX_TARGETS - AB_SCANNED;
	part = ab_part(&q->scanned, first);
	for (__u64 i = first; part; part >>= 1, i++) {
		const struct ab_target *target = ab_target_at(now, &i);
		__u64 weight = target->weight * (part & 1);

		ab_lead_by_ratio(&lead, i, ab_load_of(active, target, &gauges->target[i]), weight);
	}
	q->best = lead;
	return 0;
}

/* The same for the greatest weight. Ties go to the lower load if AB_TIES_BY_LOAD says so, then to the lower index. */
AB_GLOBAL int ab_scan_weights(const struct ab_choice *now, const struct ab_gauges *gauges, struct ab_request *q,
			      __u32 first)
{
	struct ab_leader lead;
	__u64 active, by_load;
	__u32 part;

	if (!now || !gauges || !q)
		return 0;
	active = ab_counts_active(now);
	by_load = ab_is_less(ab_ties_of(now) ^ AB_TIES_BY_LOAD, 1);
	lead = q->best;
	first &= AB_MAX_TARGETS - AB_SCANNED;
	part = ab_part(&q->scanned, first);
	for (__u64 i = first; part; part >>= 1, i++) {
		const struct ab_target *target = ab_target_at(now, &i);
		__u32 idle = ~(ab_load_of(active, target, &gauges->target[i]) * by_load);
		__u64 key = ((__u64)(target->weight & ~0u >> 1) << 32 | idle) * (part & 1);

		ab_lead_by_key(&lead, i, key);
	}
	q->best = lead;
	return 0;
}

#ifndef AB_AMONG_LINKS
#define AB_COLD_LOAD_MAX ((1u << 30) - 1)

/*
 * The rule of hot and cold (Wydrowski et al. 2024, Prequal, section 4.2): the greatest weight, which is the inverse of a latency, of
 * the targets with less than now->hot open flows. If there is none, the fewest open flows.
 */
AB_GLOBAL int ab_scan_cold(const struct ab_choice *now, const struct ab_gauges *gauges, struct ab_request *q,
			   __u32 first)
{
	struct ab_leader lead;
	__u32 part;

	if (!now || !gauges || !q)
		return 0;
	lead = q->best;
	first &= AB_MAX_TARGETS - AB_SCANNED;
	part = ab_part(&q->scanned, first);
	for (__u64 i = first; part; part >>= 1, i++) {
		const struct ab_target *target = ab_target_at(now, &i);
		__u64 load = ab_active_flows(&gauges->target[i]);
		__u64 idle = AB_COLD_LOAD_MAX - ab_select(ab_is_less(load, AB_COLD_LOAD_MAX), load, AB_COLD_LOAD_MAX);
		__u64 cold = (1ull << 62) + ((__u64)(target->weight & ~0u >> 1) << 30) + idle;
		__u64 key = ab_select(ab_is_less(load, now->hot), cold, idle + 1) * (part & 1);

		ab_lead_by_key(&lead, i, key);
	}
	q->best = lead;
	return 0;
}
#endif

/* No leader yet: its load / weight is infinite, and its weight the least. */
static __always_inline void ab_begin_scan(struct ab_leader *best)
{
	best->target = AB_NO_TARGET;
	best->load = 1;
	best->weight = 0;
}

typedef int ab_scan(const struct ab_choice *, const struct ab_gauges *, struct ab_request *, __u32 first);

/* Scans the targets of the pool from `start` on, or with `before` those before it. */
static __always_inline void ab_scan_part(ab_scan *scan, const struct ab_choice *now, const struct ab_gauges *gauges,
					 struct ab_request *q, __u64 start, __u64 before)
{
	for (__u32 w = 0; w < AB_SET_WORDS; w++) {
		__u64 below = ab_first_bits((start - 64 * w) * ab_is_less(64 * w, start));

		q->scanned.word[w] = q->pool.word[w] & (before ? below : ~below);
	}
	for (__u32 first = 0; first < AB_MAX_TARGETS; first += AB_SCANNED)
		if (ab_part(&q->scanned, first))
			scan(now, gauges, q, first);
}

/* The best target of the pool. The scan begins at a random one if that is to get what all equally good ones could. */
static __always_inline __u16 ab_pick_by(ab_scan *scan, const struct ab_choice *now, const struct ab_gauges *gauges,
					struct ab_request *q, __u64 size)
{
	__u64 start = ab_ties_of(now) == AB_TIES_RANDOM ? ab_nth(&q->pool, q->draw * size >> 32) : 0;

	ab_begin_scan(&q->best);
	ab_scan_part(scan, now, gauges, q, start, 0);
	if (start)
		ab_scan_part(scan, now, gauges, q, start, 1);
	return q->best.target;
}

/* Compares one more target by load / weight. */
AB_GLOBAL int ab_meet(const struct ab_choice *now, const struct ab_gauges *gauges, struct ab_leader *best, __u32 index)
{
	const struct ab_target *target;

	if (!now || !gauges || !best)
		return 0;
	index %= AB_MAX_TARGETS;
	target = &now->target[index];
	ab_lead_by_ratio(best, index, ab_load_of(ab_counts_active(now), target, &gauges->target[index]),
			 target->weight);
	return 0;
}

/* The better of two different targets that the halves of q->draw select; `size` is at least two. */
static __always_inline __u16 ab_pick_of_two(const struct ab_choice *now, const struct ab_gauges *gauges,
					    struct ab_request *q, __u64 size)
{
	__u64 first = (q->draw >> 16) * size >> 16, second = (q->draw & 0xffff) * (size - 1) >> 16;

	ab_begin_scan(&q->best);
	second += 1 - ab_is_less(second, first);
	ab_meet(now, gauges, &q->best, ab_nth(&q->pool, first));
	ab_meet(now, gauges, &q->best, ab_nth(&q->pool, second));
	return q->best.target;
}

/* The table's entry for the hash. */
static __always_inline __u32 ab_row_of(const struct ab_consistent *table, __u32 hash)
{
	return table->target[(__u64)hash * AB_CONSISTENT_SLOTS >> 32];
}

/* The table's entry for the hash. If that is not in the pool, one of the next entries that the hash selects. */
AB_GLOBAL __u32 ab_pick_consistent(const struct ab_consistent *table, const struct ab_set *pool, __u64 size, __u32 hash)
{
	if (!table || !pool)
		return AB_NO_TARGET;
	for (__u32 i = 0; i < AB_CONSISTENT_STEPS; i++) {
		__u32 target = ab_row_of(table, hash + i * AB_CONSISTENT_STRIDE);

		if (ab_has(pool, target))
			return target;
	}
	return ab_nth(pool, hash % size);
}

#ifndef AB_AMONG_LINKS
/* Whether a target has fewer open flows than its bound, which is a multiple of its share of all of them and the new one (Mirrokni,
 * Thorup and Zadimoghaddam 2018). */
static __always_inline __u64 ab_is_below_bound(const struct ab_choice *now, const struct ab_gauges *gauges,
					       const struct ab_request *q, __u32 target)
{
	__u64 i = target % AB_MAX_TARGETS;
	__u64 ours = (__u64)ab_active_flows(&gauges->target[i]) * now->weights * AB_BOUND_ONE;

	return ab_is_less(ours, ((__u64)q->open + 1) * ab_target_at(now, &i)->weight * now->bound);
}

/* The first of the table's entries for the hash that is in the pool and below its bound, or AB_NO_TARGET. */
AB_GLOBAL __u32 ab_pick_bounded(const struct ab_choice *now, const struct ab_gauges *gauges,
				const struct ab_consistent *table, const struct ab_request *q)
{
	if (!now || !gauges || !table || !q)
		return AB_NO_TARGET;
	for (__u32 i = 0; i < AB_CONSISTENT_STEPS; i++) {
		__u32 target = ab_row_of(table, q->hash + i * AB_CONSISTENT_STRIDE);

		if (ab_has(&q->pool, target) && ab_is_below_bound(now, gauges, q, target))
			return target;
	}
	return AB_NO_TARGET;
}

/* The target in a slot, selected by turn or by lot. If that is not in the pool, any other. */
AB_GLOBAL __u32 ab_pick_slot(const struct ab_consistent *table, const struct ab_request *q, __u64 size, __u32 by_lot)
{
	__u32 target = AB_NO_TARGET, slot;

	if (!table || !q)
		return AB_NO_TARGET;
	slot = by_lot ? (__u64)q->draw * table->slots >> 32 : q->draw % (table->slots ?: 1);
	if (slot < table->slots && slot < AB_CONSISTENT_SLOTS)
		target = table->target[slot];
	return ab_has(&q->pool, target) ? target : ab_nth(&q->pool, q->draw % size);
}
#endif

/* Chooses a target of q->pool, whose `size` is at least two. Weights out of range may lead to AB_NO_TARGET. */
static __always_inline void ab_dispatch(const struct ab_choice *now, const struct ab_gauges *gauges,
					const struct ab_consistent *table, struct ab_request *q, __u64 size,
					struct ab_decision *d)
{
	switch (now->dispatch) {
	case AB_DISPATCH_BEST:
		d->target = ab_pick_by(ab_scan_weights, now, gauges, q, size);
		d->why = AB_WHY_BEST;
		break;
	case AB_DISPATCH_RANDOM:
		d->target = ab_nth(&q->pool, q->draw * size >> 32);
		d->why = AB_WHY_RANDOM;
		break;
	case AB_DISPATCH_HASH:
	case AB_DISPATCH_HASH_SUM:
		d->target = ab_nth(&q->pool, q->hash % size);
		d->why = AB_WHY_HASH;
		break;
	case AB_DISPATCH_RANDOM_TWO:
		d->target = ab_pick_of_two(now, gauges, q, size);
		d->why = AB_WHY_RANDOM_TWO;
		break;
	case AB_DISPATCH_TURNS:
		d->target = ab_nth(&q->pool, q->draw % size);
		d->why = AB_WHY_TURN;
		break;
#ifndef AB_AMONG_LINKS
	case AB_DISPATCH_COLD:
		d->target = ab_pick_by(ab_scan_cold, now, gauges, q, size);
		d->why = AB_WHY_COLD;
		break;
	case AB_DISPATCH_ROUNDS:
		d->target = ab_pick_slot(table, q, size, 0);
		d->why = AB_WHY_TURN;
		break;
	case AB_DISPATCH_LOTS:
		d->target = ab_pick_slot(table, q, size, 1);
		d->why = AB_WHY_RANDOM;
		break;
#endif
	case AB_DISPATCH_TABLE:
		d->why = AB_WHY_TABLE;
#ifndef AB_AMONG_LINKS
		if (now->bound) {
			d->target = ab_pick_bounded(now, gauges, table, q);
			if (d->target != AB_NO_TARGET)
				break;
			/* The least loaded one is always below its bound. */
			d->target = ab_pick_by(ab_scan_ratios, now, gauges, q, size);
			break;
		}
#endif
		d->target = ab_pick_consistent(table, &q->pool, size, q->hash);
		break;
	default:
		d->target = ab_pick_by(ab_scan_ratios, now, gauges, q, size);
		d->why = AB_WHY_WEIGHTED;
	}
}

#endif
