/* SPDX-License-Identifier: Apache-2.0 */
/* The reasons of bpf/include as tables. The decisions of bpf/policy need no words here: bindgen wraps them. */
#include <stddef.h>

#include "../../../bpf/include/bins.h"
#include "../../../bpf/include/member.h"
#include "../../../bpf/include/reasons.h"
#include "../../../bpf/include/service.h"
#include "../../../bpf/policy/trace.h"

/* The remote address of a mapping stands where a TCP flow keeps its sequence numbers. */
_Static_assert(sizeof(struct ab_flow_tcp) == sizeof(union ab_addr), "ab_first_remote");

struct reason {
	const char *name;
	const char *words;
	__u32 fate;
};

#define REASON(name, fate, words) { #name, words, AB_##fate & AB_FATE_MASK },

const struct reason ab_native_reasons[] = { AB_REASONS(REASON) };
const size_t ab_native_reasons_count = AB_REASON_COUNT;

const struct reason ab_native_trunk_reasons[] = { AB_TRUNK_REASONS(REASON) };
const size_t ab_native_trunk_reasons_count = AB_TRUNK_REASON_COUNT;

const struct reason ab_native_service_reasons[] = { AB_SERVICE_REASONS(REASON) };
const size_t ab_native_service_reasons_count = AB_SERVICE_REASON_COUNT;

const struct reason ab_native_member_reasons[] = { AB_MEMBER_REASONS(REASON) };
const size_t ab_native_member_reasons_count = AB_MEMBER_REASON_COUNT;
