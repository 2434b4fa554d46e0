/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * ICMP errors about packets of connections (RFC 5508 section 4). They are translated, the outer and the embedded header, and sent to
 * whoever sent the packet: a router near a client says to the server that its packet is too long, a server says to the client that
 * no program has the port. They neither refresh nor end the connection.
 */
#ifndef ANABRANCH_SERVICE_ERROR_H
#define ANABRANCH_SERVICE_ERROR_H

#include "../packet/quote.h"
#include "stateless.h"

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

/* Sends an error about what the server at this place has sent. */
static __noinline __u32 send_error_to_server(struct __sk_buff *skb, struct packet *p, const struct quote *q,
					     __u32 place, __u32 is_direct)
{
	const struct ab_server *server = bpf_map_lookup_elem(&servers, &place);
	if (!server || (!is_direct && rewrite_quote(skb, p, INBOUND, &server->address, server->port ?: q->sport)))
		return AB_SERVICE_REASON_UNSENT;
	__u32 reason = send_to_server(skb, p, place, is_direct);
	return reason == AB_SERVICE_REASON_TO_SERVER ? AB_SERVICE_REASON_ERROR_TO_SERVER : reason;
}

/* ... directly: the numbers of its segments only the server knows. */
static __noinline __u32 error_to_direct(struct __sk_buff *skb, struct service_room *room, const struct quote *q)
{
	room->key.side = AB_SIDE_DIRECT;
	const struct ab_direct *entry = find_direct(&room->key);
	if (!entry)
		return AB_SERVICE_REASON_NOT_OURS;
	if (!icmp_sum_holds(skb, &room->packet))
		return AB_SERVICE_REASON_BAD_ERROR;
	return send_error_to_server(skb, &room->packet, q, place_of_direct(entry), 1);
}

/* ... without an entry: to where the hash leads what the client sends. */
static __noinline __u32 error_to_hashed(struct __sk_buff *skb, struct service_room *room, const struct quote *q)
{
	struct ab_virtual_key at = endpoint_key(q->proto, &q->src, q->sport);
	const __u32 *service = bpf_map_lookup_elem(&virtuals, &at);
	const struct ab_service_settings *set = service ? bpf_map_lookup_elem(&service_settings, service) : NULL;
	if (!set || !goes_by_rows(set))
		return AB_SERVICE_REASON_NOT_OURS;
	__u32 place;
	int is_former;
	const struct ab_server *server = server_without_entry(room, set, *service, &place, &is_former);
	if (!server)
		return AB_SERVICE_REASON_NOT_OURS;
	if (!icmp_sum_holds(skb, &room->packet))
		return AB_SERVICE_REASON_BAD_ERROR;
	return send_error_to_server(skb, &room->packet, q, place, !!(server->flags & AB_SERVER_DIRECT));
}

/* An error about what a server sent to its client. */
static __noinline __u32 error_to_server(struct __sk_buff *skb, struct service_room *room, const struct quote *q)
{
	make_connection_key(&room->key, q->proto, AB_SIDE_NAT, &q->src, q->sport, &q->dst, q->dport);
	const struct ab_connection *entry = find_connection(&room->key);
	if (!entry)
		return error_to_direct(skb, room, q);
	if (!is_under_way(skb, &room->packet, q, entry->end))
		return AB_SERVICE_REASON_BAD_ERROR;
	return send_error_to_server(skb, &room->packet, q, place_of(entry), 0);
}

/* An error about what a client sent, without an entry, to a server's endpoint. The numbers of its segments only the client knows. */
static __noinline __u32 error_to_unknown_client(struct __sk_buff *skb, struct service_room *room, const struct quote *q,
						const struct ab_answering *answering)
{
	struct packet *p = &room->packet;
	__u32 ifindex = way_without_entry(skb, room, answering, q->proto, (__u32)q->dport << 16 | q->sport);
	if (!ifindex)
		return AB_SERVICE_REASON_NOT_OURS;
	if (!icmp_sum_holds(skb, p))
		return AB_SERVICE_REASON_BAD_ERROR;
	__u32 bad = fit_way(skb, p, ifindex);
	if (bad)
		return bad;
	if (rewrite_quote(skb, p, OUTBOUND, &room->key.local, room->key.local_port))
		return AB_SERVICE_REASON_UNSENT;
	__u32 reason = send_by_route(skb, room, ifindex, p->sport);
	return reason == AB_SERVICE_REASON_ALIASED ? AB_SERVICE_REASON_ERROR_TO_CLIENT : reason;
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
		return error_to_unknown_client(skb, room, q, answering);
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
	if (reason == AB_SERVICE_REASON_NOT_OURS)
		reason = error_to_server(skb, room, q);
	return reason == AB_SERVICE_REASON_NOT_OURS ? error_to_hashed(skb, room, q) : reason;
}

#endif
