/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Follows TCP connections: enough to tell a handshake from a flood, an end from an attack, and progress from
 * noise. Sequence numbers compare modulo 2^32 (RFC 9293 section 3.4).
 */
#ifndef ANABRANCH_TCP_H
#define ANABRANCH_TCP_H

#include "flow.h"
#include "held.h"
#include "paths.h"

/* A RST or FIN this far from what the LAN host expects may still be genuine: the host itself decides (RFC 5961). */
#define TCP_PLAUSIBLE_WINDOW (1u << 20)

static __always_inline int is_after(__u32 a, __u32 b)
{
	return (__s32)(a - b) > 0;
}

static __always_inline int is_plausible(__u32 seq, __u32 expected)
{
	return seq - expected + TCP_PLAUSIBLE_WINDOW <= 2 * TCP_PLAUSIBLE_WINDOW;
}

/* Whether a sequence number is after the LAN host's SYN, up to the last that it has sent. */
static __always_inline int is_behind_syn(__u32 number, const struct ab_flow *lan)
{
	return is_after(number, lan->tcp.isn) && !is_after(number, lan->tcp.end);
}

/* Follows one direction. Returns whether the segment acknowledges something new. */
static __always_inline int follow_tcp(struct ab_flow *flow, const struct packet *p)
{
	if (!flow->tcp.end || is_after(p->end, flow->tcp.end))
		flow->tcp.end = p->end;
	if (!(p->tcp_flags & AB_TCP_ACK) || (flow->tcp.ack && !is_after(p->ack, flow->tcp.ack)))
		return 0;
	flow->tcp.ack = p->ack;
	return 1;
}

/* If both FINs were seen, the flow is over. Its entries are kept for the last segments. */
static __always_inline void learn_fin(const struct ab_flow_key *lan_key, struct ab_flow *lan, __u32 whose)
{
	learn_state(lan, whose);
	if (ab_is_finished(lan->state))
		close_flow(lan_key, lan);
}

enum rst_verdict { RST_EXACT, RST_PLAUSIBLE, RST_FALSE };

/*
 * Only a RST with exactly the expected sequence number ends a flow here (RFC 7857 section 2.2, RFC 5961 section 3). Another one
 * inside the window is translated; the host answers it with a challenge ACK, and the RST in answer to that is exact. During the
 * handshake a RST must acknowledge the SYN.
 */
static __always_inline enum rst_verdict judge_rst_in(const struct packet *p, const struct ab_flow *lan,
						     const struct ab_flow *wan)
{
	if (!(lan->state & AB_STATE_REPLIED))
		return (p->tcp_flags & AB_TCP_ACK) && p->ack == lan->tcp.end ? RST_EXACT : RST_FALSE;
	if (!lan->tcp.ack) { /* The host has not acknowledged the SYN it was answered with. */
		if (p->seq != wan->tcp.end)
			return RST_FALSE;
		return (p->tcp_flags & AB_TCP_ACK) && p->ack == lan->tcp.end ? RST_EXACT : RST_PLAUSIBLE;
	}
	if (p->seq == lan->tcp.ack)
		return RST_EXACT;
	return is_plausible(p->seq, lan->tcp.ack) ? RST_PLAUSIBLE : RST_FALSE;
}

/* The LAN entry of a try, the flow's own or another, and its key. */
static __always_inline struct ab_flow *find_attempt(const struct ab_flow_key *wan_key, const struct ab_flow *wan,
						    struct ab_flow_key *lan_key)
{
	struct ab_flow *lan;
	make_other_key(lan_key, wan_key, wan);
	lan = find_entry(lan_key);
	return lan && lan->other_port == wan_key->local_port ? lan : NULL;
}

/* Whether it acknowledges the LAN host's SYN: then its sender has seen the SYN. */
static __always_inline int acknowledges_syn(const struct packet *p, const struct ab_flow *lan)
{
	return p->tcp_flags & AB_TCP_ACK && is_behind_syn(p->ack, lan);
}

/* The same without NAT, where a flow may have joined an existing connection: the host's sequence numbers are only known to be in a
 * window (open.h), and the remote end may have received earlier segments over another path. */
static __always_inline int acknowledges_host(const struct packet *p, const struct ab_flow *lan)
{
	if (lan->tcp.end - lan->tcp.isn < TCP_PLAUSIBLE_WINDOW)
		return acknowledges_syn(p, lan);
	return p->tcp_flags & AB_TCP_ACK && is_plausible(p->ack, lan->tcp.end);
}

/* Handles a segment for an attempt whose SYN waits: it can only be the answer to a probe. Returns the reason for which it
 * goes no further as it is. */
static __noinline int follow_probe(struct packet *p, const struct ab_flow_key *lan_key, struct ab_flow *lan,
				   const struct ab_flow_key *wan_key)
{
	struct flow_room *s = flow_room();
	__u32 link = wan_key->side - AB_SIDE_LINK(0);
	if (!s || (p->tcp_flags & (AB_TCP_RST | AB_TCP_ACK)) != AB_TCP_RST || p->seq != lan->tcp.isn ||
	    lan->state & AB_STATE_CLOSED)
		return AB_REASON_BAD_HANDSHAKE;
	struct ab_traffic *t = traffic_at(lan->class, link & (AB_MAX_LINKS - 1), p->family);
	if (t) {
		t->rx_packets++;
		t->rx_bytes += p->length;
		t->rx_progress++;
	}
	__builtin_memcpy(&s->held_key, lan_key, sizeof(s->held_key));
	if (!is_held(s))
		return AB_REASON_PROBE_VAIN;
	p->race_copy = ab_try(link);
	return answer_probe(lan_key, lan, wan_key) ? AB_REASON_PROBE_ANSWERED : AB_REASON_PROBE_LATE;
}

/* Handles a RST or FIN from the remote end, which needs a look-up of the LAN entry; there are at most two per flow. Returns 0, or
 * the reason to drop it. */
__noinline int follow_end_in(struct packet *p, struct ab_flow *wan, struct ab_flow_key *wan_key)
{
	if (!p || !wan || !wan_key)
		return AB_REASON_NO_FLOW_IN;
	struct ab_flow_key lan_key;
	struct ab_flow *lan = find_attempt(wan_key, wan, &lan_key);
	if (!lan)
		return AB_REASON_BAD_HANDSHAKE;
	if (ab_waits(lan->tcp.tries))
		return follow_probe(p, &lan_key, lan, wan_key);
	if (p->tcp_flags & AB_TCP_RST) {
		switch (judge_rst_in(p, lan, wan)) {
		case RST_EXACT:
			close_flow(&lan_key, lan);
			return 0;
		case RST_PLAUSIBLE:
			p->flags |= PACKET_UNPROVEN;
			return 0;
		default:
			/* Without NAT nothing is filtered, so the host decides. */
			p->flags |= PACKET_UNPROVEN;
			return wan->state & AB_STATE_ROUTED ? 0 : AB_REASON_BAD_RST;
		}
	}
	/* With TCP Fast Open it may come before the host has acknowledged anything; without NAT, before anything was received. */
	if (is_plausible(p->seq, lan->tcp.ack ?: wan->tcp.end ?: p->seq))
		learn_fin(&lan_key, lan, AB_STATE_FIN_REMOTE);
	return 0;
}

/* Handles a RST or FIN of the LAN host. */
static __noinline int follow_end_out(const struct packet *p, struct ab_flow *lan)
{
	struct ab_flow_key key;
	make_usual_key(&key, p);
	if (p->tcp_flags & AB_TCP_FIN)
		learn_fin(&key, lan, AB_STATE_FIN_LOCAL);
	if (p->tcp_flags & AB_TCP_RST)
		close_flow(&key, lan);
	return 0;
}

/* In the link entry, in place of the number that a SYN proxy has acknowledged: the host's RST to that was sent. */
#define GUARD_ANSWERED 1

/* Lets a segment pass that does not answer the SYN and that the host has to reset. */
static __always_inline int take_challenge(struct packet *p)
{
	p->flags |= PACKET_CHALLENGE | PACKET_UNPROVEN;
	return 0;
}

/* Whether it is the host's RST to such a segment. */
static __always_inline int answers_challenge(const struct packet *p, const struct ab_flow *lan)
{
	return ab_answers_challenge(lan->state, p->tcp_flags, is_behind_syn(p->seq, lan));
}

/* Records in the LAN entry that the remote end has answered, so that the host's next segment confirms the flow. */
static __always_inline void learn_reply(const struct ab_flow_key *lan_key, struct ab_flow *lan, struct ab_flow *wan)
{
	if (!(lan->state & AB_STATE_REPLIED))
		mark_entry(lan_key, lan, AB_STATE_REPLIED);
	learn_state(wan, AB_STATE_REPLIED);
}

/* A SYN is retransmitted after a second (RFC 6298 section 2.1). It may arrive a little closer to the first one. */
#define SYN_REPEATED_US 900000u

/* Whether the same SYN without an ACK came for this try before, no other came meanwhile, and the time between them is that of a
 * retransmission. Records it. */
static __always_inline int is_heard_again(const struct packet *p, struct ab_flow *wan)
{
	__u32 now_us = ab_syn_sent(time_ns()), before_us = wan->unconfirmed;
	int again = before_us && wan->host == p->seq && now_us - before_us >= SYN_REPEATED_US;
	wan->host = p->seq;
	wan->unconfirmed = now_us;
	return again;
}

/*
 * Handles a SYN without an ACK, which opens simultaneously (RFC 9293 section 3.5, RFC 5382 REQ-2). Anybody can forge it in the name
 * of the called remote end, and a host that receives it no longer accepts the true answer, because it then waits for another
 * number. So nothing is recorded from it, and as long as nothing has answered, the host receives it only when it is retransmitted,
 * which is later than most answers come. SYNs of other LAN hosts are delivered at once. Returns 0, or the reason to drop it.
 */
static __always_inline int follow_bare_syn(struct packet *p, const struct ab_flow_key *lan_key,
					   const struct ab_flow *lan, const struct ab_flow_key *wan_key,
					   struct ab_flow *wan)
{
	p->flags |= PACKET_UNPROVEN;
	if (lan->state & AB_STATE_REPLIED)
		return 0;
	if (lan->state & AB_STATE_CLOSED || !holds_try(lan_key, lan, wan_key))
		return AB_REASON_BAD_HANDSHAKE;
	return is_heard_again(p, wan) || p->flags & PACKET_HAIRPINNED ? 0 : AB_REASON_BAD_HANDSHAKE;
}

/* Whether a segment without a SYN may be the first that acknowledges the host's SYN, because it follows the remote end's own
 * SYN. */
static __always_inline int follows_bare_syn(const struct packet *p, const struct ab_flow *wan)
{
	return wan->unconfirmed && p->seq == wan->host + 1;
}

/* Handles the acknowledgement of a try's SYN, unless another try has won before. Returns 0, or the reason to drop it. */
static __always_inline int follow_answer(struct packet *p, struct ab_flow_key *lan_key, struct ab_flow *lan,
					 struct ab_flow_key *wan_key, struct ab_flow *wan)
{
	int answer = answer_attempt(p, lan_key, lan, wan_key);
	if (answer == AB_ANSWER_LATE)
		return AB_REASON_LATE_ANSWER;
	if (answer == AB_ANSWER_FIRST)
		learn_answer(p, wan, lan->link);
	if (answer == AB_ANSWER_FIRST || answer == AB_ANSWER_AGAIN)
		learn_reply(lan_key, lan, wan);
	return wan->state & AB_STATE_REPLIED ? 0 : AB_REASON_BAD_HANDSHAKE;
}

/*
 * Handles a segment from the remote end before the handshake is known to have gone both ways. If there are several tries, the flow
 * is bound to the one that is answered first. Returns 0, or the reason to drop it.
 */
static __noinline int follow_handshake_in(struct packet *p, struct ab_flow *wan, struct ab_flow_key *wan_key)
{
	struct ab_flow_key lan_key;
	struct ab_flow *lan = find_attempt(wan_key, wan, &lan_key);
	if (!lan)
		return AB_REASON_BAD_HANDSHAKE;
	/* These are not filtered, because they may have begun outside. Segments that prove nothing pass. */
	if (wan->state & (AB_STATE_ROUTED | AB_STATE_OUTSIDE)) {
		if (!acknowledges_host(p, lan)) {
			p->flags |= PACKET_UNPROVEN;
			return 0;
		}
		if (!(wan->state & AB_STATE_REPLIED))
			learn_answer(p, wan, lan->link);
		learn_reply(&lan_key, lan, wan);
		return 0;
	}
	if (ab_waits(lan->tcp.tries))
		return AB_REASON_BAD_HANDSHAKE;
	struct ab_segment segment = {
		.length = p->end - p->seq,
		.flags = p->tcp_flags,
		.acks_syn = acknowledges_syn(p, lan),
		.follows_syn = follows_bare_syn(p, wan),
	};
	switch (ab_hear(lan->state, wan->state, &segment)) {
	case AB_HEARING_SYN:
		return follow_bare_syn(p, &lan_key, lan, wan_key, wan);
	case AB_HEARING_GUARD:
		/* Each try may meet a SYN proxy of its own. */
		if (!holds_try(&lan_key, lan, wan_key))
			return AB_REASON_BAD_HANDSHAKE;
		wan->tcp.isn = p->ack;
		return take_challenge(p);
	case AB_HEARING_EARLIER:
		return is_other_of(lan, wan_key, wan) ? take_challenge(p) : AB_REASON_BAD_HANDSHAKE;
	case AB_HEARING_ANSWER:
		return follow_answer(p, &lan_key, lan, wan_key, wan);
	case AB_HEARING_LATE:
		return AB_REASON_LATE_ANSWER;
	case AB_HEARING_MORE:
		return 0;
	default:
		return AB_REASON_BAD_HANDSHAKE;
	}
}

/* The reason for a segment from a link that answers a losing try; 0 if it does not. */
static __noinline int answers_losing_copy(struct packet *p, struct ab_flow_key *wan_key)
{
	if (p->proto != IPPROTO_TCP || !p->has_ports_header || !(p->tcp_flags & (AB_TCP_SYN | AB_TCP_RST)))
		return 0;
	struct ab_losing_copy *losing_copy = bpf_map_lookup_elem(&losing_copies, wan_key);
	if (!losing_copy)
		return 0;
	if ((p->tcp_flags & (AB_TCP_RST | AB_TCP_ACK)) == AB_TCP_RST)
		return p->seq == losing_copy->isn ? AB_REASON_PROBE_LATE : 0;
	if ((p->tcp_flags & (AB_TCP_SYN | AB_TCP_ACK)) != (AB_TCP_SYN | AB_TCP_ACK) ||
	    p->ack - losing_copy->isn - 1 >= 0x10000)
		return 0;
	learn_losing_copy(p, losing_copy, wan_key->side - AB_SIDE_LINK(0));
	return AB_REASON_LATE_ANSWER;
}

#endif
