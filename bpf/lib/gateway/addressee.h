/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * To whom a frame is addressed. A device receives more than its own frames: in promiscuous mode, on a hub, flooded by a switch, and
 * multicast that the host itself has sent. The kernel has marked these (skb->pkt_type), and they are left to it, as everywhere in
 * Linux.
 */
#ifndef ANABRANCH_ADDRESSEE_H
#define ANABRANCH_ADDRESSEE_H

#include <linux/if_ether.h>
#include <linux/if_packet.h>

#include "frag.h"
#include "race_copy.h"
#include "turn.h"

/* Hardware addresses of devices on top of one of the gateway's devices, such as that of a virtual router (RFC 9568 section 7.3) on
 * a macvlan: frames to them are for this host, although not to the device's own address. User space fills it. */
AB_MAP(own_macs, BPF_MAP_TYPE_HASH, AB_OWN_MACS_MAX, struct ab_own_mac, __u32, BPF_F_NO_PREALLOC);

/* Whether a redirect of ours sent it back: then it still has the Ethernet header that it had on another device. */
static __always_inline int has_come_back(const struct __sk_buff *skb)
{
	__u32 kind = skb->mark & AB_MARK_KIND;
	return kind == AB_TAIL_MARK || kind == AB_HAIRPIN_MARK || kind == AB_RACE_COPY_MARK;
}

/* Checks a frame that is not addressed to its device. Returns 0, or the reason to leave it to the kernel. */
static __noinline int judge_addressee(struct __sk_buff *skb)
{
	struct ab_own_mac key = { .ifindex = skb->ifindex };
	if (skb->pkt_type == PACKET_LOOPBACK)
		return AB_REASON_LOOPED_BACK;
	if (has_come_back(skb))
		return 0;
	if (bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_dest), key.mac, sizeof(key.mac)))
		return AB_REASON_OTHER_HOST;
	return bpf_map_lookup_elem(&own_macs, &key) ? 0 : AB_REASON_OTHER_HOST;
}

static __always_inline int is_for_others(struct __sk_buff *skb)
{
	return skb->pkt_type >= PACKET_OTHERHOST ? judge_addressee(skb) : 0;
}

#endif
