/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Conversion from network to host byte order, for BPF programs and user space. */
#ifndef ANABRANCH_POLICY_ORDER_H
#define ANABRANCH_POLICY_ORDER_H

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define AB_HOST16(x) __builtin_bswap16(x)
#define AB_HOST32(x) __builtin_bswap32(x)
#else
#define AB_HOST16(x) (x)
#define AB_HOST32(x) (x)
#endif

#endif
