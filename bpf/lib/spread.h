/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A packet of the trunk: what it is hashed by, which sublink it takes, how it gets there.
 *
 * A trunk is a line: it judges no packet beyond what it must read. The hash is that of the 96 bits of addresses and
 * ports where the packet has ports in the first bytes of its transport header, of addresses and query id for ICMP
 * echo, and of the addresses alone for all else. All fragments of a datagram, the first one too, go by their addresses
 * alone: so they stay together, at the price of parting from the unfragmented packets of their flow.
 */
#ifndef ANABRANCH_SPREAD_H
#define ANABRANCH_SPREAD_H

#include <linux/pkt_cls.h>

#include "../policy/bins.h"
#include "../policy/drr.h"
#include "../policy/hash.h"
#include "parse.h"
#include "redirect.h"
#include "trunk_maps.h"

struct trunk_packet {
	__u32 hash;
	__u32 packets;
	__u32 bytes;  /* on the sublink, of all segments together */
	__u32 opened; /* 1 if it has a SYN */
	__be32 dst;
};

struct ports {
	__be16 src, dst;
};

/* A TCP header as far as its flags. */
struct tcp_start {
	struct ports ports;
	__be32 seq, ack;
	__u8 offset, flags;
} __attribute__((packed));

/* Loads as much as the flags at once; a header that is shorter still has its ports. 1 if the segment has a SYN. */
static __always_inline __u32 load_tcp(struct __sk_buff *skb, __u32 l4, struct ports *ports)
{
	struct tcp_start tcp = {};

	if (bpf_skb_load_bytes(skb, l4, &tcp, sizeof(tcp))) {
		bpf_skb_load_bytes(skb, l4, ports, sizeof(*ports));
		return 0;
	}
	*ports = tcp.ports;
	return !!(tcp.flags & TCP_SYN);
}

static __always_inline void load_ports(struct __sk_buff *skb, __u32 l4, __u8 proto, struct ports *ports)
{
	struct icmphdr icmp = {};

	if (proto == IPPROTO_ICMP) {
		if (bpf_skb_load_bytes(skb, l4, &icmp, sizeof(icmp)))
			return;
		if (icmp.type == ICMP_ECHO || icmp.type == ICMP_ECHOREPLY)
			ports->src = ports->dst = icmp.un.echo.id;
		return;
	}
	if (proto == IPPROTO_UDP || proto == IPPROTO_SCTP || proto == IPPROTO_DCCP || proto == IPPROTO_UDPLITE)
		bpf_skb_load_bytes(skb, l4, ports, sizeof(*ports));
}

/* What the transport header tells, which fragments after the first have none of. */
static __always_inline void read_transport(struct __sk_buff *skb, const struct iphdr *ip, struct ports *ports,
					   __u32 *opened)
{
	__u32 l4 = ETH_HLEN + ip->ihl * 4;
	__u8 proto = ip->protocol;
	__be16 fragment = ip->frag_off;

	if (fragment & bpf_htons(IP_OFFSET_MASK))
		return;
	if (proto == IPPROTO_TCP)
		*opened = load_tcp(skb, l4, ports);
	else
		load_ports(skb, l4, proto, ports);
	if (fragment & bpf_htons(IP_MORE_FRAGMENTS))
		ports->src = ports->dst = 0;
}

static __always_inline __u32 hash_of(const struct iphdr *ip, const struct ports *ports)
{
	union ab_addr src, dst;

	map_ipv4(&src, ip->saddr);
	map_ipv4(&dst, ip->daddr);
	return ab_flow_hash(&src, &dst, ports->src, ports->dst);
}

/* Fills `p`. 0, or the reason why the packet is none of the trunk's. */
static __always_inline __u32 read_packet(struct __sk_buff *skb, struct trunk_packet *p)
{
	struct ports ports = {};

	if (skb->protocol != bpf_htons(ETH_P_IP))
		return AB_TRUNK_REASON_NOT_IPV4;
	if (make_readable(skb, ETH_HLEN + sizeof(struct iphdr)))
		return AB_TRUNK_REASON_CUT_SHORT;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return AB_TRUNK_REASON_CUT_SHORT;
	if (eth->h_dest[0] & 1)
		return AB_TRUNK_REASON_NOT_UNICAST;
	read_transport(skb, ip, &ports, &p->opened);
	p->hash = hash_of(ip, &ports);
	p->dst = ip->daddr;
	p->packets = skb->gso_segs > 1 ? skb->gso_segs : 1;
	p->bytes = skb->wire_len ?: skb->len; /* wire_len: set for what is about to be queued, so not in test runs */
	return 0;
}

static __noinline __u32 by_bin(__u32 hash, __u64 usable)
{
	__u32 zero = 0;
	const struct ab_table_of_bins *table = bpf_map_lookup_elem(&bins, &zero);
	return table ? ab_sublink_by_bin(table->sublink, hash, usable) : AB_NO_TARGET;
}

static __noinline __u32 by_rendezvous(__u32 hash)
{
	__u32 zero = 0;
	const struct ab_spreading *set = bpf_map_lookup_elem(&spreading, &zero);
	return set ? ab_sublink_by_rendezvous(&set->sublinks, hash) : AB_NO_TARGET;
}

/* Where a flowlet begins, chance decides with the sublinks' weights. */
static __noinline __u32 by_flowlet(__u32 hash, __u64 usable, __u64 gap_ns)
{
	__u32 bin = ab_bin(hash), sublink;
	__u64 now_ns = bpf_ktime_get_ns();
	struct ab_flowlet *flowlet = bpf_map_lookup_elem(&flowlets, &bin);

	if (!flowlet)
		return AB_NO_TARGET;
	if (ab_flowlet_lasts(flowlet, usable, now_ns, gap_ns))
		sublink = flowlet->sublink;
	else
		sublink = by_rendezvous(bpf_get_prandom_u32());
	if (sublink != AB_NO_TARGET)
		ab_flowlet_send(flowlet, sublink, now_ns);
	return sublink;
}

static __noinline __u32 by_deficit(__u32 length)
{
	__u32 zero = 0, sublink;
	const struct ab_spreading *set = bpf_map_lookup_elem(&spreading, &zero);
	struct ab_turn *turn = bpf_map_lookup_elem(&turns, &zero);

	if (!set || !turn)
		return AB_NO_TARGET;
	bpf_spin_lock(&turn->lock);
	sublink = ab_sublink_by_deficit(&turn->drr, set->quantum, set->sublinks.count, length, set->sublinks.usable);
	bpf_spin_unlock(&turn->lock);
	return sublink;
}

static __always_inline __u32 choose_sublink(const struct ab_spreading *set, const struct trunk_packet *p)
{
	__u64 usable = ab_usable_of(&set->sublinks);

	switch (set->spread) {
	case AB_SPREAD_BINS:
		return by_bin(p->hash, usable);
	case AB_SPREAD_RENDEZVOUS:
		return by_rendezvous(p->hash);
	case AB_SPREAD_FLOWLET:
		return by_flowlet(p->hash, usable, set->flowlet_gap_ns);
	case AB_SPREAD_PACKET:
		return by_deficit(p->bytes);
	default:
		return ab_sublink_by_hash(p->hash, usable);
	}
}

/* Whether the bin of the packet has another sublink than the one it takes. */
static __always_inline int goes_around(const struct ab_spreading *set, const struct trunk_packet *p, __u32 sublink)
{
	__u32 zero = 0;
	const struct ab_table_of_bins *table = bpf_map_lookup_elem(&bins, &zero);
	return set->spread == AB_SPREAD_BINS && table && table->sublink[ab_bin(p->hash)] != sublink;
}

static __always_inline void count_packet(const struct trunk_packet *p, __u32 sublink)
{
	__u32 zero = 0;
	struct ab_volumes *volume = bpf_map_lookup_elem(&volumes, &zero);
	struct ab_carried *sent = bpf_map_lookup_elem(&carried, &sublink);

	if (volume)
		volume->bytes[ab_bin(p->hash)] += p->bytes;
	if (sent) {
		sent->packets += p->packets;
		sent->bytes += p->bytes;
		sent->opened += p->opened;
	}
}

/*
 * Takes the route from the packet, which is one over the trunk device. A packet that waits until its next hop is resolved
 * is sent on by its route's neighbour (neigh_update() of Linux 6.18), here one of the trunk device: it would leave with a
 * wrong hardware address. Naming a tunnel puts in place of the route what has no neighbour; devices that are no tunnels
 * of that kind do not look at it.
 */
static __always_inline int forget_route(struct __sk_buff *skb)
{
	struct bpf_tunnel_key none = {};
	return bpf_skb_set_tunnel_key(skb, &none, sizeof(none), 0);
}

static __always_inline long send_over_sublink(struct __sk_buff *skb, const struct ab_sublink *path)
{
	if (path->flags & AB_SUBLINK_POINT_TO_POINT)
		return bpf_redirect(path->ifindex, 0);
	if (forget_route(skb))
		return TC_ACT_SHOT;
	union ab_addr next_hop;
	map_ipv4(&next_hop, path->next_hop);
	return redirect_to(path->ifindex, &next_hop);
}

/* Sends the packet, and says for which reason it left. */
static __always_inline __u32 spread_packet(struct __sk_buff *skb, const struct ab_spreading *set,
					   const struct trunk_packet *p)
{
	__u32 sublink = choose_sublink(set, p);

	if (sublink == AB_NO_TARGET)
		return AB_TRUNK_REASON_NO_SUBLINK;
	const struct ab_sublink *path = bpf_map_lookup_elem(&sublinks, &sublink);
	if (!path || !(path->flags & AB_SUBLINK_PRESENT))
		return AB_TRUNK_REASON_NO_NEXT_HOP;
	if (send_over_sublink(skb, path) != TC_ACT_REDIRECT)
		return AB_TRUNK_REASON_UNSENT;
	count_packet(p, sublink);
	return goes_around(set, p, sublink) ? AB_TRUNK_REASON_SPREAD_AROUND : AB_TRUNK_REASON_SPREAD;
}

#endif
