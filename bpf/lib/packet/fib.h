/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What the kernel's routing says of a packet. */
#ifndef ANABRANCH_FIB_H
#define ANABRANCH_FIB_H

#include "parse.h"
#include "redirect.h"

/* Queries the kernel where it would forward the packet with this source address; the result is in `way`. Returns enum
 * BPF_FIB_LKUP_RET_*, or a negative error. */
static __noinline int ask_kernel(struct __sk_buff *skb, const struct packet *p, const union ab_addr *src,
				 struct bpf_fib_lookup *way, __u32 flags)
{
	__builtin_memset(way, 0, sizeof(*way));
	way->ifindex = p->ifindex;
	way->l4_protocol = p->proto;
	if (!is_icmp(p->proto)) {
		way->sport = p->sport;
		way->dport = p->dport;
	}
	if (p->family == AB_IPV6) {
		way->family = ANABRANCH_AF_INET6;
		way->flowinfo = bpf_htonl((__u32)p->dscp << 22);
		__builtin_memcpy(way->ipv6_src, src, sizeof(*src));
		__builtin_memcpy(way->ipv6_dst, &p->dst, sizeof(p->dst));
	} else {
		way->family = ANABRANCH_AF_INET;
		way->tos = p->dscp << 2;
		way->ipv4_src = src->word[3];
		way->ipv4_dst = p->dst.word[3];
	}
	return bpf_fib_lookup(skb, way, sizeof(*way), flags);
}

/* Whether the answer names a device. It does not matter whether the neighbour is resolved, or the packet too long for the
 * device. */
static __always_inline int names_device(int answer)
{
	return answer == BPF_FIB_LKUP_RET_SUCCESS || answer == BPF_FIB_LKUP_RET_NO_NEIGH ||
	       answer == BPF_FIB_LKUP_RET_FRAG_NEEDED;
}

#endif
