/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * ICMP errors about packets of connections (RFC 5508 section 4). They are translated, the outer and the embedded header, and sent to
 * whoever sent the packet: a router near a client says to the server that its packet is too long, a server says to the client that
 * no program has the port. They neither refresh nor end the connection.
 */
#ifndef ANABRANCH_SERVICE_ERROR_H
#define ANABRANCH_SERVICE_ERROR_H

#include "../packet/quote.h"
#include "forward.h"

/* An embedded segment may be this far from the numbers that its connection has reached. */
#define ERROR_WINDOW (1 << 20)

/* Whether the error may be about a packet that is under way (RFC 5927 section 4.1): anybody can forge an error, but only hosts on
 * the path know the numbers of the segments. `reached`: what the sender of the embedded packet has reached. */
static __always_inline int is_under_way(struct __sk_buff *skb, struct packet *p, const struct quote *q, __u32 reached)
{
	if (q->proto == IPPROTO_TCP && q->seq - reached + ERROR_WINDOW > 2 * ERROR_WINDOW)
		return 0;
	return icmp_sum_holds(skb, p);
}

static __always_inline __u32 counted_as_error(__u32 reason)
{
	return reason == AB_SERVICE_REASON_TO_SERVER ? AB_SERVICE_REASON_ERROR_TO_SERVER : reason;
}

/* ... directly: the numbers of its segments only the server knows. */
static __noinline __u32 error_to_direct(struct __sk_buff *skb, struct service_room *room)
{
	struct packet *p = &room->packet;
	room->key.side = AB_SIDE_DIRECT;
	const struct ab_direct *entry = find_direct(&room->key);
	if (!entry)
		return AB_SERVICE_REASON_NOT_OURS;
	if (!icmp_sum_holds(skb, p))
		return AB_SERVICE_REASON_BAD_ERROR;
	return counted_as_error(send_to_server(skb, p, place_of_direct(entry), 1));
}

/* An error about what a server sent to its client. */
static __noinline __u32 error_to_server(struct __sk_buff *skb, struct service_room *room, const struct quote *q)
{
	struct packet *p = &room->packet;
	make_connection_key(&room->key, q->proto, AB_SIDE_NAT, &q->src, q->sport, &q->dst, q->dport);
	const struct ab_connection *entry = find_connection(&room->key);
	if (!entry)
		return error_to_direct(skb, room);
	if (!is_under_way(skb, p, q, entry->end))
		return AB_SERVICE_REASON_BAD_ERROR;
	__u32 place = place_of(entry);
	const struct ab_server *server = bpf_map_lookup_elem(&servers, &place);
	if (!server || rewrite_quote(skb, p, INBOUND, &server->address, server->port ?: q->sport))
		return AB_SERVICE_REASON_UNSENT;
	return counted_as_error(send_to_server(skb, p, place, 0));
}

/* An error about what a client sent to its server. Its source becomes the virtual address, as no other is known to the client. */
static __noinline __u32 error_to_client(struct __sk_buff *skb, struct service_room *room, const struct quote *q)
{
	struct packet *p = &room->packet;
	struct ab_virtual_key at = endpoint_key(q->proto, &q->dst, q->dport);
	const struct ab_answering *answering = bpf_map_lookup_elem(&service_answers, &at);
	if (!answering)
		return AB_SERVICE_REASON_NOT_OURS;
	const struct ab_connection *entry = find_answered(room, answering, &at.virtual, &q->src, q->sport);
	if (!entry)
		return AB_SERVICE_REASON_NOT_OURS;
	if (!is_under_way(skb, p, q, entry->ack))
		return AB_SERVICE_REASON_BAD_ERROR;
	if (rewrite_quote(skb, p, OUTBOUND, &room->key.local, room->key.local_port))
		return AB_SERVICE_REASON_UNSENT;
	__u32 reason = send_to_client(skb, p, &room->key, entry, p->sport);
	return reason == AB_SERVICE_REASON_TO_CLIENT ? AB_SERVICE_REASON_ERROR_TO_CLIENT : reason;
}

/* Sends on an error about a packet of a connection. Returns the reason under which it is counted. */
static __always_inline __u32 serve_error(struct __sk_buff *skb, struct service_room *room)
{
	struct packet *p = &room->packet;
	struct quote *q = quote_room();
	if (!q || is_fragment(p) || read_quote(skb, p, q) || !is_same_addr(&p->dst, &q->src))
		return AB_SERVICE_REASON_NOT_OURS;
	__u32 reason = error_to_client(skb, room, q);
	return reason == AB_SERVICE_REASON_NOT_OURS ? error_to_server(skb, room, q) : reason;
}

#endif
