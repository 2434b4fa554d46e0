/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The connections of the services: how they are found, opened and closed.
 */
#ifndef ANABRANCH_SERVICE_CONNECTION_H
#define ANABRANCH_SERVICE_CONNECTION_H

#include "../../policy/choose.h"
#include "../../policy/connection.h"
#include "../../policy/keyed.h"
#include "../packet/ambient.h"
#include "../packet/parse.h"
#include "client.h"
#include "full.h"

/* The parsed packet and its keys, in memory outside of the stack. */
struct service_room {
	struct packet packet;
	struct ab_flow_key key;	      /* of its connection */
	struct ab_flow_key other;     /* of another one */
	struct ab_connection arrived; /* a new connection, or the way by which the packet came */
	struct ab_direct direct;      /* a new connection whose server answers itself */
	struct ab_request request;
	struct ab_decision decision;
	__u32 place;	/* of the connection's server, in `servers` */
	__u32 unserved; /* why there is no server for it: enum ab_service_reason */
	__u32 signs;	/* enum sign; here, the verifier does not follow each value apart */
};
AB_SCRATCH(service_room, struct service_room)

static __always_inline void make_connection_key(struct ab_flow_key *key, __u8 proto, __u8 side,
						const union ab_addr *local, __be16 local_port,
						const union ab_addr *remote, __be16 remote_port)
{
	key->local = *local;
	key->remote = *remote;
	key->local_port = local_port;
	key->remote_port = remote_port;
	key->proto = proto;
	key->side = side;
	key->zero = 0;
}

static __always_inline struct ab_connection *find_connection(const struct ab_flow_key *key)
{
	return bpf_map_lookup_elem(&connections, key);
}

static __always_inline struct ab_direct *find_direct(const struct ab_flow_key *key)
{
	return bpf_map_lookup_elem(&direct_connections, key);
}

/* Notes that a packet came now. Both ends' CPUs read the cache line: it is written once in a clock tick. */
static __always_inline void see(__u64 *seen_ns)
{
	__u64 now = tick_ns();
	if (*seen_ns != now)
		*seen_ns = now;
}

static __always_inline __u32 place_of(const struct ab_connection *entry)
{
	return AB_SERVER_PLACE(entry->service % AB_MAX_SERVICES, entry->server % AB_MAX_TARGETS);
}

static __always_inline __u32 place_of_direct(const struct ab_direct *entry)
{
	return entry->state >> AB_DIRECT_SERVER_SHIFT;
}

static __always_inline int is_server_at(const struct ab_server *server, const struct ab_virtual *endpoint)
{
	return server && is_same_addr(&server->address, &endpoint->address) &&
	       (!server->port || server->port == endpoint->port);
}

static __always_inline int is_connected_to(const struct ab_connection *entry, const struct ab_virtual *endpoint)
{
	__u32 place = place_of(entry);
	return is_server_at(bpf_map_lookup_elem(&servers, &place), endpoint);
}

static __always_inline struct ab_virtual_key endpoint_key(__u8 proto, const union ab_addr *address, __be16 port)
{
	return (struct ab_virtual_key){
		.bits = AB_VIRTUAL_BITS,
		.virtual = { .address = *address, .proto = proto, .port = port },
	};
}

/* Finds the connection between a server's endpoint and a client. Its key is then in room->key. NULL: there is none. */
static __noinline struct ab_connection *find_answered(struct service_room *room, const struct ab_answering *answering,
						      const struct ab_virtual *at, const union ab_addr *client,
						      __u32 client_port)
{
	for (__u32 i = 0; i < AB_ALIASES_MAX && i < answering->count; i++) {
		const struct ab_alias *as = &answering->alias[i];
		make_connection_key(&room->key, at->proto, AB_SIDE_NAT, &as->address, as->port ?: at->port, client,
				    client_port);
		struct ab_connection *found = find_connection(&room->key);
		if (found && is_connected_to(found, at))
			return found;
	}
	return NULL;
}

/* Counts what becomes of a connection. Global, so that the verifier follows it once. */
__noinline int service_gauge_add(__u32 place, const struct ab_flow_key *key, __u64 opened, __u64 closed)
{
	__u32 service = place / AB_MAX_TARGETS, server = place % AB_MAX_TARGETS;
	struct ab_service_gauges *gauges = bpf_map_lookup_elem(&service_gauges, &service);
	if (!gauges || !key)
		return -1;
	struct ab_gauge *gauge = &gauges->of.target[server];
	struct ab_gauge *all = &gauges->all[ab_family_of(&key->remote)];
	if (opened) {
		__sync_fetch_and_add(&gauge->dispatched, opened);
		__sync_fetch_and_add(&gauge->opened, opened);
		__sync_fetch_and_add(&all->opened, opened);
	}
	if (closed) {
		__sync_fetch_and_add(&gauge->closed, closed);
		__sync_fetch_and_add(&all->closed, closed);
	}
	note_fullness(service, server, gauge);
	return 0;
}

/* What a packet shows of a server, as bits. */
enum sign {
	SIGN_ASKED = 1 << 0,
	SIGN_HEARD = 1 << 1,
	SIGN_REPEATED = 1 << 2,
	SIGN_REFUSED = 1 << 3,
};

/* Notes what the packet shows of the server at room->place. */
__noinline int note_signs(void)
{
	const struct service_room *room = service_room();
	if (!room)
		return -1;
	__u32 signs = room->signs, service = room->place / AB_MAX_TARGETS;
	struct ab_evidences *all = bpf_map_lookup_elem(&service_evidence, &service);
	if (!all)
		return -1;
	struct ab_evidence *evidence = &all->target[room->place % AB_MAX_TARGETS];
	/* All CPUs share this, so it is written once in a clock tick. */
	if (signs & SIGN_HEARD && evidence->heard_ns < evidence->asked_ns)
		evidence->heard_ns = tick_ns();
	if (signs & SIGN_ASKED && evidence->asked_ns <= evidence->heard_ns) {
		__u64 now = tick_ns();
		if (now != evidence->asked_ns)
			evidence->asked_ns = now;
	}
	if (signs & SIGN_REPEATED)
		__sync_fetch_and_add(&evidence->repeated, 1);
	if (signs & SIGN_REFUSED)
		__sync_fetch_and_add(&evidence->refused, 1);
	return 0;
}

/* State and turn of an entry as one word. No two entries have one turn, so the word tells an entry from the next in its memory, which
 * the kernel may give away as soon as an entry is deleted. */
union entry_word {
	struct {
		__u32 state, turn;
	};
	__u64 word;
};
#define AB_TURN_BEHIND_STATE(entry)                                                                                    \
	(__builtin_offsetof(entry, turn) == __builtin_offsetof(entry, state) + sizeof(__u32))
_Static_assert(AB_TURN_BEHIND_STATE(struct ab_connection), "one word");
_Static_assert(AB_TURN_BEHIND_STATE(struct ab_direct), "one word");

/*
 * Closes a connection for good, and counts that unless it was closed. `found`: the word of its entry, read before the entry was last
 * looked up. Returns whether the caller deletes the entry: no other CPU does then, so under its key is no other connection. If its
 * state has just changed, it stays until the next reason to forget it.
 */
__noinline int take_out(const struct ab_flow_key *key, __u64 *word, __u64 found, __u32 place)
{
	union entry_word was = { .word = found }, gone = was;
	gone.state |= AB_CONNECTION_CLOSED | AB_CONNECTION_GONE;
	if (!key || !word || was.state & AB_CONNECTION_GONE ||
	    __sync_val_compare_and_swap(word, found, gone.word) != found)
		return 0;
	follow_count(place, key, was.state, gone.state);
	if (!(was.state & AB_CONNECTION_CLOSED))
		service_gauge_add(place, key, 0, 1);
	return 1;
}

/* Compares numbers: Linux before 6.2 does not learn from the equality of pointers that neither is NULL. */
static __always_inline int is_same(const void *one, const void *other)
{
	return (unsigned long)one == (unsigned long)other;
}

/* The kernel has not deleted an entry, as when it cannot lock the table: the next reason to forget it may. */
static __always_inline void put_back(__u32 *state)
{
	__sync_fetch_and_and(state, ~AB_CONNECTION_GONE);
}

/* Removes a connection from its table. */
static __always_inline void forget_connection(const struct ab_flow_key *key, struct ab_connection *entry)
{
	__u64 *word = (__u64 *)&entry->state, found = *word;
	if (is_same(find_connection(key), entry) && take_out(key, word, found, place_of(entry)) &&
	    bpf_map_delete_elem(&connections, key))
		put_back(&entry->state);
}

static __always_inline void forget_direct(const struct ab_flow_key *key, struct ab_direct *entry)
{
	__u64 *word = (__u64 *)&entry->state, found = *word;
	if (is_same(find_direct(key), entry) && take_out(key, word, found, place_of_direct(entry)) &&
	    bpf_map_delete_elem(&direct_connections, key))
		put_back(&entry->state);
}

/* Writes the hash of the connection of room->key into the request. */
__noinline int hash_client(const struct ab_choice *now, __u32 service)
{
	struct service_room *room = service_room();
	const struct ab_secret *secret = bpf_map_lookup_elem(&service_secrets, &service);
	if (!room || !secret || !now)
		return -1;
	const struct ab_flow_key *key = &room->key;
	room->request.hash = ab_client_hash(now, secret, &key->remote, &key->local, key->remote_port, key->local_port);
	return 0;
}

/* The choice for the packet in the room, at `place`, with an empty request; NULL if there is none. */
static __always_inline const struct ab_choice *begin_choice(struct service_room *room, __u32 service, __u32 *place)
{
	*place = AB_SERVICE_CHOICE(service, room->packet.family);
	__builtin_memset(&room->request, 0, sizeof(room->request));
	room->unserved = AB_SERVICE_REASON_NO_SERVER;
	return bpf_map_lookup_elem(&service_choices, place);
}

/* The server of a new connection, or AB_NO_TARGET, and why in room->unserved. */
__noinline int choose_server(__u32 service)
{
	struct service_room *room = service_room();
	__u32 place;
	if (!room)
		return AB_NO_TARGET;
	const struct ab_choice *now = begin_choice(room, service, &place);
	const struct ab_service_gauges *gauges = bpf_map_lookup_elem(&service_gauges, &service);
	__u64 *turns = bpf_map_lookup_elem(&service_turns, &place);
	if (!now || !gauges || !turns)
		return AB_NO_TARGET;
	struct ab_request *q = &room->request;
	avoid_full(q, service);
	q->route = q->session = q->endpoint = AB_NO_TARGET;
	q->draw = ab_takes_turns(now) ? __sync_fetch_and_add(turns, 1) : draw();
	q->open = ab_active_flows(&gauges->all[room->packet.family % AB_FAMILIES]);
	const struct ab_consistent *table = NULL;
	if (ab_goes_by_hash(now))
		hash_client(now, service);
	if (ab_goes_by_table(now))
		table = bpf_map_lookup_elem(&service_tables, &place);
	ab_choose(now, &gauges->of, table, q, &room->decision);
	/* Another attempt would give a full server one more. */
	if (!q->retried)
		return room->decision.target;
	room->unserved = why_unserved(now, q);
	return AB_NO_TARGET;
}

/* Whether it may open a connection. */
static __always_inline int is_opening(const struct packet *p)
{
	return p->has_ports_header && (p->proto == IPPROTO_UDP || is_first_syn(p));
}

/* Whether the server at a place takes new connections. */
static __always_inline int takes_new(const struct service_room *room, __u32 place)
{
	__u32 choice = AB_SERVICE_CHOICE(place / AB_MAX_TARGETS % AB_MAX_SERVICES, room->packet.family);
	const struct ab_choice *now = bpf_map_lookup_elem(&service_choices, &choice);
	return now && ab_takes_new(now, place % AB_MAX_TARGETS);
}

/* Whether the server at a place fails its check. */
static __always_inline int has_failed(__u32 place)
{
	const struct ab_server *server = bpf_map_lookup_elem(&servers, &place);
	return server && server->flags & AB_SERVER_FAILED;
}

/* Whether a packet that may open a connection replaces the one that it is of. */
static __always_inline int is_replaced(const struct service_room *room, __u32 state, __u32 place)
{
	/* Most datagrams: they need no look-up of the choice. */
	if (room->packet.proto == IPPROTO_UDP &&
	    (state & (AB_CONNECTION_ANSWERED | AB_CONNECTION_CLOSED)) == AB_CONNECTION_ANSWERED)
		return 0;
	return ab_connection_gives_way(state, AB_TCP_SYN, takes_new(room, place), has_failed(place));
}

/* Chooses the server of a new connection. Returns 0, or the reason why there is none. */
static __noinline __u32 take_server(struct service_room *room, __u32 service)
{
	__u32 target = choose_server(service);
	room->place = AB_SERVER_PLACE(service % AB_MAX_SERVICES, target % AB_MAX_TARGETS);
	return target < AB_MAX_TARGETS ? 0 : room->unserved;
}

/* Whether what the server sends to the client could be of another connection, too: of one that the client has with the same server
 * by another virtual endpoint. One that is over goes. */
static __noinline int is_ambiguous(struct service_room *room)
{
	const struct ab_flow_key *key = &room->key;
	const struct ab_server *server = bpf_map_lookup_elem(&servers, &room->place);
	if (!server)
		return 0;
	struct ab_virtual_key at = endpoint_key(key->proto, &server->address, server->port ?: key->local_port);
	const struct ab_answering *answering = bpf_map_lookup_elem(&service_answers, &at);
	if (!answering || answering->count < 2)
		return 0;
	for (__u32 i = 0; i < AB_ALIASES_MAX && i < answering->count; i++) {
		const struct ab_alias *as = &answering->alias[i];
		make_connection_key(&room->other, key->proto, AB_SIDE_NAT, &as->address, as->port ?: at.virtual.port,
				    &key->remote, key->remote_port);
		struct ab_connection *other = find_connection(&room->other);
		if (!other || !is_connected_to(other, &at.virtual))
			continue;
		if (!(other->state & AB_CONNECTION_CLOSED))
			return 1;
		forget_connection(&room->other, other);
	}
	return 0;
}

/* ---- sweeping ---- */

struct service_walk {
	const struct ab_visit *visit;
	struct ab_service_sweep *result;
	__u64 now;
};

/* Whether a connection has been silent for too long, or its server is dead. */
static __always_inline int is_gone(const struct service_walk *walk, __u8 proto, __u64 seen_ns, __u32 state, __u32 place)
{
	if (seen_ns + ab_connection_timer_ns(proto, state & AB_CONNECTION_BITS) < walk->now)
		return 1;
	const struct ab_server *server = bpf_map_lookup_elem(&servers, &place);
	return server && server->flags & AB_SERVER_DEAD;
}

static __always_inline int forget_gone(const struct service_walk *walk, const struct ab_flow_key *key)
{
	struct ab_connection *entry = find_connection(key);
	if (!entry)
		return 0;
	__u64 client_ns = entry->client_seen_ns, server_ns = entry->server_seen_ns;
	if (!is_gone(walk, key->proto, client_ns > server_ns ? client_ns : server_ns, entry->state, place_of(entry)))
		return 0;
	forget_connection(key, entry);
	return 1;
}

static __always_inline int forget_gone_direct(const struct service_walk *walk, const struct ab_flow_key *key)
{
	struct ab_direct *entry = find_direct(key);
	if (!entry || !is_gone(walk, key->proto, entry->seen_ns, entry->state, place_of_direct(entry)))
		return 0;
	forget_direct(key, entry);
	return 1;
}

/* Checks one entry by the key that user space has read; it may have changed since. */
static long visit_connection(__u32 index, struct service_walk *walk)
{
	if (index >= AB_VISIT_MAX)
		return 1;
	struct ab_flow_key key = walk->visit->key[index];
	walk->result->expired += key.side == AB_SIDE_NAT ? forget_gone(walk, &key) : forget_gone_direct(walk, &key);
	return 0;
}

static __always_inline void sweep_visited_connections(void)
{
	__u32 zero = 0;
	struct service_walk walk = {
		.visit = bpf_map_lookup_elem(&service_visits, &zero),
		.result = bpf_map_lookup_elem(&service_sweeping, &zero),
		.now = time_ns(),
	};
	if (walk.visit && walk.result)
		bpf_loop(walk.result->count, visit_connection, &walk, 0);
}

#endif
