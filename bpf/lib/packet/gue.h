/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Generic UDP encapsulation (draft-ietf-intarea-gue-09 section 3): a packet inside one of UDP. */
#ifndef ANABRANCH_GUE_H
#define ANABRANCH_GUE_H

#include <linux/types.h>
#include <linux/udp.h>

struct gue {
	struct udphdr udp;
	__u8 version_and_length; /* variant 0, no control message, no optional fields: all zero */
	__u8 proto;
	__be16 flags;
};

#endif
