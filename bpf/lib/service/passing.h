/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Connections that may have to make room: those of clients that have not gone on after an answer, and those that are over. Anybody
 * can open the former with forged addresses, faster than they time out. So each of either has a place in a ring when it becomes so, and
 * ends when another takes that place, the oldest first. A flood takes no room from established connections, and a table of any
 * size bears any rate of short ones.
 */
#ifndef ANABRANCH_SERVICE_PASSING_H
#define ANABRANCH_SERVICE_PASSING_H

#include "connection.h"

/* Ends the connection that had this place, if it still is what the place was for. */
static __always_inline void end_former(struct service_room *room, const struct ab_passing *slot)
{
	struct ab_connection *old = find_connection(&slot->client);
	if (!old || old->opened_ns != slot->opened_ns || !ab_connection_is_passing(old->state))
		return;
	turn_key(&room->other, &slot->client, old);
	forget_connection(&slot->client, old, &room->other);
}

/* Gives the connection under room->client, which was opened at this time, the next place. */
__noinline int take_turn(__u64 opened_ns)
{
	struct service_room *room = service_room();
	__u32 zero = 0;
	__u64 *places = bpf_map_lookup_elem(&service_places, &zero);
	if (!room || !places)
		return -1;
	__u32 place = __sync_fetch_and_add(places, 1) % AB_PASSING_MAX;
	struct ab_passing *slot = bpf_map_lookup_elem(&service_passing, &place);
	if (!slot)
		return -1;
	end_former(room, slot);
	slot->client = room->client;
	slot->opened_ns = opened_ns;
	return 0;
}

/* Adds bits to the state of the connection under room->client. Only the CPU that sets CLOSED counts the connection as closed. */
static __always_inline void add_to_state(struct ab_connection *client, __u32 learned)
{
	if (!learned)
		return;
	__u32 before = __sync_fetch_and_or(&client->state, learned);
	if (!(learned & ~before & AB_CONNECTION_CLOSED))
		return;
	service_gauge_add(client, 0, 1);
	/* Others have a place since they were opened. */
	if (before & AB_CONNECTION_ESTABLISHED)
		take_turn(client->opened_ns);
}

/* Adds what a packet shows to the state. */
static __always_inline void learn(struct ab_connection *client, __u8 proto, int by_server, __u8 flags)
{
	add_to_state(client, proto == IPPROTO_UDP ? ab_connection_learn_udp(client->state, by_server)
						  : ab_connection_learn(client->state, by_server, flags));
}

#endif
