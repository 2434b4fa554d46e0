// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* One choice by itself: `ab_choose` of the gateway, among the targets that user space writes, for a flow that nothing binds. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "../../../bpf/policy/choose.h"

#define ONE(name, map_type, value_type)                                                                                \
	struct {                                                                                                       \
		__uint(type, map_type);                                                                                \
		__uint(max_entries, 1);                                                                                \
		__type(key, __u32);                                                                                    \
		__type(value, value_type);                                                                             \
	} name SEC(".maps")

struct asked {
	struct ab_request request;
	struct ab_decision decision;
};

ONE(choice, BPF_MAP_TYPE_ARRAY, struct ab_choice);
ONE(gauges, BPF_MAP_TYPE_ARRAY, struct ab_gauges);
ONE(consistent, BPF_MAP_TYPE_ARRAY, struct ab_consistent);
ONE(scratch, BPF_MAP_TYPE_PERCPU_ARRAY, struct asked);

/* Answers with the target. */
SEC("classifier")
int choose(struct __sk_buff *skb)
{
	__u32 zero = 0;
	const struct ab_choice *now = bpf_map_lookup_elem(&choice, &zero);
	const struct ab_gauges *all = bpf_map_lookup_elem(&gauges, &zero);
	const struct ab_consistent *table = bpf_map_lookup_elem(&consistent, &zero);
	struct asked *asked = bpf_map_lookup_elem(&scratch, &zero);

	(void)skb;
	if (!now || !all || !table || !asked)
		return AB_NO_TARGET;
	asked->request.route = asked->request.session = asked->request.endpoint = AB_NO_TARGET;
	ab_avoid(&asked->request, 0, 0);
	asked->request.hash = asked->request.draw = bpf_get_prandom_u32();
	ab_choose(now, all, table, &asked->request, &asked->decision);
	return asked->decision.target;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
