/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Hashes of clients by a secret: SipHash-1-3 (Aumasson and Bernstein 2012), as the kernel hashes its sockets. Who does not know
 * the secret cannot choose addresses or ports that all lead to one server. Balancers with the same secret map alike.
 */
#ifndef ANABRANCH_POLICY_KEYED_H
#define ANABRANCH_POLICY_KEYED_H

#include "../include/service.h"
#include "inline.h"

struct ab_sip {
	__u64 v0, v1, v2, v3;
};

static __always_inline __u64 ab_rotate(__u64 word, __u32 bits)
{
	return word << bits | word >> (64 - bits);
}

static __always_inline void ab_sip_round(struct ab_sip *s)
{
	s->v0 += s->v1;
	s->v1 = ab_rotate(s->v1, 13) ^ s->v0;
	s->v0 = ab_rotate(s->v0, 32);
	s->v2 += s->v3;
	s->v3 = ab_rotate(s->v3, 16) ^ s->v2;
	s->v0 += s->v3;
	s->v3 = ab_rotate(s->v3, 21) ^ s->v0;
	s->v2 += s->v1;
	s->v1 = ab_rotate(s->v1, 17) ^ s->v2;
	s->v2 = ab_rotate(s->v2, 32);
}

static __always_inline void ab_sip_word(struct ab_sip *s, __u64 word)
{
	s->v3 ^= word;
	ab_sip_round(s);
	s->v0 ^= word;
}

/* The hash of AB_KEYED_WORDS words of eight bytes in little endian. */
static __always_inline __u64 ab_keyed(const struct ab_secret *secret, const __u64 *words)
{
	__u64 k0 = secret->word[0], k1 = secret->word[1];
	struct ab_sip s = {
		k0 ^ 0x736f6d6570736575ull,
		k1 ^ 0x646f72616e646f6dull,
		k0 ^ 0x6c7967656e657261ull,
		k1 ^ 0x7465646279746573ull,
	};

	for (__u32 i = 0; i < AB_KEYED_WORDS; i++)
		ab_sip_word(&s, words[i]);
	ab_sip_word(&s, (__u64)(8 * AB_KEYED_WORDS) << 56);
	s.v2 ^= 0xff;
	for (__u32 i = 0; i < 3; i++)
		ab_sip_round(&s);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

/*
 * ab_request.hash of a client's connection, where ab_goes_by_hash(): of all that names it, or of the client's address alone where
 * the choice is one for all its connections.
 */
static __always_inline __u32 ab_client_hash(const struct ab_choice *now, const struct ab_secret *secret,
					    const union ab_addr *client, const union ab_addr *service,
					    __be16 client_port, __be16 service_port)
{
	__u64 words[AB_KEYED_WORDS] = { 0 };

	__builtin_memcpy(words, client, sizeof(*client));
	if (now->granularity != AB_PER_HOST) {
		__builtin_memcpy(words + 2, service, sizeof(*service));
		words[4] = (__u64)client_port << 16 | service_port;
	}
	return ab_keyed(secret, words) >> 32;
}

#endif
