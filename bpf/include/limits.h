/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Sizes both sides of the contract agree on. */
#ifndef ANABRANCH_LIMITS_H
#define ANABRANCH_LIMITS_H

/* Links of a gateway, sublinks of a trunk. */
#define AB_MAX_LINKS 16
/* Address families. What is told of a link, of its traffic, and of a choice is told of each: one may work without the other. */
#define AB_FAMILIES 2
/* Targets of one choice. */
#define AB_MAX_TARGETS 256
/* Weights are dimensionless 32-bit integers so that load * weight fits 64 bits. */
#define AB_WEIGHT_MAX 1000000u
#define AB_WEIGHT_MIN 1u
/* Prefixes that are known better than "the internet": a full table of both families. */
#define AB_ROUTES_MAX 1310720
/* Of the routers that they are behind, with a place for none. */
#define AB_NEXT_HOPS_MAX 4096

#endif
