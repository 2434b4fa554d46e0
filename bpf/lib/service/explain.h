/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Which server would get this client's connection, and why? The same functions choose as for packets, but nothing is opened. */
#ifndef ANABRANCH_SERVICE_EXPLAIN_H
#define ANABRANCH_SERVICE_EXPLAIN_H

#include "serve.h"

AB_SCRATCH(service_explanation, struct ab_explanation)

/* A question is no turn. A connection that another CPU opens meanwhile may share its turn with the next one. */
static __always_inline void give_turn_back(__u32 choice)
{
	const struct ab_choice *now = bpf_map_lookup_elem(&service_choices, &choice);
	__u64 *turns = bpf_map_lookup_elem(&service_turns, &choice);
	if (now && turns && ab_takes_turns(now))
		__sync_fetch_and_sub(turns, 1);
}

/* Whether the connection under room->key is known and stays; its server is then at room->place. */
static __always_inline int stays(struct service_room *room)
{
	const struct ab_connection *known = find_connection(&room->key);
	if (known) {
		room->place = place_of(known);
		return !is_replaced(room, known->state, room->place);
	}
	room->key.side = AB_SIDE_DIRECT;
	const struct ab_direct *direct = find_direct(&room->key);
	if (!direct)
		return 0;
	room->place = place_of_direct(direct);
	return !is_replaced(room, direct->state, room->place);
}

/* For a packet that may open a connection. Returns the reason under which it would be counted. */
static __always_inline __u32 explain_connection(struct __sk_buff *skb, struct service_room *room,
						struct ab_explanation *e)
{
	struct packet *p = &room->packet;
	__builtin_memset(p, 0, sizeof(*p));
	if (parse_packet(skb, p, ETH_HLEN) || !is_of_services(p))
		return AB_SERVICE_REASON_NOT_OURS;
	const __u32 *service = service_of(p);
	if (!service)
		return AB_SERVICE_REASON_NOT_OURS;
	e->class = *service;
	make_connection_key(&room->key, p->proto, AB_SIDE_NAT, &p->dst, p->dport, &p->src, p->sport);
	if (stays(room)) {
		e->bound = 1;
		e->link = room->place % AB_MAX_TARGETS;
		return AB_SERVICE_REASON_TO_SERVER;
	}
	e->link = choose_server(*service);
	e->why = room->decision.why;
	give_turn_back(AB_SERVICE_CHOICE(*service, p->family));
	return e->link < AB_MAX_TARGETS ? AB_SERVICE_REASON_TO_SERVER : room->unserved;
}

#endif
