/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Whether a socket of the host itself would take a packet. */
#ifndef ANABRANCH_SOCKET_H
#define ANABRANCH_SOCKET_H

#include "parse.h"

struct endpoints {
	__be32 src, dst;
	__be16 sport, dport;
};

static __always_inline void fill_tuple(struct bpf_sock_tuple *tuple, const struct endpoints *ends)
{
	tuple->ipv4.saddr = ends->src;
	tuple->ipv4.daddr = ends->dst;
	tuple->ipv4.sport = ends->sport;
	tuple->ipv4.dport = ends->dport;
}

/* A connection, or a listener on the address or on all. */
__noinline int has_tcp_socket(struct __sk_buff *skb, struct endpoints *ends)
{
	struct bpf_sock_tuple tuple = {};
	if (!ends)
		return 0;
	fill_tuple(&tuple, ends);
	struct bpf_sock *sk = bpf_skc_lookup_tcp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	bpf_sk_release(sk);
	return 1;
}

__noinline int has_udp_socket(struct __sk_buff *skb, struct endpoints *ends)
{
	struct bpf_sock_tuple tuple = {};
	if (!ends)
		return 0;
	fill_tuple(&tuple, ends);
	struct bpf_sock *sk = bpf_sk_lookup_udp(skb, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	bpf_sk_release(sk);
	return 1;
}

#endif
