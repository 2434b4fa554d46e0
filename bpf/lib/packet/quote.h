/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The packets that ICMP errors embed (RFC 5508 section 4): the outer and the embedded header are translated. Whether an error is
 * about a packet that is under way, the caller knows.
 */
#ifndef ANABRANCH_QUOTE_H
#define ANABRANCH_QUOTE_H

#include "rewrite.h"

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

struct sum_room {
	__u64 zero;		    /* the verifier walks 4000 instructions more if the bytes come first */
	__u8 bytes[ICMP_SUM_CHUNK]; /* of an ICMP message */
};
AB_SCRATCH(sum_room, struct sum_room)

/* Whether the checksum of the ICMP message is right. */
__noinline int icmp_sum_holds(struct __sk_buff *skb, struct packet *p)
{
	struct sum_room *s = sum_room();
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
__noinline int replace_quoted_addr(struct __sk_buff *skb, struct quote *q, __u32 sum_at, const union ab_addr *to,
				   __u32 is_src)
{
	if (!q || !to)
		return -1;
	const union ab_addr *from = is_src ? &q->src : &q->dst;
	if (q->family == AB_IPV4)
		return bpf_l3_csum_replace(skb, q->l3 + 10, from->word[3], to->word[3], 4) ||
		       bpf_skb_store_bytes(skb, q->l3 + (is_src ? 12 : 16), &to->word[3], 4, 0);
	__s64 change = bpf_csum_diff((__be32 *)from, sizeof(*from), (__be32 *)to, sizeof(*to), 0);
	return bpf_l4_csum_replace(skb, sum_at, 0, change, 0) ||
	       bpf_skb_store_bytes(skb, q->l3 + (is_src ? 8 : 24), to, sizeof(*to), 0);
}

/*
 * Translates the endpoint in the embedded packet back: its address, its port and the transport checksum, and the ICMP checksum
 * accordingly. Returns 0, or the reason of failure.
 */
__noinline int rewrite_quote(struct __sk_buff *skb, struct packet *p, __u32 way, const union ab_addr *to, __u32 to_port)
{
	struct quote *q = quote_room();
	if (!p || !q || !to)
		return AB_REASON_MALFORMED;
	const union ab_addr *from = way == INBOUND ? &q->src : &q->dst;
	__be16 from_port = way == INBOUND ? q->sport : q->dport;
	__u32 sum_at = p->l4 + 2, port_at = q->l4 + port_offset(q->proto, way == INBOUND ? OUTBOUND : INBOUND);
	__be16 check = restored_check(q, from, to, from_port, to_port);
	if (replace_quoted_addr(skb, q, sum_at, to, way == INBOUND))
		return AB_REASON_REWRITE_FAILED;
	if (from_port != to_port && replace_quoted(skb, sum_at, port_at, from_port, to_port))
		return AB_REASON_REWRITE_FAILED;
	if (q->check_at && replace_quoted(skb, sum_at, q->check_at, q->check, check))
		return AB_REASON_REWRITE_FAILED;
	return 0;
}

#endif
