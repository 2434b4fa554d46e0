/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Declarations of maps. */
#ifndef ANABRANCH_MAP_H
#define ANABRANCH_MAP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define AB_MAP_OF(map_type, entries, key_type, value_type, map_flag_bits)                                              \
	__uint(type, map_type);                                                                                        \
	__uint(max_entries, entries);                                                                                  \
	__type(key, key_type);                                                                                         \
	__type(value, value_type);                                                                                     \
	__uint(map_flags, map_flag_bits)

/* A map that is pinned by name, so that it outlives the daemon. */
#define AB_MAP(name, map_type, entries, key_type, value_type, map_flag_bits)                                           \
	struct {                                                                                                       \
		AB_MAP_OF(map_type, entries, key_type, value_type, map_flag_bits);                                     \
		__uint(pinning, LIBBPF_PIN_BY_NAME);                                                                   \
	} name SEC(".maps")

/* A map that is not pinned, and lives as long as the programs. */
#define AB_LOADED_MAP(name, map_type, entries, key_type, value_type, map_flag_bits)                                    \
	struct {                                                                                                       \
		AB_MAP_OF(map_type, entries, key_type, value_type, map_flag_bits);                                     \
	} name SEC(".maps")

/* Memory for data that does not fit the stack: one value for each CPU, and `name()` to access it. */
#define AB_SCRATCH(name, value_type)                                                                                   \
	AB_LOADED_MAP(name##_map, BPF_MAP_TYPE_PERCPU_ARRAY, 1, __u32, value_type, 0);                                 \
	static __always_inline value_type *name(void)                                                                  \
	{                                                                                                              \
		__u32 zero = 0;                                                                                        \
		return bpf_map_lookup_elem(&name##_map, &zero);                                                        \
	}

#endif
