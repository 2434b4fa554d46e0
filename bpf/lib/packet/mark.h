/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Our marks on packets that our programs send back to an ingress, and the same marks set by others. skb->cb survives
 * a redirect, and only BPF programs write it there. So a packet with our two words was sent back by us.
 */
#ifndef ANABRANCH_MARK_H
#define ANABRANCH_MARK_H

#include <linux/bpf.h>

#include "../../include/marks.h"
#include "../../policy/inline.h"

/* Called before a redirect or clone to an ingress. */
static __always_inline void mark_sent_back(struct __sk_buff *skb, __u32 mark)
{
	skb->mark = mark;
	skb->cb[0] = AB_SENT_BACK_0;
	skb->cb[1] = AB_SENT_BACK_1;
}

/* Whether the packet's mark is of such a packet. */
static __always_inline int is_sent_back(const struct __sk_buff *skb)
{
	return skb->cb[0] == AB_SENT_BACK_0 && skb->cb[1] == AB_SENT_BACK_1;
}

/* Removes a mark of our kinds that others have set. Other marks are kept, because rules of others may match them. */
static __always_inline void take_foreign_mark_off(struct __sk_buff *skb)
{
	if ((skb->mark & AB_OUR_MARKS_MASK) != AB_OUR_MARKS)
		return;
	if (!is_sent_back(skb))
		skb->mark = 0;
}

#endif
