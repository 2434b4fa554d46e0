/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* SYN/ACKs to clients whose packets come in a tunnel: their segments have to fit it, outer headers included. */
#ifndef ANABRANCH_MEMBER_ANSWER_H
#define ANABRANCH_MEMBER_ANSWER_H

#include "../packet/mtu.h"
#include "maps.h"
#include "tunnel.h"

#define SYN_ACK_FLAGS (AB_TCP_SYN | AB_TCP_ACK)

/* Reads source and transport header of a SYN/ACK without extension headers. Returns whether the packet is one. */
static __always_inline int read_syn_ack(struct __sk_buff *skb, struct packet *p)
{
	union ip_head head = {};
	__u8 flags = 0;
	p->family = skb->protocol == bpf_htons(ETH_P_IPV6) ? AB_IPV6 : AB_IPV4;
	p->l3 = ETH_HLEN;
	if (load_ip(skb, ETH_HLEN, p->family, &head))
		return 0;
	if (p->family == AB_IPV6) {
		__builtin_memcpy(&p->src, &head.ip6.saddr, sizeof(p->src));
		p->proto = head.ip6.nexthdr;
		p->l4 = ETH_HLEN + sizeof(head.ip6);
	} else {
		map_ipv4(&p->src, head.ip.saddr);
		p->proto = head.ip.protocol;
		p->l4 = ETH_HLEN + head.ip.ihl * 4;
	}
	return p->proto == IPPROTO_TCP && !bpf_skb_load_bytes(skb, p->l4 + 13, &flags, 1) &&
	       (flags & SYN_ACK_FLAGS) == SYN_ACK_FLAGS;
}

/* Lowers the MSS of a SYN/ACK of a virtual address to what fits the tunnels that led to it. Returns whether it is counted. */
static __always_inline int fit_answer(struct __sk_buff *skb)
{
	struct packet p = {};
	__u32 mtu = 0;
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return 0;
	if (!read_syn_ack(skb, &p))
		return 0;
	const struct ab_member_address *address = bpf_map_lookup_elem(&member_addresses, &p.src);
	if (!address || !address->outer_bytes)
		return 0;
	__u32 outer_bytes = address->outer_bytes;
	bpf_check_mtu(skb, 0, &mtu, 0, 0);
	return mtu > outer_bytes && !clamp_mss(skb, &p, mtu - outer_bytes);
}

#endif
