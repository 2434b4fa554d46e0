/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Connections whose servers answer their clients themselves: only what clients send comes by here. It is sent on as it is, or inside
 * other packets, and the connection is followed by that alone.
 */
#ifndef ANABRANCH_SERVICE_DIRECT_H
#define ANABRANCH_SERVICE_DIRECT_H

#include "forward.h"
#include "passing.h"

/* Follows a connection by a packet of its client. */
static __noinline void follow_directly(struct service_room *room, struct ab_direct *entry)
{
	const struct packet *p = &room->packet;
	__u32 place = place_of_direct(entry);
	room->place = place;
	see(&entry->seen_ns);
	if (p->proto == IPPROTO_TCP) {
		if (!p->has_ports_header || !ab_connection_is_near(p->seq, entry->end))
			return;
		entry->end = p->end;
	}
	__u32 state = entry->state, learned = ab_connection_learn_direct(state, p->tcp_flags);
	if (learned & AB_CONNECTION_ANSWERED && p->tcp_flags & AB_TCP_ACK)
		room->signs = SIGN_HEARD;
	else if (is_first_syn(p) && !(state & AB_CONNECTION_ANSWERED))
		room->signs = SIGN_REPEATED;
	add_to_state(room, &entry->state, learned, place, &entry->turn);
}

/* Writes the connection of room->direct. Returns 0, or the reason of failure. */
__noinline int insert_direct(void)
{
	struct service_room *room = service_room();
	if (!room)
		return AB_SERVICE_REASON_UNSENT;
	if (!bpf_map_update_elem(&direct_connections, &room->key, &room->direct, BPF_NOEXIST)) {
		service_gauge_add(room->place, &room->key, 1, 0);
		enter_ring(room->direct.turn);
		return 0;
	}
	/* As insert_connection(). */
	const struct ab_direct *other = find_direct(&room->key);
	if (!other)
		return AB_SERVICE_REASON_TABLE_FULL;
	room->place = place_of_direct(other);
	return 0;
}

/* Opens the connection of a packet to the server at room->place. Returns 0, or the reason why it was not opened. */
static __always_inline __u32 open_directly(struct service_room *room)
{
	room->key.side = AB_SIDE_DIRECT;
	room->direct = (struct ab_direct){
		.seen_ns = tick_ns(),
		.state = room->place << AB_DIRECT_SERVER_SHIFT,
		.end = room->packet.end,
		.turn = next_turn(),
	};
	return insert_direct();
}

#endif
