/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Hashes of a flow.
 *
 * The flow hash: CRC-32 (IEEE 802.3, reflected) of source address, destination address, source port, destination
 * port as they stand in the headers: 96 bits for IPv4, 288 for IPv6. Nibble by nibble, so that the table is one
 * cache line.
 *
 * The flow sum: the same four as numbers, added modulo 2^32 (Guo 2004, section IV.B.2). Of an IPv6 address, its four words.
 */
#ifndef ANABRANCH_POLICY_HASH_H
#define ANABRANCH_POLICY_HASH_H

#include "../include/anabranch.h"
#include "family.h"
#include "inline.h"

static const __u32 ab_crc32_nibble[16] = {
	0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
	0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
};

static __always_inline __u32 ab_crc32_byte(__u32 crc, __u8 byte)
{
	crc ^= byte;
	crc = crc >> 4 ^ ab_crc32_nibble[crc & 15];
	return crc >> 4 ^ ab_crc32_nibble[crc & 15];
}

/* `length` is a constant at every call. */
static __always_inline __u32 ab_crc32_bytes(__u32 crc, const __u8 *bytes, __u32 length)
{
	for (__u32 i = 0; i < length; i++)
		crc = ab_crc32_byte(crc, bytes[i]);
	return crc;
}

static __always_inline __u32 ab_flow_hash(const union ab_addr *src, const union ab_addr *dst, __be16 sport,
					  __be16 dport)
{
	__u32 crc = 0xffffffff;

	if (ab_is_v4_mapped(src) && ab_is_v4_mapped(dst)) {
		crc = ab_crc32_bytes(crc, src->byte + 12, 4);
		crc = ab_crc32_bytes(crc, dst->byte + 12, 4);
	} else {
		crc = ab_crc32_bytes(crc, src->byte, 16);
		crc = ab_crc32_bytes(crc, dst->byte, 16);
	}
	crc = ab_crc32_bytes(crc, (const __u8 *)&sport, 2);
	crc = ab_crc32_bytes(crc, (const __u8 *)&dport, 2);
	return ~crc;
}

/* The number that `length` bytes in network order are, modulo 2^32. */
static __always_inline __u32 ab_number(const __u8 *bytes, __u32 length)
{
	__u32 number = 0;

	for (__u32 i = 0; i < length; i++)
		number = number << 8 | bytes[i];
	return number;
}

static __always_inline __u32 ab_addr_sum(const union ab_addr *addr)
{
	__u32 sum = 0;

	for (__u32 i = ab_is_v4_mapped(addr) ? 12 : 0; i < 16; i += 4)
		sum += ab_number(addr->byte + i, 4);
	return sum;
}

static __always_inline __u32 ab_flow_sum(const union ab_addr *src, const union ab_addr *dst, __be16 sport, __be16 dport)
{
	return ab_addr_sum(src) + ab_addr_sum(dst) + ab_number((const __u8 *)&sport, 2) +
	       ab_number((const __u8 *)&dport, 2);
}

#endif
