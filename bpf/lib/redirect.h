/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sending a packet out of a device to a neighbour, whom the kernel resolves. */
#ifndef ANABRANCH_REDIRECT_H
#define ANABRANCH_REDIRECT_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "../policy/inline.h"

#define ANABRANCH_AF_INET 2

static __always_inline int redirect_to(__u32 ifindex, __be32 next_hop)
{
	struct bpf_redir_neigh hop = { .nh_family = ANABRANCH_AF_INET, .ipv4_nh = next_hop };
	return bpf_redirect_neigh(ifindex, &hop, sizeof(hop), 0);
}

#endif
