/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Fragments: only the first carries ports. It leaves them behind for the others, together with the id the datagram
 * has on the link. Overlapping fragments poison their datagram (RFC 5722 does so for IPv6; RFC 1858 says why).
 */
#ifndef ANABRANCH_FRAG_H
#define ANABRANCH_FRAG_H

#include "flow.h"

/* Records [start, end), in units of 8 bytes. 0 if it overlaps what was seen or there is no room. */
static __always_inline int add_span(struct ab_fragment *f, __u32 start, __u32 end)
{
	__u32 count = f->spans;
	for (__u32 i = 0; i < AB_FRAGMENT_SPANS; i++) {
		if (i >= count)
			break;
		if (start < f->span[i].end && f->span[i].start < end)
			return 0;
		if (f->span[i].end == start) {
			f->span[i].end = end;
			return 1;
		}
	}
	if (count >= AB_FRAGMENT_SPANS)
		return 0;
	f->span[count].start = start;
	f->span[count].end = end;
	f->spans = count + 1;
	return 1;
}

/* Gives `p` the ports of its datagram and `new_id` its id on the link. 0, or the reason to drop. */
static __noinline int learn_fragment(struct packet *p, __u32 side, __be16 *new_id)
{
	struct ab_fragment_key key = { .id = p->id, .proto = p->proto, .side = side };
	map_ipv4(&key.src, p->src);
	map_ipv4(&key.dst, p->dst);
	__u32 payload = p->length - (p->l4 - p->l3);
	__u32 start = p->fragment & IP_OFFSET_MASK, end = start + (payload + 7) / 8;
	if (start == 0) {
		struct ab_fragment fresh = {
			.sport = p->sport,
			.dport = p->dport,
			.new_id = side == AB_SIDE_LAN ? bpf_get_prandom_u32() : p->id,
			.seen_ns = bpf_ktime_get_coarse_ns(),
		};
		if (!bpf_map_lookup_elem(&fragments, &key))
			bpf_map_update_elem(&fragments, &key, &fresh, BPF_NOEXIST);
	}
	struct ab_fragment *f = bpf_map_lookup_elem(&fragments, &key);
	if (!f)
		return AB_REASON_FRAGMENT_ORPHAN;
	if (f->poisoned || !add_span(f, start, end)) {
		f->poisoned = 1;
		return AB_REASON_FRAGMENT_OVERLAP;
	}
	p->sport = f->sport;
	p->dport = f->dport;
	*new_id = f->new_id;
	return 0;
}

#endif
