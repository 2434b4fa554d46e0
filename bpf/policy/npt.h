/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * IPv6-to-IPv6 network prefix translation (RFC 6296): the prefix changes, and one word of what is behind it by as much as leaves
 * the sum of the address as it was. So no checksum of any transport changes, and no port.
 */
#ifndef ANABRANCH_POLICY_NPT_H
#define ANABRANCH_POLICY_NPT_H

#include "../include/anabranch.h"
#include "inline.h"

#define AB_NPT_WORDS 8

static __always_inline __u32 ab_word_at(const union ab_addr *addr, __u32 i)
{
	return (__u32)addr->byte[2 * i] << 8 | addr->byte[2 * i + 1];
}

/* In one's complement, unfolded. */
static __always_inline __u32 ab_addr_words(const union ab_addr *addr)
{
	__u32 sum = 0;

	for (__u32 i = 0; i < AB_NPT_WORDS; i++)
		sum += ab_word_at(addr, i);
	return sum;
}

static __always_inline __u32 ab_fold_words(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

/* The word that makes up for the change: of prefixes up to 48 bits that of the subnet (section 3.4), of longer ones the first of
 * the interface's that is not all ones (section 3.5). AB_NPT_WORDS: there is none. */
static __always_inline __u32 ab_npt_word(const union ab_addr *addr, __u32 prefix_len)
{
	__u32 first = prefix_len > 48 ? 4 : 3, end = prefix_len > 48 ? AB_NPT_WORDS : 4;
	__u32 found = AB_NPT_WORDS;

	for (__u32 i = 3; i < AB_NPT_WORDS; i++)
		if (found == AB_NPT_WORDS && i >= first && i < end && ab_word_at(addr, i) != 0xffff)
			found = i;
	return found;
}

/* `addr` with the first `prefix_len` bits of `prefix`, 1 to 64. Whether there is such an address: not of one whose word is all ones
 * (section 3.6). */
AB_GLOBAL int ab_npt(union ab_addr *addr, const union ab_addr *prefix, __u32 prefix_len)
{
	__u32 word, before, value;

	if (!addr || !prefix || !prefix_len || prefix_len > 64)
		return 0;
	word = ab_npt_word(addr, prefix_len);
	if (word >= AB_NPT_WORDS)
		return 0;
	before = ab_addr_words(addr);
	for (__u32 i = 0; i < 8; i++) {
		__u32 bits = prefix_len > 8 * i ? prefix_len - 8 * i : 0;
		__u32 mask = bits >= 8 ? 0xff : 0xff00 >> bits & 0xff;

		addr->byte[i] = (addr->byte[i] & ~mask) | (prefix->byte[i] & mask);
	}
	/* As much less as the rest has become more, and 0 for all ones (section 3.6). */
	value = ab_fold_words(ab_word_at(addr, word) + ab_fold_words(before) +
			      (0xffff - ab_fold_words(ab_addr_words(addr))));
	value = value == 0xffff ? 0 : value;
	addr->byte[2 * word & 15] = value >> 8;
	addr->byte[(2 * word + 1) & 15] = value & 0xff;
	return 1;
}

#endif
