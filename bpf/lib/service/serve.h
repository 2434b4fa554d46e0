/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Finds the connection of a packet, or opens it, follows what the packet shows of it, and has it sent to its server or client.
 */
#ifndef ANABRANCH_SERVICE_SERVE_H
#define ANABRANCH_SERVICE_SERVE_H

#include "direct.h"
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

/* Reads the way by which a client's packet came. Returns 0, or a negative error. */
static __always_inline int read_way(struct __sk_buff *skb, const struct packet *p, struct ab_connection *arrived)
{
	arrived->ifindex = skb->ifindex;
	arrived->layer3 = p->l3 == 0;
	if (!arrived->layer3)
		return bpf_skb_load_bytes(skb, 0, arrived->ethernet, sizeof(arrived->ethernet));
	__builtin_memset(arrived->ethernet, 0, sizeof(arrived->ethernet));
	return 0;
}

static __always_inline int is_same_way(const struct ab_connection *a, const struct ab_connection *b)
{
	const __u32 *one = (const __u32 *)a->ethernet, *other = (const __u32 *)b->ethernet;
	return a->ifindex == b->ifindex && !((one[0] ^ other[0]) | (one[1] ^ other[1]) | (one[2] ^ other[2]));
}

/* Whether a packet proves that who sent it hears the server, or nobody has proved that yet. */
static __always_inline int is_from_client(const struct packet *p, const struct ab_connection *entry)
{
	if (p->proto == IPPROTO_UDP)
		return !(entry->state & AB_CONNECTION_ANSWERED) ||
		       tick_ns() - entry->client_seen_ns > AB_CONNECTION_UDP_WAY_NS;
	if (is_first_syn(p))
		return !(entry->state & AB_CONNECTION_ESTABLISHED);
	return p->tcp_flags & AB_TCP_ACK && entry->end - p->ack <= ACK_WINDOW;
}

/*
 * Clients move, and so do routers in front of them. But anybody can send with a client's address. So the way back of an established
 * connection changes only with a segment that acknowledges something that the server has just sent. Before that the last first SYN
 * sets it: a forged one that came earlier does not keep the client from its answer. Returns whether the packet came by what is
 * the way back now.
 */
static __noinline int follow_way(const struct service_room *room, struct ab_connection *entry)
{
	const struct ab_connection *arrived = &room->arrived;
	if (is_same_way(entry, arrived))
		return 1;
	if (!is_from_client(&room->packet, entry))
		return 0;
	entry->ifindex = arrived->ifindex;
	entry->layer3 = arrived->layer3;
	__builtin_memcpy(entry->ethernet, arrived->ethernet, sizeof(entry->ethernet));
	return 1;
}

/* The flags of a client's segment, without those that anybody could have sent. */
static __always_inline __u8 believed_flags(const struct packet *p, const struct ab_connection *entry)
{
	__u8 flags = p->tcp_flags;
	if (flags & AB_TCP_RST && !ab_connection_is_reset(entry->state, p->seq, entry->ack))
		flags &= ~AB_TCP_RST;
	if (flags & AB_TCP_ACK && !ab_connection_is_confirmed(entry->state, p->ack, entry->end))
		flags &= ~AB_TCP_ACK;
	return flags;
}

/* Follows a connection by a packet of its client. */
static __noinline void follow_client(struct __sk_buff *skb, struct service_room *room, struct ab_connection *entry)
{
	const struct packet *p = &room->packet;
	room->place = place_of(entry);
	if (is_first_syn(p) && !(entry->state & AB_CONNECTION_ANSWERED))
		room->signs = SIGN_REPEATED;
	/* What may be forged keeps no connection alive. */
	if (!read_way(skb, p, &room->arrived) && follow_way(room, entry))
		see(&entry->client_seen_ns);
	learn(room, entry, 0, believed_flags(p, entry));
	hear_client(p, entry);
}

/* Writes the connection of room->arrived. Returns 0, or the reason of failure. */
__noinline int insert_connection(void)
{
	struct service_room *room = service_room();
	if (!room)
		return AB_SERVICE_REASON_UNSENT;
	if (!bpf_map_update_elem(&connections, &room->key, &room->arrived, BPF_NOEXIST)) {
		service_gauge_add(room->place, &room->key, 1, 0);
		enter_ring(room->arrived.turn);
		return 0;
	}
	/* Another CPU may have processed a copy of the SYN. Its entry is kept. */
	const struct ab_connection *other = find_connection(&room->key);
	if (!other)
		return AB_SERVICE_REASON_TABLE_FULL;
	room->place = place_of(other);
	return 0;
}

/* Opens the connection of a packet to the server at room->place, whose answers come back. Returns 0, or the reason why it was not
 * opened. */
static __always_inline __u32 open_translated(struct __sk_buff *skb, struct service_room *room, __u32 service)
{
	const struct packet *p = &room->packet;
	struct ab_connection *fresh = &room->arrived;
	room->key.side = AB_SIDE_NAT;
	if (is_ambiguous(room))
		return AB_SERVICE_REASON_PORT_TAKEN;
	if (read_way(skb, p, fresh))
		return AB_SERVICE_REASON_UNSENT;
	fresh->service = service;
	fresh->server = room->place % AB_MAX_TARGETS;
	fresh->state = 0;
	fresh->turn = next_turn();
	fresh->client_seen_ns = tick_ns();
	fresh->server_seen_ns = 0;
	fresh->confirmed = 0;
	fresh->end = 0;
	fresh->ack = p->end;
	fresh->asked = p->proto == IPPROTO_UDP ? request_time() : 0;
	return insert_connection();
}

/* Opens the connection of a packet. Returns 0, or the reason why it was not opened. */
static __noinline __u32 open_connection(struct __sk_buff *skb, struct service_room *room, __u32 service)
{
	__u32 bad = may_open(room, service) ?: take_server(room, service);
	if (bad)
		return bad;
	const struct ab_server *server = bpf_map_lookup_elem(&servers, &room->place);
	if (!server || !server->ifindex)
		return AB_SERVICE_REASON_NO_WAY;
	if (server->flags & AB_SERVER_DIRECT)
		return open_directly(room);
	return open_translated(skb, room, service);
}

/* Follows the connection of a client's packet whose server's answers come back. Returns 0 if there is none, or none any more. */
static __always_inline int follow_translated(struct __sk_buff *skb, struct service_room *room)
{
	struct ab_connection *known = find_connection(&room->key);
	if (!known)
		return 0;
	if (is_opening(&room->packet) && is_replaced(room, known->state, place_of(known))) {
		forget_connection(&room->key, known);
		return 0;
	}
	follow_client(skb, room, known);
	return 1;
}

/* ... of one whose server answers itself. */
static __always_inline int follow_direct(struct service_room *room)
{
	room->key.side = AB_SIDE_DIRECT;
	struct ab_direct *known = find_direct(&room->key);
	if (!known)
		return 0;
	if (is_opening(&room->packet) && is_replaced(room, known->state, place_of_direct(known))) {
		forget_direct(&room->key, known);
		return 0;
	}
	follow_directly(room, known);
	return 1;
}

/* Handles a client's packet to the virtual endpoint of a service. */
static __noinline __u32 from_client(struct __sk_buff *skb, struct service_room *room, __u32 service)
{
	struct packet *p = &room->packet;
	const struct ab_service_settings *set = bpf_map_lookup_elem(&service_settings, &service);
	__u32 kinds = set ? set->kinds : 0;
	make_connection_key(&room->key, p->proto, AB_SIDE_NAT, &p->dst, p->dport, &p->src, p->sport);
	room->signs = 0;
	int is_known = (kinds & AB_CONNECTIONS_NAT && follow_translated(skb, room)) ||
		       (kinds & AB_CONNECTIONS_DIRECT && follow_direct(room));
	__u32 bad = is_known ? 0 : open_connection(skb, room, service);
	if (bad)
		return turn_away(skb, room, service, bad);
	bad = begin_datagram(p);
	if (bad)
		return bad;
	__u32 is_direct = room->key.side == AB_SIDE_DIRECT;
	/* A server acknowledges whatever occupies sequence numbers. Where its answers are not seen its client shows that of a SYN alone. */
	if (is_direct ? p->tcp_flags & AB_TCP_SYN : p->end != p->seq)
		room->signs |= SIGN_ASKED;
	__u32 reason = send_to_server(skb, p, room->place, is_direct);
	if (room->signs && reason == AB_SERVICE_REASON_TO_SERVER)
		note_signs();
	return reason;
}

/* Follows a connection by a packet of its server. */
static __noinline void follow_server(struct __sk_buff *skb, struct service_room *room, struct ab_connection *entry)
{
	const struct packet *p = &room->packet;
	room->place = place_of(entry);
	room->signs = SIGN_HEARD;
	if (ab_connection_is_refused(entry->state, p->tcp_flags))
		room->signs |= SIGN_REFUSED;
	learn(room, entry, 1, p->tcp_flags);
	if (p->has_ports_header)
		entry->end = p->end;
	if (p->tcp_flags & AB_TCP_ACK)
		entry->ack = p->ack;
	see(&entry->server_seen_ns);
	hear_server(p, entry, packet_load(skb, p).bytes);
	note_signs();
}

/* Handles a packet that may be from a server to its client. */
static __noinline __u32 from_server(struct __sk_buff *skb, struct service_room *room)
{
	struct packet *p = &room->packet;
	struct ab_virtual_key at = endpoint_key(p->proto, &p->src, p->sport);
	const struct ab_answering *answering = bpf_map_lookup_elem(&service_answers, &at);
	if (!answering)
		return AB_SERVICE_REASON_NOT_OURS;
	struct ab_connection *entry = find_answered(room, answering, &at.virtual, &p->dst, p->dport);
	if (!entry)
		return answer_without_entry(skb, room, answering);
	follow_server(skb, room, entry);
	__u32 bad = begin_datagram(p);
	return bad ?: send_to_client(skb, p, &room->key, entry, room->key.local_port);
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
	if (!service)
		return from_server(skb, room);
	return from_client(skb, room, *service);
}

#endif
