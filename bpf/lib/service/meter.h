/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What servers do: the bytes that they send, and the time from a request to the first byte of its answer. A request of TCP begins
 * with the first data that acknowledge more than those of the last one did: what a client sends without hearing anything is one
 * request. Of UDP only the first datagram is taken for one.
 */
#ifndef ANABRANCH_SERVICE_METER_H
#define ANABRANCH_SERVICE_METER_H

#include "connection.h"

/* Never 0. Differences are right up to 71 minutes. */
static __always_inline __u32 request_time(void)
{
	return (time_ns() / 1000) | 1;
}

/* Whether a segment has data. */
static __always_inline int has_data(const struct packet *p)
{
	__u32 length = p->end - p->seq - !!(p->tcp_flags & AB_TCP_FIN);
	return length && !(p->tcp_flags & AB_TCP_SYN);
}

/* Notes in the server's entry when a request came; not of one before which it has not answered yet. */
static __noinline int begin_request(struct service_room *room, struct ab_connection *client)
{
	turn_key(&room->server, &room->client, client);
	struct ab_connection *server = find_connection(&room->server);
	if (server && !server->asked)
		server->asked = request_time();
	client->asked = room->packet.ack;
	return 0;
}

static __always_inline void hear_client(struct service_room *room, struct ab_connection *client)
{
	const struct packet *p = &room->packet;
	if (p->proto == IPPROTO_TCP && has_data(p) && p->ack != client->asked)
		begin_request(room, client);
}

/* Counts what a server sends. */
static __always_inline void hear_server(const struct packet *p, struct ab_connection *server, __u64 bytes)
{
	__u32 place = AB_SERVER_PLACE(server->service % AB_MAX_SERVICES, server->server % AB_MAX_TARGETS);
	struct ab_meter *meter = bpf_map_lookup_elem(&service_meters, &place);
	if (!meter)
		return;
	meter->sent_bytes += bytes;
	if (!server->asked || (p->proto == IPPROTO_TCP && !has_data(p)))
		return;
	meter->answers++;
	meter->answering_us += request_time() - server->asked;
	server->asked = 0;
}

#endif
