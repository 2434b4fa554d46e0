/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Whom a frame is for. A device hears more than its own frames: in promiscuous mode, on a hub, flooded by a switch, and what the host
 * itself has sent by multicast. As everywhere in Linux those are nobody's here: the kernel has marked them, and judges them.
 */
#ifndef ANABRANCH_ADDRESSEE_H
#define ANABRANCH_ADDRESSEE_H

#include <linux/if_ether.h>
#include <linux/if_packet.h>

#include "frag.h"
#include "rival.h"
#include "turn.h"

/* Hardware addresses of devices above a device of the gateway's, such as a virtual router's (RFC 9568 section 7.3) on a macvlan: what is
 * for them is for this host, though not for the device's own address. User space fills it. */
AB_MAP(own_macs, BPF_MAP_TYPE_HASH, AB_OWN_MACS_MAX, struct ab_own_mac, __u32, BPF_F_NO_PREALLOC);

/* Whether it came back by a redirect of ours: it has the Ethernet header that it had on another device. */
static __always_inline int has_come_back(const struct __sk_buff *skb)
{
	__u32 kind = skb->mark & AB_MARK_KIND;
	return kind == AB_TAIL_MARK || kind == AB_HAIRPIN_MARK || kind == AB_RIVAL_MARK;
}

/* A frame that is not for the address of its device. 0, or the reason to leave it to the kernel. */
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
