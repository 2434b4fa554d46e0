/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * ICMP errors (RFC 5508 section 4): those about a flow's packets are translated, outer and inner header, in both
 * directions, and neither refresh nor end it; and those the gateway itself answers with.
 */
#ifndef ANABRANCH_ICMP_H
#define ANABRANCH_ICMP_H

#include "nat.h"

#define ICMP_SUM_CHUNK 512
#define ICMP_SUM_CHUNKS 4

/* What an error quotes: the packet of ours that failed. */
struct quote {
	__u32 l3, l4;
	__be32 src, dst;
	__be16 sport, dport;
	__u8 proto;
};

/* Whether the ICMP message of `length` bytes at `at` sums to all ones. */
__noinline int icmp_sum_holds(struct __sk_buff *skb, __u32 at, __u32 length)
{
	struct ab_scratch *s = scratch();
	__s64 sum = 0;
	if (!s || length > ICMP_SUM_CHUNK * ICMP_SUM_CHUNKS)
		return 0;
	for (__u32 i = 0; i < ICMP_SUM_CHUNKS && length; i++) {
		__u32 size = length < ICMP_SUM_CHUNK ? length : ICMP_SUM_CHUNK;
		__builtin_memset(s->bytes, 0, ICMP_SUM_CHUNK);
		if (bpf_skb_load_bytes(skb, at, s->bytes, bounded_length(size, ICMP_SUM_CHUNK)))
			return 0;
		sum = bpf_csum_diff(NULL, 0, (__be32 *)s->bytes, ICMP_SUM_CHUNK, sum);
		at += size;
		length -= size;
	}
	return length == 0 && fold_sum((__u32)sum) == 0xffff;
}

/* Reads the quoted headers; options in the inner header are stepped over. 0, or the reason to drop. */
static __always_inline int read_quote(struct __sk_buff *skb, const struct packet *p, struct quote *q)
{
	struct iphdr ip;
	__be16 ports[4];
	q->l3 = p->l4 + sizeof(struct icmphdr);
	if (bpf_skb_load_bytes(skb, q->l3, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
		return AB_REASON_MALFORMED;
	q->l4 = q->l3 + ip.ihl * 4;
	q->src = ip.saddr;
	q->dst = ip.daddr;
	/* Without ports no flow is found. */
	q->proto = ip.frag_off & bpf_htons(IP_OFFSET_MASK) ? 0 : ip.protocol;
	if (bpf_skb_load_bytes(skb, q->l4, ports, sizeof(ports)))
		return AB_REASON_MALFORMED;
	if (q->proto == IPPROTO_ICMP) {
		q->sport = q->dport = ports[2];
	} else {
		q->sport = ports[0];
		q->dport = ports[1];
	}
	return 0;
}

/*
 * In the quote the translated endpoint changes back: its address with the inner header sum, which leaves the ICMP sum
 * as it was; its port with the ICMP sum.
 */
static __always_inline int rewrite_quote(struct __sk_buff *skb, const struct packet *p, const struct quote *q,
					 enum direction way, const struct ab_flow *flow)
{
	__be32 from = way == INBOUND ? q->src : q->dst, to = flow->other_local.word[3];
	__be16 from_port = way == INBOUND ? q->sport : q->dport, to_port = flow->other_port;
	__u32 addr_at = q->l3 + (way == INBOUND ? 12 : 16);
	__u32 port_at = q->l4 + (q->proto == IPPROTO_ICMP ? 4 : way == INBOUND ? 0 : 2);
	if (bpf_l3_csum_replace(skb, q->l3 + 10, from, to, 4) || bpf_skb_store_bytes(skb, addr_at, &to, 4, 0))
		return AB_REASON_REWRITE_FAILED;
	if (from_port == to_port)
		return 0;
	if (bpf_l4_csum_replace(skb, p->l4 + 2, from_port, to_port, 2) || bpf_skb_store_bytes(skb, port_at, &to_port, 2, 0))
		return AB_REASON_REWRITE_FAILED;
	return 0;
}

static __always_inline int rewrite_outer(struct __sk_buff *skb, const struct packet *p, enum direction way, __be32 to)
{
	struct packet outer = *p;
	struct ab_flow as_flow = {};
	as_flow.other_local.word[3] = to;
	outer.has_ports_header = 0;
	return rewrite_packet(skb, &outer, way, &as_flow, p->id);
}

/* An error from the internet about a packet a LAN host sent. */
__noinline int translate_error_in(struct __sk_buff *skb, struct packet *p, __u32 link)
{
	if (!p)
		return AB_REASON_MALFORMED;
	struct quote q;
	struct ab_flow_key key;
	if (is_lan_address(p->src))
		return AB_REASON_SPOOFED_WAN;
	if (!icmp_sum_holds(skb, p->l4, p->length - (p->l4 - p->l3)))
		return AB_REASON_BAD_CHECKSUM;
	int bad = read_quote(skb, p, &q);
	if (bad)
		return bad;
	make_key(&key, q.proto, AB_SIDE_LINK(link), q.src, q.sport, q.dst, q.dport);
	struct ab_flow *flow = find_flow(&key);
	if (!flow)
		return AB_REASON_NO_FLOW_IN;
	if (p->ttl <= 1)
		return AB_REASON_TTL_IN;
	bad = rewrite_quote(skb, p, &q, INBOUND, flow) ?: rewrite_outer(skb, p, INBOUND, flow->other_local.word[3]);
	if (bad)
		return bad;
	return send_to_lan(skb, p, flow, flow->other_local.word[3]) == AB_REASON_TRANSLATED_IN ? AB_REASON_ERROR_IN
											       : AB_REASON_REWRITE_FAILED;
}

/* An error from the LAN about a packet the internet sent: its source becomes the flow's external address. */
__noinline int translate_error_out(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return AB_REASON_MALFORMED;
	struct quote q;
	struct ab_flow_key key;
	const struct ab_route *route = find_route(p->dst);
	if (route && route->verdict != AB_VERDICT_LINK)
		return AB_REASON_SPECIFIC_ROUTE;
	if (!is_lan_address(p->src))
		return AB_REASON_SPOOFED_LAN;
	if (p->ttl <= 1)
		return AB_REASON_TTL_OUT;
	if (!icmp_sum_holds(skb, p->l4, p->length - (p->l4 - p->l3)))
		return AB_REASON_BAD_CHECKSUM;
	int bad = read_quote(skb, p, &q);
	if (bad)
		return bad;
	make_key(&key, q.proto, AB_SIDE_LAN, q.dst, q.dport, q.src, q.sport);
	struct ab_flow *flow = find_flow(&key);
	if (!flow)
		return AB_REASON_FOREIGN_ERROR;
	const struct ab_link *link = link_at(flow->link);
	if (!link)
		return AB_REASON_NO_LINK;
	bad = rewrite_quote(skb, p, &q, OUTBOUND, flow) ?: rewrite_outer(skb, p, OUTBOUND, flow->other_local.word[3]);
	if (bad)
		return bad;
	send_over_link(link, p->dst);
	return AB_REASON_ERROR_OUT;
}

#endif
