/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Whether a socket of the host itself would get a packet. */
#ifndef ANABRANCH_SOCKET_H
#define ANABRANCH_SOCKET_H

#include "../packet/parse.h"
#include "maps.h"

/* Fills the tuple. Returns its length, by which the kernel knows the family. */
static __always_inline __u32 fill_tuple(struct bpf_sock_tuple *tuple, const struct endpoints *ends)
{
	if (ab_is_v4_mapped(&ends->dst)) {
		tuple->ipv4.saddr = ends->src.word[3];
		tuple->ipv4.daddr = ends->dst.word[3];
		tuple->ipv4.sport = ends->sport;
		tuple->ipv4.dport = ends->dport;
		return sizeof(tuple->ipv4);
	}
	__builtin_memcpy(tuple->ipv6.saddr, &ends->src, sizeof(tuple->ipv6.saddr));
	__builtin_memcpy(tuple->ipv6.daddr, &ends->dst, sizeof(tuple->ipv6.daddr));
	tuple->ipv6.sport = ends->sport;
	tuple->ipv6.dport = ends->dport;
	return sizeof(tuple->ipv6);
}

/* A connection, or a listener on the address or on all addresses. */
__noinline int has_tcp_socket(struct __sk_buff *skb, struct endpoints *ends)
{
	struct bpf_sock_tuple tuple = {};
	if (!ends)
		return 0;
	__u32 size = fill_tuple(&tuple, ends);
	struct bpf_sock *sk = bpf_skc_lookup_tcp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
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
	__u32 size = fill_tuple(&tuple, ends);
	struct bpf_sock *sk = bpf_sk_lookup_udp(skb, &tuple, size, BPF_F_CURRENT_NETNS, 0);
	if (!sk)
		return 0;
	bpf_sk_release(sk);
	return 1;
}

#endif
