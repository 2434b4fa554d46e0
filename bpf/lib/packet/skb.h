/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The context that the parser reads, here that of TC programs: where the packet's bytes are, and what the kernel knows
 * about it. parse.h uses only these functions, so another context needs only another header with the same functions.
 */
#ifndef ANABRANCH_SKB_H
#define ANABRANCH_SKB_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

#include "../../include/reasons.h"
#include "../../policy/inline.h"

typedef struct __sk_buff context;

/* The bytes that can be read directly: the linear part of the packet; the rest may be in pages. A helper that changes the packet
 * invalidates the pointers. */
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

/* The EtherType after the Ethernet header and its tags. */
static __always_inline __be16 protocol_of(const context *skb)
{
	return skb->protocol;
}

/* Copies bytes from anywhere in the packet. Returns 0, or a negative error. */
static __always_inline int load_bytes(const context *skb, __u32 at, void *to, __u32 length)
{
	return bpf_skb_load_bytes(skb, at, to, length);
}

/* Makes `room` bytes directly readable, or the whole packet if it is shorter. Returns 0, or a negative error. */
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
/* At most this many priority tags (IEEE 802.1Q: VLAN 0) are removed. */
#define VLAN_PRIORITIES_MAX 2

/*
 * A VLAN tag means that the packet belongs to another device of the kernel, unless it is only a priority tag, which is removed.
 * Another tag may follow: the kernel takes the outermost tag out of the packet's bytes, and the next one when that is popped.
 * Returns 0, or the reason to leave or drop the packet.
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
