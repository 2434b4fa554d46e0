/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the gateway says itself, always back to the host that asked: ICMP errors (RFC 792, RFC 1812 section 4.3)
 * and RSTs for segments of flows it does not know. The packet that asked becomes the answer.
 */
#ifndef ANABRANCH_ANSWER_H
#define ANABRANCH_ANSWER_H

#include <stddef.h>

#include "ambient.h"
#include "turn.h"

/* Quoted: the IPv4 header and enough of the transport header for every sender to find its socket. */
#define QUOTED_TRANSPORT 20
#define ANSWER_TTL 64
/*
 * ICMP answers are bounded (RFC 1812 section 4.3.2.8), for each source and for the LAN and the links in sum. Path MTU
 * discovery has a budget of its own, so that nothing else uses it up.
 */
#define SOURCE_INTERVAL_NS 10000000ull
#define SOURCE_BURST_NS (100 * SOURCE_INTERVAL_NS)
#define SUM_INTERVAL_NS 20000ull /* on each CPU */
#define SUM_BURST_NS (1000 * SUM_INTERVAL_NS)

enum answer_kind { ANSWER_TOO_BIG, ANSWER_OTHER, ANSWER_KINDS };

/* When all of a source's answers will be at its disposal again. */
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

/* Whether `source`, which is on a link or in the LAN, is to have an answer of this kind. */
__noinline int may_answer(__be32 source, __u32 is_link, __u32 kind)
{
	union ab_addr addr;
	__u64 now = time_ns();
	map_ipv4(&addr, source);
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

static __always_inline void swap_macs(struct ethhdr *eth)
{
	__u8 mac[ETH_ALEN];
	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
}

/* Sends what a turned packet has become to the LAN host it came from. Only a layer-3 link has brought it without Ethernet. */
static __always_inline int turn_back(struct __sk_buff *skb, struct packet *p)
{
	__be16 type = bpf_htons(ETH_P_IP);
	if (p->l3 == 0 && (bpf_skb_change_head(skb, ETH_HLEN, 0) ||
			   bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &type, sizeof(type), 0)))
		return -1;
	return turn_to(skb, link_of_sender(p));
}

/* Sends what the packet has become to where it came from. */
static __always_inline int send_back(struct __sk_buff *skb, struct packet *p)
{
	struct ethhdr *eth = (void *)(long)skb->data;
	if (p->l3 != 0) {
		if ((void *)(eth + 1) > (void *)(long)skb->data_end)
			return -1;
		swap_macs(eth);
	}
	return p->flags & PACKET_TURNED ? turn_back(skb, p) : bpf_redirect(skb->ifindex, 0);
}

static __always_inline void fill_ip(struct iphdr *ip, __u8 proto, __u32 length, __be32 src, __be32 dst)
{
	__builtin_memset(ip, 0, sizeof(*ip));
	ip->version = 4;
	ip->ihl = 5;
	ip->tot_len = bpf_htons(length);
	ip->ttl = ANSWER_TTL;
	ip->protocol = proto;
	ip->saddr = src;
	ip->daddr = dst;
	const __u32 *word = (const __u32 *)ip;
	ip->check = ~fold_sum((__u64)word[0] + word[1] + word[2] + word[3] + word[4]);
}

/* Answers with ICMP `type` `code`; `mtu` is the next hop's, for fragmentation needed. Neither errors nor fragments after
 * the first are answered (RFC 1812 section 4.3.2.7). */
__noinline int answer_icmp(struct __sk_buff *skb, struct packet *p, __u32 type_code, __u32 mtu)
{
	if (!p)
		return -1;
	struct {
		struct iphdr ip;
		struct icmphdr icmp;
	} head;
	const struct ab_device *device = device_of(skb->ifindex);
	struct ab_scratch *s = scratch();
	if (p->kind == PACKET_ICMP_ERROR || !p->has_ports_header || !device || !s)
		return -1;
	__u32 is_link = device->role == AB_ROLE_LINK;
	if (!may_answer(p->src, is_link, mtu ? ANSWER_TOO_BIG : ANSWER_OTHER))
		return -1;
	__u32 quoted = (p->l4 - p->l3) + QUOTED_TRANSPORT;
	if (quoted > p->length)
		quoted = p->length;
	if (quoted > 80 || bpf_skb_change_tail(skb, p->l3 + quoted, 0) ||
	    bpf_skb_adjust_room(skb, sizeof(head), BPF_ADJ_ROOM_MAC, 0))
		return -1;

	__u32 padded = (quoted + 3) & ~3u;
	__builtin_memset(s->bytes, 0, 96);
	if (quoted < 8 || padded > 80 || bpf_skb_load_bytes(skb, p->l3 + sizeof(head), s->bytes, quoted))
		return -1;
	__be32 own = is_link ? p->dst : device->address[AB_IPV4].word[3];
	fill_ip(&head.ip, IPPROTO_ICMP, sizeof(head) + quoted, own, p->src);
	__builtin_memset(&head.icmp, 0, sizeof(head.icmp));
	head.icmp.type = type_code >> 8;
	head.icmp.code = type_code & 0xff;
	head.icmp.un.frag.mtu = bpf_htons(mtu);
	__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)&head.icmp, sizeof(head.icmp), 0);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)s->bytes, padded, sum);
	head.icmp.checksum = ~fold_sum((__u32)sum);
	return bpf_skb_store_bytes(skb, p->l3, &head, sizeof(head), 0) ? -1 : send_back(skb, p);
}

/* Answers a segment, which has an ACK, with the RST of RFC 9293 section 3.5.2, as if from the remote end. */
__noinline int answer_rst(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return -1;
	struct {
		struct iphdr ip;
		struct tcphdr tcp;
	} head;
	if (!p->has_ports_header || p->tcp_flags & TCP_RST || bpf_skb_change_tail(skb, p->l3 + sizeof(head), 0))
		return -1;
	fill_ip(&head.ip, IPPROTO_TCP, sizeof(head), p->dst, p->src);
	__builtin_memset(&head.tcp, 0, sizeof(head.tcp));
	head.tcp.source = p->dport;
	head.tcp.dest = p->sport;
	head.tcp.doff = sizeof(head.tcp) / 4;
	head.tcp.rst = 1;
	head.tcp.seq = bpf_htonl(p->ack);
	__u32 pseudo[3] = { p->dst, p->src, bpf_htonl(IPPROTO_TCP << 16 | sizeof(head.tcp)) };
	__s64 sum = bpf_csum_diff(NULL, 0, pseudo, sizeof(pseudo), 0);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&head.tcp, sizeof(head.tcp), sum);
	head.tcp.check = ~fold_sum((__u32)sum);
	return bpf_skb_store_bytes(skb, p->l3, &head, sizeof(head), 0) ? -1 : send_back(skb, p);
}

#endif
