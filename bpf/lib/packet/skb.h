/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the parser needs of a program's context, here that of TC programs: where the packet's bytes are, and what the kernel knows
 * about it. parse.h calls these functions only, so that a header with the same ones is all that it needs for another context.
 */
#ifndef ANABRANCH_SKB_H
#define ANABRANCH_SKB_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "../../include/reasons.h"
#include "../../policy/inline.h"

typedef struct __sk_buff context;

/* The bytes that can be read directly: the first ones of the packet; the others may be in pages. A helper that changes the packet
 * makes the pointers void. */
struct cursor {
	void *data, *end;
};

static __always_inline struct cursor cursor_of(const context *skb)
{
	return (struct cursor){ (void *)(long)skb->data, (void *)(long)skb->data_end };
}

static __always_inline __u32 length_of(const context *skb)
{
	return skb->len;
}

/* The protocol behind the Ethernet header and its tags. */
static __always_inline __be16 protocol_of(const context *skb)
{
	return skb->protocol;
}

/* Copies bytes, wherever they are. 0, or below zero. */
static __always_inline int load_bytes(const context *skb, __u32 at, void *to, __u32 length)
{
	return bpf_skb_load_bytes(skb, at, to, length);
}

/* Makes `room` bytes readable, or the whole packet if it is shorter. 0, or below zero. */
static __always_inline int make_readable(context *skb, __u32 room, struct cursor *cursor)
{
	__u32 wanted = skb->len < room ? skb->len : room;
	*cursor = cursor_of(skb);
	if (cursor->data + room <= cursor->end || cursor->data + wanted <= cursor->end)
		return 0;
	int bad = bpf_skb_pull_data(skb, wanted);
	*cursor = cursor_of(skb);
	return bad;
}

#define VLAN_ID_MASK 0x0fff
/* Of mere priorities (IEEE 802.1Q: VLAN 0) so many are taken off, one behind the other. */
#define VLAN_PRIORITIES_MAX 2

/*
 * A tag names another device of the kernel's, unless it is a mere priority, which goes. Behind that may stand another: the kernel
 * takes the outermost tag out of the bytes, and the next one when that is popped. 0, or the reason to leave or drop the packet.
 */
static __always_inline int take_tags(context *skb)
{
	for (__u32 i = 0; i < VLAN_PRIORITIES_MAX && skb->vlan_present; i++) {
		if (skb->vlan_tci & VLAN_ID_MASK)
			return AB_REASON_TAGGED;
		if (bpf_skb_vlan_pop(skb))
			return AB_REASON_MALFORMED;
	}
	return skb->vlan_present ? AB_REASON_TAGGED : 0;
}

#endif
