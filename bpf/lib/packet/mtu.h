/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* What fits the MTU of the next device. */
#ifndef ANABRANCH_MTU_H
#define ANABRANCH_MTU_H

#include "parse.h"

static __always_inline int exceeds_mtu(const struct __sk_buff *skb, const struct packet *p, __u32 mtu)
{
	if (!skb->gso_size)
		return p->length > mtu;
	return skb->gso_size + (p->l4 - p->l3) + p->l4_header > mtu;
}

#define TCP_OPTIONS_MAX 40
#define TCP_OPTION_MSS 2

/* A walk over the options of a SYN, looking for the MSS. */
struct option_walk {
	__u8 options[64];
	__u32 length;
	__u32 at;
	__u32 found;
};

static long step_option(__u32 step, struct option_walk *walk)
{
	(void)step;
	if (walk->at + 4 > walk->length)
		return 1;
	__u8 kind = walk->options[walk->at & 63], size = walk->options[(walk->at + 1) & 63];
	walk->found = kind == TCP_OPTION_MSS && size == 4;
	if (kind == 0 || walk->found)
		return 1;
	walk->at += kind == 1 ? 1 : size < 2 ? 2 : size;
	return 0;
}

/* Lowers the MSS option of a SYN to what fits `mtu` (RFC 9293 section 3.7.1). Returns 0, or the reason of failure. */
__noinline int clamp_mss(struct __sk_buff *skb, struct packet *p, __u32 mtu)
{
	if (!p)
		return AB_REASON_MALFORMED;
	struct option_walk walk = {};
	__u8 offset_byte = 0;
	__u32 headers = ip_header_of(p->family) + sizeof(struct tcphdr);
	if (mtu <= headers || bpf_skb_load_bytes(skb, p->l4 + 12, &offset_byte, 1))
		return 0;
	__u32 length = (offset_byte >> 4) * 4 - sizeof(struct tcphdr);
	keep_bound(length);
	if (length < 4 || length > TCP_OPTIONS_MAX)
		return 0;
	if (bpf_skb_load_bytes(skb, p->l4 + sizeof(struct tcphdr), walk.options, length))
		return 0;
	walk.length = length;
	/* The MSS is nearly always the first option. */
	if (!step_option(0, &walk))
		bpf_loop(TCP_OPTIONS_MAX, step_option, &walk, 0);
	if (!walk.found)
		return 0;
	__u32 at = walk.at & 63;
	__u16 mss = (__u16)walk.options[(at + 2) & 63] << 8 | walk.options[(at + 3) & 63];
	__u16 largest = mtu - headers;
	if (mss <= largest)
		return 0;
	/* The sum adds 16-bit words from the start of the header: an odd offset swaps the bytes. */
	__be16 from = bpf_htons(mss), to = bpf_htons(largest), stored = to;
	if (at & 1) {
		from = __builtin_bswap16(from);
		to = __builtin_bswap16(to);
	}
	if (bpf_l4_csum_replace(skb, p->l4 + 16, from, to, 2) ||
	    bpf_skb_store_bytes(skb, p->l4 + sizeof(struct tcphdr) + at + 2, &stored, 2, 0))
		return AB_REASON_REWRITE_FAILED;
	return 0;
}

#endif
