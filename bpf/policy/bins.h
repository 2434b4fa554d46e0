/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The sublink of a packet: how a trunk distributes packets over parallel lines. Written once for BPF programs and user space, like
 * choose.h.
 *
 * By hash: the flow's hash modulo the number of sublinks (SH of Jo 2002). By bin: the hash selects a bin, and a
 * table that user space maintains gives the bin a sublink (DH, DHFV). By rendezvous: each sublink draws a score for the
 * flow, and the best one wins; if a sublink fails, only its own flows move. By flowlet: a new choice is made
 * whenever a bin has paused for so long that all packets sent before have arrived.
 *
 * Bit i of `usable` is set if sublink i may take packets.
 */
#ifndef ANABRANCH_POLICY_BINS_H
#define ANABRANCH_POLICY_BINS_H

#include "../include/bins.h"
#include "set.h"

static __always_inline __u64 ab_usable_sublinks(__u64 usable)
{
	return usable & ((1u << AB_MAX_LINKS) - 1);
}

static __always_inline int ab_is_usable_sublink(__u64 usable, __u32 sublink)
{
	return sublink < AB_MAX_LINKS && usable >> sublink & 1;
}

/* SH (Jo 2002, section II.A.1): hash modulo the number of usable sublinks. */
static __always_inline __u16 ab_sublink_by_hash(__u32 hash, __u64 usable)
{
	__u64 pool = ab_usable_sublinks(usable);

	if (!pool)
		return AB_NO_TARGET;
	return ab_nth_bit(pool, hash % ab_count_bits(pool));
}

/* The sublinks of `s` that take packets, as bits. */
static __always_inline __u64 ab_usable_of(const struct ab_sublinks *s)
{
	return ab_usable_sublinks(s->usable) & ab_first_bits(s->count);
}

static __always_inline __u32 ab_bin(__u32 hash)
{
	return hash % AB_BINS;
}

/* DH and DHFV: `table` has AB_BINS sublinks. If the sublink of a bin is not usable, its flows are distributed by hash meanwhile. */
static __always_inline __u16 ab_sublink_by_bin(const __u16 *table, __u32 hash, __u64 usable)
{
	__u32 sublink = table[ab_bin(hash)];

	if (ab_is_usable_sublink(usable, sublink))
		return sublink;
	return ab_sublink_by_hash(hash, usable);
}

/* The finalizer of SplitMix64 (Steele, Lea, Flood 2014): a bijection without visible structure. */
static __always_inline __u64 ab_mix(__u64 z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

/* log2(1 + i/128) in units of 2^-31, rounded. */
static const __u32 ab_log2[129] = {
	0x00000000, 0x016fe50b, 0x02dcf2d1, 0x04473475, 0x05aeb4dd, 0x07137eae, 0x08759c50, 0x09d517ef, 0x0b31fb7d,
	0x0c8c50b7, 0x0de42120, 0x0f397609, 0x108c588d, 0x11dcd197, 0x132ae9e2, 0x1476a9fa, 0x15c01a3a, 0x170742d5,
	0x184c2bd0, 0x198edd07, 0x1acf5e2e, 0x1c0db6ce, 0x1d49ee4c, 0x1e840be7, 0x1fbc16b9, 0x20f215b7, 0x22260fb6,
	0x23580b65, 0x24880f56, 0x25b621f9, 0x26e2499d, 0x280c8c76, 0x2934f098, 0x2a5b7bf9, 0x2b803474, 0x2ca31fc9,
	0x2dc4439b, 0x2ee3a575, 0x30014ac6, 0x311d38e6, 0x32377512, 0x33500472, 0x3466ec15, 0x357c30f3, 0x368fd7ee,
	0x37a1e5d4, 0x38b25f5a, 0x39c14924, 0x3acea7c0, 0x3bda7fa9, 0x3ce4d544, 0x3dedace6, 0x3ef50ad2, 0x3ffaf335,
	0x40ff6a2e, 0x420273ca, 0x43041403, 0x44044ec5, 0x450327eb, 0x4600a33e, 0x46fcc47a, 0x47f78f4c, 0x48f10751,
	0x49e93016, 0x4ae00d1d, 0x4bd5a1d8, 0x4cc9f1ab, 0x4dbcffee, 0x4eaecfeb, 0x4f9f64de, 0x508ec1fa, 0x517cea63,
	0x5269e12f, 0x5355a96d, 0x5440461c, 0x5529ba33, 0x5612089a, 0x56f93433, 0x57df3fd0, 0x58c42e3d, 0x59a80239,
	0x5a8abe79, 0x5b6c65aa, 0x5c4cfa6c, 0x5d2c7f59, 0x5e0af6ff, 0x5ee863e5, 0x5fc4c886, 0x60a02757, 0x617a82c3,
	0x6253dd2c, 0x632c38ed, 0x64039858, 0x64d9fdb7, 0x65af6b4b, 0x6683e34f, 0x675767f5, 0x6829fb69, 0x68fb9fce,
	0x69cc5741, 0x6a9c23d6, 0x6b6b079c, 0x6c39049b, 0x6d061cd3, 0x6dd2523d, 0x6e9da6ce, 0x6f681c73, 0x7031b512,
	0x70fa728c, 0x71c256ba, 0x72896373, 0x734f9a83, 0x7414fdb5, 0x74d98eca, 0x759d4f81, 0x76604191, 0x772266ad,
	0x77e3c082, 0x78a450b8, 0x796418f2, 0x7a231ace, 0x7ae157e3, 0x7b9ed1c7, 0x7c5b8a07, 0x7d17822f, 0x7dd2bbc4,
	0x7e8d3846, 0x7f46f932, 0x80000000,
};

/*
 * -log2 of the uniform number (draw + 1/2) / 2^32, in units of 2^-36: between 12 and 33 << 36. Exact at the knots of
 * the table, and between them on the chord: at most 2^-16 too great, and by 0.2 % where it is near zero.
 *
 * 2 draw + 1 has 33 bits; shifted until bit 32 is set it is a mantissa between 1 and 2.
 */
static __always_inline __u64 ab_neg_log2(__u32 draw)
{
	__u64 mantissa = 2 * (__u64)draw + 1, shifted = 0, knot, chord;

	for (__u32 step = 32; step; step >>= 1) {
		__u64 shift = step * ab_is_less(mantissa, 1ull << (33 - step));

		mantissa <<= shift;
		shifted += shift;
	}
	knot = mantissa >> 25 & 127;
	chord = ab_log2[knot + 1] - ab_log2[knot];
	return ((shifted + 1) << 36) - ((((__u64)ab_log2[knot] << 25) + chord * (mantissa & 0x1ffffff)) >> 20);
}

/*
 * Rendezvous (highest random weight) hashing with weights: argmin -ln(u) / weight, where u is uniform and drawn from the flow's
 * hash and the sublink. -ln(u) / weight is exponential with rate `weight`, so a sublink has the least value with probability weight
 * / sum of weights, and no draw depends on the other sublinks (Schindelhauer, Schomaker 2005, "Weighted distributed hash tables",
 * logarithmic method). The logarithm by table follows straw2 of Ceph and of the kernel (net/ceph/crush/mapper.c). Its base does not
 * matter. Instead of dividing, both sides are multiplied; the products are below 33 << 36 times AB_WEIGHT_MAX < 2^61. Ties go to
 * the lower index.
 */
static __always_inline __u16 ab_sublink_by_rendezvous(const struct ab_sublinks *s, __u32 hash)
{
	__u64 best = AB_NO_TARGET, best_score = 1, best_weight = 0; /* score / weight of no target: infinite */
	__u64 pool = ab_usable_of(s);

	for (__u32 i = 0; i < AB_MAX_LINKS; i++) {
		__u64 weight = ab_clamp_weight(s->weight[i]) * (pool >> i & 1);
		__u64 score = ab_neg_log2(ab_mix((__u64)hash << 32 | (i + 1)) >> 32);
		__u64 better = ab_is_less(score * best_weight, best_score * weight);

		best = ab_select(better, i, best);
		best_score = ab_select(better, score, best_score);
		best_weight = ab_select(better, weight, best_weight);
	}
	return best;
}

/*
 * Whether the flowlet continues with this packet: the gap since the last packet is at most `gap_ns`. After a gap
 * longer than the greatest difference between the delays of two sublinks, the packet may take any of them without overtaking
 * the last one (Sinha, Kandula, Katabi 2004, "Harnessing TCP's burstiness with flowlet switching"; FLARE 2007). If the last
 * packet seems to be in the future, another CPU has just sent it.
 */
static __always_inline int ab_flowlet_lasts(const struct ab_flowlet *f, __u64 usable, __u64 now_ns, __u64 gap_ns)
{
	__u64 pause_ns = now_ns > f->seen_ns ? now_ns - f->seen_ns : 0;

	return f->begun && ab_is_usable_sublink(usable, f->sublink) && pause_ns <= gap_ns;
}

/* Records a packet of the flowlet over `sublink`: that of the flowlet if it continues, otherwise a new choice. */
static __always_inline void ab_flowlet_send(struct ab_flowlet *f, __u16 sublink, __u64 now_ns)
{
	if (now_ns > f->seen_ns)
		f->seen_ns = now_ns;
	f->sublink = sublink;
	f->begun = 1;
}

#endif
