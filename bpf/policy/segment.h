/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The flags of a TCP segment (RFC 9293 section 3.1). */
#ifndef ANABRANCH_POLICY_SEGMENT_H
#define ANABRANCH_POLICY_SEGMENT_H

#include <linux/types.h>

#include "inline.h"

#define AB_TCP_FIN 0x01
#define AB_TCP_SYN 0x02
#define AB_TCP_RST 0x04
#define AB_TCP_ACK 0x10

/* Whether it begins a connection. */
static __always_inline int ab_is_first_syn(__u8 flags)
{
	return (flags & (AB_TCP_SYN | AB_TCP_ACK)) == AB_TCP_SYN;
}

#endif
