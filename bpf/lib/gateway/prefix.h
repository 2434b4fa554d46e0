/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Connections from the internet, at links that translate prefixes and allow them: the destination becomes the LAN host's address,
 * and the kernel forwards the packet, as it does from links without NAT. The prefix by which a host was reached is remembered until
 * it answers; then it is the link of the answer's flow. No state is kept for a host that does not answer. Packets for which there
 * is no flow, such as an echo, or for which a flow is refused for some reason, are answered over that link as well, each by itself.
 *
 * Where the internet may open connections, so may the LAN: a packet of one host to another's address beyond such a link is
 * translated at both ends (hairpinning, RFC 6296 section 4.3).
 */
#ifndef ANABRANCH_PREFIX_H
#define ANABRANCH_PREFIX_H

#include "frag.h"
#include "nat.h"
#include "open.h"
#include "recent.h"
#include "tcp.h"

/* Remote ends and the LAN hosts that they reached; the value is the link. */
AB_MAP(asked, BPF_MAP_TYPE_ARRAY, RECENT_ROWS, __u32, struct ab_recent, 0);

/* The link, if the internet may open connections there. */
static __always_inline const struct ab_link *open_link(__u32 index)
{
	const struct ab_link *link = link_at(index, AB_IPV6);
	return link && link->prefix_len && link->flags & AB_LINK_PRESENT && link->flags & AB_LINK_INBOUND ? link : NULL;
}

/* The route to the LAN host with this address beyond the link; its own address is written to s->asked.local. NULL if there is none:
 * the gateway itself, and hosts outside the LAN, are not reached like this. */
static __noinline const struct ab_route *find_inside(struct flow_room *s, const union ab_addr *addr,
						     const struct ab_link *link)
{
	union ab_addr *host = &s->asked.local, *beyond = &s->asked.remote;
	const struct ab_route *route = find_route(addr);
	*host = *addr;
	if (!route ||
	    (route->verdict == AB_VERDICT_PREFIX && !ab_npt(host, next_hop_to(route, addr), link->prefix_len)))
		return NULL;
	*beyond = *host;
	if (!ab_npt(beyond, &link->prefix, link->prefix_len) || !is_same_addr(beyond, addr))
		return NULL;
	route = find_route(host);
	return route && route->verdict == AB_VERDICT_LAN ? route : NULL;
}

static __always_inline __u64 hash_of_asked(struct flow_room *s, __u8 proto, const union ab_addr *remote,
					   __be16 local_port, __be16 remote_port)
{
	s->asked.remote = *remote;
	s->asked.local_port = local_port;
	s->asked.remote_port = remote_port;
	s->asked.proto = proto;
	return hash_recent((const __u32 *)&s->asked, sizeof(s->asked) / 4);
}

/* The link by whose prefix the remote end of a packet from the LAN has reached its host, or AB_NO_TARGET. */
__noinline int link_of_asked(struct packet *p)
{
	struct flow_room *s = flow_room();
	if (!s || !p || p->family != AB_IPV6)
		return AB_NO_TARGET;
	s->asked.local = p->src;
	__u64 hash = hash_of_asked(s, p->proto, &p->dst, p->sport, p->dport);
	__u64 found = find_recent(row_in(&asked, hash), hash);
	__u32 link = found >> (64 - RECENT_WORD_BITS);
	return found && open_link(link) ? link : AB_NO_TARGET;
}

/* Whether the packet is too long for a LAN device. */
static __always_inline int exceeds_device(const struct __sk_buff *skb, struct packet *p, __u32 ifindex)
{
	const struct ab_device *device = device_of(ifindex);
	if (!device || device->role != AB_ROLE_LAN || !exceeds_mtu(skb, p, device->mtu))
		return 0;
	p->mtu = device->mtu;
	return 1;
}

/* Writes an address of the header. Nothing else changes with it (RFC 6296). */
static __always_inline int store_address(struct __sk_buff *skb, const struct packet *p, __u32 at,
					 const union ab_addr *addr)
{
	return bpf_skb_store_bytes(skb, bounded_l3(p) + at, addr, sizeof(*addr), BPF_F_RECOMPUTE_CSUM);
}

/* Handles a packet of no flow from a link. Returns 0 if it is not for the LAN by a prefix with allowed connections, or the reason
 * with which it leaves. */
__noinline int let_in(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	const struct ab_device *device = device_of(skb->ifindex);
	if (!s || !p || !device || p->family != AB_IPV6)
		return 0;
	__u32 index = device->link & (AB_MAX_LINKS - 1);
	const struct ab_link *link = open_link(index);
	const struct ab_route *way = link ? find_inside(s, &p->dst, link) : NULL;
	if (!way)
		return 0;
	if (is_never_forwarded(&p->src))
		return AB_REASON_BAD_SOURCE;
	if (p->ttl <= 1)
		return AB_REASON_TTL_IN;
	if (exceeds_device(skb, p, way->ifindex))
		return AB_REASON_TOO_BIG_IN;
	__u64 hash = hash_of_asked(s, p->proto, &p->src, p->dport, p->sport);
	enter_recent(row_in(&asked, hash), with_word(hash, index));
	if (p->proto == IPPROTO_TCP && p->tcp_flags & AB_TCP_SYN && clamp_mss(skb, p, link->mtu))
		return AB_REASON_REWRITE_FAILED;
	if (store_address(skb, p, offsetof(struct ipv6hdr, daddr), &s->asked.local))
		return AB_REASON_REWRITE_FAILED;
	skb->mark = AB_INBOUND_MARK;
	return AB_REASON_PREFIX_IN;
}

/* Sends to a LAN host, or its router. Returns 0, or the reason of failure. */
static __always_inline int send_to_device(struct __sk_buff *skb, const struct packet *p, __u32 ifindex,
					  const union ab_addr *next_hop)
{
	const struct ab_device *device = device_of(ifindex);
	if (!device || !device->layer3)
		return send_to_neighbour(skb, p->l3, ifindex, next_hop);
	bpf_redirect(ifindex, 0);
	return 0;
}

/* Handles a packet of a LAN host to what the kernel routes, or to another host's address beyond a link. */
__noinline int turn_by_prefix(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	const struct ab_route *route = p ? find_route(&p->dst) : NULL;
	if (!s || !p || !route || route->verdict != AB_VERDICT_PREFIX)
		return AB_REASON_SPECIFIC_ROUTE;
	const struct ab_link *link = open_link(route->link);
	const struct ab_route *way = link ? find_inside(s, &p->dst, link) : NULL;
	int bad = check_source(p);
	if (bad || !way || p->kind == PACKET_ICMP_ERROR)
		return bad ?: AB_REASON_FILTERED_IN;
	if (p->ttl <= 1)
		return AB_REASON_TTL_OUT;
	if (exceeds_device(skb, p, way->ifindex))
		return AB_REASON_TOO_BIG_OUT;
	s->asked.remote = p->src;
	if (!ab_npt(&s->asked.remote, &link->prefix, link->prefix_len))
		return AB_REASON_FILTERED_IN;
	__u8 hops = p->ttl - 1;
	__u32 l3 = bounded_l3(p);
	if (store_address(skb, p, offsetof(struct ipv6hdr, saddr), &s->asked.remote) ||
	    store_address(skb, p, offsetof(struct ipv6hdr, daddr), &s->asked.local) ||
	    bpf_skb_store_bytes(skb, l3 + offsetof(struct ipv6hdr, hop_limit), &hops, 1, BPF_F_RECOMPUTE_CSUM))
		return AB_REASON_REWRITE_FAILED;
	return send_to_device(skb, p, way->ifindex, next_hop_to(way, &s->asked.local)) ?: AB_REASON_HAIRPIN;
}

#endif
