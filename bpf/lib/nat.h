/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* A flow's packet is rewritten and leaves: out over its link, or in to its LAN host. */
#ifndef ANABRANCH_NAT_H
#define ANABRANCH_NAT_H

#include "flow.h"
#include "open.h"
#include "redirect.h"

enum direction { OUTBOUND, INBOUND };

/* RFC 1624 eq. 3, for one 32-bit word. */
static __always_inline __u64 replace_in_sum(__u64 sum, __u32 from, __u32 to)
{
	return sum + (__u32)~from + to;
}

/*
 * The transport checksum through the kernel's helper, which keeps partial and complete sums of the hardware right.
 * The address counts by the pseudo header (not for ICMP), the port by itself.
 */
static __always_inline int fix_transport_sum(struct __sk_buff *skb, const struct packet *p, __be32 from, __be32 to,
					     __be16 from_port, __be16 to_port)
{
	__u32 at = p->l4 + (p->proto == IPPROTO_TCP ? 16 : p->proto == IPPROTO_UDP ? 6 : 2);
	__u64 flags = p->proto == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0;
	if (p->proto != IPPROTO_ICMP && bpf_l4_csum_replace(skb, at, from, to, flags | BPF_F_PSEUDO_HDR | 4))
		return -1;
	if (from_port != to_port && bpf_l4_csum_replace(skb, at, from_port, to_port, flags | 2))
		return -1;
	return 0;
}

static __always_inline __u32 port_offset(const struct packet *p, enum direction way)
{
	if (p->proto == IPPROTO_ICMP)
		return 4;
	return way == OUTBOUND ? 0 : 2;
}

/* Writes the new local endpoint, one hop less, and the new id into the packet. 0, or the reason of failure. */
static __always_inline int rewrite_packet(struct __sk_buff *skb, const struct packet *p, enum direction way, __be32 to,
					  __be16 to_port)
{
	__be32 from = way == OUTBOUND ? p->src : p->dst;
	__be16 from_port = way == OUTBOUND ? p->sport : p->dport;
	if (p->has_ports_header && fix_transport_sum(skb, p, from, to, from_port, to_port))
		return AB_REASON_REWRITE_FAILED;

	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + bounded_l3(p);
	if ((void *)(ip + 1) > end)
		return AB_REASON_REWRITE_FAILED;
	__u64 sum = (__u16)~ip->check;
	sum = replace_in_sum(sum, from, to);
	sum = replace_in_sum(sum, bpf_htons((__u16)ip->ttl << 8), bpf_htons((__u16)(ip->ttl - 1) << 8));
	sum = replace_in_sum(sum, ip->id, p->new_id);
	ip->ttl--;
	ip->id = p->new_id;
	if (way == OUTBOUND)
		ip->saddr = to;
	else
		ip->daddr = to;
	ip->check = ~fold_sum(sum);

	if (p->has_ports_header && from_port != to_port) {
		__be16 *port = data + bounded_l4(p) + port_offset(p, way);
		if ((void *)(port + 1) > end)
			return AB_REASON_REWRITE_FAILED;
		*port = to_port;
	}
	return 0;
}

/* The same of an address alone. */
static __noinline int rewrite_address(struct __sk_buff *skb, const struct packet *p, enum direction way, __be32 to)
{
	return rewrite_packet(skb, p, way, to, way == OUTBOUND ? p->sport : p->dport);
}

struct load {
	__u32 packets, bytes;
};

/* What the packet weighs on the wire's IP layer: a superpacket is all its segments, headers included. */
static __always_inline struct load packet_load(const struct __sk_buff *skb, const struct packet *p)
{
	struct load load = { .packets = 1, .bytes = p->length };
	if (skb->gso_segs > 1) {
		load.packets = skb->gso_segs;
		load.bytes += (skb->gso_segs - 1) * (p->l4 - p->l3 + p->l4_header);
	}
	return load;
}

/* A layer-3 device takes the bare IP packet; Ethernet resolves the gateway, or the destination where there is none. */
static __always_inline void send_over_link(const struct ab_link *link, __be32 dst)
{
	if (link->flags & AB_LINK_POINT_TO_POINT)
		bpf_redirect(link->ifindex, 0);
	else
		redirect_to(link->ifindex, link->gateway.word[3] ?: dst);
}

/* Towards the LAN host, or the router it is behind. A packet of a layer-3 link first gets room for Ethernet. */
static __always_inline int send_to_lan(struct __sk_buff *skb, const struct packet *p, const struct ab_flow *flow,
				       __be32 host)
{
	__be32 next_hop = host;
	if (flow->state & AB_STATE_VIA_ROUTER) {
		const struct ab_route *route = find_route(host);
		if (route && route->via.word[3])
			next_hop = route->via.word[3];
	}
	__u32 ifindex = flow->lan_ifindex;
	if (p->l3 == 0 && bpf_skb_change_head(skb, ETH_HLEN, 0))
		return AB_REASON_REWRITE_FAILED;
	redirect_to(ifindex, next_hop);
	return AB_REASON_TRANSLATED_IN;
}

#endif
