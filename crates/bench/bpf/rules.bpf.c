// SPDX-License-Identifier: MIT OR GPL-2.0-only
/* The class of a flow by itself: `ab_class_of` of the gateway, over the rules that user space writes, for one flow after another. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "../../../bpf/policy/rules.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ab_rules);
} rules SEC(".maps");

/* Answers with the class. */
SEC("classifier")
int class_of(struct __sk_buff *skb)
{
	__u32 zero = 0, random = bpf_get_prandom_u32();
	const struct ab_rules *now = bpf_map_lookup_elem(&rules, &zero);
	struct ab_traits t = {};

	(void)skb;
	t.src.byte[10] = t.src.byte[11] = t.dst.byte[10] = t.dst.byte[11] = 0xff;
	t.src.word[3] = t.dst.word[3] = random;
	t.sport = random >> 16;
	t.dport = random;
	t.proto = random & 1 ? 6 : 17;
	t.dscp = random >> 26;
	t.ifindex = 1 + (random >> 8 & 1);
	return ab_class_of(now, &t);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
