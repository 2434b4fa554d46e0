/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The whole decision on a new flow. It is written once: clang compiles it into the BPF programs, cc into crates/policy. So the
 * gateway, the simulator and the fluid model decide alike.
 *
 * First, the flow may be bound: by the route of its destination, by an earlier flow of its session, or by one of its endpoint.
 * Otherwise the pool is the set of usable targets less those to be avoided. If it is empty, the next tier of the class is tried. If
 * all tiers are empty, the targets to be avoided are allowed again, because another attempt is better than a refusal. One target of
 * the pool is chosen by what is known of the destination (paths.h), or else by the dispatch. If the SYN races over the whole pool
 * (race.h), the links take turns in being the first.
 */
#ifndef ANABRANCH_POLICY_CHOOSE_H
#define ANABRANCH_POLICY_CHOOSE_H

#include "../include/anabranch.h"
#include "hash.h"
#include "order.h"
#include "paths.h"
#include "pick.h"
#include "soonest.h"
#include "tries.h"

/* Number of bits in a flow's record of failed targets. With up to 16 targets each has its own bit. With more, several targets share
 * a bit, and all of them are avoided when one has failed. 64 is a multiple, so that each word of a set has the same pattern. */
#define AB_TRIED_CLASSES 16

static __always_inline __u32 ab_tried(__u32 target)
{
	return 1u << target % AB_TRIED_CLASSES;
}

/* Avoids the targets that have failed for the flow, and those of the first 64 that are in `full`. */
static __always_inline void ab_avoid(struct ab_request *q, __u32 tried, __u64 full)
{
	for (__u32 w = 0; w < AB_SET_WORDS; w++)
		q->avoid.word[w] = (tried & 0xffff) * 0x0001000100010001ull;
	q->avoid.word[0] |= full;
}

/* Whether connections to this remote port are independent of each other. */
static __always_inline __u64 ab_is_excepted(const struct ab_choice *now, __be16 remote_port)
{
	__u64 found = 0;

	for (__u32 i = 0; i < AB_EXCEPT_MAX; i++)
		found |= ab_is_less(now->except[i] ^ remote_port, 1);
	return found;
}

/* Whether the port is one of IKE (RFC 7296). IKE moves to the second port if there is a NAT, and keeps what it has negotiated. */
static __always_inline __u64 ab_is_ike(__be16 remote_port)
{
	__u16 port = AB_HOST16(remote_port);

	return ab_is_less(port ^ 500, 1) | ab_is_less(port ^ 4500, 1);
}

/* For which flows the choice holds: enum ab_granularity. ICMP has no ports, so its port is zero. */
static __always_inline __u32 ab_reach(const struct ab_choice *now, __be16 remote_port)
{
	if (now->granularity != AB_PER_CONNECTION)
		return now->granularity;
	if (ab_is_ike(remote_port))
		return AB_PER_SESSION;
	if (!now->stick)
		return AB_PER_CONNECTION;
	return remote_port && ab_is_excepted(now, remote_port) ? AB_PER_CONNECTION : AB_PER_SESSION;
}

/* Whether the choice is remembered for later flows. */
static __always_inline int ab_remembers(__u32 reach)
{
	return reach == AB_PER_SESSION || reach == AB_PER_HOST;
}

/* Whether the choice depends on ab_request.hash. */
static __always_inline int ab_goes_by_hash(const struct ab_choice *now)
{
	return now->dispatch == AB_DISPATCH_HASH || now->dispatch == AB_DISPATCH_TABLE ||
	       now->dispatch == AB_DISPATCH_HASH_SUM;
}

/* ab_request.hash of a flow, with source and destination as seen by its opener. */
static __always_inline __u32 ab_hash_for(const struct ab_choice *now, const union ab_addr *src,
					 const union ab_addr *dst, __be16 sport, __be16 dport)
{
	if (now->dispatch == AB_DISPATCH_HASH_SUM)
		return ab_flow_sum(src, dst, sport, dport);
	return ab_flow_hash(src, dst, sport, dport);
}

/* Whether ab_request.draw is the number of choices made so far; otherwise it is random. */
static __always_inline int ab_takes_turns(const struct ab_choice *now)
{
	return now->dispatch == AB_DISPATCH_TURNS || now->dispatch == AB_DISPATCH_ROUNDS;
}

/* Whether the choice goes by the slots of a table. */
static __always_inline int ab_goes_by_table(const struct ab_choice *now)
{
	return now->dispatch == AB_DISPATCH_TABLE || now->dispatch == AB_DISPATCH_ROUNDS ||
	       now->dispatch == AB_DISPATCH_LOTS;
}

static __always_inline int ab_is_usable(const struct ab_choice *now, __u32 target)
{
	return target < now->count && ab_has(&now->usable, target);
}

/* Whether it takes new flows while its tier does. */
static __always_inline int ab_takes_new(const struct ab_choice *now, __u32 target)
{
	__u64 takes;

	if (target >= now->count)
		return 0;
	takes = ab_has(&now->usable, target);
	for (__u32 tier = 0; tier < AB_SPARE_MAX; tier++)
		takes |= tier < now->spares && ab_has(&now->spare[tier], target);
	return takes != 0;
}

static __always_inline int ab_may_stay(const struct ab_choice *now, const struct ab_request *q, __u32 target)
{
	return ab_is_usable(now, target) && !ab_has(&q->avoid, target);
}

/* Whether the flow is bound before targets are compared, and to which target. */
static __always_inline int ab_bind(const struct ab_choice *now, const struct ab_request *q, struct ab_decision *d)
{
	if (q->route < now->count && ab_has(&now->working, q->route)) {
		d->target = q->route;
		d->why = AB_WHY_ROUTE;
		return 1;
	}
	if (ab_may_stay(now, q, q->session)) {
		d->target = q->session;
		d->why = now->granularity == AB_PER_HOST ? AB_WHY_HOST : AB_WHY_SESSION;
		return 1;
	}
	if (ab_may_stay(now, q, q->endpoint)) {
		d->target = q->endpoint;
		d->why = AB_WHY_ENDPOINT;
		return 1;
	}
	return 0;
}

/* Fills the pool with the targets in `from`, without those to be avoided; with `mercy`, with all of them. Returns its size. */
AB_GLOBAL __u32 ab_fill(const struct ab_choice *now, const struct ab_set *from, struct ab_request *q, __u64 mercy)
{
	__u64 size = 0;

	if (!now || !from || !q)
		return 0;
	for (__u32 w = 0; w < AB_SET_WORDS; w++) {
		__u64 before = 64 * w, word = 0;

		if (before < now->count) {
			word = from->word[w] & ~(q->avoid.word[w] * (1 - mercy));
			word &= ab_first_bits(now->count - before);
			size += ab_count_bits(word);
		}
		q->pool.word[w] = word;
	}
	return size;
}

/* Fills the pool from the first tier that has a target. Returns its size. */
static __always_inline __u32 ab_fill_pool(const struct ab_choice *now, struct ab_request *q)
{
	__u32 size;

	q->retried = 0;
	size = ab_fill(now, &now->usable, q, 0);
	for (__u32 tier = 0; !size && tier < now->spares && tier < AB_SPARE_MAX; tier++)
		size = ab_fill(now, &now->spare[tier], q, 0);
	if (size)
		return size;
	q->retried = 1;
	return ab_fill(now, &now->usable, q, 1);
}

static __always_inline void ab_choose(const struct ab_choice *now, const struct ab_gauges *gauges,
				      const struct ab_consistent *table, struct ab_request *q, struct ab_decision *d)
{
	__u64 size;

	d->target = AB_NO_TARGET;
	d->why = AB_WHY_NONE_USABLE;
	if (ab_bind(now, q, d))
		return;
	size = ab_fill_pool(now, q);
	if (!size)
		return;
	d->why = AB_WHY_ONLY_ONE;
	if (size > 1 && q->race && !q->retried) {
		d->target = ab_nth(&q->pool, q->draw % size);
		d->why = now->holds ? AB_WHY_PROBED : AB_WHY_RACE;
	} else if (size > 1 && now->dispatch == AB_DISPATCH_SOONEST) {
		ab_choose_soonest(now, gauges, q, d);
	} else if (size > 1 && !ab_choose_path(now, q, d)) {
		ab_dispatch(now, gauges, table, q, size, d);
	}
	if (d->target == AB_NO_TARGET)
		d->target = ab_nth(&q->pool, 0);
	if (q->retried)
		d->why = AB_WHY_RETRIED;
}

/* How to treat a SYN whose flow exists. */
enum ab_syn {
	AB_SYN_FOLLOWS = 0, /* belongs to the flow, which was answered or is alive */
	AB_SYN_AGAIN = 1,   /* retransmitted over the same target */
	AB_SYN_GOES_ON = 2, /* retransmitted: the attempt continues over another target */
	AB_SYN_ANEW = 3,    /* begins another connection: the flow is over */
};

/*
 * `state` is that of the flow (enum ab_state), `is_same` whether the SYN has the sequence number of the first one. A retransmission
 * without an answer shows that the path may have failed: under WSDM the attempt continues over a target that it has not tried (Peng
 * 2005, WSDM); under any policy it leaves a target that is no longer usable. A race has tried all targets and continues unchanged.
 * But if its first SYN still waits for the answer to a probe, which may never come, the flow begins anew, without probes. A SYN of
 * another connection, on a finished or unanswered flow, begins a new flow.
 */
static __always_inline enum ab_syn ab_judge_syn(const struct ab_choice *now, __u32 state, int is_same, __u32 target,
						__u32 tries)
{
	if (state & AB_STATE_CONFIRMED && !(state & AB_STATE_CLOSED))
		return AB_SYN_FOLLOWS;
	if (state & (AB_STATE_CONFIRMED | AB_STATE_CLOSED) || !is_same)
		return AB_SYN_ANEW;
	if (state & (AB_STATE_REPLIED | AB_STATE_HAIRPIN))
		return AB_SYN_FOLLOWS;
	if (ab_waits(tries))
		return AB_SYN_ANEW;
	if (now->syn_retry & !ab_is_race(tries))
		return AB_SYN_GOES_ON;
	return ab_is_usable(now, target) ? AB_SYN_AGAIN : AB_SYN_GOES_ON;
}

/* The targets that an attempt has tried, including this one. Only WSDM needs them. */
static __always_inline __u32 ab_tried_with(const struct ab_choice *now, __u32 tried, __u32 target)
{
	return now->syn_retry ? tried | ab_tried(target) : 0;
}

#endif
