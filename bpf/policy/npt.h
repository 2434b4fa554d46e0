/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * IPv6-to-IPv6 network prefix translation (RFC 6296): the prefix is replaced, and one word after it is adjusted so that
 * the sum of the address does not change. So no transport checksum changes, and no port.
 */
#ifndef ANABRANCH_POLICY_NPT_H
#define ANABRANCH_POLICY_NPT_H

#include "../include/anabranch.h"
#include "inline.h"
#include "set.h"

#define AB_NPT_WORDS 8

static __always_inline __u32 ab_word_at(const union ab_addr *addr, __u32 i)
{
	return (__u32)addr->byte[2 * i & 15] << 8 | addr->byte[(2 * i + 1) & 15];
}

/* The sum of the address's words in one's complement, unfolded. */
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

/* The word that is adjusted: for prefixes up to 48 bits that of the subnet (section 3.4), for longer ones the first word of
 * the interface identifier that is not all ones (section 3.5). AB_NPT_WORDS: there is none. */
static __always_inline __u64 ab_npt_word(const union ab_addr *addr, __u32 prefix_len)
{
	__u64 is_subnet = ab_is_less(prefix_len, 49), found = AB_NPT_WORDS;

	for (__u32 i = AB_NPT_WORDS - 1; i >= 3; i--) {
		__u64 may_be = i == 3 ? is_subnet : 1 - is_subnet;

		found = ab_select(may_be & ab_is_less(ab_word_at(addr, i), 0xffff), i, found);
	}
	return found;
}

/* The first 64 bits, the network. */
static __always_inline __u64 ab_network_bits(const union ab_addr *addr)
{
	__u64 bits = 0;

	for (__u32 i = 0; i < 8; i++)
		bits = bits << 8 | addr->byte[i];
	return bits;
}

/* Replaces the first `prefix_len` bits, 1 to 64, of `addr` by those of `prefix`. Returns whether that is possible: not if the word
 * to be adjusted is all ones (section 3.6). No branch per word or length: see set.h. */
AB_GLOBAL int ab_npt(union ab_addr *addr, const union ab_addr *prefix, __u32 prefix_len)
{
	__u64 word, mask, bits;
	__u32 before, value;

	if (!addr || !prefix || !prefix_len || prefix_len > 64)
		return 0;
	word = ab_npt_word(addr, prefix_len);
	if (word >= AB_NPT_WORDS)
		return 0;
	before = ab_addr_words(addr);
	mask = ~0ull << ((64 - prefix_len) & 63);
	bits = (ab_network_bits(addr) & ~mask) | (ab_network_bits(prefix) & mask);
	for (__u32 i = 0; i < 8; i++)
		addr->byte[i] = bits >> (56 - 8 * i);
	/* Less by as much as the rest has become more; 0 in place of all ones (section 3.6). */
	value = ab_fold_words(ab_word_at(addr, word) + ab_fold_words(before) +
			      (0xffff - ab_fold_words(ab_addr_words(addr))));
	value *= ab_is_less(value, 0xffff);
	addr->byte[2 * word & 15] = value >> 8;
	addr->byte[(2 * word + 1) & 15] = value & 0xff;
	return 1;
}

#endif
