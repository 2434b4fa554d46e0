/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Fragments that come before the first of their datagram (RFC 4787 REQ-14). Their flow is not known yet, so a copy waits until the
 * first fragment comes, and is then received again after it. A source has few places, and its new fragments replace its own old
 * ones.
 */
#ifndef ANABRANCH_EARLY_H
#define ANABRANCH_EARLY_H

#include "../packet/fragment.h"
#include "maps.h"

#define EARLY_NS 5000000000ull
/* Length of an Ethernet frame. */
#define EARLY_BYTES 1536
#define EARLY_PER_SOURCE 16

struct ab_early {
	__u64 held_ns;
	union ab_addr dst;
	__u32 id;
	__u32 proto;
	__u32 length;
	__u8 frame[EARLY_BYTES];
	__u32 padding;
};
AB_MAP(early, BPF_MAP_TYPE_LRU_HASH, 1024, struct ab_early_key, struct ab_early, 0);

struct early_room {
	struct ab_early piece;
	__u8 first[EARLY_BYTES]; /* the first fragment, while its packet is used to send others */
};
AB_SCRATCH(early_room, struct early_room)

static __always_inline int is_holdable(const struct __sk_buff *skb)
{
	return skb->len && skb->len <= EARLY_BYTES && !skb->gso_size;
}

/* Keeps a copy of the packet. Returns whether there was room. */
__noinline int hold_early(struct __sk_buff *skb, struct packet *p, __u32 side)
{
	struct early_room *room = early_room();
	if (!p || !room || !is_holdable(skb))
		return 0;
	struct ab_early_key key = { .src = p->src, .side = side };
	struct ab_early_source *source = early_source(&key);
	if (!source)
		return 0;
	struct ab_early *piece = &room->piece;
	piece->held_ns = source->latest_ns = tick_ns();
	piece->dst = p->dst;
	piece->id = p->id;
	piece->proto = fragment_proto(p);
	piece->length = skb->len;
	if (bpf_skb_load_bytes(skb, 0, piece->frame, bounded_length(skb->len, EARLY_BYTES)))
		return 0;
	key.place = __sync_fetch_and_add(&source->next, 1) % EARLY_PER_SOURCE;
	return !bpf_map_update_elem(&early, &key, piece, BPF_ANY);
}

struct release {
	struct __sk_buff *skb;
	struct ab_early_key key;
	__u64 now;
	const struct packet *first;
	__u32 is_changed;
};

/* If this place has a fragment of the datagram, replaces the packet by it, and lets it be received again. */
static long step_release(__u32 place, struct release *r)
{
	r->key.place = place;
	struct ab_early *piece = bpf_map_lookup_elem(&early, &r->key);
	if (!piece || !is_same_addr(&piece->dst, &r->first->dst) || piece->id != r->first->id ||
	    piece->proto != fragment_proto(r->first))
		return 0;
	if (r->now - piece->held_ns <= EARLY_NS) {
		__u32 length = bounded_length(piece->length, EARLY_BYTES);
		r->is_changed = 1;
		if (!bpf_skb_change_tail(r->skb, length, 0) && !bpf_skb_store_bytes(r->skb, 0, piece->frame, length, 0))
			bpf_clone_redirect(r->skb, r->skb->ifindex, BPF_F_INGRESS);
	}
	bpf_map_delete_elem(&early, &r->key);
	return 0;
}

/* Called for the first fragment: those that wait are received again. Returns 0, or the reason to drop the first fragment. */
__noinline int release_early(struct __sk_buff *skb, struct packet *p, __u32 side)
{
	struct early_room *room = early_room();
	__u64 now = tick_ns();
	if (!p || !room)
		return AB_REASON_MALFORMED;
	struct release r = {
		.skb = skb,
		.key.src = p->src,
		.key.side = side,
		.first = p,
		.now = now,
	};
	struct ab_early_source *source = bpf_map_lookup_elem(&early_sources, &r.key);
	if (!source || now - source->latest_ns > EARLY_NS || !is_holdable(skb))
		return 0;
	__u32 length = bounded_length(skb->len, EARLY_BYTES);
	if (bpf_skb_load_bytes(skb, 0, room->first, length))
		return AB_REASON_REWRITE_FAILED;
	bpf_loop(EARLY_PER_SOURCE, step_release, &r, 0);
	if (!r.is_changed)
		return 0;
	length = bounded_length(length, EARLY_BYTES);
	return bpf_skb_change_tail(skb, length, 0) || bpf_skb_store_bytes(skb, 0, room->first, length, 0)
		       ? AB_REASON_REWRITE_FAILED
		       : 0;
}

#endif
