/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Connections that may have to make room: those of clients that have not gone on after an answer, and those that are over. Anybody
 * can open the former with forged addresses, faster than they time out. So each of either has a place in a ring, and ends
 * when another takes that place, the oldest first. A flood takes no room from established connections, and a table of any
 * size bears any rate of short ones.
 */
#ifndef ANABRANCH_SERVICE_PASSING_H
#define ANABRANCH_SERVICE_PASSING_H

#include "connection.h"

/* The next turn. */
static __always_inline __u32 next_turn(void)
{
	__u32 zero = 0, *turn = bpf_map_lookup_elem(&service_turn, &zero);
	return turn ? __sync_fetch_and_add(turn, 1) : 0;
}

/* Ends the connection that had this place, if it still has and may have to make room. Works on a copy of the key: a CPU that is a round
 * ahead may write the place meanwhile. */
static __always_inline void end_former(struct service_room *room, const struct ab_passing *slot)
{
	struct ab_flow_key *key = &room->other;
	*key = slot->key;
	if (key->side == AB_SIDE_DIRECT) {
		struct ab_direct *old = find_direct(key);
		if (old && old->turn == slot->turn && ab_connection_is_passing(old->state))
			forget_direct(key, old);
		return;
	}
	struct ab_connection *old = find_connection(key);
	if (old && old->turn == slot->turn && ab_connection_is_passing(old->state))
		forget_connection(key, old);
}

/* Gives the connection under room->key the place of its turn. */
__noinline int enter_ring(__u32 turn)
{
	struct service_room *room = service_room();
	__u32 place = turn % AB_PASSING_MAX;
	struct ab_passing *slot = bpf_map_lookup_elem(&service_passing, &place);
	if (!room || !slot)
		return -1;
	end_former(room, slot);
	slot->key = room->key;
	slot->turn = turn;
	return 0;
}

/* For a connection under room->key that is over: a new turn, unless the place that it was opened at is kept for long. */
static __always_inline void take_last_turn(__u32 *turn)
{
	__u32 zero = 0;
	const __u32 *now = bpf_map_lookup_elem(&service_turn, &zero);
	if (!now || *now - *turn < AB_PASSING_MAX / 2)
		return;
	*turn = next_turn();
	enter_ring(*turn);
}

/* Adds bits to the state of the connection under room->key. Only the CPU that sets CLOSED counts it as closed. */
static __always_inline void add_to_state(const struct service_room *room, __u32 *state, __u32 learned, __u32 place,
					 __u32 *turn)
{
	if (!learned)
		return;
	__u32 before = __sync_fetch_and_or(state, learned);
	follow_count(place, &room->key, before, before | learned);
	if (!(learned & ~before & AB_CONNECTION_CLOSED))
		return;
	service_gauge_add(place, &room->key, 0, 1);
	take_last_turn(turn);
}

/* Adds what a packet shows to the state. */
static __always_inline void learn(const struct service_room *room, struct ab_connection *entry, int by_server,
				  __u8 flags)
{
	__u32 state = entry->state, learned = room->packet.proto == IPPROTO_UDP
						      ? ab_connection_learn_udp(state, by_server)
						      : ab_connection_learn(state, by_server, flags);
	add_to_state(room, &entry->state, learned, place_of(entry), &entry->turn);
}

#endif
