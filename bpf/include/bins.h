/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the spreading of a trunk over its sublinks is made from. A sublink is a target: an index below AB_MAX_LINKS. */
#ifndef ANABRANCH_BINS_H
#define ANABRANCH_BINS_H

#include <linux/types.h>
#include "limits.h"

/* Bins of a trunk (Jo 2002, section III.D). A flow is in the bin of its hash; a table gives each bin a sublink. */
#define AB_BINS 1024

/* Packets of one bin with no long gap between them. All zero: no packet yet. */
struct ab_flowlet {
	__u64 seen_ns; /* its last packet */
	__u32 sublink;
	__u32 begun; /* 1 as soon as there was a packet */
};

#endif
