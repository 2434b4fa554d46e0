/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The trace of a flow: a hash of its key in the upper half of its LAN entry's state. As soon as an entry is deleted, another CPU
 * may reuse its memory for another flow. Code that found the entry before detects that by the trace, even in the atomic operation
 * that sets a bit.
 */
#ifndef ANABRANCH_POLICY_TRACE_H
#define ANABRANCH_POLICY_TRACE_H

#include "../include/anabranch.h"
#include "inline.h"

#define AB_STATE_TRACE 0xffff0000u
/* Set in every trace, so that none is 0. */
#define AB_STATE_TRACED 0x10000u
#define AB_TRACE_SPREAD 2654435761u

static __always_inline __u32 ab_trace(const struct ab_flow_key *lan_key)
{
	const __u32 *local = lan_key->local.word, *remote = lan_key->remote.word;
	__u32 hosts = (local[0] ^ local[1] ^ local[2] ^ local[3]) - (remote[0] ^ remote[1] ^ remote[2] ^ remote[3]);
	__u32 ports = (__u32)lan_key->local_port << 16 ^ lan_key->remote_port ^ (__u32)lan_key->proto << 8;
	return ((hosts * AB_TRACE_SPREAD ^ ports) * AB_TRACE_SPREAD & AB_STATE_TRACE) | AB_STATE_TRACED;
}

#endif
