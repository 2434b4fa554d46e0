/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Packets without an entry. A service may have its client's packets sent to where a keyed hash leads (AB_UNKNOWN_HASH): those of
 * connections that are not known, and new ones above a rate, of which a flood would fill the table. All of these go by the same
 * hash, whatever the policy is, so that no packet depends on another. A server's endpoint belongs to one virtual endpoint only, so
 * its answers need no entry either. They leave by the host's routes.
 *
 * With AB_UNKNOWN_PEER, packets of unknown connections go to the former owner of a row that changed lately: they are older than the
 * change, unless another balancer opened them. New connections of such a row always get an entry.
 */
#ifndef ANABRANCH_SERVICE_STATELESS_H
#define ANABRANCH_SERVICE_STATELESS_H

#include "../../policy/bucket.h"
#include "../packet/fib.h"
#include "forward.h"

/* What is known of a packet without an entry, in memory outside of the stack. */
struct stateless_room {
	struct bpf_fib_lookup way;
	union ab_addr next_hop;
};
AB_SCRATCH(stateless_room, struct stateless_room)

static __always_inline int goes_by_rows(const struct ab_service_settings *set)
{
	return set->unknown == AB_UNKNOWN_HASH || set->unknown == AB_UNKNOWN_PEER;
}

/* Where the hash of room->key leads among the servers that take new connections, or AB_NO_TARGET, and why in room->unserved. */
__noinline int server_by_hash(__u32 service)
{
	struct service_room *room = service_room();
	__u32 place;
	if (!room)
		return AB_NO_TARGET;
	const struct ab_choice *now = begin_choice(room, service, &place);
	const struct ab_consistent *rows = bpf_map_lookup_elem(&service_rows, &place);
	if (!now || !rows)
		return AB_NO_TARGET;
	struct ab_request *q = &room->request;
	hash_client(now, service);
	__u32 size = ab_fill_pool(now, q);
	if (size)
		return ab_pick_consistent(rows, &q->pool, size, q->hash);
	room->unserved = why_unserved(now, q);
	return AB_NO_TARGET;
}

/* The owner of the row to which room->request.hash leads: the former one if rows have changed lately. AB_NO_TARGET if it is dead. */
static __noinline __u32 owner_of_row(const struct service_room *room, __u32 service, __u64 former_until_ns)
{
	__u32 choice = AB_SERVICE_CHOICE(service, room->packet.family);
	__u32 place = AB_SERVICE_ROWS(choice, time_ns() < former_until_ns);
	const struct ab_consistent *rows =
		bpf_map_lookup_elem(&service_rows, &place) ?: bpf_map_lookup_elem(&service_rows, &choice);
	if (!rows)
		return AB_NO_TARGET;
	__u32 target = ab_row_of(rows, room->request.hash);
	place = AB_SERVER_PLACE(service % AB_MAX_SERVICES, target % AB_MAX_TARGETS);
	const struct ab_server *server = bpf_map_lookup_elem(&servers, &place);
	return server && server->ifindex && !(server->flags & AB_SERVER_DEAD) ? target : AB_NO_TARGET;
}

/* Whether a packet without an entry goes to a former owner, who is then in `*target`, where the hash leads. */
static __always_inline int is_of_former(const struct service_room *room, const struct ab_service_settings *set,
					__u32 service, __u32 *target)
{
	if (set->unknown != AB_UNKNOWN_PEER)
		return 0;
	__u32 owner = owner_of_row(room, service, set->former_until_ns);
	if (owner >= AB_MAX_TARGETS || owner == *target)
		return 0;
	*target = owner;
	return 1;
}

/* The server of a client's packet without an entry, and its place; NULL if there is none. */
static __always_inline const struct ab_server *server_without_entry(const struct service_room *room,
								    const struct ab_service_settings *set,
								    __u32 service, __u32 *place, int *is_former)
{
	__u32 target = server_by_hash(service);
	*is_former = is_of_former(room, set, service, &target);
	*place = AB_SERVER_PLACE(service % AB_MAX_SERVICES, target % AB_MAX_TARGETS);
	return target < AB_MAX_TARGETS ? bpf_map_lookup_elem(&servers, place) : NULL;
}

/* Whether a new connection gets an entry: the limit is not reached, or other packets would go elsewhere than its first. */
static __noinline int gets_entry(const struct service_room *room, __u32 service)
{
	const struct ab_service_settings *set = bpf_map_lookup_elem(&service_settings, &service);
	__u64 *full_ns = bpf_map_lookup_elem(&service_inserts, &service);
	if (!set || !full_ns || !set->insert_limit)
		return 1;
	__u64 next = ab_take_token(set->insert_limit, *full_ns, tick_ns());
	/* Two CPUs at once may take the same token. That is cheaper than to be exact. */
	if (next) {
		*full_ns = next;
		return 1;
	}
	__u32 target = set->unknown == AB_UNKNOWN_PEER ? server_by_hash(service) : AB_NO_TARGET;
	return is_of_former(room, set, service, &target);
}

/* Whether a packet without a connection may open one. Returns 0, or the reason why not. */
static __always_inline __u32 may_open(const struct service_room *room, __u32 service)
{
	if (!is_opening(&room->packet))
		return AB_SERVICE_REASON_NO_CONNECTION;
	if (is_client_full(service, &room->key))
		return AB_SERVICE_REASON_CLIENT_FULL;
	return gets_entry(room, service) ? 0 : AB_SERVICE_REASON_TOO_MANY;
}

/* Whether a packet that leaves for this reason has no entry, and may be sent by its hash. */
static __always_inline int may_do_without_entry(__u32 reason)
{
	return reason == AB_SERVICE_REASON_NO_CONNECTION || reason == AB_SERVICE_REASON_TOO_MANY ||
	       reason == AB_SERVICE_REASON_TABLE_FULL;
}

/* Handles a client's packet for which there is no entry. It is counted under `refused`, unless the service has its packets sent by
 * their hash. */
static __noinline __u32 serve_without_entry(struct __sk_buff *skb, struct service_room *room, __u32 service,
					    __u32 refused)
{
	struct packet *p = &room->packet;
	const struct ab_service_settings *set = bpf_map_lookup_elem(&service_settings, &service);
	if (!set || !goes_by_rows(set))
		return set && set->unknown == AB_UNKNOWN_DROP && refused == AB_SERVICE_REASON_NO_CONNECTION
			       ? AB_SERVICE_REASON_UNKNOWN
			       : refused;
	__u32 place;
	int is_former;
	const struct ab_server *server = server_without_entry(room, set, service, &place, &is_former);
	/* Its other packets would not follow it. */
	if (is_former && refused != AB_SERVICE_REASON_NO_CONNECTION)
		return refused;
	if (!server)
		return room->unserved;
	__u32 bad = begin_datagram(p);
	if (bad)
		return bad;
	__u32 reason = send_to_server(skb, p, place, !!(server->flags & AB_SERVER_DIRECT));
	if (reason != AB_SERVICE_REASON_TO_SERVER)
		return reason;
	return is_former ? AB_SERVICE_REASON_FORMER : AB_SERVICE_REASON_HASHED;
}

/* Handles a client's packet that gets no entry for this reason. */
static __always_inline __u32 turn_away(struct __sk_buff *skb, struct service_room *room, __u32 service, __u32 reason)
{
	return may_do_without_entry(reason) ? serve_without_entry(skb, room, service, reason) : reason;
}

/* Finds the device and the next hop by which the host would send to the packet's destination. Returns the device's number, or 0 if it
 * would not forward the packet, as if it is for the host. */
static __noinline __u32 find_way(struct __sk_buff *skb, struct packet *p, const union ab_addr *src,
				 struct stateless_room *room)
{
	struct bpf_fib_lookup *way = &room->way;
	p->ifindex = skb->ifindex;
	if (!names_device(ask_kernel(skb, p, src, way, 0)))
		return 0;
	__builtin_memcpy(&room->next_hop, way->ipv6_dst, sizeof(room->next_hop));
	if (way->family == ANABRANCH_AF_INET)
		map_ipv4(&room->next_hop, way->ipv4_dst);
	return way->ifindex;
}

/* Whether what a server answers as this virtual endpoint may go without an entry. */
static __always_inline int answers_without_entry(const struct ab_alias *as)
{
	__u32 service = as->service;
	const struct ab_service_settings *set = bpf_map_lookup_elem(&service_settings, &service);
	return !as->is_direct && set && goes_by_rows(set);
}

/* Finds the way to the client of a server's packet, or of an error about one, for which there is no entry. `ports`: the server's, above
 * the client's. The key is then in room->key. Returns the device's number, or 0 if it is left to the host. */
static __noinline __u32 way_without_entry(struct __sk_buff *skb, struct service_room *room,
					  const struct ab_answering *answering, __u8 proto, __u32 ports)
{
	struct packet *p = &room->packet;
	struct stateless_room *beside = stateless_room();
	const struct ab_alias *as = &answering->alias[0];
	if (!beside || !answers_without_entry(as))
		return 0;
	make_connection_key(&room->key, proto, AB_SIDE_NAT, &as->address, as->port ?: ports >> 16, &p->dst, ports);
	/* The client talks to another server. */
	return find_connection(&room->key) ? 0 : find_way(skb, p, &as->address, beside);
}

/* Makes a packet fit the way that was found. Returns 0, or the reason why it goes no further. */
static __always_inline __u32 fit_way(struct __sk_buff *skb, struct packet *p, __u32 ifindex)
{
	return p->ttl <= 1 ? AB_SERVICE_REASON_TTL : fit_device(skb, p, ifindex, 0);
}

/* Sends a packet by the way that was found, as if it came from the virtual endpoint. A function of its own, to save stack. */
static __noinline __u32 send_by_route(struct __sk_buff *skb, struct service_room *room, __u32 ifindex, __u32 port)
{
	struct packet *p = &room->packet;
	struct stateless_room *beside = stateless_room();
	if (!beside || fit_mss(skb, p, ifindex) || rewrite_packet(skb, p, OUTBOUND, &room->key.local, port) ||
	    send_to_neighbour(skb, p->l3, ifindex, &beside->next_hop))
		return AB_SERVICE_REASON_UNSENT;
	return AB_SERVICE_REASON_ALIASED;
}

/* Sends a packet of a server for which there is no entry to its client. */
static __noinline __u32 answer_without_entry(struct __sk_buff *skb, struct service_room *room,
					     const struct ab_answering *answering)
{
	struct packet *p = &room->packet;
	__u32 ifindex = way_without_entry(skb, room, answering, p->proto, (__u32)p->sport << 16 | p->dport);
	if (!ifindex)
		return AB_SERVICE_REASON_NOT_OURS;
	__u32 bad = begin_datagram(p) ?: fit_way(skb, p, ifindex);
	return bad ?: send_by_route(skb, room, ifindex, room->key.local_port);
}

#endif
