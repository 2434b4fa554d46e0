/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * A packet of the trunk: the fields of its hash, the sublink it takes, and how it is sent.
 *
 * A trunk behaves like a cable, and checks packets only as far as it must read them. The hash is over addresses and ports if the
 * packet has ports in the first bytes of its transport header, over addresses and query id for ICMP echo, and over the addresses
 * alone otherwise, also if the transport header is not found after extension headers. All fragments of a datagram, including the
 * first one, are hashed by their addresses alone. So they stay together, but may take another sublink than the unfragmented packets
 * of their flow.
 */
#ifndef ANABRANCH_SPREAD_H
#define ANABRANCH_SPREAD_H

#include <linux/pkt_cls.h>

#include "../../policy/bins.h"
#include "../../policy/drr.h"
#include "../../policy/hash.h"
#include "../packet/parse.h"
#include "../packet/redirect.h"
#include "maps.h"

struct trunk_packet {
	__u32 hash;
	__u32 family; /* enum ab_family */
	__u32 packets;
	__u32 bytes;  /* on the sublink, of all segments together */
	__u32 opened; /* 1 if it has a SYN */
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

/* Loads the header up to the flags in one call. If it is shorter, the ports are still loaded. Returns 1 if the segment has a
 * SYN. */
static __always_inline __u32 load_tcp(struct __sk_buff *skb, __u32 l4, struct ports *ports)
{
	struct tcp_start tcp = {};

	if (bpf_skb_load_bytes(skb, l4, &tcp, sizeof(tcp))) {
		bpf_skb_load_bytes(skb, l4, ports, sizeof(*ports));
		return 0;
	}
	*ports = tcp.ports;
	return !!(tcp.flags & AB_TCP_SYN);
}

static __always_inline void load_icmp(struct __sk_buff *skb, struct packet *ip, struct ports *ports)
{
	struct icmphdr icmp = {};

	if (bpf_skb_load_bytes(skb, ip->l4, &icmp, sizeof(icmp)))
		return;
	ip->icmp_type = usual_icmp_type(ip->proto, icmp.type);
	if (ip->icmp_type == ICMP_ECHO || ip->icmp_type == ICMP_ECHOREPLY)
		ports->src = ports->dst = icmp.un.echo.id;
	else if (is_neighbour_discovery(ip, icmp.type))
		ip->flags |= PACKET_NEIGHBOUR;
}

static __always_inline void load_ports(struct __sk_buff *skb, const struct packet *ip, struct ports *ports)
{
	__u8 proto = ip->proto;

	if (proto == IPPROTO_UDP || proto == IPPROTO_SCTP || proto == IPPROTO_DCCP || proto == IPPROTO_UDPLITE)
		bpf_skb_load_bytes(skb, ip->l4, ports, sizeof(*ports));
}

/* Reads the transport header. Fragments after the first have none. */
static __always_inline void read_transport(struct __sk_buff *skb, struct packet *ip, struct ports *ports, __u32 *opened)
{
	if (is_later_fragment(ip))
		return;
	if (ip->proto == IPPROTO_TCP)
		*opened = load_tcp(skb, ip->l4, ports);
	else if (is_icmp_of_family(ip))
		load_icmp(skb, ip, ports);
	else
		load_ports(skb, ip, ports);
	if (is_fragment(ip))
		ports->src = ports->dst = 0;
}

/* Reads the addresses, and where the transport header is. Returns 0, or the reason why the trunk does not take the packet. */
static __always_inline __u32 read_ipv4(const void *header, const void *end, struct packet *ip)
{
	const struct iphdr *v4 = header;

	if ((const void *)(v4 + 1) > end || v4->version != 4 || v4->ihl < 5)
		return AB_TRUNK_REASON_CUT_SHORT;
	map_ipv4(&ip->src, v4->saddr);
	map_ipv4(&ip->dst, v4->daddr);
	ip->proto = v4->protocol;
	ip->fragment = bpf_ntohs(v4->frag_off);
	ip->l4 = ETH_HLEN + v4->ihl * 4;
	return 0;
}

/* The same for IPv6. Unusual extension headers are not checked; hosts do that. */
static __always_inline __u32 read_ipv6(struct __sk_buff *skb, const void *header, const void *end, struct packet *ip)
{
	const struct ipv6hdr *v6 = header;

	if ((const void *)(v6 + 1) > end || v6->version != 6)
		return AB_TRUNK_REASON_CUT_SHORT;
	ip->family = AB_IPV6;
	__builtin_memcpy(&ip->src, &v6->saddr, sizeof(ip->src));
	__builtin_memcpy(&ip->dst, &v6->daddr, sizeof(ip->dst));
	ip->proto = v6->nexthdr;
	ip->ttl = v6->hop_limit;
	ip->l3 = ETH_HLEN;
	ip->l4 = ETH_HLEN + sizeof(*v6);
	/* The header's length field may be too small for a superpacket. */
	ip->length = skb->len - ETH_HLEN < 0xffff ? skb->len - ETH_HLEN : 0xffff;
	if (is_extension(ip->proto) && find_transport(skb, ip))
		ip->proto = IPPROTO_NONE;
	return 0;
}

/* Fills `p`. Returns 0, or the reason why the trunk does not take the packet. A global function, like those that choose, so that it
 * is verified once. */
__noinline int read_packet(struct __sk_buff *skb, struct trunk_packet *p)
{
	struct packet ip = {};
	struct ports ports = {};
	int is_ipv4 = skb->protocol == bpf_htons(ETH_P_IP);

	if (!p)
		return AB_TRUNK_REASON_CUT_SHORT;
	if (!is_ipv4 && skb->protocol != bpf_htons(ETH_P_IPV6))
		return AB_TRUNK_REASON_NOT_IP;
	struct cursor cursor;
	if (make_readable(skb, ETH_HLEN + (is_ipv4 ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)), &cursor))
		return AB_TRUNK_REASON_CUT_SHORT;
	struct ethhdr *eth = cursor.data;
	if ((void *)(eth + 1) > cursor.end)
		return AB_TRUNK_REASON_CUT_SHORT;
	int is_unicast = !(eth->h_dest[0] & 1);
	__u32 reason = is_ipv4 ? read_ipv4(eth + 1, cursor.end, &ip) : read_ipv6(skb, eth + 1, cursor.end, &ip);
	if (reason)
		return reason;
	if (!is_unicast)
		return AB_TRUNK_REASON_NOT_UNICAST;
	read_transport(skb, &ip, &ports, &p->opened);
	if (ip.flags & PACKET_NEIGHBOUR)
		return AB_TRUNK_REASON_NOT_IP;
	p->hash = ab_flow_hash(&ip.src, &ip.dst, ports.src, ports.dst);
	p->family = ip.family;
	p->packets = skb->gso_segs > 1 ? skb->gso_segs : 1;
	p->bytes =
		skb->wire_len ?: skb->len; /* wire_len is set only for packets about to be queued, not in test runs */
	return 0;
}

/* The sublinks for a family. */
static __always_inline const struct ab_sublinks *sublinks_of(const struct ab_spreading *set, __u32 family)
{
	return &set->sublinks[family == AB_IPV6];
}

__noinline int by_bin(__u32 hash, __u64 usable)
{
	__u32 zero = 0;
	const struct ab_table_of_bins *table = bpf_map_lookup_elem(&bins, &zero);
	return table ? ab_sublink_by_bin(table->sublink, hash, usable) : AB_NO_TARGET;
}

__noinline int by_rendezvous(__u32 family, __u32 hash)
{
	__u32 zero = 0;
	const struct ab_spreading *set = bpf_map_lookup_elem(&spreading, &zero);
	return set ? ab_sublink_by_rendezvous(sublinks_of(set, family), hash) : AB_NO_TARGET;
}

/* A new flowlet takes a sublink at random, by weight. */
__noinline int by_flowlet(__u32 family, __u32 hash, __u64 usable, __u64 gap_ns)
{
	__u32 bin = ab_bin(hash), sublink;
	__u64 now_ns = bpf_ktime_get_ns();
	struct ab_flowlet *flowlet = bpf_map_lookup_elem(&flowlets, &bin);

	if (!flowlet)
		return AB_NO_TARGET;
	if (ab_flowlet_lasts(flowlet, usable, now_ns, gap_ns))
		sublink = flowlet->sublink;
	else
		sublink = by_rendezvous(family, bpf_get_prandom_u32());
	if (sublink != AB_NO_TARGET)
		ab_flowlet_send(flowlet, sublink, now_ns);
	return sublink;
}

__noinline int by_deficit(__u32 family, __u32 length)
{
	__u32 zero = 0, sublink;
	const struct ab_spreading *set = bpf_map_lookup_elem(&spreading, &zero);
	struct ab_turn *turn = bpf_map_lookup_elem(&turns, &zero);

	if (!set || !turn)
		return AB_NO_TARGET;
	const struct ab_sublinks *of_family = sublinks_of(set, family);
	bpf_spin_lock(&turn->lock);
	sublink = ab_sublink_by_deficit(&turn->drr, set->quantum, of_family->count, length, of_family->usable);
	bpf_spin_unlock(&turn->lock);
	return sublink;
}

static __always_inline __u32 choose_sublink(const struct ab_spreading *set, const struct trunk_packet *p)
{
	__u64 usable = ab_usable_of(sublinks_of(set, p->family));

	switch (set->spread) {
	case AB_SPREAD_BINS:
		return by_bin(p->hash, usable);
	case AB_SPREAD_RENDEZVOUS:
		return by_rendezvous(p->family, p->hash);
	case AB_SPREAD_FLOWLET:
		return by_flowlet(p->family, p->hash, usable, set->flowlet_gap_ns);
	case AB_SPREAD_PACKET:
		return by_deficit(p->family, p->bytes);
	default:
		return ab_sublink_by_hash(p->hash, usable);
	}
}

/* Whether the packet takes another sublink than that of its bin. */
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
 * Removes the packet's route, which is over the trunk device. A packet that waits for the resolution of its next hop
 * would be sent by the neighbour of its route (neigh_update() of Linux 6.18), here one of the trunk device, with a
 * wrong hardware address. Setting a tunnel key replaces the route by an object without a neighbour. Devices that are not tunnels
 * of that kind ignore it.
 */
static __always_inline int forget_route(struct __sk_buff *skb)
{
	struct bpf_tunnel_key none = {};
	return bpf_skb_set_tunnel_key(skb, &none, sizeof(none), 0);
}

/* Whether the sublink has a next hop for packets of a family. */
static __always_inline int leads_on(const struct ab_sublink *path, __u32 family)
{
	return path->flags & AB_SUBLINK_POINT_TO_POINT || is_addr(&path->next_hop[family == AB_IPV6]);
}

static __always_inline long send_over_sublink(struct __sk_buff *skb, const struct ab_sublink *path, __u32 family)
{
	if (path->flags & AB_SUBLINK_POINT_TO_POINT)
		return bpf_redirect(path->ifindex, 0);
	if (forget_route(skb))
		return TC_ACT_SHOT;
	return redirect_to(path->ifindex, &path->next_hop[family == AB_IPV6]);
}

/* Sends the packet. Returns the reason under which it is counted. */
static __always_inline __u32 spread_packet(struct __sk_buff *skb, const struct ab_spreading *set,
					   const struct trunk_packet *p)
{
	__u32 sublink = choose_sublink(set, p);

	if (sublink == AB_NO_TARGET)
		return AB_TRUNK_REASON_NO_SUBLINK;
	const struct ab_sublink *path = bpf_map_lookup_elem(&sublinks, &sublink);
	if (!path || !leads_on(path, p->family))
		return AB_TRUNK_REASON_NO_NEXT_HOP;
	if (send_over_sublink(skb, path, p->family) != TC_ACT_REDIRECT)
		return AB_TRUNK_REASON_UNSENT;
	count_packet(p, sublink);
	return goes_around(set, p, sublink) ? AB_TRUNK_REASON_SPREAD_AROUND : AB_TRUNK_REASON_SPREAD;
}

#endif
