/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Fragments: only the first has ports. These are recorded for the other fragments, together with the id that the datagram is sent
 * on with. If fragments overlap, the datagram is dropped (RFC 5722 demands that for IPv6; RFC 1858 says why). Exact duplicates are
 * allowed.
 *
 * IPv4 packets that are longer than their link and may be fragmented are split here: the head is sent on, and the tail is sent back
 * to the ingress as a fragment of its own. IPv6 packets are never fragmented by routers.
 */
#ifndef ANABRANCH_FRAGMENT_H
#define ANABRANCH_FRAGMENT_H

#include <stddef.h>

#include "ambient.h"
#include "mark.h"
#include "rewrite.h"

/* A fragmented datagram, from its first fragment on. */
struct ab_fragment_key {
	union ab_addr src;
	union ab_addr dst;
	__u32 id;
	__u8 proto;
	__u8 side;
	__u16 zero;
};

/* The position of a datagram among those of its source. */
struct ab_fragment_name {
	union ab_addr dst;
	__u32 id;
	__u32 proto;
};

#define AB_FRAGMENT_SPANS 48

struct ab_fragment {
	__be16 sport;
	__be16 dport;
	__u32 new_id; /* outbound: two LAN hosts may use one id towards one remote (RFC 4787 section 11) */
	__u8 poisoned;
	__u8 spans;
	__u8 proto; /* transport protocol; later IPv6 fragments may not have it */
	__u8 zero[5];
	__u64 seen_ns; /* time of the first fragment */
	__u32 total;   /* units of 8 in the datagram, once its last fragment was seen */
	__u32 held;    /* units seen */
	struct {
		__u16 start, end;
	} span[AB_FRAGMENT_SPANS]; /* payload bytes seen, in units of 8 */
};
AB_MAP(fragments, BPF_MAP_TYPE_LRU_HASH, 8192, struct ab_fragment_key, struct ab_fragment, 0);

struct ab_early_key {
	union ab_addr src;
	__u32 place; /* 0 in early_sources */
	__u32 side;
};

struct ab_early_source {
	__u64 latest_ns;
	__u32 next;  /* next place, modulo EARLY_PER_SOURCE */
	__u32 begun; /* datagrams, see take_place() */
};
AB_MAP(early_sources, BPF_MAP_TYPE_LRU_HASH, 4096, struct ab_early_key, struct ab_early_source, 0);

static const struct ab_early_source new_source;

static __always_inline struct ab_early_source *early_source(const struct ab_early_key *key)
{
	struct ab_early_source *source = bpf_map_lookup_elem(&early_sources, key);
	if (source)
		return source;
	bpf_map_update_elem(&early_sources, key, &new_source, BPF_NOEXIST);
	return bpf_map_lookup_elem(&early_sources, key);
}

/* A datagram that was not completed within this time is forgotten (Linux: ipfrag_time; RFC 791: at least 15 s). */
#define FRAGMENT_NS 30000000000ull

enum span_fit { SPAN_NEW, SPAN_AGAIN, SPAN_OVERLAPS };

struct span_walk {
	struct ab_fragment *datagram;
	__u32 start, end;
	__u32 extended; /* the span it follows on; AB_FRAGMENT_SPANS: none */
	__u32 fit;	/* enum span_fit */
};

static long step_span(__u32 i, struct span_walk *walk)
{
	struct ab_fragment *f = walk->datagram;
	if (i >= AB_FRAGMENT_SPANS || i >= f->spans)
		return 1;
	__u32 start = f->span[i].start, end = f->span[i].end;
	if (start == walk->start && end == walk->end)
		walk->fit = SPAN_AGAIN;
	else if (start < walk->end && walk->start < end)
		walk->fit = SPAN_OVERLAPS;
	else if (end == walk->start)
		walk->extended = i;
	return walk->fit != SPAN_NEW;
}

/* Records [start, end), in units of 8 bytes. Returns 0 if it overlaps a recorded one without being the same, or if there
 * is no room. */
static __always_inline int add_span(struct ab_fragment *f, __u32 start, __u32 end)
{
	struct span_walk walk = { .datagram = f, .start = start, .end = end, .extended = AB_FRAGMENT_SPANS };
	bpf_loop(AB_FRAGMENT_SPANS, step_span, &walk, 0);
	if (walk.fit != SPAN_NEW)
		return walk.fit == SPAN_AGAIN;
	__u32 count = f->spans;
	if (count < AB_FRAGMENT_SPANS) {
		f->span[count].start = start;
		f->span[count].end = end;
		f->spans = count + 1;
	} else if (walk.extended < AB_FRAGMENT_SPANS) {
		f->span[walk.extended].end = end;
	} else {
		return 0;
	}
	f->held += end - start;
	return 1;
}

/* Whether a first fragment under this key begins another datagram. */
static __always_inline int is_over(const struct ab_fragment *f, const struct packet *p, __u64 now)
{
	return (f->total && f->held == f->total) || now - f->seen_ns > FRAGMENT_NS || f->sport != p->sport ||
	       f->dport != p->dport;
}

/* Number of datagrams that are remembered of each source. The next one replaces the oldest of the same source. */
#define DATAGRAMS_PER_SOURCE 128
AB_MAP(fragment_order, BPF_MAP_TYPE_LRU_HASH, 8192, struct ab_early_key, struct ab_fragment_name, 0);

struct fragment_room {
	struct ab_fragment_key key;  /* of the packet's datagram */
	struct ab_early_key place;   /* place of the datagram among its source's */
	struct ab_fragment datagram; /* about to begin */
	struct ab_fragment_name name;
	struct ab_fragment_key oldest;
};
AB_SCRATCH(fragment_room, struct fragment_room)

static __always_inline int take_place(struct fragment_room *room)
{
	const struct ab_fragment_key *key = &room->key;
	struct ab_early_key *place = &room->place;
	place->src = key->src;
	place->place = 0;
	place->side = key->side;
	struct ab_early_source *source = early_source(place);
	if (!source)
		return 0;
	place->place = __sync_fetch_and_add(&source->begun, 1) % DATAGRAMS_PER_SOURCE;
	const struct ab_fragment_name *oldest = bpf_map_lookup_elem(&fragment_order, place);
	if (oldest) {
		room->oldest = *key;
		room->oldest.dst = oldest->dst;
		room->oldest.id = oldest->id;
		room->oldest.proto = oldest->proto;
		bpf_map_delete_elem(&fragments, &room->oldest);
	}
	room->name = (struct ab_fragment_name){ .dst = key->dst, .id = key->id, .proto = key->proto };
	return !bpf_map_update_elem(&fragment_order, place, &room->name, BPF_ANY);
}

/* Offset from the IP header to the part of the datagram that the packet has. */
static __always_inline __u32 fragment_at(const struct packet *p)
{
	return p->id_at ? p->id_at + sizeof(__be32) : p->l4 - p->l3;
}

/* Writes the ports and transport of its datagram, and its id on the link, to `p`. Returns 0, or the reason to drop. */
__noinline int learn_fragment(struct packet *p, __u32 side)
{
	struct fragment_room *room = fragment_room();
	if (!p || !room)
		return AB_REASON_MALFORMED;
	struct ab_fragment_key *key = &room->key;
	*key = (struct ab_fragment_key){
		.src = p->src, .dst = p->dst, .id = p->id, .proto = fragment_proto(p), .side = side
	};
	__u32 payload = p->length - fragment_at(p);
	__u32 start = p->fragment & IP_OFFSET_MASK, end = start + (payload + 7) / 8;
	struct ab_fragment *f = bpf_map_lookup_elem(&fragments, key);
	__u64 now = tick_ns();
	/* With other headers before it, datagrams of two protocols may have one key. */
	if (start == 0 && (!f || f->proto != p->proto || is_over(f, p, now))) {
		struct ab_fragment *fresh = &room->datagram;
		__builtin_memset(fresh, 0, sizeof(*fresh));
		fresh->sport = p->sport;
		fresh->dport = p->dport;
		fresh->proto = p->proto;
		fresh->new_id = side == AB_SIDE_LAN ? draw() : p->id;
		fresh->seen_ns = now;
		if (!f)
			take_place(room);
		bpf_map_update_elem(&fragments, key, fresh, BPF_ANY);
		f = bpf_map_lookup_elem(&fragments, key);
	}
	if (!f)
		return AB_REASON_FRAGMENT_ORPHAN;
	if (f->poisoned || (!(p->flags & PACKET_ACCOUNTED) && !add_span(f, start, end))) {
		f->poisoned = 1;
		return AB_REASON_FRAGMENT_OVERLAP;
	}
	if (!(p->fragment & IP_MORE_FRAGMENTS))
		f->total = end;
	p->sport = f->sport;
	p->dport = f->dport;
	p->proto = f->proto;
	p->new_id = f->new_id;
	return 0;
}

/* In the mark of a tail, above the length to remove before it: whether its span is recorded already, whether it is between LAN
 * hosts, and whether it is of a service. */
#define TAIL_ACCOUNTED 0x00010000u
#define TAIL_HAIRPINNED 0x00020000u
#define TAIL_SERVED 0x00040000u
/* bpf_skb_adjust_room allows 12 bits. */
#define HEAD_MAX 4088

/*
 * Whether a device still has to complete the transport checksum. The kernel's helper then does not change the field.
 * Only the head would be summed, so such a packet cannot be split.
 */
static __always_inline int is_sum_partial(struct __sk_buff *skb, const struct packet *p)
{
	__be16 before = 0, after = 0, one = bpf_htons(1);
	__u32 at = p->l4 + (p->proto == IPPROTO_TCP ? 16 : 6);
	if (is_fragment(p) || p->proto == IPPROTO_ICMP || bpf_skb_load_bytes(skb, at, &before, 2))
		return 0;
	if (bpf_l4_csum_replace(skb, at, 0, one, 2) || bpf_skb_load_bytes(skb, at, &after, 2) ||
	    bpf_l4_csum_replace(skb, at, one, 0, 2))
		return 1;
	return before == after;
}

/* Changes the packet's header to that of a piece of `length` bytes in all. */
static __always_inline int write_piece(struct __sk_buff *skb, const struct packet *p, __u32 length, __u32 fragment)
{
	struct iphdr ip;
	if (bpf_skb_load_bytes(skb, p->l3, &ip, sizeof(ip)))
		return -1;
	__u64 sum = (__u16)~ip.check;
	sum += (__u16)~ip.tot_len + (__u32)(__u16)~ip.frag_off;
	ip.tot_len = bpf_htons(length);
	ip.frag_off = bpf_htons(fragment);
	sum += (__u32)ip.tot_len + ip.frag_off;
	ip.check = ~fold_sum(sum);
	return bpf_skb_store_bytes(skb, p->l3, &ip, sizeof(ip), 0);
}

/* Reduces `p` to the head that fits `mtu`, and sends the tail back to the ingress, with these bits in its mark. Returns 0, or the
 * reason to refuse. */
__noinline int split_packet(struct __sk_buff *skb, struct packet *p, __u32 mtu, __u32 told)
{
	if (!p)
		return AB_REASON_MALFORMED;
	__u32 header = sizeof(struct iphdr), mark = skb->mark, whole = p->fragment;
	__u32 head = (mtu - header) & ~7u;
	if (mtu < header + 8 || skb->gso_size || p->l4 - p->l3 != header || is_sum_partial(skb, p))
		return AB_REASON_TOO_LONG_TO_FRAGMENT;
	if (head > HEAD_MAX)
		head = HEAD_MAX;
	told |= is_fragment(p) ? TAIL_ACCOUNTED : 0;
	mark_sent_back(skb, AB_TAIL_MARK | told | head);
	if (write_piece(skb, p, p->length - head, whole + head / 8) ||
	    bpf_clone_redirect(skb, skb->ifindex, BPF_F_INGRESS))
		return AB_REASON_REWRITE_FAILED;
	skb->mark = mark;
	p->length = header + head;
	p->fragment = whole | IP_MORE_FRAGMENTS;
	if (write_piece(skb, p, p->length, p->fragment) || bpf_skb_change_tail(skb, p->l3 + p->length, 0))
		return AB_REASON_REWRITE_FAILED;
	return 0;
}

static __always_inline int is_tail(const struct __sk_buff *skb)
{
	return (skb->mark & AB_MARK_KIND) == AB_TAIL_MARK;
}

/* Removes the head from a tail that was sent back. If the packet is not longer by exactly that, another program has set the mark.
 * Returns whether its span is recorded already, or a negative error. */
__noinline int cut_tail(struct __sk_buff *skb, __u32 l3)
{
	__be16 length = 0;
	__u32 mark = skb->mark, head = mark & 0xffff;
	if (bpf_skb_load_bytes(skb, l3 + offsetof(struct iphdr, tot_len), &length, 2) ||
	    skb->len != l3 + bpf_ntohs(length) + head)
		return 0;
	skb->mark = mark & TAIL_HAIRPINNED ? AB_HAIRPIN_MARK : 0;
	if (bpf_skb_adjust_room(skb, -(__s32)head, BPF_ADJ_ROOM_NET, 0))
		return -1;
	return (mark & TAIL_ACCOUNTED) / TAIL_ACCOUNTED;
}

#endif
