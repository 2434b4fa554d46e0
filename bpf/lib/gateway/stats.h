/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Counters: reasons with which packets left, traffic of links, live flows. */
#ifndef ANABRANCH_STATS_H
#define ANABRANCH_STATS_H

#include <linux/pkt_cls.h>

#include "maps.h"

static __always_inline void count_reason(__u32 reason)
{
	__u64 *packets = bpf_map_lookup_elem(&reasons, &reason);
	if (packets)
		(*packets)++;
}

static __always_inline struct ab_traffic *traffic_at(__u32 class, __u32 link, __u32 family)
{
	__u32 place = AB_TRAFFIC_PLACE(class, link, family);
	return bpf_map_lookup_elem(&traffic, &place);
}

/* Where the packets of a flow to its link are counted. */
static __always_inline struct ab_traffic *traffic_of(const struct ab_flow *flow, __u32 family)
{
	return traffic_at(flow->class, flow->link, family);
}

static __always_inline struct ab_class *class_counts(__u32 class)
{
	return bpf_map_lookup_elem(&classes, &class);
}

__noinline int class_add(__u32 class, __u64 opened, __u64 closed)
{
	struct ab_class *counts = class_counts(class);
	if (!counts)
		return 0;
	if (opened)
		__sync_fetch_and_add(&counts->opened, opened);
	if (closed)
		__sync_fetch_and_add(&counts->closed, closed);
	return 0;
}

/* Not inlined, because the stacks of its callers are nearly full. */
static __noinline void gauge_add(__u32 link, __u64 dispatched, __u64 opened, __u64 closed)
{
	struct ab_gauges *all = all_gauges();
	if (!all)
		return;
	struct ab_gauge *gauge = &all->target[link % AB_MAX_TARGETS];
	if (dispatched)
		__sync_fetch_and_add(&gauge->dispatched, dispatched);
	if (opened)
		__sync_fetch_and_add(&gauge->opened, opened);
	if (closed)
		__sync_fetch_and_add(&gauge->closed, closed);
}

static __always_inline struct ab_table *table_counts(void)
{
	__u32 zero = 0;
	return bpf_map_lookup_elem(&table, &zero);
}

static __always_inline void table_add(__u64 confirmed, __u64 forgotten)
{
	struct ab_table *counts = table_counts();
	if (!counts)
		return;
	if (confirmed)
		__sync_fetch_and_add(&counts->confirmed, confirmed);
	if (forgotten)
		__sync_fetch_and_add(&counts->forgotten, forgotten);
}

static __always_inline __u64 table_flows(void)
{
	struct ab_table *counts = table_counts();
	return counts ? counts->confirmed - counts->forgotten : 0;
}

#endif
