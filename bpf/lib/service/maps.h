/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* All maps of the services. */
#ifndef ANABRANCH_SERVICE_MAPS_H
#define ANABRANCH_SERVICE_MAPS_H

#include "../../include/service.h"
#include "../../policy/inline.h"
#include "../packet/map.h"

/* User space sets the sizes of both before loading. */
AB_MAP(connections, BPF_MAP_TYPE_HASH, 1, struct ab_flow_key, struct ab_connection, BPF_F_NO_PREALLOC);
AB_MAP(direct_connections, BPF_MAP_TYPE_HASH, 1, struct ab_flow_key, struct ab_direct, BPF_F_NO_PREALLOC);

/* A ring: connections that may have to make room, and how many turns were given. */
AB_MAP(service_passing, BPF_MAP_TYPE_ARRAY, AB_PASSING_MAX, __u32, struct ab_passing, 0);
AB_MAP(service_turn, BPF_MAP_TYPE_ARRAY, 1, __u32, __u32, 0);

struct ab_virtual_key {
	__u32 bits; /* that count, as BPF_MAP_TYPE_LPM_TRIE has it */
	struct ab_virtual virtual;
};
AB_MAP(virtuals, BPF_MAP_TYPE_LPM_TRIE, AB_MAX_SERVICES * 64, struct ab_virtual_key, __u32, BPF_F_NO_PREALLOC);
AB_MAP(servers, BPF_MAP_TYPE_ARRAY, AB_SERVERS_MAX, __u32, struct ab_server, 0);
/* By the servers' endpoints. */
AB_MAP(service_answers, BPF_MAP_TYPE_LPM_TRIE, AB_SERVERS_MAX * 2, struct ab_virtual_key, struct ab_answering,
       BPF_F_NO_PREALLOC);

/* The choices, at AB_SERVICE_CHOICE, and how many were made. */
AB_MAP(service_choices, BPF_MAP_TYPE_ARRAY, AB_MAX_SERVICES *AB_FAMILIES, __u32, struct ab_choice, 0);
/* Where a choice goes by a table. A table is large, and so made only where one is used. */
AB_MAP(service_tables, BPF_MAP_TYPE_HASH, AB_MAX_SERVICES *AB_FAMILIES, __u32, struct ab_consistent, BPF_F_NO_PREALLOC);
AB_MAP(service_turns, BPF_MAP_TYPE_ARRAY, AB_MAX_SERVICES *AB_FAMILIES, __u32, __u64, 0);

AB_MAP(service_meters, BPF_MAP_TYPE_PERCPU_ARRAY, AB_SERVERS_MAX, __u32, struct ab_meter, 0);

/* At AB_SERVICE_ROWS: which server each row of hashes leads to. Made only where packets go by them. */
AB_MAP(service_rows, BPF_MAP_TYPE_HASH, AB_MAX_SERVICES *AB_FAMILIES * 2, __u32, struct ab_consistent,
       BPF_F_NO_PREALLOC);
/* Indexed by service. */
AB_MAP(service_settings, BPF_MAP_TYPE_ARRAY, AB_MAX_SERVICES, __u32, struct ab_service_settings, 0);
AB_MAP(service_inserts, BPF_MAP_TYPE_ARRAY, AB_MAX_SERVICES, __u32, __u64, 0); /* policy/bucket.h */
AB_MAP(service_gauges, BPF_MAP_TYPE_ARRAY, AB_MAX_SERVICES, __u32, struct ab_service_gauges, 0);
/* How many established connections clients have, where there is a limit. */
AB_MAP(service_clients, BPF_MAP_TYPE_HASH, AB_CLIENTS_MAX, struct ab_client, __u64, BPF_F_NO_PREALLOC);
/* Servers that have as many connections as they may. */
AB_MAP(service_full, BPF_MAP_TYPE_ARRAY, AB_MAX_SERVICES, __u32, struct ab_set, 0);
AB_MAP(service_evidence, BPF_MAP_TYPE_ARRAY, AB_MAX_SERVICES, __u32, struct ab_evidences, 0);
AB_MAP(service_secrets, BPF_MAP_TYPE_ARRAY, AB_MAX_SERVICES, __u32, struct ab_secret, 0);
AB_MAP(service_names, BPF_MAP_TYPE_ARRAY, AB_MAX_SERVICES, __u32, struct ab_class_name, 0);

AB_MAP(service_reasons, BPF_MAP_TYPE_PERCPU_ARRAY, AB_SERVICE_REASON_COUNT, __u32, __u64, 0);
AB_MAP(service_sweeping, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_service_sweep, 0);
AB_MAP(service_visits, BPF_MAP_TYPE_ARRAY, 1, __u32, struct ab_visit, 0);

#endif
