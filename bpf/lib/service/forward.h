/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Sends packets to a server or a client. The client's packets go to where user space says that the server is, of a direct connection
 * as they are, or inside others: the server has the virtual address, too, and its answers do not come by here. Other servers' packets
 * go back by the device, and to the hardware address, from which the client's came: with several links, no route of the host would
 * lead there.
 */
#ifndef ANABRANCH_SERVICE_FORWARD_H
#define ANABRANCH_SERVICE_FORWARD_H

#include "../packet/fragment.h"
#include "../packet/mtu.h"
#include "../packet/rewrite.h"
#include "connection.h"
#include "tunnel.h"

/* No device with IPv6 has a smaller MTU (RFC 8200 section 5), and few with IPv4 alone. Shorter packets are not compared. */
#define LEAST_MTU 1280

/* The MTU of a device, or 0 if there is none with this number. */
static __noinline __u32 mtu_of(struct __sk_buff *skb, __u32 ifindex)
{
	__u32 mtu = 0;
	bpf_check_mtu(skb, ifindex, &mtu, 0, 0);
	return mtu;
}

/* One table for both directions: the ends tell them apart. Datagrams are sent on with ids of our own, because two servers may use
 * one id towards a client. */
#define FRAGMENTS_SIDE AB_SIDE_LAN

/* For a packet of a connection: records the first fragment of a datagram for the others. Returns 0, or the reason to drop. */
static __always_inline __u32 begin_datagram(struct packet *p)
{
	if (!is_fragment(p) || is_later_fragment(p) || !learn_fragment(p, FRAGMENTS_SIDE))
		return 0;
	return AB_SERVICE_REASON_BAD_FRAGMENT;
}

/* Splits a packet that is too long for a device and `outer` more headers, beside which p->mtu bytes have room. Returns 0, or the
 * reason why it cannot be sent. */
static __noinline __u32 fit_device(struct __sk_buff *skb, struct packet *p, __u32 ifindex, __u32 outer)
{
	if (p->length + outer <= LEAST_MTU)
		return 0;
	__u32 mtu = mtu_of(skb, ifindex);
	/* The segments of a longer packet of TCP become shorter by the outer headers. */
	__u32 taken = skb->gso_size && p->proto == IPPROTO_TCP ? 0 : outer;
	if (mtu <= outer || !exceeds_mtu(skb, p, mtu - taken))
		return 0;
	p->mtu = mtu - outer;
	int was_fragment = is_fragment(p);
	if (p->fragment & IP_DONT_FRAGMENT || split_packet(skb, p, p->mtu, TAIL_SERVED))
		return AB_SERVICE_REASON_TOO_BIG;
	return !was_fragment && learn_fragment(p, FRAGMENTS_SIDE) ? AB_SERVICE_REASON_BAD_FRAGMENT : 0;
}

/* Has the sender of a SYN be sent no longer segments than fit both the device that it came by and the one that it leaves by.
 * Returns 0, or the reason of failure. */
static __always_inline int fit_mss(struct __sk_buff *skb, struct packet *p, __u32 ifindex)
{
	if (!(p->tcp_flags & AB_TCP_SYN))
		return 0;
	__u32 one = mtu_of(skb, skb->ifindex), other = mtu_of(skb, ifindex);
	return clamp_mss(skb, p, one < other ? one : other);
}

/* Sends a packet to the server at this place, as it is if that answers itself. Returns the reason under which it is counted. Global,
 * so that the verifier follows it once. */
__noinline int send_to_server(struct __sk_buff *skb, struct packet *p, __u32 place, __u32 is_direct)
{
	if (!p)
		return AB_SERVICE_REASON_UNSENT;
	const struct ab_server *server = bpf_map_lookup_elem(&servers, &place);
	if (!server || !server->ifindex)
		return AB_SERVICE_REASON_NO_WAY;
	if (p->ttl <= 1 && !is_direct)
		return AB_SERVICE_REASON_TTL;
	__u32 bad = fit_device(skb, p, server->ifindex, is_direct ? outer_length(server) : 0);
	if (bad)
		return bad;
	if (is_direct && server->flags & AB_SERVER_TUNNEL && encapsulate(skb, p, server))
		return AB_SERVICE_REASON_UNSENT;
	__be16 port = p->kind == PACKET_FLOW && server->port ? server->port : p->dport;
	if (!is_direct && (fit_mss(skb, p, server->ifindex) || rewrite_packet(skb, p, INBOUND, &server->address, port)))
		return AB_SERVICE_REASON_UNSENT;
	if (server->flags & AB_SERVER_POINT_TO_POINT)
		bpf_redirect(server->ifindex, 0);
	else if (send_to_neighbour(skb, p->l3, server->ifindex, &server->next_hop))
		return AB_SERVICE_REASON_UNSENT;
	return AB_SERVICE_REASON_TO_SERVER;
}

/* Writes the hardware addresses of an answer: those of the client's frames, exchanged. */
static __always_inline int exchange_way(struct __sk_buff *skb, const struct ab_connection *entry)
{
	return bpf_skb_store_bytes(skb, 0, entry->ethernet + ETH_ALEN, ETH_ALEN, 0)
		       ?: bpf_skb_store_bytes(skb, ETH_ALEN, entry->ethernet, ETH_ALEN, 0);
}

static __always_inline int send_back(struct __sk_buff *skb, const struct packet *p, const struct ab_connection *entry)
{
	if (!entry->layer3 && (add_ethernet(skb, p) || exchange_way(skb, entry)))
		return -1;
	return bpf_redirect(entry->ifindex, 0) == TC_ACT_REDIRECT ? 0 : -1;
}

/* Sends a packet to the client of its connection, from the virtual endpoint, whose port may be another if the packet has none
 * itself. Returns the reason under which it is counted. */
static __always_inline __u32 send_to_client(struct __sk_buff *skb, struct packet *p, const struct ab_flow_key *key,
					    const struct ab_connection *entry, __be16 port)
{
	if (p->ttl <= 1)
		return AB_SERVICE_REASON_TTL;
	__u32 bad = fit_device(skb, p, entry->ifindex, 0);
	if (bad)
		return bad;
	if (fit_mss(skb, p, entry->ifindex) || rewrite_packet(skb, p, OUTBOUND, &key->local, port) ||
	    send_back(skb, p, entry))
		return AB_SERVICE_REASON_UNSENT;
	return AB_SERVICE_REASON_TO_CLIENT;
}

#endif
