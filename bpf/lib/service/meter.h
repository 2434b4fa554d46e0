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

/* Notes when a request came; not of one before which the server has not answered yet. */
static __always_inline void hear_client(const struct packet *p, struct ab_connection *entry)
{
	if (p->proto != IPPROTO_TCP || !has_data(p) || p->ack == entry->confirmed)
		return;
	if (!entry->asked)
		entry->asked = request_time();
	entry->confirmed = p->ack;
}

/* Counts what a server sends. */
static __always_inline void hear_server(const struct packet *p, struct ab_connection *entry, __u64 bytes)
{
	__u32 place = place_of(entry);
	struct ab_meter *meter = bpf_map_lookup_elem(&service_meters, &place);
	if (!meter)
		return;
	meter->sent_bytes += bytes;
	if (!entry->asked || (p->proto == IPPROTO_TCP && !has_data(p)))
		return;
	meter->answers++;
	meter->answering_us += request_time() - entry->asked;
	entry->asked = 0;
}

#endif
