/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Every map of the trunk. */
#ifndef ANABRANCH_TRUNK_MAPS_H
#define ANABRANCH_TRUNK_MAPS_H

#include "../include/bins.h"
#include "../policy/inline.h"
#include "map.h"

AB_MAP(spreading, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_spreading, 0);
AB_MAP(sublinks, BPF_MAP_TYPE_ARRAY, AB_MAX_LINKS, __u32, struct ab_sublink, 0);

/* The sublink of every bin. Moving a bin changes one number, which a packet reads before or after. */
struct ab_table_of_bins {
	__u16 sublink[AB_BINS];
};
AB_MAP(bins, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_table_of_bins, 0);

/* Bytes of every bin, in one value so that user space reads all with one call. */
struct ab_volumes {
	__u64 bytes[AB_BINS];
};
AB_MAP(volumes, BPF_MAP_TYPE_PERCPU_ARRAY, 1, __u32, struct ab_volumes, 0);
AB_MAP(carried, BPF_MAP_TYPE_PERCPU_ARRAY, AB_MAX_LINKS, __u32, struct ab_carried, 0);
AB_MAP(trunk_reasons, BPF_MAP_TYPE_PERCPU_ARRAY, AB_TRUNK_REASON_COUNT, __u32, __u64, 0);

/*
 * The state of flowlets and of deficit round robin is of no use to another program, so it is not pinned. CPUs that
 * send packets of one bin at once may both begin its flowlet anew; the later write stands.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, AB_BINS);
	__type(key, __u32);
	__type(value, struct ab_flowlet);
} flowlets SEC(".maps");

struct ab_turn {
	struct bpf_spin_lock lock;
	__u32 zero;
	struct ab_drr drr;
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ab_turn);
} turns SEC(".maps");

#endif
