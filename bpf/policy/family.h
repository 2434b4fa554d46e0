/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The family of an address. */
#ifndef ANABRANCH_POLICY_FAMILY_H
#define ANABRANCH_POLICY_FAMILY_H

#include "../include/anabranch.h"
#include "inline.h"

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define AB_V4_PREFIX 0xffff0000u
#else
#define AB_V4_PREFIX 0x0000ffffu
#endif

/* One branch, because the verifier follows each branch separately. */
static __always_inline int ab_is_v4_mapped(const union ab_addr *addr)
{
	return !(addr->word[0] | addr->word[1] | (addr->word[2] ^ AB_V4_PREFIX));
}

static __always_inline enum ab_family ab_family_of(const union ab_addr *addr)
{
	return ab_is_v4_mapped(addr) ? AB_IPV4 : AB_IPV6;
}

#endif
