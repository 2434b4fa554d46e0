/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Packets that the gateway itself sends, always back to the sender: ICMP errors, and RSTs for segments of unknown flows. */
#ifndef ANABRANCH_ANSWER_H
#define ANABRANCH_ANSWER_H

#include "../packet/answer.h"
#include "turn.h"

/* Sends the answer to a hairpinned packet to the LAN host that sent the packet. */
static __always_inline int turn_back(struct __sk_buff *skb, struct packet *p)
{
	return turn_to(skb, p, link_of_sender(p));
}

/* Sends the answer to where the packet came from. */
static __always_inline int send_back(struct __sk_buff *skb, struct packet *p)
{
	if (exchange_ends(skb, p))
		return -1;
	return p->flags & PACKET_HAIRPINNED ? turn_back(skb, p) : bpf_redirect(skb->ifindex, 0);
}

/* Answers with an ICMP error, see become_error(). */
__noinline int answer_icmp(struct __sk_buff *skb, struct packet *p, __u32 type_code)
{
	const struct ab_device *device = device_of(skb->ifindex);
	if (!p || !device)
		return -1;
	__u32 is_link = device->role == AB_ROLE_LINK;
	const union ab_addr *own = is_link ? &p->dst : &device->address[p->family & 1];
	if (become_error(skb, p, own, is_link, type_code))
		return -1;
	return send_back(skb, p);
}

/* Answers a segment by a RST, as if the remote end sent it. */
__noinline int answer_rst(struct __sk_buff *skb, struct packet *p)
{
	return !p || become_reset(skb, p) ? -1 : send_back(skb, p);
}

#endif
