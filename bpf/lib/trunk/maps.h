/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* All maps of the trunk. */
#ifndef ANABRANCH_TRUNK_MAPS_H
#define ANABRANCH_TRUNK_MAPS_H

#include "../../include/bins.h"
#include "../../policy/inline.h"
#include "../packet/map.h"

AB_MAP(spreading, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_spreading, 0);
AB_MAP(sublinks, BPF_MAP_TYPE_ARRAY, AB_MAX_LINKS, __u32, struct ab_sublink, 0);

/* The sublink of each bin. A bin is moved by writing one number, which is atomic for packets. */
struct ab_table_of_bins {
	__u16 sublink[AB_BINS];
};
AB_MAP(bins, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_table_of_bins, 0);

/* Bytes of each bin, in one value, so that user space reads all with one call. */
struct ab_volumes {
	__u64 bytes[AB_BINS];
};
AB_MAP(volumes, BPF_MAP_TYPE_PERCPU_ARRAY, 1, __u32, struct ab_volumes, 0);
AB_MAP(carried, BPF_MAP_TYPE_PERCPU_ARRAY, AB_MAX_LINKS, __u32, struct ab_carried, 0);
AB_MAP(trunk_reasons, BPF_MAP_TYPE_PERCPU_ARRAY, AB_TRUNK_REASON_COUNT, __u32, __u64, 0);

/*
 * The state of flowlets and of deficit round robin is of no use to another process, so it is not pinned. If CPUs
 * send packets of the same bin at the same time, both may begin a new flowlet; the later write wins.
 */
AB_LOADED_MAP(flowlets, BPF_MAP_TYPE_ARRAY, AB_BINS, __u32, struct ab_flowlet, 0);

struct ab_turn {
	struct bpf_spin_lock lock;
	__u32 zero;
	struct ab_drr drr;
};
AB_LOADED_MAP(turns, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_turn, 0);

#endif
