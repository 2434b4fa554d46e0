/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Loss beside response times: a connection over a link with round trip R that loses a share p of its packets gets a throughput of
 * about 1 / (R sqrt p) (Mathis et al. 1997), so the link with the least R sqrt p is the best (Lin, Tsao and Leong 2007, future
 * work). Links are compared by R^2 p, which has the same order and needs no root.
 *
 * p is estimated from the SYNs of flows to the prefix (paths.h): retransmitted SYNs, counted once for each host in a lifetime,
 * divided by all. A few SYNs say little, so the estimate begins at one in a hundred and moves as SYNs come. A loss that is rarer
 * than that counts as one in a hundred, because a flow of a hundred packets does not meet it.
 */
#ifndef ANABRANCH_POLICY_LOSS_H
#define ANABRANCH_POLICY_LOSS_H

#include "../include/anabranch.h"
#include "inline.h"
#include "set.h"

/* The initial estimate counts as this many SYNs. */
#define AB_LOSS_PRIOR 100u
/* A loss of all packets: the unit of shares. */
#define AB_LOSS_ALL 16384u
#define AB_LOSS_LEAST (AB_LOSS_ALL / AB_LOSS_PRIOR)
/* When this many SYNs are counted, the counts are halved. */
#define AB_LOSS_SYNS 1024u
/* 17 s: keeps the product below 2^62. */
#define AB_LOSS_RESPONSE_MAX 0xffffffull

static __always_inline __u32 ab_loss(const struct ab_path *path)
{
	__u32 failures = path->failures;
	__u32 loss = (failures + 1) * AB_LOSS_ALL / (path->samples + failures + AB_LOSS_PRIOR);

	return ab_select(ab_is_less(loss, AB_LOSS_LEAST), AB_LOSS_LEAST, loss);
}

static __always_inline void ab_fade_loss(struct ab_path *path)
{
	__u32 syns = path->samples + path->failures;
	__u32 fades = ab_is_less(AB_LOSS_SYNS, syns);

	path->samples >>= fades;
	path->failures >>= fades;
}

/* Adds the losses of the links to the destination to a request. */
AB_GLOBAL int ab_know_loss(const struct ab_paths *paths, struct ab_request *q)
{
	if (!paths || !q)
		return 0;
	for (__u32 i = 0; i < AB_MAX_LINKS; i++)
		q->loss[i] = ab_loss(&paths->path[i]);
	return 0;
}

/* The link of `links` with the least R^2 p, of equal ones the first; `links` must not be empty. */
AB_GLOBAL __u32 ab_least_lossy(const struct ab_request *q, __u32 links)
{
	__u64 leader = 0, least = ~0ull >> 1;

	if (!q)
		return AB_NO_TARGET;
	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		__u64 us = q->response_us[i];
		__u64 is_out = 1 - (links >> i & 1);
		__u64 rank, is_better;

		us = ab_select(ab_is_less(us, AB_LOSS_RESPONSE_MAX), us, AB_LOSS_RESPONSE_MAX);
		rank = us * us * q->loss[i] | is_out << 62;
		is_better = ab_is_less(rank, least);
		leader = ab_select(is_better, i, leader);
		least = ab_select(is_better, rank, least);
	}
	return leader;
}

#endif
