/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * ICMP errors (RFC 5508 section 4). Errors about a flow's packets are translated, the outer and the embedded header, in both
 * directions. They neither refresh nor end the flow.
 */
#ifndef ANABRANCH_ICMP_H
#define ANABRANCH_ICMP_H

#include "nat.h"
#include "stray.h"
#include "tcp.h"

#define ICMP_SUM_CHUNK 512
#define ICMP_SUM_CHUNKS 4

/* The packet of ours that an error embeds. If its id was replaced on the link, it keeps the replacement, because the host's id is
 * not remembered. */
struct quote {
	union ab_addr src, dst;
	__u32 l3, l4;
	__u32 check_at; /* offset of the transport checksum; 0: not embedded, or not computed */
	__be16 sport, dport;
	__be16 check;
	__u8 proto;
	__u8 family;
	__u32 seq; /* TCP, host order */
};

/* What the checksum of an ICMPv6 message counts of the IP header (RFC 8200 section 8.1). */
static __always_inline __s64 pseudo_sum(const struct packet *p, __u32 length)
{
	__be32 rest[2] = { bpf_htonl(length), bpf_htonl(IPPROTO_ICMPV6) };
	__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)&p->src, sizeof(p->src) + sizeof(p->dst), 0);
	return bpf_csum_diff(NULL, 0, rest, sizeof(rest), sum);
}

AB_SCRATCH(quote_room, struct quote)

/* Whether the checksum of the ICMP message is right. */
__noinline int icmp_sum_holds(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	if (!s || !p)
		return 0;
	__u32 at = p->l4, length = p->length - (p->l4 - p->l3);
	if (length > ICMP_SUM_CHUNK * ICMP_SUM_CHUNKS)
		return 0;
	__s64 sum = p->family == AB_IPV6 ? pseudo_sum(p, length) : 0;
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

/* Reads the transport checksum of the embedded packet, and where it is. */
static __always_inline int read_quoted_check(struct __sk_buff *skb, struct quote *q, __u32 end)
{
	q->check_at = q->l4 + offset_of_sum(q->proto);
	if (!q->proto || q->check_at + 2 > end)
		q->check_at = 0;
	else if (bpf_skb_load_bytes(skb, q->check_at, &q->check, 2))
		return AB_REASON_MALFORMED;
	if (q->proto == IPPROTO_UDP && !q->check)
		q->check_at = 0;
	return 0;
}

static __always_inline int read_quoted_ipv4(struct __sk_buff *skb, struct quote *q)
{
	struct iphdr ip;
	if (bpf_skb_load_bytes(skb, q->l3, &ip, sizeof(ip)) || ip.version != 4 || ip.ihl < 5)
		return AB_REASON_MALFORMED;
	q->l4 = q->l3 + ip.ihl * 4;
	map_ipv4(&q->src, ip.saddr);
	map_ipv4(&q->dst, ip.daddr);
	/* A later fragment has no ports, so no flow is found. */
	q->proto = ip.frag_off & bpf_htons(IP_OFFSET_MASK) ? 0 : ip.protocol;
	return 0;
}

AB_SCRATCH(quoted_room, struct packet)

static __always_inline int read_quoted_ipv6(struct __sk_buff *skb, struct quote *q, __u32 end)
{
	struct packet *inner = quoted_room();
	struct ipv6hdr ip;
	/* Offsets are stored in one byte. */
	if (!inner || q->l3 + sizeof(ip) > 0xff || bpf_skb_load_bytes(skb, q->l3, &ip, sizeof(ip)) || ip.version != 6)
		return AB_REASON_MALFORMED;
	__builtin_memset(inner, 0, sizeof(*inner));
	inner->l3 = q->l3;
	inner->l4 = q->l3 + sizeof(ip);
	inner->length = end - q->l3;
	inner->proto = ip.nexthdr;
	int bad = is_extension(inner->proto) ? find_transport(skb, inner) : 0;
	if (bad)
		return bad;
	q->l4 = inner->l4;
	__builtin_memcpy(&q->src, &ip.saddr, sizeof(q->src));
	__builtin_memcpy(&q->dst, &ip.daddr, sizeof(q->dst));
	q->proto = is_later_fragment(inner) ? 0 : inner->proto;
	return ab_is_v4_mapped(&q->src) || ab_is_v4_mapped(&q->dst) ? AB_REASON_MALFORMED : 0;
}

/* Reads the embedded headers, which must be inside the packet. Options and extension headers are stepped over. Returns 0, or
 * the reason to drop. */
__noinline int read_quote(struct __sk_buff *skb, struct packet *p, struct quote *q)
{
	if (!p || !q)
		return AB_REASON_MALFORMED;
	struct {
		__be16 ports[2];
		union {
			__be32 seq;
			__be16 echo_id;
		};
	} head;
	__u32 end = p->l3 + p->length;
	q->family = p->family;
	q->l3 = p->l4 + sizeof(struct icmphdr);
	if (q->l3 + ip_header_of(q->family) > end)
		return AB_REASON_MALFORMED;
	int bad = q->family == AB_IPV6 ? read_quoted_ipv6(skb, q, end) : read_quoted_ipv4(skb, q);
	if (bad)
		return bad;
	if (q->l4 + sizeof(head) > end || bpf_skb_load_bytes(skb, q->l4, &head, sizeof(head)))
		return AB_REASON_MALFORMED;
	__u8 type = usual_icmp_type(q->proto, *(const __u8 *)head.ports);
	/* Only ICMP queries have flows (RFC 1122 section 3.2.2: no error is about an error). */
	if (is_icmp(q->proto) && type != ICMP_ECHO && type != ICMP_ECHOREPLY)
		q->proto = 0;
	q->sport = is_icmp(q->proto) ? head.echo_id : head.ports[0];
	q->dport = is_icmp(q->proto) ? head.echo_id : head.ports[1];
	q->seq = bpf_ntohl(head.seq);
	return read_quoted_check(skb, q, end);
}

/*
 * Whether an embedded segment is in flight or a keepalive (RFC 5927 section 4.1): anybody can send errors, but only hosts on the
 * path know the flow's sequence numbers. `receiver` is the entry that was found, of the direction opposite to the embedded packet.
 */
static __noinline int is_in_flight(struct quote *q, struct ab_flow_key *key, struct ab_flow *receiver)
{
	struct flow_room *s = flow_room();
	if (q->proto != IPPROTO_TCP)
		return 1;
	struct ab_flow *sender = s ? find_other(key, receiver, &s->lan_key) : NULL;
	/* If the SYN waits, only probes are under way. */
	if (!sender || (key->side != AB_SIDE_LAN && ab_waits(sender->tcp.tries)))
		return 0;
	__u32 end = sender->tcp.end, acked = receiver->tcp.ack;
	__u32 first = acked && !is_after(acked, end) ? acked - 1 : end - TCP_PLAUSIBLE_WINDOW;
	/* Before an answer only the SYN is under way. */
	if (key->side != AB_SIDE_LAN && !(sender->state & AB_STATE_REPLIED))
		first = sender->tcp.isn;
	return q->seq - first <= end - first;
}

/* Changes 16 bits of the embedded packet, and the ICMP checksum accordingly. */
__noinline int replace_quoted(struct __sk_buff *skb, __u32 sum_at, __u32 at, __u32 from, __u32 to)
{
	__be16 word = to;
	return bpf_l4_csum_replace(skb, sum_at, from, to, 2) || bpf_skb_store_bytes(skb, at, &word, 2, 0);
}

/* The embedded transport checksum as it was before the endpoint was translated (RFC 1624). */
static __always_inline __be16 restored_check(const struct quote *q, const union ab_addr *from, const union ab_addr *to,
					     __be16 from_port, __be16 to_port)
{
	__u64 sum = (__u16)~q->check;
	if (q->proto != IPPROTO_ICMP)
		sum = replace_addr_in_sum(sum, from, to);
	sum = replace_in_sum(sum, from_port, to_port);
	__be16 check = ~fold_sum(sum);
	return q->proto == IPPROTO_UDP && !check ? 0xffff : check;
}

/* In IPv4 the embedded header has a checksum of its own, which keeps that of the ICMP message unchanged. In IPv6 the ICMP checksum
 * changes. */
__noinline int replace_quoted_addr(struct __sk_buff *skb, struct quote *q, __u32 sum_at, struct ab_flow *flow,
				   __u32 is_src)
{
	if (!q || !flow)
		return -1;
	const union ab_addr *from = is_src ? &q->src : &q->dst, *to = &flow->other_local;
	if (q->family == AB_IPV4)
		return bpf_l3_csum_replace(skb, q->l3 + 10, from->word[3], to->word[3], 4) ||
		       bpf_skb_store_bytes(skb, q->l3 + (is_src ? 12 : 16), &to->word[3], 4, 0);
	__s64 change = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)to, sizeof(*to), 0);
	return bpf_l4_csum_replace(skb, sum_at, 0, change, 0) ||
	       bpf_skb_store_bytes(skb, q->l3 + (is_src ? 8 : 24), to, sizeof(*to), 0);
}

/*
 * Translates the endpoint in the embedded packet back: its address, its port and the transport checksum, and the ICMP checksum
 * accordingly.
 */
__noinline int rewrite_quote(struct __sk_buff *skb, struct packet *p, __u32 way, struct ab_flow *flow)
{
	struct quote *q = quote_room();
	if (!p || !q || !flow)
		return AB_REASON_MALFORMED;
	const union ab_addr *from = way == INBOUND ? &q->src : &q->dst;
	__be16 from_port = way == INBOUND ? q->sport : q->dport, to_port = flow->other_port;
	__u32 sum_at = p->l4 + 2, port_at = q->l4 + port_offset(q->proto, way == INBOUND ? OUTBOUND : INBOUND);
	__be16 check = restored_check(q, from, &flow->other_local, from_port, to_port);
	if (replace_quoted_addr(skb, q, sum_at, flow, way == INBOUND))
		return AB_REASON_REWRITE_FAILED;
	if (from_port != to_port && replace_quoted(skb, sum_at, port_at, from_port, to_port))
		return AB_REASON_REWRITE_FAILED;
	if (q->check_at && replace_quoted(skb, sum_at, q->check_at, q->check, check))
		return AB_REASON_REWRITE_FAILED;
	return 0;
}

/*
 * Replaces the source of an error by the link's address if it is link-local, which no router may forward (RFC 4291 section 2.5.6,
 * RFC 3927 section 2.7), or an address of the site, because some providers number routers out of private ranges (RFC 6752). The
 * embedded packet proves that the error is about the flow, and without "too big" errors its path would be a black hole. So no
 * packet from a link seems to come from a LAN host. Returns 0, or the reason to drop.
 */
__noinline int name_router(struct __sk_buff *skb, struct packet *p, __u32 link_index)
{
	const struct ab_link *link = p ? link_at(link_index, p->family) : NULL;
	if (!p || !link || (is_never_forwarded(&p->src) && !is_of_line(&p->src)) || !is_addr(&link->external))
		return AB_REASON_BAD_SOURCE;
	const union ab_addr *from = &p->src, *to = &link->external;
	__u32 l3 = bounded_l3(p), sum_at = bounded_l4(p) + 2;
	if (p->family == AB_IPV4)
		return bpf_l3_csum_replace(skb, l3 + 10, from->word[3], to->word[3], 4) ||
				       bpf_skb_store_bytes(skb, l3 + 12, &to->word[3], 4, 0)
			       ? AB_REASON_REWRITE_FAILED
			       : 0;
	__u32 change = fold_to_32(replace_addr_in_sum(0, from, to));
	return bpf_l4_csum_replace(skb, sum_at, 0, change, BPF_F_PSEUDO_HDR) ||
			       bpf_skb_store_bytes(skb, l3 + 8, to, sizeof(*to), BPF_F_RECOMPUTE_CSUM)
		       ? AB_REASON_REWRITE_FAILED
		       : 0;
}

/* Handles an error about a packet that left by a link's prefix without a flow: restores the LAN host's address in the embedded
 * packet. Returns 0, or the reason to drop. */
__noinline int restore_quote(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	const struct quote *q = quote_room();
	const struct ab_device *device = device_of(skb->ifindex);
	const struct ab_link *link = device ? open_link(device->link & (AB_MAX_LINKS - 1)) : NULL;
	if (!s || !p || !q || !link || p->family != AB_IPV6 || !is_same_addr(&p->dst, &q->src) ||
	    !find_inside(s, &q->src, link))
		return 0;
	s->wan.other_local = s->asked.local;
	s->wan.other_port = q->sport;
	return rewrite_quote(skb, p, INBOUND, &s->wan);
}

/* Translates an error from the internet about a packet of a LAN host. Returns 0 if it is about no flow. */
__noinline int translate_error_in(struct __sk_buff *skb, struct packet *p, __u32 side)
{
	struct quote *q = quote_room();
	if (!p || !q)
		return AB_REASON_MALFORMED;
	struct ab_flow_key key;
	__u32 is_false = !(p->flags & PACKET_TURNED) && is_of_site(&p->src);
	if (!icmp_sum_holds(skb, p))
		return AB_REASON_BAD_CHECKSUM;
	int bad = read_quote(skb, p, q);
	if (bad)
		return bad;
	make_key(&key, q->proto, side, &q->src, q->sport, &q->dst, q->dport);
	struct ab_flow *flow = find_flow(&key);
	if (!flow)
		return is_false ? AB_REASON_SPOOFED_WAN : restore_quote(skb, p);
	if (!is_in_flight(q, &key, flow))
		return is_false ? AB_REASON_SPOOFED_WAN : AB_REASON_BAD_QUOTE;
	if (p->ttl <= 1)
		return AB_REASON_TTL_IN;
	if (is_false || is_never_forwarded(&p->src))
		bad = name_router(skb, p, flow->link);
	bad = bad ?: rewrite_quote(skb, p, INBOUND, flow) ?: rewrite_address(skb, p, INBOUND, &flow->other_local);
	if (bad)
		return bad;
	return send_to_lan(skb, p, flow, &flow->other_local) == AB_REASON_TRANSLATED_IN ? AB_REASON_ERROR_IN
											: AB_REASON_REWRITE_FAILED;
}

/* Finds the flow of a packet from the internet, and its LAN key. A mapping for that remote end alone comes first. */
static __noinline struct ab_flow *find_quoted(struct ab_flow_key *key, const struct quote *q)
{
	make_apart_key(key, q->proto, &q->dst, q->dport, &q->src, q->sport);
	struct ab_flow *flow = find_flow(key);
	if (flow || !is_mapping(q->proto))
		return flow;
	make_key(key, q->proto, AB_SIDE_LAN, &q->dst, q->dport, &q->src, q->sport);
	return find_flow(key);
}

/* Translates an error from the LAN about a packet from the internet: its source becomes the flow's external address. Returns 0 if
 * it is about no flow, and there are links without NAT. */
__noinline int translate_error_out(struct __sk_buff *skb, struct packet *p)
{
	struct quote *q = quote_room();
	if (!p || !q)
		return AB_REASON_MALFORMED;
	struct ab_flow_key key;
	if (!is_lan_address(&p->src))
		return AB_REASON_SPOOFED_LAN;
	const struct ab_route *route = find_route(&p->dst);
	if (route && route->verdict != AB_VERDICT_LINK)
		return AB_REASON_SPECIFIC_ROUTE;
	if (p->ttl <= 1)
		return AB_REASON_TTL_OUT;
	if (!icmp_sum_holds(skb, p))
		return AB_REASON_BAD_CHECKSUM;
	int bad = read_quote(skb, p, q);
	if (bad)
		return bad;
	struct ab_flow *flow = find_quoted(&key, q);
	const struct ab_settings *set = current_settings();
	if (!flow && set && routed_links(set, p->family))
		return 0;
	if (!flow)
		return is_forwarding() ? AB_REASON_FORWARD_OUT : AB_REASON_FOREIGN_ERROR;
	/* An error about the host's flow must come from the host's device. */
	if (p->ifindex != flow->lan_ifindex && !(set && set->lan_sources_loose))
		return AB_REASON_SPOOFED_DEVICE;
	if (!is_in_flight(q, &key, flow))
		return AB_REASON_BAD_QUOTE;
	const struct ab_link *link = link_at(flow->link, p->family);
	if (!link)
		return AB_REASON_NO_LINK;
	bad = rewrite_quote(skb, p, OUTBOUND, flow) ?: rewrite_address(skb, p, OUTBOUND, &flow->other_local);
	if (bad)
		return bad;
	return send_bound(skb, p, p->l3, link, flow->link, flow->why) ?: AB_REASON_ERROR_OUT;
}

#endif
