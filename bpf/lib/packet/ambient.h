/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the gateway asks the kernel for that no packet tells: the time, and numbers that nobody can guess. With AB_AMBIENT_OF_MAP
 * both are what user space says, so that a test can repeat whatever happened; no object that is shipped is compiled so.
 */
#ifndef ANABRANCH_AMBIENT_H
#define ANABRANCH_AMBIENT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "../../policy/inline.h"

#ifdef AB_AMBIENT_OF_MAP

/* A variable, which is a map without a lookup: nothing for the stack. */
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

/* The same as of the last tick, which costs less. */
static __always_inline __u64 tick_ns(void)
{
	return AMBIENT(bpf_ktime_get_coarse_ns, now_ns);
}

static __always_inline __u32 draw(void)
{
	return AMBIENT(bpf_get_prandom_u32, random);
}

#endif
