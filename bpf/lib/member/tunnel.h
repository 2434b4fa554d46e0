/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Takes the outer headers off tunnelled packets for a virtual address, so that the kernel receives what the client has sent. The
 * checksum of an outer UDP header is not verified (RFC 6935 allows zero): the inner packet has its own.
 */
#ifndef ANABRANCH_MEMBER_TUNNEL_H
#define ANABRANCH_MEMBER_TUNNEL_H

#include "../packet/ambient.h"
#include "../packet/gue.h"
#include "../packet/parse.h"
#include "../packet/redirect.h"
#include "maps.h"

/* Flags of bpf_skb_adjust_room() since Linux 6.3; the headers of Debian 12 do not have them. */
#define DECAP_L3_IPV4 (1ull << 7)
#define DECAP_L3_IPV6 (1ull << 8)

/* A tunnelled packet. */
struct tunnel {
	union ab_addr source, target; /* of the outer header */
	union ab_addr inside;	      /* destination of the inner header */
	__u32 outer_bytes;
	__u32 reason; /* under which it is counted if it is taken */
	__u8 proto;
	__u8 is_fragment;
	__u8 outer_family;
	__u8 family;
	__u8 outer_ecn, ecn;
	__u8 first[2]; /* bytes of the inner header, which contain its ECN field */
};

union ip_head {
	struct iphdr ip;
	struct ipv6hdr ip6;
	__u8 byte[sizeof(struct ipv6hdr)];
};

/* Both bits of the ECN field of an IP header, from its first two bytes. */
static __always_inline __u8 ecn_of(__u32 family, const __u8 *first)
{
	return (family == AB_IPV6 ? first[1] >> 4 : first[1]) & 3;
}

/* Loads an IP header without what may follow its first bytes. Returns 0, or -1 if it is cut short or of another family. */
static __always_inline int load_ip(struct __sk_buff *skb, __u32 at, __u32 family, union ip_head *head)
{
	if (family == AB_IPV6)
		return bpf_skb_load_bytes(skb, at, head, sizeof(head->ip6)) || head->ip6.version != 6 ? -1 : 0;
	return bpf_skb_load_bytes(skb, at, head, sizeof(head->ip)) || head->ip.version != 4 ? -1 : 0;
}

/* Reads the outer IP header. Returns 0, or the reason why the packet is left alone. */
static __always_inline __u32 read_outer(struct __sk_buff *skb, struct tunnel *t)
{
	union ip_head head = {};
	if (skb->protocol != bpf_htons(ETH_P_IP) && skb->protocol != bpf_htons(ETH_P_IPV6))
		return AB_MEMBER_REASON_NOT_TUNNELLED;
	t->outer_family = skb->protocol == bpf_htons(ETH_P_IPV6) ? AB_IPV6 : AB_IPV4;
	if (load_ip(skb, ETH_HLEN, t->outer_family, &head))
		return AB_MEMBER_REASON_NOT_TUNNELLED;
	t->outer_ecn = ecn_of(t->outer_family, head.byte);
	t->outer_bytes = ip_header_of(t->outer_family);
	if (t->outer_family == AB_IPV6) {
		t->proto = head.ip6.nexthdr;
		__builtin_memcpy(&t->source, &head.ip6.saddr, sizeof(t->source));
		__builtin_memcpy(&t->target, &head.ip6.daddr, sizeof(t->target));
		return 0;
	}
	t->proto = head.ip.protocol;
	t->is_fragment = !!(head.ip.frag_off & bpf_htons(IP_MORE_FRAGMENTS | IP_OFFSET_MASK));
	map_ipv4(&t->source, head.ip.saddr);
	map_ipv4(&t->target, head.ip.daddr);
	if (head.ip.ihl == 5)
		return 0;
	return t->proto == IPPROTO_IPIP || t->proto == IPPROTO_IPV6 ? AB_MEMBER_REASON_OTHER_SHAPE
								    : AB_MEMBER_REASON_NOT_TUNNELLED;
}

/* Reads the headers of GUE after the outer IP header. Returns 0, or the reason why the packet is left alone. */
static __always_inline __u32 read_gue(struct __sk_buff *skb, const struct ab_member *set, struct tunnel *t)
{
	struct gue head = {};
	if (t->is_fragment || bpf_skb_load_bytes(skb, ETH_HLEN + t->outer_bytes, &head, sizeof(head)) ||
	    head.udp.dest != set->gue_port)
		return AB_MEMBER_REASON_NOT_TUNNELLED;
	if (head.version_and_length || head.flags || (head.proto != IPPROTO_IPIP && head.proto != IPPROTO_IPV6))
		return AB_MEMBER_REASON_OTHER_SHAPE;
	t->reason = AB_MEMBER_REASON_GUE;
	t->proto = head.proto;
	t->outer_bytes += sizeof(head);
	return 0;
}

/* Reads the header of the tunnelled packet. Returns 0, or the reason why the packet is left alone. */
static __always_inline __u32 read_inside(struct __sk_buff *skb, struct tunnel *t)
{
	union ip_head head = {};
	t->family = t->proto == IPPROTO_IPV6 ? AB_IPV6 : AB_IPV4;
	if (t->is_fragment || load_ip(skb, ETH_HLEN + t->outer_bytes, t->family, &head))
		return AB_MEMBER_REASON_OTHER_SHAPE;
	if (t->family == AB_IPV6)
		__builtin_memcpy(&t->inside, &head.ip6.daddr, sizeof(t->inside));
	else
		map_ipv4(&t->inside, head.ip.daddr);
	t->first[0] = head.byte[0];
	t->first[1] = head.byte[1];
	t->ecn = ecn_of(t->family, t->first);
	return 0;
}

/* Reads what the packet is in. Returns 0, or the reason why it is left alone. */
static __always_inline __u32 read_tunnel(struct __sk_buff *skb, const struct ab_member *set, struct tunnel *t)
{
	__u32 bad = read_outer(skb, t);
	if (!bad && t->proto == IPPROTO_UDP)
		bad = read_gue(skb, set, t);
	if (bad)
		return bad;
	if (t->proto != IPPROTO_IPIP && t->proto != IPPROTO_IPV6)
		return AB_MEMBER_REASON_NOT_TUNNELLED;
	return read_inside(skb, t);
}

#define ECN_NONE 0
#define ECN_ECT1 1
#define ECN_ECT0 2
#define ECN_CE 3

/* What the mark of the outer header leaves of the inner one (RFC 6040 section 4.2), or -1: the packet is dropped. */
static __always_inline int ecn_behind(__u8 outer, __u8 inner)
{
	if (outer == ECN_CE)
		return inner == ECN_NONE ? -1 : ECN_CE;
	return outer == ECN_ECT1 && inner == ECN_ECT0 ? ECN_ECT1 : inner;
}

/* Writes the ECN field of the packet that was inside. Returns 0, or a negative error. */
static __always_inline int write_ecn(struct __sk_buff *skb, const struct tunnel *t, __u8 ecn)
{
	__u8 second = (t->first[1] & ~3) | ecn;
	if (ecn == t->ecn)
		return 0;
	if (t->family == AB_IPV6) {
		second = (t->first[1] & ~(3 << 4)) | ecn << 4;
		return bpf_skb_store_bytes(skb, ETH_HLEN + 1, &second, 1, BPF_F_RECOMPUTE_CSUM);
	}
	__be16 from = bpf_htons(t->first[0] << 8 | t->first[1]), to = bpf_htons(t->first[0] << 8 | second);
	return bpf_l3_csum_replace(skb, ETH_HLEN + offsetof(struct iphdr, check), from, to, sizeof(to)) ||
			       bpf_skb_store_bytes(skb, ETH_HLEN + 1, &second, 1, 0)
		       ? -1
		       : 0;
}

static __always_inline long remove_outer(struct __sk_buff *skb, const struct tunnel *t, __u64 flags)
{
	/* A superpacket keeps the length of its segments. */
	return bpf_skb_adjust_room(skb, -(__s32)t->outer_bytes, BPF_ADJ_ROOM_MAC, flags | BPF_F_ADJ_ROOM_FIXED_GSO);
}

/*
 * The same where the kernel cannot be told that the family changes (before Linux 6.3). It believes the Ethernet type when it receives
 * the packet once more. Until then it wants no IPv6 packet to be shorter than its header.
 */
static __always_inline __u32 remove_and_send_again(struct __sk_buff *skb, const struct tunnel *t)
{
	__u32 least = ETH_HLEN + t->outer_bytes + sizeof(struct ipv6hdr);
	if (skb->len < least && bpf_skb_change_tail(skb, least, 0))
		return AB_MEMBER_REASON_UNTAKEN;
	if (remove_outer(skb, t, 0))
		return AB_MEMBER_REASON_UNTAKEN;
	return bpf_redirect(skb->ifindex, BPF_F_INGRESS) == TC_ACT_REDIRECT ? AB_MEMBER_REASON_SENT_AGAIN
									    : AB_MEMBER_REASON_UNTAKEN;
}

/* Takes the outer headers off. Returns the reason under which the packet is counted. */
static __always_inline __u32 take_off(struct __sk_buff *skb, const struct tunnel *t)
{
	__be16 type = t->family == AB_IPV6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_IP);
	__u32 reason = t->reason;
	if (t->family == t->outer_family) {
		if (remove_outer(skb, t, 0))
			return AB_MEMBER_REASON_UNTAKEN;
	} else if (remove_outer(skb, t, t->family == AB_IPV6 ? DECAP_L3_IPV6 : DECAP_L3_IPV4)) {
		reason = remove_and_send_again(skb, t);
	}
	return bpf_skb_store_bytes(skb, offsetof(struct ethhdr, h_proto), &type, sizeof(type), 0)
		       ? AB_MEMBER_REASON_UNTAKEN
		       : reason;
}

/* Whether the tunnel ends here. A host that forwards packets may be on the way to another member. The kernel says FWD_DISABLED for one
 * that does not, and NOT_FWDED of what is for itself. */
static __always_inline int ends_here(struct __sk_buff *skb, const struct tunnel *t)
{
	struct bpf_fib_lookup way = { .ifindex = skb->ifindex };
	if (t->outer_family == AB_IPV6) {
		way.family = ANABRANCH_AF_INET6;
		__builtin_memcpy(way.ipv6_src, &t->source, sizeof(t->source));
		__builtin_memcpy(way.ipv6_dst, &t->target, sizeof(t->target));
	} else {
		way.family = ANABRANCH_AF_INET;
		way.ipv4_src = t->source.word[3];
		way.ipv4_dst = t->target.word[3];
	}
	long answer = bpf_fib_lookup(skb, &way, sizeof(way), 0);
	return answer == BPF_FIB_LKUP_RET_NOT_FWDED || answer == BPF_FIB_LKUP_RET_FWD_DISABLED;
}

/* Notes how long the outer headers of a packet for an address are. All CPUs share this, so it is written seldom. */
static __always_inline void note_outer(struct ab_member_address *address, __u32 outer_bytes)
{
	__u64 now = tick_ns();
	__s64 age = now - address->seen_ns;
	if (outer_bytes < address->outer_bytes && age < (__s64)AB_OUTER_LASTS_NS)
		return;
	if (outer_bytes == address->outer_bytes && age < (__s64)AB_OUTER_NOTED_NS)
		return;
	address->outer_bytes = outer_bytes;
	address->seen_ns = now;
}

/* Takes a packet out of its tunnel if it is for a virtual address. Returns the reason under which it is counted. */
static __always_inline __u32 leave_tunnel(struct __sk_buff *skb, const struct ab_member *set)
{
	struct tunnel t = { .reason = AB_MEMBER_REASON_IPIP };
	/* A frame for another machine, or with the tag of another device. */
	if (skb->pkt_type != PACKET_HOST || take_tags(skb))
		return AB_MEMBER_REASON_NOT_TUNNELLED;
	__u32 bad = read_tunnel(skb, set, &t);
	if (bad)
		return bad;
	struct ab_member_address *address = bpf_map_lookup_elem(&member_addresses, &t.inside);
	if (!address)
		return AB_MEMBER_REASON_OTHER_ADDRESS;
	if (set->has_sources && !bpf_map_lookup_elem(&member_sources, &t.source))
		return AB_MEMBER_REASON_OTHER_SOURCE;
	if (!ends_here(skb, &t))
		return AB_MEMBER_REASON_OTHER_TARGET;
	int ecn = ecn_behind(t.outer_ecn, t.ecn);
	if (ecn < 0)
		return AB_MEMBER_REASON_CONGESTED;
	note_outer(address, t.outer_bytes);
	__u32 reason = take_off(skb, &t);
	return write_ecn(skb, &t, ecn) ? AB_MEMBER_REASON_UNTAKEN : reason;
}

#endif
