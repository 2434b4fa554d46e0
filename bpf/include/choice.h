/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The input and the result of a choice among targets. */
#ifndef ANABRANCH_CHOICE_H
#define ANABRANCH_CHOICE_H

#include <linux/types.h>
#include "limits.h"

/* In place of a target's index: no target. */
#define AB_NO_TARGET 0xffff

#define AB_SET_WORDS (AB_MAX_TARGETS / 64)

/* A set of targets: bit i of word w is target 64 w + i. */
struct ab_set {
	__u64 word[AB_SET_WORDS];
};

/* How a target is chosen. Names are those of Peng 2005, section "dispatching scheme"; of Guo 2004 for the sum. */
enum ab_dispatch {
	AB_DISPATCH_WEIGHTED = 0,   /* argmin load / weight (Peng eq. 4) */
	AB_DISPATCH_BEST = 1,	    /* argmax weight */
	AB_DISPATCH_RANDOM = 2,	    /* uniform over the usable targets */
	AB_DISPATCH_HASH = 3,	    /* flow hash modulo the number of usable targets */
	AB_DISPATCH_TABLE = 4,	    /* the consistent table's entry for the flow hash */
	AB_DISPATCH_RANDOM_TWO = 5, /* of two at random that with the lesser load / weight (Mitzenmacher 2001) */
	AB_DISPATCH_TURNS = 6,	    /* the usable targets in turn */
	AB_DISPATCH_HASH_SUM = 7,   /* sum of addresses and ports modulo the number of usable targets */
	AB_DISPATCH_SOONEST = 8,    /* argmin of the time that a flow is expected to take (policy/soonest.h) */
	AB_DISPATCH_ROUNDS = 9,	    /* the slots of the table one after the other */
	AB_DISPATCH_LOTS = 10,	    /* a random slot of the table */
	AB_DISPATCH_COLD =
		11, /* of those with fewer open flows than `hot` argmax weight; if there is none, the fewest flows */
};

/* Which of the targets that are equally good is chosen. */
enum ab_ties {
	AB_TIES_BY_LOAD =
		0, /* that with the lower load, then the first; AB_DISPATCH_WEIGHTED has compared loads: the first */
	AB_TIES_FIRST = 1,
	AB_TIES_RANDOM = 2, /* the first one from a random target on */
};

/* What the load of a target is. */
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
	AB_WHY_RETRIED = 6,   /* all usable targets were to be avoided, so all were allowed */
	AB_WHY_ROUTE = 7,     /* a specific route of the host names the link */
	AB_WHY_SESSION = 8,   /* the same pair of addresses already uses it */
	AB_WHY_HOST = 9,      /* the same LAN host already uses it */
	AB_WHY_ENDPOINT = 10, /* the LAN endpoint has an external endpoint there; LAN to LAN: or the other's has */
	AB_WHY_TABLE = 11,
	AB_WHY_RANDOM_TWO = 12,
	AB_WHY_TURN = 13,
	AB_WHY_RACE = 14,     /* its SYN takes all usable targets, beginning with this one; the first answer binds it */
	AB_WHY_RESPONSE = 15, /* fastest response for the destination's prefix among the measured targets */
	AB_WHY_UNKNOWN = 16,  /* not measured for the destination's prefix; this flow measures it */
	AB_WHY_PROBED =
		17, /* a probe takes all usable targets, beginning with this one; the SYN takes that of the first answer */
	AB_WHY_SOONEST = 18, /* a flow is expected to finish there first */
	AB_WHY_LOSS = 19,    /* least response time * sqrt(loss) among the measured targets */
	AB_WHY_COLD = 20,    /* the best of those with few open flows */
};

/*
 * What a choice holds for: a connection (Peng PS_c), a pair of addresses (Peng PS_ip, Guo "session"), or a LAN host (RFC 4787
 * REQ-2, paired pooling). It holds while the target is usable. Without NAT it may also be made for each packet; then nothing is
 * remembered.
 */
enum ab_granularity {
	AB_PER_CONNECTION = 0,
	AB_PER_SESSION = 1,
	AB_PER_HOST = 2,
	AB_PER_PACKET = 3,
};

struct ab_target {
	__u32 weight;
	__u32 dispatched_base; /* dispatched when the current window began */
};

#define AB_EXCEPT_MAX 16

/* What happens to a new flow if no target of its class is left. */
enum ab_without {
	AB_WITHOUT_REFUSE = 0, /* its host gets an error */
	AB_WITHOUT_DROP = 1,
	AB_WITHOUT_KERNEL = 2, /* the kernel's own NAT carries it */
};

/* Tiers of a class: the first takes its new flows, the others those that have failed on all targets before. */
#define AB_TIERS_MAX 4
#define AB_SPARE_MAX (AB_TIERS_MAX - 1)

#define AB_BOUND_ONE 1024

/* The present choice of a class and family, at AB_CHOICE_PLACE. Replaced as a whole at each measuring period. */
struct ab_choice {
	__u32 dispatch; /* enum ab_dispatch */
	__u32 load;	/* enum ab_load */
	__u32 count;
	__u32 syn_retry;      /* WSDM: a retransmitted SYN fails its path */
	__u32 granularity;    /* enum ab_granularity */
	__u32 stick;	      /* per connection: only to the ports of `except`, per session to all others */
	__u32 without;	      /* enum ab_without */
	__u32 spares;	      /* tiers in `spare` */
	__u32 flows_per_host; /* live flows that a host may have in the class; 0: as many as in all */
	__u32 races;	      /* connections a second whose SYN may take all targets at once (policy/race.h); 0: none */
	__u32 holds;	      /* ... or waits while probes do, and takes the target whose probe is answered first */
	__u32 flow_us; /* AB_DISPATCH_SOONEST: time of a flow alone on the target with the greatest weight, ... */
	__u32 rounds;  /* ... plus this number of response times */
	__u32 surveys; /* only probes of popular destinations measure prefixes */
	__u32 by_loss; /* loss of SYNs counts beside response times (policy/loss.h) */
	__u32 ties;    /* enum ab_ties */
	__u32 hot;     /* AB_DISPATCH_COLD: this number of open flows is many */
	__u32 bound;   /* most open flows, in AB_BOUND_ONE of a target's share (AB_DISPATCH_TABLE); 0: any */
	__u32 weights; /* ... and the weights of all whose shares these are */
	__u32 zero;
	__u64 session_ns;     /* a session is forgotten this long after its last flow began; 0: only for lack of room */
	__u64 lifetime_ns;    /* how long a measurement of a prefix is valid (policy/paths.h); 0: nothing is measured */
	struct ab_set usable; /* take new flows */
	struct ab_set spare[AB_SPARE_MAX]; /* take flows that have failed on `usable` and the tiers before */
	struct ab_set working; /* take new flows of some class: routes of the host may bind flows to any of these */
	__be16 except[AB_EXCEPT_MAX]; /* remote ports; the rest is zero */
	struct ab_target target[AB_MAX_TARGETS];
};

/* Per target, monotonic, atomic. live = opened - closed. */
struct ab_gauge {
	__u64 dispatched;
	__u64 opened;
	__u64 closed;
};

struct ab_gauges {
	struct ab_gauge target[AB_MAX_TARGETS];
};

/* A prime, with at least 100 slots for each of the maximum number of targets, so that shares are exact to 1 % (Eisenbud et al.
 * 2016, section 3.4). */
#define AB_CONSISTENT_SLOTS 25601

/* The table of AB_DISPATCH_TABLE, AB_DISPATCH_ROUNDS and AB_DISPATCH_LOTS. */
struct ab_consistent {
	__u16 target[AB_CONSISTENT_SLOTS];
	__u16 slots; /* of rounds and lots: how many there are */
};

/* The best target of a scan so far. */
struct ab_leader {
	__u64 target, load, weight;
};

/* What is known of a flow for which a target is chosen. */
struct ab_request {
	struct ab_set avoid;   /* failed for this flow (WSDM), or cannot take it */
	struct ab_set pool;    /* during the choice: the candidates, ... */
	struct ab_set scanned; /* ... those of them that are compared, ... */
	struct ab_leader best; /* ... the best so far, ... */
	__u32 hash;	       /* ab_hash_for() the flow, where ab_goes_by_hash() */
	__u32 open;	       /* open flows of all targets, where the choice is bounded */
	__u32 zero;
	__u32 draw;	/* the number of choices so far where ab_takes_turns(), else uniform */
	__u16 route;	/* target bound by the route of the destination, or AB_NO_TARGET */
	__u16 session;	/* target bound by an earlier flow of the session, or AB_NO_TARGET */
	__u16 endpoint; /* target bound by an earlier flow of the LAN endpoint, or AB_NO_TARGET */
	__u16 retried;	/* ... and whether those to be avoided are allowed */
	__u32 race;	/* its SYN takes the whole pool, and ab_request.draw is the number of choices so far */
	__u32 fresh;	/* links with a valid response time for its destination, as bits, ... */
	__u32 unknown;	/* ... and those over which it may be sent to measure */
	__u32 untold;	/* 1: it measures, and its destination was never measured */
	__u32 response_us[AB_MAX_LINKS]; /* of the links of `fresh`, ... */
	__u16 loss[AB_MAX_LINKS];	 /* ... and their loss, if that counts: ab_loss() */
};

struct ab_decision {
	__u16 target; /* AB_NO_TARGET if none */
	__u8 why;     /* enum ab_why */
	__u8 zero;
};

#endif
