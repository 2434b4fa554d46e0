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
	return p->flags & PACKET_TURNED ? turn_back(skb, p) : bpf_redirect(skb->ifindex, 0);
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

/* Answers a segment with an ACK by the RST of RFC 9293 section 3.5.2, as if the remote end sent it. */
__noinline int answer_rst(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return -1;
	struct answer_head head;
	__u32 length = ip_header_of(p->family) + sizeof(head.tcp);
	if (!p->has_ports_header || p->tcp_flags & AB_TCP_RST || bpf_skb_change_tail(skb, p->l3 + length, 0))
		return -1;
	__u64 pseudo = fill_answer(&head, p, &p->dst, IPPROTO_TCP, sizeof(head.tcp));
	head.tcp.source = p->dport;
	head.tcp.dest = p->sport;
	head.tcp.doff = sizeof(head.tcp) / 4;
	head.tcp.rst = 1;
	head.tcp.seq = bpf_htonl(p->ack);
	__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)&head.tcp, sizeof(head.tcp), 0);
	head.tcp.check = ~fold_sum(pseudo + (__u32)sum);
	if (write_answer(skb, p, &head, sizeof(head.tcp)))
		return -1;
	return send_back(skb, p);
}

#endif
