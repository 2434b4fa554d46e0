/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* How a map is declared. All are pinned by name, so that they outlive the daemon. */
#ifndef ANABRANCH_MAP_H
#define ANABRANCH_MAP_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#define AB_MAP(name, map_type, entries, key_type, value_type, map_flag_bits)                                       \
	struct {                                                                                                   \
		__uint(type, map_type);                                                                            \
		__uint(max_entries, entries);                                                                      \
		__type(key, key_type);                                                                             \
		__type(value, value_type);                                                                         \
		__uint(map_flags, map_flag_bits);                                                                  \
		__uint(pinning, LIBBPF_PIN_BY_NAME);                                                               \
	} name SEC(".maps")

#endif
