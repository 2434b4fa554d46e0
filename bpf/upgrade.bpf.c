// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The gateway as it takes the place of the former version (gateway/former.h): its programs, and `migrate`, which user space runs
 * until nothing is left in the former tables.
 */
#define AB_UPGRADES
#include "gateway.bpf.c"
#include "lib/gateway/take_over.h"

SEC("raw_tp/migrate")
int migrate(void *ctx)
{
	(void)ctx;
	migrate_visited();
	return 0;
}
