/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Addresses of 16 bytes, IPv4 mapped, in network order. */
#ifndef ANABRANCH_ADDR_H
#define ANABRANCH_ADDR_H

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>

#include "../../policy/family.h"
#include "../../policy/inline.h"

static __always_inline void map_ipv4(union ab_addr *addr, __be32 v4)
{
	addr->word[0] = 0;
	addr->word[1] = 0;
	addr->word[2] = AB_V4_PREFIX;
	addr->word[3] = v4;
}

/* Whether it is an address: not all zero. */
static __always_inline int is_addr(const union ab_addr *addr)
{
	return addr->word[3] | addr->word[2] | addr->word[1] | addr->word[0];
}

static __always_inline int is_same_addr(const union ab_addr *a, const union ab_addr *b)
{
	return !((a->word[0] ^ b->word[0]) | (a->word[1] ^ b->word[1]) | (a->word[2] ^ b->word[2]) |
		 (a->word[3] ^ b->word[3]));
}

static __always_inline __u32 fold_addr(const union ab_addr *addr)
{
	return addr->word[0] ^ addr->word[1] ^ addr->word[2] ^ addr->word[3];
}

/* What identifies a host behind a router: in IPv6 its /64, because it may use any address in it. */
static __always_inline union ab_addr host_address(const union ab_addr *address)
{
	union ab_addr own = *address;
	if (!ab_is_v4_mapped(address))
		own.word[2] = own.word[3] = 0;
	return own;
}

/* Whether it is link-local: 169.254/16, fe80::/10. */
static __always_inline int is_of_line(const union ab_addr *addr)
{
	if (!ab_is_v4_mapped(addr))
		return bpf_ntohl(addr->word[0]) >> 22 == 0xfe80 >> 6;
	return bpf_ntohl(addr->word[3]) >> 16 == 0xa9fe;
}

/* Whether it is never routed on the internet. IPv4: 0/8, 127/8, 169.254/16, multicast, broadcast. IPv6: addresses that begin with
 * 16 zero bits (those of this host, mapped ones), link-local, multicast. */
static __always_inline int is_never_forwarded(const union ab_addr *addr)
{
	__u32 first = bpf_ntohl(ab_is_v4_mapped(addr) ? addr->word[3] : addr->word[0]);
	if (is_of_line(addr))
		return 1;
	if (!ab_is_v4_mapped(addr))
		return !(first >> 16) || first >> 24 == 0xff;
	return !(first >> 24) || first >> 24 == 127 || first >> 24 >= 224;
}

#endif
