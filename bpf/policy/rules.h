/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The class of a new flow: that of the first rule that matches. The cost of each field does not depend on the number of rules:
 * it is a table look-up or a binary search. Without branches on data, see set.h.
 */
#ifndef ANABRANCH_POLICY_RULES_H
#define ANABRANCH_POLICY_RULES_H

#include "../include/rules.h"
#include "order.h"
#include "set.h"

/* 1 if a < b + borrow, where b + borrow may have 65 bits: the borrow of a - b - borrow. */
static __always_inline __u64 ab_borrow(__u64 a, __u64 b, __u64 borrow)
{
	return ((~a & b) | ((~a | b) & (a - b - borrow))) >> 63;
}

/* 1 unless the address is before `start`. The barrier is that of ab_is_less(). */
static __always_inline __u64 ab_has_begun(__u64 high, __u64 low, const struct ab_rule_addr *start)
{
	__u64 bit = 1 - ab_borrow(high, start->high, ab_borrow(low, start->low, 0));

	__asm__ volatile("" : "+r"(bit));
	return bit;
}

static __always_inline __u64 ab_rules_at_addr(const struct ab_rules_by_addr *by, const union ab_addr *addr)
{
	__u64 high = (__u64)AB_HOST32(addr->word[0]) << 32 | AB_HOST32(addr->word[1]);
	__u64 low = (__u64)AB_HOST32(addr->word[2]) << 32 | AB_HOST32(addr->word[3]);
	__u64 piece = 0;

	for (__u32 half = AB_PIECES_MAX / 2; half; half >>= 1)
		piece += half * ab_has_begun(high, low, &by->start[piece + half]);
	return by->set[piece];
}

static __always_inline __u64 ab_rules_at_port(const struct ab_rules_by_port *by, __be16 port)
{
	__u64 next = AB_HOST16(port) + 1, piece = 0;

	/* Hides the value, because the compiler would compare a small number by a branch. */
	__asm__ volatile("" : "+r"(next));
	for (__u32 half = AB_PIECES_MAX / 2; half; half >>= 1)
		piece += half * ab_is_less(by->start[piece + half], next);
	return by->set[piece];
}

static __always_inline __u64 ab_rules_at_device(const struct ab_rules *rules, __u64 ifindex)
{
	__u64 set = rules->any_device;

	for (__u32 i = 0; i < AB_RULE_DEVICES_MAX; i++)
		set |= rules->device[i].set * ab_is_less(rules->device[i].ifindex ^ ifindex, 1);
	return set;
}

/* The index of the lowest bit; 0 if none is set, because bit 0 belongs to no rule. */
static __always_inline __u64 ab_first_rule(__u64 set)
{
	return ab_count_bits((set & -set) - 1) % AB_MAX_CLASSES;
}

/* The number of the first rule that matches; 0: none. */
AB_GLOBAL __u32 ab_rule_of(const struct ab_rules *rules, const struct ab_traits *t)
{
	__u64 set;

	if (!rules || !t || !rules->active)
		return 0;
	set = rules->active & rules->proto[t->proto] & rules->dscp[t->dscp % 64];
	set &= ab_rules_at_device(rules, t->ifindex);
	set &= ab_rules_at_port(&rules->dport, t->dport);
	set &= ab_rules_at_port(&rules->sport, t->sport);
	set &= ab_rules_at_addr(&rules->dst, &t->dst);
	set &= ab_select(ab_is_less(t->ifindex, 1), rules->own, ab_rules_at_addr(&rules->src, &t->src));
	return ab_first_rule(set);
}

static __always_inline __u32 ab_class_of(const struct ab_rules *rules, const struct ab_traits *t)
{
	return rules->class[ab_rule_of(rules, t) % AB_MAX_CLASSES] % AB_MAX_CLASSES;
}

#endif
