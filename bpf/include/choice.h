/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What a choice between targets is made from, and what it says. */
#ifndef ANABRANCH_CHOICE_H
#define ANABRANCH_CHOICE_H

#include <linux/types.h>
#include "limits.h"

/* How a target is chosen. Names as in Peng 2005, section "dispatching scheme"; Guo 2004 for the hash. */
enum ab_dispatch {
	AB_DISPATCH_WEIGHTED = 0, /* argmin load / weight (Peng eq. 4) */
	AB_DISPATCH_BEST = 1,	  /* argmax weight */
	AB_DISPATCH_RANDOM = 2,	  /* uniform over the usable targets */
	AB_DISPATCH_HASH = 3,	  /* flow hash modulo the number of usable targets */
};

/* What `load` counts for AB_DISPATCH_WEIGHTED. */
enum ab_load {
	AB_LOAD_DISPATCHED = 0, /* flows dispatched in the current window (SD) */
	AB_LOAD_ACTIVE = 1,	/* flows still incomplete: opened - closed (CSN) */
};

/* Why a target was chosen, or why none was. */
enum ab_why {
	AB_WHY_NONE_USABLE = 0, /* every target is dead, drained or avoided */
	AB_WHY_ONLY_ONE = 1,	/* one usable target was left */
	AB_WHY_WEIGHTED = 2,
	AB_WHY_BEST = 3,
	AB_WHY_RANDOM = 4,
	AB_WHY_HASH = 5,
	AB_WHY_RETRIED = 6, /* all usable targets were avoided: the avoid mask was forgotten */
	AB_WHY_ROUTE = 7,   /* a specific route of the host names the link */
	AB_WHY_SESSION = 8, /* the same pair of addresses already uses it */
	AB_WHY_HOST = 9,    /* the same LAN host already uses it */
	AB_WHY_ENDPOINT = 10, /* the LAN endpoint stands for one there already; LAN to LAN: or the other's does */
};

#define AB_NO_TARGET 0xff

/* The targets of one choice. Bit i of `usable` says that target i may take a flow. */
struct ab_candidates {
	__u32 count;
	__u32 usable;
	__u32 weight[AB_MAX_LINKS];
	__u32 load[AB_MAX_LINKS];
};

struct ab_request {
	__u32 dispatch; /* enum ab_dispatch */
	__u32 avoid;	/* targets that failed this very flow (WSDM) */
	__u32 hash;	/* of the flow, for AB_DISPATCH_HASH */
	__u32 random;	/* uniform, for AB_DISPATCH_RANDOM */
};

struct ab_decision {
	__u8 target; /* AB_NO_TARGET if none */
	__u8 why;    /* enum ab_why */
};

#endif
