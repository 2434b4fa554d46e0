/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sizes that the programs and user space share. */
#ifndef ANABRANCH_LIMITS_H
#define ANABRANCH_LIMITS_H

/* Maximum number of links of a gateway, and of sublinks of a trunk. */
#define AB_MAX_LINKS 16
/* Address families. Links, traffic and choices have separate data for each, because one family may work without the other. */
#define AB_FAMILIES 2
/* Maximum number of targets of one choice. */
#define AB_MAX_TARGETS 256
/* Weights are dimensionless 32-bit integers so that load * weight fits 64 bits. */
#define AB_WEIGHT_MAX 1000000u
#define AB_WEIGHT_MIN 1u
/* Maximum number of routes that are more specific than "the internet": a full table of both families. */
#define AB_ROUTES_MAX 1310720
/* Maximum number of their next hops, plus one place for none. */
#define AB_NEXT_HOPS_MAX 4096

#endif
