/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * How a packet changes the state of a connection (RFC 9293). A connection is over when both ends have sent FIN, or one has reset
 * it. Its entries are then kept for packets that are still under way. A first SYN replaces them, because the client uses the port
 * again. Those of UDP end by time alone.
 */
#ifndef ANABRANCH_POLICY_CONNECTION_H
#define ANABRANCH_POLICY_CONNECTION_H

#include <linux/in.h>

#include "../include/service.h"
#include "segment.h"

/* The bits that a segment with `flags` adds to `state`. */
static __always_inline __u32 ab_connection_learn(__u32 state, int by_server, __u8 flags)
{
	__u32 both = AB_CONNECTION_FIN_CLIENT | AB_CONNECTION_FIN_SERVER, learned = 0;

	if (flags & AB_TCP_RST)
		return AB_CONNECTION_CLOSED & ~state;
	if (by_server && (flags & (AB_TCP_SYN | AB_TCP_ACK)) == (AB_TCP_SYN | AB_TCP_ACK))
		learned |= AB_CONNECTION_ANSWERED;
	if (!by_server && flags & AB_TCP_ACK && state & AB_CONNECTION_ANSWERED)
		learned |= AB_CONNECTION_ESTABLISHED;
	if (flags & AB_TCP_FIN)
		learned |= by_server ? AB_CONNECTION_FIN_SERVER : AB_CONNECTION_FIN_CLIENT;
	if (((state | learned) & both) == both)
		learned |= AB_CONNECTION_CLOSED;
	return learned & ~state;
}

/* The client's segments of a direct connection are believed this far from those before. */
#define AB_DIRECT_WINDOW (1 << 16)

/* Whether a segment of the client's is its own, by a number that others do not know; `reached` is that of its next. */
static __always_inline int ab_connection_is_near(__u32 number, __u32 reached)
{
	return number - reached + AB_DIRECT_WINDOW <= 2 * AB_DIRECT_WINDOW;
}

/*
 * The bits that a client's own segment adds where those of the server are not seen. The client goes on only after an answer. Its FIN
 * ends the connection, as far as it is counted: what the server still sends is acknowledged, which keeps the entry.
 */
static __always_inline __u32 ab_connection_learn_direct(__u32 state, __u8 flags)
{
	if (flags & AB_TCP_SYN)
		return 0;
	if (flags & (AB_TCP_FIN | AB_TCP_RST))
		return AB_CONNECTION_CLOSED & ~state;
	return (AB_CONNECTION_ANSWERED | AB_CONNECTION_ESTABLISHED) & ~state;
}

/* The bits that a datagram of UDP adds to `state`. */
static __always_inline __u32 ab_connection_learn_udp(__u32 state, int by_server)
{
	__u32 learned = by_server ? AB_CONNECTION_ANSWERED : 0;

	if (!by_server && state & AB_CONNECTION_ANSWERED)
		learned = AB_CONNECTION_ESTABLISHED;
	return learned & ~state;
}

/* Whether a server's segment refuses a SYN: a RST to anything else, as a late ACK, acknowledges nothing (RFC 9293 section 3.10.7.1). */
static __always_inline int ab_connection_is_refused(__u32 state, __u8 flags)
{
	__u8 refusal = AB_TCP_RST | AB_TCP_ACK;

	return (flags & refusal) == refusal && !(state & (AB_CONNECTION_ANSWERED | AB_CONNECTION_CLOSED));
}

/* A client may have sent so many bytes beyond what its server has acknowledged, as far as the numbers of its RSTs go. */
#define AB_RESET_WINDOW (1 << 16)

/*
 * Whether a client's RST with this number is one of its own. Anybody can send one with a client's address; an endpoint takes just
 * the number that it expects next (RFC 5961 section 3.2), which is `acked`, the last that the server has acknowledged, or a few
 * bytes further: those may be on the way.
 */
static __always_inline int ab_connection_is_reset(__u32 state, __u32 number, __u32 acked)
{
	return !(state & AB_CONNECTION_ANSWERED) || number - acked < AB_RESET_WINDOW;
}

/* The first acknowledgement of a client that hears its server is this far behind what that has sent at most. */
#define AB_CONFIRM_WINDOW (1 << 16)

/*
 * Whether a segment that acknowledges up to this number establishes its connection: its sender has heard the server, which has
 * `reached` this number. Without that a flood of SYNs with forged addresses, each with an ACK behind, would establish them all.
 */
static __always_inline int ab_connection_is_confirmed(__u32 state, __u32 number, __u32 reached)
{
	return state & AB_CONNECTION_ESTABLISHED || reached - number < AB_CONFIRM_WINDOW;
}

/*
 * Whether a segment is the first SYN of a connection that replaces this one: this one is over, or its server has failed, or has not
 * answered and takes no new connections any more, so that another one has to be chosen. A server that failed has perhaps ended the
 * connection by a RST that was not seen here, and the client has taken its port for another.
 */
static __always_inline int ab_connection_gives_way(__u32 state, __u8 flags, int server_takes_new, int server_failed)
{
	if (!ab_is_first_syn(flags))
		return 0;
	return state & AB_CONNECTION_CLOSED || server_failed || !(state & AB_CONNECTION_ANSWERED || server_takes_new);
}

/* Whether it may have to make room: it was never established, or it is over. */
static __always_inline int ab_connection_is_passing(__u32 state)
{
	return !(state & AB_CONNECTION_ESTABLISHED) || state & AB_CONNECTION_CLOSED;
}

/* How long it may be without a packet. */
static __always_inline __u64 ab_connection_timer_ns(__u8 proto, __u32 state)
{
	if (proto == IPPROTO_UDP)
		return state & AB_CONNECTION_ESTABLISHED ? AB_CONNECTION_UDP_IDLE_NS : AB_CONNECTION_UDP_UNCONFIRMED_NS;
	if (state & AB_CONNECTION_CLOSED)
		return AB_CONNECTION_CLOSED_NS;
	return state & AB_CONNECTION_ESTABLISHED ? AB_CONNECTION_IDLE_NS : AB_CONNECTION_UNCONFIRMED_NS;
}

#endif
