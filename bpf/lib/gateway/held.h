/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * SYNs that wait while probes race in their place (policy/race.h). A packet cannot be kept, so its bytes are stored. The RST that
 * answers the first probe is turned into the SYN again, which is received from the LAN once more. If there is no room, the SYN that
 * has waited longest is dropped. Its host retransmits it, and the retransmission does not wait.
 */
#ifndef ANABRANCH_HELD_H
#define ANABRANCH_HELD_H

#include "../packet/ambient.h"
#include "flow.h"

/* Ethernet, IPv6 without extensions, TCP with all options; so that what follows Ethernet is aligned. */
#define HELD_BYTES 122
#define HELD_TCP_MAX 60

struct ab_held {
	__u32 ifindex; /* device from which it came */
	__u16 length;
	__u8 frame[HELD_BYTES];
};
AB_MAP(held, BPF_MAP_TYPE_LRU_HASH, 4096, struct ab_flow_key, struct ab_held, 0);
AB_SCRATCH(held_room, struct ab_held)

/* What the TCP checksum counts of the IP header. */
static __always_inline __u64 tcp_pseudo_sum(const struct packet *p, __u32 length)
{
	__u64 sum = (__u64)bpf_htonl(IPPROTO_TCP) + bpf_htonl(length);
	for (__u32 i = 0; i < 4; i++)
		sum += (__u64)p->src.word[i] + p->dst.word[i];
	return sum;
}

/* Completes the checksum of the segment, which ends with its TCP header. A local sender may have left that to the device, which
 * is not known for the bytes alone. Returns whether the checksum was right, or partial. */
static __always_inline int complete_sum(const struct packet *p, __u8 *tcp)
{
	__u16 *check = (__u16 *)(tcp + 16), found = *check;
	__u64 pseudo = tcp_pseudo_sum(p, p->l4_header);
	*check = 0;
	__u16 right = ~fold_sum(pseudo + (__u32)bpf_csum_diff(NULL, 0, (__be32 *)tcp, HELD_TCP_MAX, 0));
	*check = right;
	return found == right || found == fold_sum(pseudo);
}

/* Stores the header before the SYN. If it came without Ethernet, a header is made up that the device removes when it is received
 * again. */
static __always_inline int hold_ethernet(struct __sk_buff *skb, const struct packet *p, struct ab_held *room)
{
	struct ethhdr *eth = (struct ethhdr *)room->frame;
	if (p->l3 != 0)
		return bpf_skb_load_bytes(skb, 0, eth, sizeof(*eth));
	eth->h_proto = skb->protocol;
	return 0;
}

/* Stores the SYN of s->lan_key, which came from the LAN and has no data. Returns whether there was room. */
__noinline int hold_syn(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	struct ab_held *room = held_room();
	if (!s || !room || !p || p->l4 != p->l3 + ip_header_of(p->family))
		return 0;
	__u32 length = p->length;
	if (length > HELD_BYTES - ETH_HLEN)
		return 0;
	__builtin_memset(room, 0, sizeof(*room));
	room->ifindex = p->ifindex;
	room->length = ETH_HLEN + length;
	if (hold_ethernet(skb, p, room) || bpf_skb_load_bytes(skb, bounded_l3(p), room->frame + ETH_HLEN,
							      bounded_length(length, HELD_BYTES - ETH_HLEN)))
		return 0;
	__u8 *ip = room->frame + ETH_HLEN;
	if (!(p->family == AB_IPV6 ? complete_sum(p, ip + sizeof(struct ipv6hdr))
				   : complete_sum(p, ip + sizeof(struct iphdr))))
		return 0;
	return !bpf_map_update_elem(&held, &s->lan_key, room, BPF_ANY);
}

/* Whether the SYN of s->held_key is stored. */
static __always_inline int is_held(const struct flow_room *s)
{
	return bpf_map_lookup_elem(&held, &s->held_key) != NULL;
}

/* Turns the packet into that SYN. Returns the device from which it has to be received; 0 on failure. */
static __always_inline __u32 become_held(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	const struct ab_held *syn = s ? bpf_map_lookup_elem(&held, &s->held_key) : NULL;
	if (!syn)
		return 0;
	__u32 length = bounded_length(syn->length, HELD_BYTES), ifindex = syn->ifindex;
	if (p->l3 == 0 && bpf_skb_change_head(skb, ETH_HLEN, 0))
		return 0;
	if (bpf_skb_change_tail(skb, length, 0) || bpf_skb_store_bytes(skb, 0, syn->frame, length, 0))
		return 0;
	bpf_map_delete_elem(&held, &s->held_key);
	return ifindex;
}

/* Turns a SYN into the probe in its place. Returns 0, or the reason of failure. */
__noinline int become_probe(struct __sk_buff *skb, struct packet *p)
{
	__u8 flags = AB_TCP_SYN | AB_TCP_ACK;
	if (!p)
		return AB_REASON_MALFORMED;
	__be32 number = bpf_htonl(p->seq), before = bpf_htonl(p->ack);
	if (bpf_l4_csum_replace(skb, p->l4 + 16, before, number, 4) ||
	    bpf_l4_csum_replace(skb, p->l4 + 16, bpf_htons(p->tcp_flags), bpf_htons(p->tcp_flags | flags), 2) ||
	    bpf_skb_store_bytes(skb, p->l4 + 8, &number, sizeof(number), 0))
		return AB_REASON_REWRITE_FAILED;
	flags |= p->tcp_flags;
	return bpf_skb_store_bytes(skb, p->l4 + 13, &flags, 1, 0) ? AB_REASON_REWRITE_FAILED : 0;
}

#endif
