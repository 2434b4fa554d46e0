/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Marks of ours on packets that programs of ours send back to an ingress, and marks like them that others bring. skb->cb lasts as
 * long as a redirect, and only BPF programs write it: what has our two words there was sent back by us.
 */
#ifndef ANABRANCH_MARK_H
#define ANABRANCH_MARK_H

#include <linux/bpf.h>

#include "../../include/marks.h"
#include "../../policy/inline.h"

/* Before a redirect to an ingress, or a copy that takes one. */
static __always_inline void mark_sent_back(struct __sk_buff *skb, __u32 mark)
{
	skb->mark = mark;
	skb->cb[0] = AB_SENT_BACK_0;
	skb->cb[1] = AB_SENT_BACK_1;
}

/* From here on a mark of ours is by us. Others' marks of other kinds stay: they are for others' rules. */
static __always_inline void take_foreign_mark_off(struct __sk_buff *skb)
{
	if ((skb->mark & AB_OUR_MARKS_MASK) != AB_OUR_MARKS)
		return;
	if (skb->cb[0] != AB_SENT_BACK_0 || skb->cb[1] != AB_SENT_BACK_1)
		skb->mark = 0;
}

#endif
