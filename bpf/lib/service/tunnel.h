/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Sends a client's packet inside another one, to a server that answers clients itself and may be behind routers: IP in IP (RFC 2003,
 * RFC 2473, RFC 4213 section 3), or GUE, which is that in UDP (draft-ietf-intarea-gue-09 section 3) and so spread by routers and
 * network cards over their paths and queues. The inner packet stays as it is. No router may fragment the outer one: whoever sends
 * what does not fit the device is told so before.
 */
#ifndef ANABRANCH_SERVICE_TUNNEL_H
#define ANABRANCH_SERVICE_TUNNEL_H

#include "../packet/answer.h"
#include "../packet/gue.h"
#include "maps.h"

/* Outer headers, in memory outside of the stack. */
struct outer {
	union {
		struct iphdr v4;
		struct ipv6hdr v6;
	};
	struct gue gue;
};
AB_SCRATCH(outer_room, struct outer)

static __always_inline __u32 outer_family(const struct ab_server *server)
{
	return ab_is_v4_mapped(&server->address) ? AB_IPV4 : AB_IPV6;
}

/* The bytes that a packet to the server gets in front. */
static __always_inline __u32 outer_length(const struct ab_server *server)
{
	if (!(server->flags & AB_SERVER_TUNNEL))
		return 0;
	return ip_header_of(outer_family(server)) + (server->gue_port ? sizeof(struct gue) : 0);
}

/* The DSCP and ECN bits of a packet, which the outer one gets, too (RFC 6040 section 4.1). Returns a negative error. */
static __always_inline int traffic_class(const struct __sk_buff *skb, const struct packet *p)
{
	__u8 first[2];
	if (bpf_skb_load_bytes(skb, p->l3, first, sizeof(first)))
		return -1;
	return p->family == AB_IPV6 ? (__u8)(first[0] << 4 | first[1] >> 4) : first[1];
}

/* Has the kernel make room between the headers, and note what it needs to know to segment the packet. A segment of TCP becomes
 * shorter by that room, so that it fits as before; a datagram cannot. */
static __always_inline int make_room(struct __sk_buff *skb, const struct packet *p, __u32 family, __u32 room,
				     int is_gue)
{
	__u64 flags = family == AB_IPV6 ? BPF_F_ADJ_ROOM_ENCAP_L3_IPV6 : BPF_F_ADJ_ROOM_ENCAP_L3_IPV4;
	if (is_gue)
		flags |= BPF_F_ADJ_ROOM_ENCAP_L4_UDP;
	if (p->proto != IPPROTO_TCP)
		flags |= BPF_F_ADJ_ROOM_FIXED_GSO;
	return bpf_skb_adjust_room(skb, room, BPF_ADJ_ROOM_MAC, flags);
}

static __always_inline void fill_gue(struct gue *gue, __be16 port, __u8 inner, __u32 payload, __u32 hash)
{
	gue->udp.source = bpf_htons(0xc000 | (hash & 0x3fff));
	gue->udp.dest = port;
	gue->udp.len = bpf_htons(payload);
	gue->udp.check = 0; /* RFC 6935: the inner packet has its own */
	gue->version_and_length = 0;
	gue->proto = inner;
	gue->flags = 0;
}

/* The header of the outer packet. */
static __always_inline void fill_outer(struct outer *outer, const struct ab_server *server, __u8 proto, __u32 payload,
				       __u8 tos, __u32 label)
{
	__builtin_memset(&outer->v6, 0, sizeof(outer->v6));
	if (outer_family(server) == AB_IPV6) {
		*(__be32 *)&outer->v6 = bpf_htonl((__u32)tos << 20 | (label & 0xfffff));
		fill_ipv6(&outer->v6, proto, payload, &server->source, &server->address);
	} else {
		outer->v4.tos = tos;
		outer->v4.frag_off = bpf_htons(IP_DONT_FRAGMENT);
		fill_ipv4(&outer->v4, proto, payload, &server->source, &server->address);
	}
}

/* Puts the packet into another one, to the server. Returns 0, or a negative error. */
static __noinline int encapsulate(struct __sk_buff *skb, const struct packet *p, const struct ab_server *server)
{
	struct outer *outer = outer_room();
	int is_gue = server->gue_port != 0, tos = traffic_class(skb, p);
	__u32 family = outer_family(server), payload = p->length + (is_gue ? sizeof(outer->gue) : 0);
	__u32 l3 = bounded_l3(p);
	/* Of the flow, for those who spread packets. IPv4 has no field for it. */
	__u32 hash = is_gue || family == AB_IPV6 ? bpf_get_hash_recalc(skb) : 0;
	__u8 inner = p->family == AB_IPV6 ? IPPROTO_IPV6 : IPPROTO_IPIP;
	__be16 type = bpf_htons(family == AB_IPV6 ? ETH_P_IPV6 : ETH_P_IP);
	if (!outer || tos < 0 || make_room(skb, p, family, outer_length(server), is_gue))
		return -1;
	if (l3 && family != p->family && bpf_skb_store_bytes(skb, l3 - sizeof(type), &type, sizeof(type), 0))
		return -1;
	fill_outer(outer, server, is_gue ? IPPROTO_UDP : inner, payload, tos, hash);
	int bad = family == AB_IPV6 ? bpf_skb_store_bytes(skb, l3, &outer->v6, sizeof(outer->v6), 0)
				    : bpf_skb_store_bytes(skb, l3, &outer->v4, sizeof(outer->v4), 0);
	if (bad || !is_gue)
		return bad;
	fill_gue(&outer->gue, server->gue_port, inner, payload, hash);
	return bpf_skb_store_bytes(skb, l3 + ip_header_of(family), &outer->gue, sizeof(outer->gue), 0);
}

#endif
