/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sends a packet out of a device to a neighbour that the kernel resolves. */
#ifndef ANABRANCH_REDIRECT_H
#define ANABRANCH_REDIRECT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "addr.h"

#define ANABRANCH_AF_INET 2
#define ANABRANCH_AF_INET6 10

static __always_inline int redirect_to(__u32 ifindex, const union ab_addr *next_hop)
{
	struct bpf_redir_neigh hop = { .nh_family = ANABRANCH_AF_INET6 };
	__builtin_memcpy(hop.ipv6_nh, next_hop, sizeof(hop.ipv6_nh));
	if (ab_is_v4_mapped(next_hop)) {
		hop.nh_family = ANABRANCH_AF_INET;
		hop.ipv4_nh = next_hop->word[3];
	}
	return bpf_redirect_neigh(ifindex, &hop, sizeof(hop), 0);
}

#endif
