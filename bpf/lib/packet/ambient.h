/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the gateway needs from the kernel beside the packet: the time, and random numbers. With AB_AMBIENT_OF_MAP
 * user space sets both, so that a test can repeat a run. Objects that are shipped are never compiled like that.
 */
#ifndef ANABRANCH_AMBIENT_H
#define ANABRANCH_AMBIENT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "../../policy/inline.h"

#ifdef AB_AMBIENT_OF_MAP

/* A global variable is a map without a look-up, and takes no stack. */
volatile struct {
	__u64 now_ns;
	__u64 random;
} ambient;

#define AMBIENT(helper, field) ambient.field

#else

#define AMBIENT(helper, field) helper()

#endif

/* CLOCK_MONOTONIC. */
static __always_inline __u64 time_ns(void)
{
	return AMBIENT(bpf_ktime_get_ns, now_ns);
}

/* The time of the last tick, which is cheaper to read. */
static __always_inline __u64 tick_ns(void)
{
	return AMBIENT(bpf_ktime_get_coarse_ns, now_ns);
}

static __always_inline __u32 draw(void)
{
	return AMBIENT(bpf_get_prandom_u32, random);
}

#endif
