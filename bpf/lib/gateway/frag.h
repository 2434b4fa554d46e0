/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Fragments of flows, and packets that are too long for the next device. */
#ifndef ANABRANCH_FRAG_H
#define ANABRANCH_FRAG_H

#include "../packet/fragment.h"
#include "../packet/mtu.h"
#include "early.h"
#include "flow.h"
#include "turn.h"

/* For a packet of a flow: if it is the first fragment of its datagram, it is recorded for the others, and those that wait are
 * released. Returns 0, or the reason to drop. */
static __always_inline int begin_datagram(struct __sk_buff *skb, struct packet *p, __u32 side)
{
	if (!is_fragment(p) || is_later_fragment(p))
		return 0;
	return learn_fragment(p, side) ?: release_early(skb, p, side);
}

/* Splits a packet that is too long for the next device, or answers it. Returns 0, or the reason. */
__noinline int cut_to_mtu(struct __sk_buff *skb, struct packet *p, __u32 mtu, __u32 side)
{
	if (!p)
		return AB_REASON_MALFORMED;
	p->mtu = mtu;
	if (p->fragment & IP_DONT_FRAGMENT)
		return side == AB_SIDE_LAN ? AB_REASON_TOO_BIG_OUT : AB_REASON_TOO_BIG_IN;
	__u32 was_fragment = is_fragment(p);
	int bad = split_packet(skb, p, mtu, p->flags & PACKET_HAIRPINNED ? TAIL_HAIRPINNED : 0);
	return bad || was_fragment ? bad : learn_fragment(p, side);
}

static __always_inline int fit_to_mtu(struct __sk_buff *skb, struct packet *p, __u32 mtu, __u32 side)
{
	return exceeds_mtu(skb, p, mtu) ? cut_to_mtu(skb, p, mtu, side) : 0;
}

#endif
