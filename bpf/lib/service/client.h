/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * How many connections of TCP each client has established with a service, if that limits them: one client may not fill the table.
 * Connections that are not established do not count, or anybody could use up the limit of others by SYNs in their name. CPUs that
 * open connections of one client at the same time may each open one too many.
 */
#ifndef ANABRANCH_SERVICE_CLIENT_H
#define ANABRANCH_SERVICE_CLIENT_H

#include "../../policy/family.h"
#include "maps.h"

/* The client of a connection if its service limits clients. Returns 0 if it does not, else the limit. */
static __always_inline __u32 limited_client(struct ab_client *client, __u32 service, const struct ab_flow_key *key)
{
	const struct ab_service_settings *set = bpf_map_lookup_elem(&service_settings, &service);
	if (!set || !set->client_limit || key->proto != IPPROTO_TCP)
		return 0;
	client->address = key->remote;
	if (!ab_is_v4_mapped(&key->remote))
		client->address.word[2] = client->address.word[3] = 0;
	client->service = service;
	return set->client_limit;
}

/* Whether the client of a new connection has as many as it may. */
static __noinline int is_client_full(__u32 service, const struct ab_flow_key *key)
{
	struct ab_client client;
	__u32 limit = limited_client(&client, service, key);
	if (!limit)
		return 0;
	const __u64 *open = bpf_map_lookup_elem(&service_clients, &client);
	return open && *open >= limit;
}

/* Whether a connection in this state counts. */
static __always_inline int is_of_client(__u32 state)
{
	return (state & (AB_CONNECTION_ESTABLISHED | AB_CONNECTION_CLOSED)) == AB_CONNECTION_ESTABLISHED;
}

/* Counts a connection that has become established, or is over. Global, as others: the verifier follows it once. */
__noinline int count_client(__u32 service, const struct ab_flow_key *key, int is_established)
{
	struct ab_client client;
	__u64 one = 1;
	if (!key || !limited_client(&client, service, key))
		return 0;
	__u64 *open = bpf_map_lookup_elem(&service_clients, &client);
	if (!open && is_established)
		bpf_map_update_elem(&service_clients, &client, &one, BPF_NOEXIST);
	else if (open && is_established)
		__sync_fetch_and_add(open, 1);
	else if (open && __sync_fetch_and_sub(open, 1) <= 1)
		bpf_map_delete_elem(&service_clients, &client);
	return 0;
}

/* The same by the state before a change and after it. */
static __always_inline void follow_count(__u32 place, const struct ab_flow_key *key, __u32 before, __u32 after)
{
	if (is_of_client(before) != is_of_client(after))
		count_client(place / AB_MAX_TARGETS, key, is_of_client(after));
}

#endif
