/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Of which family an address is. */
#ifndef ANABRANCH_POLICY_FAMILY_H
#define ANABRANCH_POLICY_FAMILY_H

#include "../include/anabranch.h"
#include "inline.h"

static __always_inline int ab_is_v4_mapped(const union ab_addr *addr)
{
	return !(addr->word[0] | addr->word[1]) && !addr->byte[8] && !addr->byte[9] && addr->byte[10] == 0xff &&
	       addr->byte[11] == 0xff;
}

static __always_inline enum ab_family ab_family_of(const union ab_addr *addr)
{
	return ab_is_v4_mapped(addr) ? AB_IPV4 : AB_IPV6;
}

#endif
