/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Rewrites one end of a packet: address, port, hop limit, and the checksums over them. */
#ifndef ANABRANCH_REWRITE_H
#define ANABRANCH_REWRITE_H

#include "parse.h"
#include "redirect.h"

enum direction { OUTBOUND, INBOUND };

/* RFC 1624 eq. 3, for one 32-bit word. */
static __always_inline __u64 replace_in_sum(__u64 sum, __u32 from, __u32 to)
{
	return sum + (__u32)~from + to;
}

static __always_inline __u64 replace_addr_in_sum(__u64 sum, const union ab_addr *from, const union ab_addr *to)
{
	for (__u32 i = 0; i < 4; i++)
		sum = replace_in_sum(sum, from->word[i], to->word[i]);
	return sum;
}

/* Folds a sum to the 32 bits that helpers take. */
static __always_inline __u32 fold_to_32(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	return (sum & 0xffffffff) + (sum >> 32);
}

static __always_inline __u32 offset_of_sum(__u8 proto)
{
	return proto == IPPROTO_TCP ? 16 : proto == IPPROTO_UDP ? 6 : 2;
}

/*
 * Updates the transport checksum by the kernel's helper, which handles partial and complete sums of the hardware.
 * The address is part of the pseudo header (except for ICMP of IPv4), the port of the segment itself.
 */
static __always_inline int fix_transport_sum(struct __sk_buff *skb, const struct packet *p, const union ab_addr *from,
					     const union ab_addr *to, __be16 from_port, __be16 to_port)
{
	__u32 at = p->l4 + offset_of_sum(p->proto);
	__u64 flags = p->proto == IPPROTO_UDP ? BPF_F_MARK_MANGLED_0 : 0, pseudo = flags | BPF_F_PSEUDO_HDR;
	if (p->family == AB_IPV6) {
		if (bpf_l4_csum_replace(skb, at, 0, fold_to_32(replace_addr_in_sum(0, from, to)), pseudo))
			return -1;
	} else if (p->proto != IPPROTO_ICMP && bpf_l4_csum_replace(skb, at, from->word[3], to->word[3], pseudo | 4)) {
		return -1;
	}
	if (from_port != to_port && bpf_l4_csum_replace(skb, at, from_port, to_port, flags | 2))
		return -1;
	return 0;
}

static __always_inline __u32 port_offset(__u8 proto, enum direction way)
{
	if (is_icmp(proto))
		return 4;
	return way == OUTBOUND ? 0 : 2;
}

/* Rewrites the address, the hop limit, and the id. Returns 0, or the reason of failure. */
static __always_inline int rewrite_ipv4(struct __sk_buff *skb, const struct packet *p, enum direction way,
					const union ab_addr *to)
{
	struct cursor cursor = cursor_of(skb);
	struct iphdr *ip = cursor.data + bounded_l3(p);
	if ((void *)(ip + 1) > cursor.end)
		return AB_REASON_REWRITE_FAILED;
	__u64 sum = (__u16)~ip->check;
	sum = replace_in_sum(sum, way == OUTBOUND ? ip->saddr : ip->daddr, to->word[3]);
	sum = replace_in_sum(sum, bpf_htons((__u16)ip->ttl << 8), bpf_htons((__u16)(ip->ttl - 1) << 8));
	sum = replace_in_sum(sum, ip->id, (__be16)p->new_id);
	ip->ttl--;
	ip->id = p->new_id;
	if (way == OUTBOUND)
		ip->saddr = to->word[3];
	else
		ip->daddr = to->word[3];
	ip->check = ~fold_sum(sum);
	return 0;
}

/* A flow label for the external address (RFC 6437). It changes when the host changes its own label, which is a request for another
 * path. */
static __always_inline __u32 new_label(const struct packet *p, const union ab_addr *to, __u32 label)
{
	__u32 mixed = (fold_addr(to) ^ fold_addr(&p->dst) ^ label) * 2654435761u ^ ((__u32)p->sport << 16 | p->dport);
	return mixed * 2654435761u >> 12;
}

/* Rewrites the id of an IPv6 fragment. */
static __noinline int rewrite_id(struct __sk_buff *skb, const struct packet *p)
{
	__be32 id = p->new_id;
	if (id == p->id)
		return 0;
	return bpf_skb_store_bytes(skb, bounded_l3(p) + p->id_at, &id, sizeof(id), BPF_F_RECOMPUTE_CSUM)
		       ? AB_REASON_REWRITE_FAILED
		       : 0;
}

/* The same for IPv6, including the flow label of packets that leave with another address. IPv6 has no header checksum, so a
 * complete checksum of the hardware, which covers the header, is updated. */
static __always_inline int rewrite_ipv6(struct __sk_buff *skb, const struct packet *p, enum direction way,
					const union ab_addr *to)
{
	struct cursor cursor = cursor_of(skb);
	struct ipv6hdr *ip = cursor.data + bounded_l3(p);
	union ab_addr *addr = (void *)(way == OUTBOUND ? &ip->saddr : &ip->daddr);
	__be32 *first = (__be32 *)ip, label = 0;
	if ((void *)(ip + 1) > cursor.end)
		return AB_REASON_REWRITE_FAILED;
	__u64 change = replace_addr_in_sum(0, addr, to);
	change = replace_in_sum(change, bpf_htons(ip->hop_limit), bpf_htons(ip->hop_limit - 1));
	ip->hop_limit--;
	if (way == OUTBOUND && !is_same_addr(addr, to)) {
		__u32 word = bpf_ntohl(*first);
		label = bpf_htonl((word & 0xfff00000) | new_label(p, to, word & 0xfffff));
		change = replace_in_sum(change, *first, label);
		*first = label;
	}
	*addr = *to;
	bpf_csum_update(skb, fold_to_32(change));
	return p->id_at ? rewrite_id(skb, p) : 0;
}

/* Writes the new local endpoint, hop limit and id into the packet. Returns 0, or the reason of failure. */
static __always_inline int rewrite_packet(struct __sk_buff *skb, const struct packet *p, enum direction way,
					  const union ab_addr *to, __be16 to_port)
{
	const union ab_addr *from = way == OUTBOUND ? &p->src : &p->dst;
	__be16 from_port = way == OUTBOUND ? p->sport : p->dport;
	if (p->has_ports_header && fix_transport_sum(skb, p, from, to, from_port, to_port))
		return AB_REASON_REWRITE_FAILED;
	if (p->has_ports_header && from_port != to_port) {
		struct cursor cursor = cursor_of(skb);
		__be16 *port = cursor.data + bounded_l4(p) + port_offset(p->proto, way);
		if ((void *)(port + 1) > cursor.end)
			return AB_REASON_REWRITE_FAILED;
		*port = to_port;
	}
	return p->family == AB_IPV6 ? rewrite_ipv6(skb, p, way, to) : rewrite_ipv4(skb, p, way, to);
}

struct load {
	__u32 packets, bytes;
};

/* Packets and IP bytes on the wire: a superpacket counts as all its segments, headers included. */
static __always_inline struct load packet_load(const struct __sk_buff *skb, const struct packet *p)
{
	struct load load = { .packets = 1, .bytes = p->length };
	if (skb->gso_segs > 1) {
		load.packets = skb->gso_segs;
		load.bytes += (skb->gso_segs - 1) * (p->l4 - p->l3 + p->l4_header);
	}
	return load;
}

/* Adds an Ethernet header without addresses to a packet that came without one. Returns 0, or the helper's error. */
static __always_inline int add_ethernet(struct __sk_buff *skb, const struct packet *p)
{
	__be16 type = skb->protocol;
	return p->l3 == 0 && (bpf_skb_change_head(skb, ETH_HLEN, 0) ||
			      bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &type, sizeof(type), 0));
}

/* Sends to a neighbour. A packet without Ethernet, with its IP header at `l3`, gets room for the header first. Returns 0, or the
 * reason of failure. */
static __always_inline int send_to_neighbour(struct __sk_buff *skb, __u32 l3, __u32 ifindex,
					     const union ab_addr *next_hop)
{
	if (l3 == 0 && bpf_skb_change_head(skb, ETH_HLEN, 0))
		return AB_REASON_REWRITE_FAILED;
	redirect_to(ifindex, next_hop);
	return 0;
}

#endif
