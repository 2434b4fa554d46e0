/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The return values of programs. */
#ifndef ANABRANCH_FATE_H
#define ANABRANCH_FATE_H

#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#include "../../include/reasons.h"
#include "../../policy/inline.h"

/* The TC action for a fate. Packets that are passed go on to other programs of the device, then to the stack. */
static __always_inline int action_of(enum ab_fate fate)
{
	switch (fate) {
	case AB_SENT:
		return TC_ACT_REDIRECT;
	case AB_PASSED:
		return TC_ACT_UNSPEC;
	default:
		return TC_ACT_SHOT;
	}
}

#endif
