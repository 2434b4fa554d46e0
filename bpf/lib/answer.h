/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the gateway says itself, always back to the LAN host that asked: ICMP errors (RFC 792, RFC 1812 section 4.3)
 * and RSTs for segments of flows it does not know. The packet that asked becomes the answer.
 */
#ifndef ANABRANCH_ANSWER_H
#define ANABRANCH_ANSWER_H

#include "parse.h"
#include "maps.h"

/* Quoted: the IPv4 header and enough of the transport header for every sender to find its socket. */
#define QUOTED_TRANSPORT 20
#define ANSWER_TTL 64
/* At most one ICMP answer per CPU in this time (RFC 1812 section 4.3.2.8). */
#define ANSWER_INTERVAL_NS 1000000ull

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} answered_ns SEC(".maps");

static __always_inline int may_answer(void)
{
	__u32 zero = 0;
	__u64 now = bpf_ktime_get_ns(), *last = bpf_map_lookup_elem(&answered_ns, &zero);
	if (!last || now - *last < ANSWER_INTERVAL_NS)
		return 0;
	*last = now;
	return 1;
}

static __always_inline void swap_macs(struct ethhdr *eth)
{
	__u8 mac[ETH_ALEN];
	__builtin_memcpy(mac, eth->h_dest, ETH_ALEN);
	__builtin_memcpy(eth->h_dest, eth->h_source, ETH_ALEN);
	__builtin_memcpy(eth->h_source, mac, ETH_ALEN);
}

/* Sends what the packet has become to where it came from. */
static __always_inline int send_back(struct __sk_buff *skb)
{
	struct ethhdr *eth = (void *)(long)skb->data;
	if ((void *)(eth + 1) > (void *)(long)skb->data_end)
		return -1;
	swap_macs(eth);
	return bpf_redirect(skb->ifindex, 0);
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
	__u32 ifindex = skb->ifindex;
	struct ab_device *device = bpf_map_lookup_elem(&devices, &ifindex);
	struct ab_scratch *s = scratch();
	if (p->kind != PACKET_FLOW || !p->has_ports_header || !device || !s || !may_answer())
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
	fill_ip(&head.ip, IPPROTO_ICMP, sizeof(head) + quoted, device->address.word[3], p->src);
	__builtin_memset(&head.icmp, 0, sizeof(head.icmp));
	head.icmp.type = type_code >> 8;
	head.icmp.code = type_code & 0xff;
	head.icmp.un.frag.mtu = bpf_htons(mtu);
	__s64 sum = bpf_csum_diff(NULL, 0, (__be32 *)&head.icmp, sizeof(head.icmp), 0);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)s->bytes, padded, sum);
	head.icmp.checksum = ~fold_sum((__u32)sum);
	return bpf_skb_store_bytes(skb, p->l3, &head, sizeof(head), 0) ? -1 : send_back(skb);
}

/* Answers a segment with the RST of RFC 9293 section 3.5.2, as if from the remote end. */
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
	if (p->tcp_flags & TCP_ACK) {
		head.tcp.seq = bpf_htonl(p->ack);
	} else {
		head.tcp.ack = 1;
		head.tcp.ack_seq = bpf_htonl(p->end);
	}
	__u32 pseudo[3] = { p->dst, p->src, bpf_htonl(IPPROTO_TCP << 16 | sizeof(head.tcp)) };
	__s64 sum = bpf_csum_diff(NULL, 0, pseudo, sizeof(pseudo), 0);
	sum = bpf_csum_diff(NULL, 0, (__be32 *)&head.tcp, sizeof(head.tcp), sum);
	head.tcp.check = ~fold_sum((__u32)sum);
	return bpf_skb_store_bytes(skb, p->l3, &head, sizeof(head), 0) ? -1 : send_back(skb);
}

#endif
