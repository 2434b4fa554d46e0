/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Packets that become their own answer: ICMP errors (RFC 792, RFC 1812 section 4.3), and the headers of others. */
#ifndef ANABRANCH_PACKET_ANSWER_H
#define ANABRANCH_PACKET_ANSWER_H

#include <stddef.h>

#include "ambient.h"
#include "parse.h"

/* Bytes of the transport header in an error, enough for every sender to find its socket. */
#define QUOTED_TRANSPORT 20
#define ANSWER_TTL 64
/*
 * ICMP answers are rate-limited (RFC 1812 section 4.3.2.8), for each source, and in total for the LAN and for the links. Path MTU
 * discovery has a limit of its own, so that other errors cannot use it up.
 */
#define SOURCE_INTERVAL_NS 10000000ull
#define SOURCE_BURST_NS (100 * SOURCE_INTERVAL_NS)
#define SUM_INTERVAL_NS 20000ull /* on each CPU */
#define SUM_BURST_NS (1000 * SUM_INTERVAL_NS)

enum answer_kind { ANSWER_TOO_BIG, ANSWER_OTHER, ANSWER_KINDS };

/* When all answers of a source's bucket are available again. */
struct ab_budget {
	__u64 full_ns[ANSWER_KINDS];
};
AB_MAP(budgets, BPF_MAP_TYPE_LRU_HASH, 4096, union ab_addr, struct ab_budget, 0);
AB_MAP(budget_sums, BPF_MAP_TYPE_PERCPU_ARRAY, 2, __u32, struct ab_budget, 0); /* of the LAN, of the links */

static __always_inline int spend(__u64 *full_ns, __u64 now, __u64 interval, __u64 burst)
{
	__u64 full = *full_ns > now ? *full_ns : now;
	if (full - now >= burst)
		return 0;
	*full_ns = full + interval;
	return 1;
}

/* The owner of a bucket. An IPv6 /64 may belong to one host, or to all hosts of a LAN, which are then told apart by their MAC. */
static __always_inline union ab_addr budget_owner(struct __sk_buff *skb, const struct packet *p)
{
	union ab_addr owner = host_address(&p->src);
	if (p->family == AB_IPV6 && p->l3 != 0)
		bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_source), &owner.word[2], ETH_ALEN);
	return owner;
}

/* Whether the source of `p`, which is on a link or in the LAN, may get an answer of this kind. */
__noinline int may_answer(struct __sk_buff *skb, struct packet *p, __u32 is_link, __u32 kind)
{
	if (!p)
		return 0;
	union ab_addr addr = budget_owner(skb, p);
	__u64 now = time_ns();
	struct ab_budget *sum = bpf_map_lookup_elem(&budget_sums, &is_link);
	struct ab_budget *own = bpf_map_lookup_elem(&budgets, &addr);
	if (!own) {
		struct ab_budget fresh = {};
		bpf_map_update_elem(&budgets, &addr, &fresh, BPF_NOEXIST);
		own = bpf_map_lookup_elem(&budgets, &addr);
	}
	kind = kind == ANSWER_TOO_BIG ? ANSWER_TOO_BIG : ANSWER_OTHER;
	return sum && own && spend(&own->full_ns[kind], now, SOURCE_INTERVAL_NS, SOURCE_BURST_NS) &&
	       spend(&sum->full_ns[kind], now, SUM_INTERVAL_NS, SUM_BURST_NS);
}

/* Exchanges the hardware addresses. Returns 0, or a negative error. */
static __always_inline int exchange_ends(struct __sk_buff *skb, const struct packet *p)
{
	struct cursor cursor = cursor_of(skb);
	struct ethhdr *eth = cursor.data;
	__u8 mac[ETH_ALEN];
	if (p->l3 == 0)
		return 0;
	if ((void *)(eth + 1) > cursor.end)
		return -1;
	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
	return 0;
}

struct answer_head {
	union {
		struct iphdr ip;
		struct ipv6hdr ip6;
		__u32 word[sizeof(struct ipv6hdr) / 4];
	};
	union {
		struct icmphdr icmp;
		struct tcphdr tcp;
	};
};

static __always_inline void fill_ipv4(struct iphdr *ip, __u8 proto, __u32 payload, const union ab_addr *src,
				      const union ab_addr *dst)
{
	ip->version = 4;
	ip->ihl = 5;
	ip->tot_len = bpf_htons(sizeof(*ip) + payload);
	ip->ttl = ANSWER_TTL;
	ip->protocol = proto;
	ip->saddr = src->word[3];
	ip->daddr = dst->word[3];
	const __u32 *word = (const __u32 *)ip;
	ip->check = ~fold_sum((__u64)word[0] + word[1] + word[2] + word[3] + word[4]);
}

static __always_inline void fill_ipv6(struct ipv6hdr *ip, __u8 proto, __u32 payload, const union ab_addr *src,
				      const union ab_addr *dst)
{
	ip->version = 6;
	ip->payload_len = bpf_htons(payload);
	ip->hop_limit = ANSWER_TTL;
	ip->nexthdr = proto;
	__builtin_memcpy(&ip->saddr, src, sizeof(*src));
	__builtin_memcpy(&ip->daddr, dst, sizeof(*dst));
}

/* Fills the IP header of an answer from `own` to the source of `p`. Returns what its transport checksum counts of it. */
static __always_inline __u64 fill_answer(struct answer_head *head, const struct packet *p, const union ab_addr *own,
					 __u8 proto, __u32 payload)
{
	__builtin_memset(head, 0, sizeof(*head));
	if (p->family == AB_IPV6)
		fill_ipv6(&head->ip6, proto, payload, own, &p->src);
	else
		fill_ipv4(&head->ip, proto, payload, own, &p->src);
	if (proto == IPPROTO_ICMP)
		return 0;
	__u64 sum = (__u64)bpf_htonl((__u32)proto) + bpf_htonl(payload);
	/* The prefix of a mapped address counts as nothing (0xffff). */
	for (__u32 i = 0; i < 4; i++)
		sum += (__u64)own->word[i] + p->src.word[i];
	return sum;
}

/* The type and code of ICMPv6 for those of ICMP. */
static __always_inline __u32 icmp6_kind(__u32 type_code)
{
	switch (type_code) {
	case ICMP_TIME_EXCEEDED << 8 | ICMP_EXC_TTL:
		return ICMP6_TIME_EXCEEDED << 8;
	case ICMP_DEST_UNREACH << 8 | ICMP_FRAG_NEEDED:
		return ICMP6_TOO_BIG << 8;
	case ICMP_DEST_UNREACH << 8 | ICMP_PORT_UNREACH:
		return ICMP6_DEST_UNREACH << 8 | ICMP6_NO_PORT;
	case ICMP_DEST_UNREACH << 8 | ICMP_NET_UNREACH:
		return ICMP6_DEST_UNREACH << 8 | ICMP6_NO_ROUTE;
	default:
		return ICMP6_DEST_UNREACH << 8 | ICMP6_PROHIBITED;
	}
}

static __always_inline void fill_icmp(struct icmphdr *icmp, __u32 family, __u32 type_code, __u32 mtu)
{
	if (family == AB_IPV6)
		type_code = icmp6_kind(type_code);
	icmp->type = type_code >> 8;
	icmp->code = type_code & 0xff;
	/* In ICMP only the lower half is the MTU (RFC 1191), and no MTU is longer. */
	icmp->un.mtu6 = bpf_htonl(mtu);
}

/* Writes the headers before the quoted part of the packet. Returns 0, or a negative error. */
static __always_inline int write_answer(struct __sk_buff *skb, struct packet *p, const struct answer_head *head,
					__u32 transport)
{
	__u32 ip = ip_header_of(p->family), l3 = bounded_l3(p);
	if (p->family == AB_IPV6 ? bpf_skb_store_bytes(skb, l3, &head->ip6, sizeof(head->ip6), 0)
				 : bpf_skb_store_bytes(skb, l3, &head->ip, sizeof(head->ip), 0))
		return -1;
	if (transport == sizeof(head->tcp) ? bpf_skb_store_bytes(skb, l3 + ip, &head->tcp, sizeof(head->tcp), 0)
					   : bpf_skb_store_bytes(skb, l3 + ip, &head->icmp, sizeof(head->icmp), 0))
		return -1;
	return 0;
}

/* Maximum length of the quoted part: IPv4 with all options, IPv6 with the extensions that fit before a TCP header. */
#define QUOTED_MAX 128

struct quoted_bytes {
	__u8 byte[QUOTED_MAX];
};
AB_SCRATCH(quoted_bytes, struct quoted_bytes)

/*
 * The packet becomes ICMP `type` `code` from `own` to its source, or the equivalent of ICMPv6. Of "fragmentation needed", p->mtu is
 * that of the next hop. Errors and fragments after the first are not answered (RFC 1812 section 4.3.2.7, RFC 4443 section 2.4).
 * Returns 0, or a negative error.
 */
__noinline int become_error(struct __sk_buff *skb, struct packet *p, const union ab_addr *own, __u32 is_link,
			    __u32 type_code)
{
	struct answer_head head;
	struct quoted_bytes *quote = quoted_bytes();
	if (!p || !own || p->kind == PACKET_ICMP_ERROR || !p->has_ports_header || !quote || !is_addr(own))
		return -1;
	__u32 mtu = type_code == (ICMP_DEST_UNREACH << 8 | ICMP_FRAG_NEEDED) ? p->mtu : 0;
	if (!may_answer(skb, p, is_link, mtu ? ANSWER_TOO_BIG : ANSWER_OTHER))
		return -1;
	__u32 quoted = (p->l4 - p->l3) + QUOTED_TRANSPORT, added = ip_header_of(p->family) + sizeof(head.icmp);
	if (quoted > p->length)
		quoted = p->length;
	if (quoted > QUOTED_MAX || bpf_skb_change_tail(skb, p->l3 + quoted, 0) ||
	    bpf_skb_adjust_room(skb, added, BPF_ADJ_ROOM_MAC, 0))
		return -1;
	__builtin_memset(quote->byte, 0, QUOTED_MAX);
	if (bpf_skb_load_bytes(skb, p->l3 + added, quote->byte, bounded_length(quoted, QUOTED_MAX)))
		return -1;
	__u8 proto = p->family == AB_IPV6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP;
	__u64 pseudo = fill_answer(&head, p, own, proto, sizeof(head.icmp) + quoted);
	fill_icmp(&head.icmp, p->family, type_code, mtu);
	__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)&head.icmp, sizeof(head.icmp), 0);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)quote->byte, QUOTED_MAX, sum);
	head.icmp.checksum = ~fold_sum(pseudo + (__u32)sum);
	return write_answer(skb, p, &head, sizeof(head.icmp));
}

/* A segment becomes the RST that answers it as if by its destination (RFC 9293 section 3.5.2). Returns 0, or a negative error. */
static __always_inline int become_reset(struct __sk_buff *skb, struct packet *p)
{
	struct answer_head head;
	__u32 length = ip_header_of(p->family) + sizeof(head.tcp);
	if (!p->has_ports_header || p->tcp_flags & AB_TCP_RST || bpf_skb_change_tail(skb, p->l3 + length, 0))
		return -1;
	__u64 pseudo = fill_answer(&head, p, &p->dst, IPPROTO_TCP, sizeof(head.tcp));
	head.tcp.source = p->dport;
	head.tcp.dest = p->sport;
	head.tcp.doff = sizeof(head.tcp) / 4;
	head.tcp.rst = 1;
	if (p->tcp_flags & AB_TCP_ACK) {
		head.tcp.seq = bpf_htonl(p->ack);
	} else {
		head.tcp.ack = 1;
		head.tcp.ack_seq = bpf_htonl(p->end);
	}
	__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)&head.tcp, sizeof(head.tcp), 0);
	head.tcp.check = ~fold_sum(pseudo + (__u32)sum);
	return write_answer(skb, p, &head, sizeof(head.tcp));
}

#endif
