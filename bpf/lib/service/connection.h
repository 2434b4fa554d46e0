/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The connections of the services: how they are found, opened and closed. The client's entry is decisive: it is written last and
 * removed first. A server's entry without it belongs to no connection, and may be replaced.
 */
#ifndef ANABRANCH_SERVICE_CONNECTION_H
#define ANABRANCH_SERVICE_CONNECTION_H

#include "../../policy/choose.h"
#include "../../policy/connection.h"
#include "../../policy/keyed.h"
#include "../packet/ambient.h"
#include "../packet/parse.h"
#include "full.h"

/* The parsed packet and its keys, in memory outside of the stack. */
struct service_room {
	struct packet packet;
	struct ab_flow_key client, server;
	struct ab_flow_key other;	 /* of another client to the same server */
	struct ab_connection connection; /* a new connection */
	struct ab_request request;
	struct ab_decision decision;
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

/* The key of the same connection on the other side. */
static __always_inline void turn_key(struct ab_flow_key *other, const struct ab_flow_key *key,
				     const struct ab_connection *entry)
{
	make_connection_key(other, key->proto, key->side == AB_SIDE_CLIENT ? AB_SIDE_SERVER : AB_SIDE_CLIENT,
			    &entry->other_local, entry->other_port, &key->remote, key->remote_port);
}

/* Counts what becomes of a connection by its client's entry. */
static __noinline void service_gauge_add(const struct ab_connection *client, __u64 opened, __u64 closed)
{
	__u32 service = client->service, server = client->server;
	struct ab_service_gauges *gauges = bpf_map_lookup_elem(&service_gauges, &service);
	if (!gauges)
		return;
	struct ab_gauge *gauge = &gauges->of.target[server % AB_MAX_TARGETS];
	struct ab_gauge *all = &gauges->all[client->family % AB_FAMILIES];
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
}

/* What a packet shows of a server, as bits. */
enum sign {
	SIGN_SYN = 1 << 0,
	SIGN_DATA = 1 << 1,
	SIGN_HEARD = 1 << 2,
	SIGN_REPEATED = 1 << 3,
	SIGN_REFUSED = 1 << 4,
};

__noinline int note_signs(__u32 service, __u32 server)
{
	const struct service_room *room = service_room();
	struct ab_evidences *all = bpf_map_lookup_elem(&service_evidence, &service);
	if (!all || !room)
		return -1;
	__u32 signs = room->signs;
	struct ab_evidence *evidence = &all->target[server % AB_MAX_TARGETS];
	if (signs & SIGN_HEARD && evidence->heard_ns < evidence->asked_ns)
		evidence->heard_ns = time_ns();
	if (signs & (SIGN_SYN | SIGN_DATA) && evidence->asked_ns <= evidence->heard_ns) {
		__u64 now = time_ns();
		/* All CPUs share this, so data is noted seldom. */
		if (signs & SIGN_SYN || now - evidence->asked_ns >= AB_ASKED_NS)
			evidence->asked_ns = now;
	}
	if (signs & SIGN_REPEATED)
		__sync_fetch_and_add(&evidence->repeated, 1);
	if (signs & SIGN_REFUSED)
		__sync_fetch_and_add(&evidence->refused, 1);
	return 0;
}

/* Removes the connection with these keys from the table. */
static __always_inline void forget_connection(const struct ab_flow_key *client_key, struct ab_connection *client,
					      const struct ab_flow_key *server_key)
{
	__u32 before = __sync_fetch_and_or(&client->state, AB_CONNECTION_CLOSED);
	if (!(before & AB_CONNECTION_CLOSED))
		service_gauge_add(client, 0, 1);
	bpf_map_delete_elem(&connections, client_key);
	/* A direct connection has no server's entry: that under this key is another's. */
	if (!(before & AB_CONNECTION_DIRECT))
		bpf_map_delete_elem(&connections, server_key);
}

/* Writes the hash of the packet's client into the request. */
__noinline int hash_client(const struct ab_choice *now, __u32 service)
{
	struct service_room *room = service_room();
	const struct ab_secret *secret = bpf_map_lookup_elem(&service_secrets, &service);
	if (!room || !secret || !now)
		return -1;
	const struct packet *p = &room->packet;
	room->request.hash = ab_client_hash(now, secret, &p->src, &p->dst, p->sport, p->dport);
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

/* Whether the server of a connection takes new ones. */
static __always_inline int takes_new(const struct service_room *room, const struct ab_connection *client)
{
	__u32 place = AB_SERVICE_CHOICE(client->service % AB_MAX_SERVICES, room->packet.family);
	const struct ab_choice *now = bpf_map_lookup_elem(&service_choices, &place);
	return now && ab_takes_new(now, client->server % AB_MAX_TARGETS);
}

/* Whether the server's entry may be replaced: its connection is over, or was never opened. */
static __always_inline int is_free(struct service_room *room)
{
	struct ab_connection *server = find_connection(&room->server);
	if (!server)
		return 1;
	turn_key(&room->other, &room->server, server);
	struct ab_connection *client = find_connection(&room->other);
	if (!client)
		return 1;
	if (!(client->state & AB_CONNECTION_CLOSED))
		return 0;
	forget_connection(&room->other, client, &room->server);
	return 1;
}

/* Writes the entries of room->connection, under the keys in the room. Returns 0, or the reason of failure. */
__noinline int insert_connection(const struct ab_server *server)
{
	struct service_room *room = service_room();
	if (!room || !server)
		return AB_SERVICE_REASON_UNSENT;
	struct ab_connection *fresh = &room->connection;
	fresh->other_local = room->client.local;
	fresh->other_port = room->client.local_port;
	if (!(fresh->state & AB_CONNECTION_DIRECT)) {
		if (!is_free(room))
			return AB_SERVICE_REASON_PORT_TAKEN;
		if (bpf_map_update_elem(&connections, &room->server, fresh, BPF_ANY))
			return AB_SERVICE_REASON_TABLE_FULL;
	}
	fresh->other_local = server->address;
	fresh->other_port = room->server.local_port;
	if (!bpf_map_update_elem(&connections, &room->client, fresh, BPF_NOEXIST)) {
		service_gauge_add(fresh, 1, 0);
		return 0;
	}
	/* Another CPU may have processed a copy of the SYN. Its entries are kept. */
	if (find_connection(&room->client))
		return 0;
	if (!(fresh->state & AB_CONNECTION_DIRECT))
		bpf_map_delete_elem(&connections, &room->server);
	return AB_SERVICE_REASON_TABLE_FULL;
}

/* ---- sweeping ---- */

struct service_walk {
	const struct ab_visit *visit;
	struct ab_service_sweep *result;
	__u64 now;
};

static __always_inline int has_run_out(const struct service_walk *walk, __u8 proto, const struct ab_connection *entry,
				       __u32 state)
{
	return entry->seen_ns + ab_connection_timer_ns(proto, state) < walk->now;
}

static __always_inline int has_dead_server(const struct ab_connection *client)
{
	__u32 place = AB_SERVER_PLACE(client->service % AB_MAX_SERVICES, client->server % AB_MAX_TARGETS);
	const struct ab_server *server = bpf_map_lookup_elem(&servers, &place);
	return server && server->flags & AB_SERVER_DEAD;
}

/* Checks one entry by the key that user space has read; it may have changed since. */
static long visit_connection(__u32 index, struct service_walk *walk)
{
	struct ab_flow_key other_key;
	if (index >= AB_VISIT_MAX)
		return 1;
	struct ab_flow_key key = walk->visit->key[index];
	struct ab_connection *entry = find_connection(&key);
	if (!entry)
		return 0;
	turn_key(&other_key, &key, entry);
	struct ab_connection *other = find_connection(&other_key);
	if (key.side == AB_SIDE_SERVER) {
		if (!other && has_run_out(walk, key.proto, entry, 0))
			bpf_map_delete_elem(&connections, &key);
		return 0;
	}
	__u32 state = entry->state;
	int is_alive =
		!has_run_out(walk, key.proto, entry, state) || (other && !has_run_out(walk, key.proto, other, state));
	if (is_alive && !has_dead_server(entry))
		return 0;
	forget_connection(&key, entry, &other_key);
	walk->result->expired++;
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
