/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * How a segment changes the state of a TCP flow of the gateway (enum ab_state). Sequence numbers are compared by the caller:
 * the programs compare those of TCP, the simulator its own.
 *
 * A flow is confirmed once its handshake has gone both ways (RFC 9293 section 3.5): the remote end has answered the SYN, and the
 * LAN host has sent another segment. It is over when both ends have sent FIN, or one has reset it; it is not confirmed after that.
 */
#ifndef ANABRANCH_POLICY_TCP_H
#define ANABRANCH_POLICY_TCP_H

#include "../include/anabranch.h"
#include "segment.h"

/* A flow with one of these bits is confirmed already, or never will be. */
#define AB_STATE_SETTLED (AB_STATE_CONFIRMED | AB_STATE_CLOSED | AB_STATE_LEAVING)

static __always_inline int ab_may_confirm(__u32 state)
{
	return !(state & AB_STATE_SETTLED);
}

/* Whether a segment of the LAN host shows that the handshake has gone both ways. */
static __always_inline int ab_completes_handshake(__u32 state, __u8 flags)
{
	return state & AB_STATE_REPLIED && !ab_is_first_syn(flags);
}

/*
 * Whether a segment of the LAN host is its RST to a SYN proxy or to an earlier connection (ab_hear): it has the number that was
 * acknowledged, which is not one of this flow, and says nothing about this flow. Without NAT, the segment that it answers has
 * answered the flow.
 */
static __always_inline int ab_answers_challenge(__u32 state, __u8 flags, int is_of_flow)
{
	return flags & AB_TCP_RST && !(state & (AB_STATE_REPLIED | AB_STATE_ROUTED)) && !is_of_flow;
}

/* Whether both ends have sent FIN. */
static __always_inline int ab_is_finished(__u32 state)
{
	__u32 both = AB_STATE_FIN_LOCAL | AB_STATE_FIN_REMOTE;

	return (state & both) == both;
}

/* A segment of the remote end, over a link with NAT. */
struct ab_segment {
	__u32 length;	  /* numbers it occupies */
	__u8 flags;	  /* AB_TCP_... */
	__u8 acks_syn;	  /* it acknowledges what the LAN host's SYN occupies, or what was sent since */
	__u8 follows_syn; /* its number is the next after that of a SYN without an ACK */
	__u8 zero;
};

/* What such a segment means for a flow whose handshake is not known to have gone both ways. */
enum ab_hearing {
	AB_HEARING_NOTHING = 0,
	AB_HEARING_SYN = 1,	/* a SYN without an ACK: the remote end begins, too */
	AB_HEARING_GUARD = 2,	/* a SYN/ACK that acknowledges another number */
	AB_HEARING_EARLIER = 3, /* a bare ACK with the numbers of an earlier connection */
	AB_HEARING_ANSWER = 4,	/* to the SYN */
	AB_HEARING_LATE = 5,	/* the same, to a flow that has ended before */
	AB_HEARING_MORE = 6,	/* it follows the answer */
};

/*
 * `state` is that of the flow, `of_try` that of the try whose link brought the segment.
 *
 * A SYN proxy in front of the remote end may answer the SYN of an unknown client by a SYN/ACK that acknowledges another number
 * ("safe reset"). The host resets that (RFC 9293 section 3.10.7.3), which proves that it exists, and the proxy lets its next SYN
 * pass. A remote end that still has an earlier connection with the same ends, in TIME-WAIT or half open, answers by a bare ACK with
 * the numbers of that one (section 3.10.7.4). The host, which waits for another answer, resets that connection (section 3.10.7.3),
 * and its next SYN is accepted. Whoever forges either only causes a RST to the remote end, which they could send themselves.
 */
static __always_inline enum ab_hearing ab_hear(__u32 state, __u32 of_try, const struct ab_segment *segment)
{
	__u32 ended_or_answered = state & (AB_STATE_REPLIED | AB_STATE_CLOSED), is_syn = segment->flags & AB_TCP_SYN;

	if (ab_is_first_syn(segment->flags))
		return AB_HEARING_SYN;
	if (!segment->acks_syn) {
		if (ended_or_answered || segment->length > 1)
			return AB_HEARING_NOTHING;
		if (!segment->length)
			return AB_HEARING_EARLIER;
		return is_syn ? AB_HEARING_GUARD : AB_HEARING_NOTHING;
	}
	if (is_syn || segment->follows_syn)
		return ended_or_answered == AB_STATE_CLOSED ? AB_HEARING_LATE : AB_HEARING_ANSWER;
	return of_try & AB_STATE_REPLIED ? AB_HEARING_MORE : AB_HEARING_NOTHING;
}

/* How long the flow may be without a packet. `is_pressed`: the table has no room for flows that are over. */
static __always_inline __u64 ab_tcp_timer_ns(const struct ab_settings *set, __u32 state, int is_pressed)
{
	if (state & AB_STATE_CLOSED && is_pressed)
		return AB_PRESSED_CLOSED_NS;
	if (!(state & AB_STATE_CONFIRMED))
		return set->unconfirmed_ns;
	return state & AB_STATE_CLOSED ? set->tcp_transitory_ns : set->tcp_established_ns;
}

/* Whether it ends with its link. An attempt does not, because its next SYN chooses again. */
static __always_inline int ab_ends_with_link(__u32 state)
{
	return (state & (AB_STATE_CONFIRMED | AB_STATE_ROUTED)) != 0;
}

/* Whether its host is notified of that. Without NAT it is not, because the connection continues over another link. */
static __always_inline int ab_is_told_of_end(__u32 state)
{
	return !(state & (AB_STATE_CLOSED | AB_STATE_ROUTED));
}

#endif
