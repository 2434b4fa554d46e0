/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * ICMP errors (RFC 5508 section 4): those about a flow's packets are translated, outer and inner header, in both
 * directions, and neither refresh nor end it; and those the gateway itself answers with.
 */
#ifndef ANABRANCH_ICMP_H
#define ANABRANCH_ICMP_H

#include "nat.h"
#include "stray.h"
#include "tcp.h"

#define ICMP_SUM_CHUNK 512
#define ICMP_SUM_CHUNKS 4

/* What an error quotes: the packet of ours that failed. Its IP id stays that of the link where it was replaced: nobody
 * remembers the host's. */
struct quote {
	__u32 l3, l4;
	__u32 check_at; /* of the transport checksum; 0: not quoted, or not computed */
	__be32 src, dst;
	__be16 sport, dport;
	__be16 check;
	__u8 proto;
	__u32 seq; /* TCP, host order */
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

/* Where the transport checksum of the quote is, and what it is. */
static __always_inline int read_quoted_check(struct __sk_buff *skb, struct quote *q, __u32 end)
{
	q->check_at = q->l4 + (q->proto == IPPROTO_TCP ? 16 : q->proto == IPPROTO_UDP ? 6 : 2);
	if (!q->proto || q->check_at + 2 > end)
		q->check_at = 0;
	else if (bpf_skb_load_bytes(skb, q->check_at, &q->check, 2))
		return AB_REASON_MALFORMED;
	if (q->proto == IPPROTO_UDP && !q->check)
		q->check_at = 0;
	return 0;
}

/* Reads the quoted headers, which must lie within the packet; options in the inner header are stepped over. 0, or the
 * reason to drop. */
__noinline int read_quote(struct __sk_buff *skb, struct packet *p, struct quote *q)
{
	if (!p || !q)
		return AB_REASON_MALFORMED;
	struct iphdr ip;
	struct {
		__be16 ports[2];
		union {
			__be32 seq;
			__be16 echo_id;
		};
	} head;
	__u32 end = p->l3 + p->length;
	q->l3 = p->l4 + sizeof(struct icmphdr);
	if (q->l3 + sizeof(ip) > end || bpf_skb_load_bytes(skb, q->l3, &ip, sizeof(ip)) || ip.version != 4 ||
	    ip.ihl < 5)
		return AB_REASON_MALFORMED;
	q->l4 = q->l3 + ip.ihl * 4;
	q->src = ip.saddr;
	q->dst = ip.daddr;
	/* Without ports no flow is found. */
	q->proto = ip.frag_off & bpf_htons(IP_OFFSET_MASK) ? 0 : ip.protocol;
	if (q->l4 + sizeof(head) > end || bpf_skb_load_bytes(skb, q->l4, &head, sizeof(head)))
		return AB_REASON_MALFORMED;
	__u8 type = *(const __u8 *)head.ports;
	/* Of ICMP only queries have flows (RFC 1122 section 3.2.2: no error is about an error). */
	if (q->proto == IPPROTO_ICMP && type != ICMP_ECHO && type != ICMP_ECHOREPLY)
		q->proto = 0;
	q->sport = q->proto == IPPROTO_ICMP ? head.echo_id : head.ports[0];
	q->dport = q->proto == IPPROTO_ICMP ? head.echo_id : head.ports[1];
	q->seq = bpf_ntohl(head.seq);
	return read_quoted_check(skb, q, end);
}

/*
 * Whether a quoted segment is in flight or a keepalive (RFC 5927 section 4.1): anybody may send errors, and only who sees
 * the flow knows where it is. `receiver` is the entry that was found, of the direction against the quoted packet.
 */
static __noinline int is_in_flight(struct quote *q, struct ab_flow_key *key, struct ab_flow *receiver)
{
	struct ab_scratch *s = scratch();
	if (q->proto != IPPROTO_TCP)
		return 1;
	struct ab_flow *sender = s ? find_other(key, receiver, &s->lan_key) : NULL;
	if (!sender)
		return 0;
	__u32 end = sender->tcp.end, acked = receiver->tcp.ack;
	__u32 first = acked && !is_after(acked, end) ? acked - 1 : end - TCP_PLAUSIBLE_WINDOW;
	return q->seq - first <= end - first;
}

/* Changes 16 bits of the quote, and the ICMP sum with them. */
__noinline int replace_quoted(struct __sk_buff *skb, __u32 sum_at, __u32 at, __u32 from, __u32 to)
{
	__be16 word = to;
	return bpf_l4_csum_replace(skb, sum_at, from, to, 2) || bpf_skb_store_bytes(skb, at, &word, 2, 0);
}

/* The quoted transport checksum as it was before the endpoint was translated (RFC 1624). */
static __always_inline __be16 restored_check(const struct quote *q, __be32 from, __be32 to, __be16 from_port,
					     __be16 to_port)
{
	__u64 sum = (__u16)~q->check;
	if (q->proto != IPPROTO_ICMP)
		sum = replace_in_sum(sum, from, to);
	sum = replace_in_sum(sum, from_port, to_port);
	__be16 check = ~fold_sum(sum);
	return q->proto == IPPROTO_UDP && !check ? 0xffff : check;
}

/*
 * In the quote the translated endpoint changes back: its address with the inner header sum, which leaves the ICMP sum
 * as it was; its port and the transport checksum with the ICMP sum.
 */
static __always_inline int rewrite_quote(struct __sk_buff *skb, const struct packet *p, const struct quote *q,
					 enum direction way, const struct ab_flow *flow)
{
	__be32 from = way == INBOUND ? q->src : q->dst, to = flow->other_local.word[3];
	__be16 from_port = way == INBOUND ? q->sport : q->dport, to_port = flow->other_port;
	__u32 addr_at = q->l3 + (way == INBOUND ? 12 : 16), sum_at = p->l4 + 2;
	__u32 port_at = q->l4 + (q->proto == IPPROTO_ICMP ? 4 : way == INBOUND ? 0 : 2);
	__be16 check = restored_check(q, from, to, from_port, to_port);
	if (bpf_l3_csum_replace(skb, q->l3 + 10, from, to, 4) || bpf_skb_store_bytes(skb, addr_at, &to, 4, 0))
		return AB_REASON_REWRITE_FAILED;
	if (from_port != to_port && replace_quoted(skb, sum_at, port_at, from_port, to_port))
		return AB_REASON_REWRITE_FAILED;
	if (q->check_at && replace_quoted(skb, sum_at, q->check_at, q->check, check))
		return AB_REASON_REWRITE_FAILED;
	return 0;
}

/* An error from the internet about a packet a LAN host sent. 0: it is about no flow. */
__noinline int translate_error_in(struct __sk_buff *skb, struct packet *p, __u32 side)
{
	if (!p)
		return AB_REASON_MALFORMED;
	struct quote q;
	struct ab_flow_key key;
	if (!(p->flags & PACKET_TURNED) && (is_lan_address(p->src) || is_local_address(p->src)))
		return AB_REASON_SPOOFED_WAN;
	if (!icmp_sum_holds(skb, p->l4, p->length - (p->l4 - p->l3)))
		return AB_REASON_BAD_CHECKSUM;
	int bad = read_quote(skb, p, &q);
	if (bad)
		return bad;
	make_key(&key, q.proto, side, q.src, q.sport, q.dst, q.dport);
	struct ab_flow *flow = find_flow(&key);
	if (!flow)
		return 0;
	if (!is_in_flight(&q, &key, flow))
		return AB_REASON_BAD_QUOTE;
	if (p->ttl <= 1)
		return AB_REASON_TTL_IN;
	bad = rewrite_quote(skb, p, &q, INBOUND, flow) ?: rewrite_address(skb, p, INBOUND, flow->other_local.word[3]);
	if (bad)
		return bad;
	return send_to_lan(skb, p, flow, flow->other_local.word[3]) == AB_REASON_TRANSLATED_IN
		       ? AB_REASON_ERROR_IN
		       : AB_REASON_REWRITE_FAILED;
}

/* The flow of a packet that came from the internet, and its LAN key: a mapping that is the remote end's alone before another. */
static __noinline struct ab_flow *find_quoted(struct ab_flow_key *key, const struct quote *q)
{
	make_apart_key(key, q->proto, q->dst, q->dport, q->src, q->sport);
	struct ab_flow *flow = find_flow(key);
	if (flow || !is_mapping(q->proto))
		return flow;
	make_key(key, q->proto, AB_SIDE_LAN, q->dst, q->dport, q->src, q->sport);
	return find_flow(key);
}

/* An error from the LAN about a packet the internet sent: its source becomes the flow's external address. 0: it is about no flow,
 * and there are links without NAT. */
__noinline int translate_error_out(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return AB_REASON_MALFORMED;
	struct quote q;
	struct ab_flow_key key;
	if (!is_lan_address(p->src))
		return AB_REASON_SPOOFED_LAN;
	const struct ab_route *route = find_route(p->dst);
	if (route && route->verdict != AB_VERDICT_LINK)
		return AB_REASON_SPECIFIC_ROUTE;
	if (p->ttl <= 1)
		return AB_REASON_TTL_OUT;
	if (!icmp_sum_holds(skb, p->l4, p->length - (p->l4 - p->l3)))
		return AB_REASON_BAD_CHECKSUM;
	int bad = read_quote(skb, p, &q);
	if (bad)
		return bad;
	struct ab_flow *flow = find_quoted(&key, &q);
	const struct ab_settings *set = current_settings();
	if (!flow && set && set->routed)
		return 0;
	if (!flow)
		return is_forwarding() ? AB_REASON_FORWARD_OUT : AB_REASON_FOREIGN_ERROR;
	/* Nobody on another device speaks for the host. */
	if (p->ifindex != flow->lan_ifindex && !(set && set->lan_sources_loose))
		return AB_REASON_SPOOFED_DEVICE;
	if (!is_in_flight(&q, &key, flow))
		return AB_REASON_BAD_QUOTE;
	const struct ab_link *link = link_at(flow->link);
	if (!link)
		return AB_REASON_NO_LINK;
	bad = rewrite_quote(skb, p, &q, OUTBOUND, flow) ?: rewrite_address(skb, p, OUTBOUND, flow->other_local.word[3]);
	if (bad)
		return bad;
	send_over_link(link, p->dst);
	return AB_REASON_ERROR_OUT;
}

#endif
