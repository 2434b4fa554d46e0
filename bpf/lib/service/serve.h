/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Finds the connection of a packet, or opens it, follows what the packet shows of it, and has it sent to its server or client.
 */
#ifndef ANABRANCH_SERVICE_SERVE_H
#define ANABRANCH_SERVICE_SERVE_H

#include "error.h"
#include "forward.h"
#include "meter.h"
#include "passing.h"
#include "stateless.h"

/* A client's acknowledgement may be this far behind what its server has sent. */
#define ACK_WINDOW (1 << 20)

/* Whether it is of TCP or UDP. Services handle nothing else. */
static __always_inline int is_of_services(const struct packet *p)
{
	return p->kind == PACKET_FLOW && (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP);
}

/* Whether it may open a connection. */
static __always_inline int is_opening(const struct packet *p)
{
	return p->has_ports_header && (p->proto == IPPROTO_UDP || is_first_syn(p));
}

/* Returns the bytes. */
static __always_inline __u64 count_packet(struct __sk_buff *skb, const struct packet *p, struct ab_connection *entry)
{
	struct load load = packet_load(skb, p);
	__sync_fetch_and_add(&entry->packets, load.packets);
	__sync_fetch_and_add(&entry->bytes, load.bytes);
	return load.bytes;
}

/* Reads the way back: the two hardware addresses of the frame, exchanged. Returns 0, or a negative error. */
static __always_inline int read_way_back(struct __sk_buff *skb, const struct packet *p, struct ab_connection *entry)
{
	entry->ifindex = skb->ifindex;
	entry->layer3 = p->l3 == 0;
	if (entry->layer3)
		return 0;
	return bpf_skb_load_bytes(skb, ETH_ALEN, entry->ethernet, ETH_ALEN)
		       ?: bpf_skb_load_bytes(skb, 0, entry->ethernet + ETH_ALEN, ETH_ALEN);
}

static __always_inline int is_same_way(const struct ab_connection *a, const struct ab_connection *b)
{
	const __u32 *one = (const __u32 *)a->ethernet, *other = (const __u32 *)b->ethernet;
	return a->ifindex == b->ifindex && !((one[0] ^ other[0]) | (one[1] ^ other[1]) | (one[2] ^ other[2]));
}

/* Whether a packet proves that who sent it hears the server, or nobody has proved that yet. */
static __always_inline int is_from_client(const struct packet *p, const struct ab_connection *client,
					  const struct ab_connection *server)
{
	if (p->proto == IPPROTO_UDP)
		return !(client->state & AB_CONNECTION_ANSWERED) ||
		       tick_ns() - client->seen_ns > AB_CONNECTION_UDP_WAY_NS;
	if (is_first_syn(p))
		return !(client->state & AB_CONNECTION_ESTABLISHED);
	return p->tcp_flags & AB_TCP_ACK && server->end - p->ack <= ACK_WINDOW;
}

/*
 * Clients move, and so do routers in front of them. But anybody can send with a client's address. So the way back of an established
 * connection changes only with a segment that acknowledges something that the server has just sent. Before that the last first SYN
 * sets it: a forged one that came earlier does not keep the client from its answer. Returns whether the packet came by what is
 * the way back now.
 */
static __noinline int follow_client(struct service_room *room, struct ab_connection *client)
{
	const struct ab_connection *now = &room->connection;
	turn_key(&room->server, &room->client, client);
	struct ab_connection *server = find_connection(&room->server);
	if (!server || !is_from_client(&room->packet, client, server))
		return 0;
	client->ifindex = server->ifindex = now->ifindex;
	client->layer3 = server->layer3 = now->layer3;
	__builtin_memcpy(client->ethernet, now->ethernet, sizeof(client->ethernet));
	__builtin_memcpy(server->ethernet, now->ethernet, sizeof(server->ethernet));
	return 1;
}

/* The flags of a client's segment, without a RST that is not its own. */
static __noinline __u8 believed_flags(struct service_room *room, const struct ab_connection *client)
{
	__u8 flags = room->packet.tcp_flags;
	if (!(flags & AB_TCP_RST))
		return flags;
	turn_key(&room->server, &room->client, client);
	const struct ab_connection *server = find_connection(&room->server);
	if (server && !ab_connection_is_reset(client->state, room->packet.seq, server->ack))
		flags &= ~AB_TCP_RST;
	return flags;
}

/* Opens the connection of a packet. Returns 0, or the reason why it was not opened. */
static __always_inline __u32 begin_connection(struct service_room *room, __u32 service)
{
	if (!gets_entry(room, service))
		return AB_SERVICE_REASON_TOO_MANY;
	__u32 target = choose_server(service),
	      place = AB_SERVER_PLACE(service % AB_MAX_SERVICES, target % AB_MAX_TARGETS);
	if (target >= AB_MAX_TARGETS)
		return room->unserved;
	const struct ab_server *server = bpf_map_lookup_elem(&servers, &place);
	if (!server || !server->ifindex)
		return AB_SERVICE_REASON_NO_WAY;
	struct ab_connection *fresh = &room->connection;
	fresh->opened_ns = fresh->seen_ns = time_ns();
	fresh->asked = room->packet.proto == IPPROTO_UDP ? request_time() : 0;
	fresh->service = service;
	fresh->server = target;
	fresh->family = room->packet.family;
	fresh->ack = room->packet.end;
	if (server->flags & AB_SERVER_DIRECT) {
		fresh->state = AB_CONNECTION_DIRECT;
		fresh->end = room->packet.end;
	}
	make_connection_key(&room->server, room->packet.proto, AB_SIDE_SERVER, &server->address,
			    server->port ?: room->packet.dport, &room->packet.src, room->packet.sport);
	__u32 bad = insert_connection(server);
	if (!bad)
		take_turn(fresh->opened_ns);
	return bad;
}

/* Whether a packet that may open a connection replaces the one that it is of. */
static __always_inline int is_replaced(const struct service_room *room, const struct ab_connection *client)
{
	__u32 state = client->state;
	/* Most datagrams: they need no look-up of the choice. */
	if (room->packet.proto == IPPROTO_UDP &&
	    (state & (AB_CONNECTION_ANSWERED | AB_CONNECTION_CLOSED)) == AB_CONNECTION_ANSWERED)
		return 0;
	return ab_connection_gives_way(state, AB_TCP_SYN, takes_new(room, client));
}

/* Follows a direct connection by what its client sends. */
static __always_inline void follow_directly(const struct packet *p, struct ab_connection *client)
{
	client->seen_ns = tick_ns();
	if (p->proto == IPPROTO_UDP && client->packets)
		add_to_state(client, ab_connection_learn_direct(client->state, 0));
	if (p->proto == IPPROTO_UDP || !p->has_ports_header || !ab_connection_is_near(p->seq, client->end))
		return;
	client->end = p->end;
	add_to_state(client, ab_connection_learn_direct(client->state, p->tcp_flags));
}

/* Handles a client's packet to the virtual endpoint of a service. */
static __always_inline __u32 from_client(struct __sk_buff *skb, struct service_room *room, __u32 service)
{
	struct packet *p = &room->packet;
	make_connection_key(&room->client, p->proto, AB_SIDE_CLIENT, &p->dst, p->dport, &p->src, p->sport);
	__builtin_memset(&room->connection, 0, sizeof(room->connection));
	if (read_way_back(skb, p, &room->connection))
		return AB_SERVICE_REASON_UNSENT;
	struct ab_connection *client = find_connection(&room->client);
	if (client && is_opening(p) && is_replaced(room, client)) {
		turn_key(&room->server, &room->client, client);
		forget_connection(&room->client, client, &room->server);
		client = NULL;
	}
	room->signs = client && is_first_syn(p) && !(client->state & AB_CONNECTION_ANSWERED) ? SIGN_REPEATED : 0;
	if (!client) {
		__u32 reason = is_opening(p) ? begin_connection(room, service) : AB_SERVICE_REASON_NO_CONNECTION;
		if (may_do_without_entry(reason))
			return serve_without_entry(skb, room, service, reason);
		if (reason)
			return reason;
		client = find_connection(&room->client);
		if (!client)
			return AB_SERVICE_REASON_TABLE_FULL;
	}
	__u32 is_direct = client->state & AB_CONNECTION_DIRECT;
	if (is_direct) {
		follow_directly(p, client);
	} else {
		/* What may be forged keeps no connection alive. */
		if (is_same_way(client, &room->connection) || follow_client(room, client))
			client->seen_ns = tick_ns();
		learn(client, p->proto, 0, believed_flags(room, client));
		hear_client(room, client);
	}
	count_packet(skb, p, client);
	__u32 bad = begin_datagram(p);
	if (bad)
		return bad;
	/* A server acknowledges whatever occupies sequence numbers. */
	if (p->end != p->seq)
		room->signs |= is_first_syn(p) ? SIGN_SYN : SIGN_DATA;
	__u32 reason = send_to_server(skb, p, client, client->other_port);
	/* Whether a server answers directly is not seen. */
	if (room->signs && !is_direct && reason == AB_SERVICE_REASON_TO_SERVER)
		note_signs(client->service, client->server);
	return reason;
}

/* Handles a packet that may be from a server to its client. */
static __always_inline __u32 from_server(struct __sk_buff *skb, struct service_room *room)
{
	struct packet *p = &room->packet;
	make_connection_key(&room->server, p->proto, AB_SIDE_SERVER, &p->src, p->sport, &p->dst, p->dport);
	struct ab_connection *server = find_connection(&room->server);
	if (!server)
		return answer_without_entry(skb, room);
	room->signs = SIGN_HEARD;
	int is_first_answer = p->proto == IPPROTO_UDP && !server->state;
	if (is_first_answer || p->tcp_flags & (AB_TCP_SYN | AB_TCP_FIN | AB_TCP_RST)) {
		turn_key(&room->client, &room->server, server);
		struct ab_connection *client = find_connection(&room->client);
		if (client && ab_connection_is_refused(client->state, p->tcp_flags))
			room->signs |= SIGN_REFUSED;
		if (client)
			learn(client, p->proto, 1, p->tcp_flags);
	}
	if (is_first_answer)
		server->state = AB_CONNECTION_ANSWERED;
	if (p->has_ports_header)
		server->end = p->end;
	if (p->tcp_flags & AB_TCP_ACK)
		server->ack = p->ack;
	server->seen_ns = tick_ns();
	hear_server(p, server, count_packet(skb, p, server));
	note_signs(server->service, server->server);
	__u32 bad = begin_datagram(p);
	if (bad)
		return bad;
	return send_to_client(skb, p, server, server->other_port);
}

/* The number of the service with the packet's destination as virtual endpoint, or NULL. */
static __always_inline const __u32 *service_of(const struct packet *p)
{
	struct ab_virtual_key key = {
		.bits = AB_VIRTUAL_BITS,
		.virtual = { .address = p->dst, .proto = p->proto, .port = p->dport },
	};
	return bpf_map_lookup_elem(&virtuals, &key);
}

/* Takes the tail of a packet that was split here. Returns 0, or a negative error. */
static __always_inline int take_tail(struct __sk_buff *skb, struct packet *p, __u32 l3)
{
	if (!is_tail(skb) || !(skb->mark & TAIL_SERVED) || !is_sent_back(skb))
		return 0;
	int accounted = cut_tail(skb, l3);
	p->flags = accounted > 0 ? PACKET_ACCOUNTED : 0;
	return accounted < 0 ? accounted : 0;
}

/* Writes the ports of a later fragment's datagram to the packet. Returns 0, or the reason why it goes no further: that of no
 * datagram known here may be the host's. */
static __always_inline __u32 find_ports(struct packet *p)
{
	int bad = is_later_fragment(p) ? learn_fragment(p, FRAGMENTS_SIDE) : 0;
	if (!bad)
		return 0;
	return bad == AB_REASON_FRAGMENT_ORPHAN ? AB_SERVICE_REASON_NOT_OURS : AB_SERVICE_REASON_BAD_FRAGMENT;
}

/* Forwards the packet if it belongs to a service. Returns the reason under which it is counted. */
static __always_inline __u32 serve(struct __sk_buff *skb, struct service_room *room, __u32 l3)
{
	struct packet *p = &room->packet;
	__builtin_memset(p, 0, sizeof(*p));
	if (take_tail(skb, p, l3))
		return AB_SERVICE_REASON_UNSENT;
	/* A malformed packet is left to the next program or the stack. */
	if (parse_packet(skb, p, l3))
		return AB_SERVICE_REASON_NOT_OURS;
	if (p->kind == PACKET_ICMP_ERROR)
		return serve_error(skb, room);
	__u32 bad = find_ports(p);
	if (bad || !is_of_services(p))
		return bad ?: AB_SERVICE_REASON_NOT_OURS;
	const __u32 *service = service_of(p);
	return service ? from_client(skb, room, *service) : from_server(skb, room);
}

#endif
