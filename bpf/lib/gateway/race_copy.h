/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Sends the copies of a race. A copy of the SYN for each further link is sent back to the ingress of its LAN device, after the SYN
 * itself. When an answer wins, a copy of the SYN/ACK is sent back to the ingress of each losing link, and leaves as the RST of its
 * try. Marks identify the copies. Later answers to losing tries are reset one by one (attempt.h). If the SYN waits, each copy is
 * turned into a probe when it leaves; the RST that answers the first probe is turned into the SYN, which is sent back to the
 * ingress of the LAN device, for the link of that probe.
 */
#ifndef ANABRANCH_RACE_COPY_H
#define ANABRANCH_RACE_COPY_H

#include "../packet/mark.h"
#include "answer.h"
#include "nat.h"
#include "race.h"

static __always_inline void take_race_mark(const struct __sk_buff *skb, struct packet *p)
{
	if ((skb->mark & ~(AB_MAX_LINKS - 1u)) == AB_RACE_COPY_MARK)
		p->race_copy = ab_try(skb->mark & (AB_MAX_LINKS - 1));
	if (skb->mark == AB_LOSING_COPY_MARK)
		p->flags |= PACKET_LOSING_COPY;
}

struct copying {
	struct __sk_buff *skb;
	__u32 first; /* the link that the packet itself takes */
	__u32 links; /* links with copies, as bits */
	__u32 family;
};

static long copy_syn(__u32 step, struct copying *c)
{
	__u32 link = ab_next_race_copy(c->first, step + 1);
	if (!(c->links >> link & 1))
		return 0;
	mark_sent_back(c->skb, AB_RACE_COPY_MARK | link);
	bpf_clone_redirect(c->skb, c->skb->ifindex, BPF_F_INGRESS);
	return 0;
}

/* Called for the SYN of a race before it is rewritten: sends the copies for the other links. */
__noinline int send_race_copies(struct __sk_buff *skb, struct ab_flow *flow)
{
	if (!flow || !ab_is_race(flow->tcp.tries) || !ab_tries_are_free(flow->tcp.tries))
		return 0;
	__u32 mark = skb->mark;
	struct copying c = { .skb = skb, .first = flow->link, .links = flow->tcp.tries & AB_TRIES_MASK };
	bpf_loop(AB_MAX_LINKS - 1, copy_syn, &c, 0);
	skb->mark = mark;
	return 0;
}

/* Whether nothing has answered, and the SYN takes this link as a copy, or after a probe. */
static __always_inline int has_race_copy(const struct ab_flow *flow, __u32 one)
{
	__u32 tries = flow->tcp.tries;
	return ab_tries_are_free(tries) && ((ab_is_race(tries) && ab_tries_hold(tries, one)) ||
					    (flow->why == AB_WHY_PROBED && ab_try(flow->link) == one));
}

/* Sends such a copy over its link, as long as nothing has answered. */
__noinline int forward_race_copy(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return AB_REASON_MALFORMED;
	__u32 index = ab_try_link(p->race_copy) & (AB_MAX_LINKS - 1);
	const struct ab_link *link = link_at(index, p->family);
	struct ab_flow *flow = find_again(p);
	if (!link || !(link->flags & AB_LINK_PRESENT) || !flow || p->proto != IPPROTO_TCP || !is_first_syn(p) ||
	    p->ttl <= 1 || !has_race_copy(flow, p->race_copy))
		return AB_REASON_RACE_OVER;
	struct ab_traffic *t = traffic_at(flow->class, index, p->family);
	if (t) {
		t->tx_packets++;
		t->tx_bytes += p->length;
	}
	skb->mark = 0;
	__u32 probes = ab_waits(flow->tcp.tries);
	int bad = clamp_mss(skb, p, link->mtu) ?: probes ? become_probe(skb, p) : 0;
	bad = bad ?: rewrite_packet(skb, p, OUTBOUND, &link->external, flow->other_port);
	if (bad)
		return bad;
	bad = send_over_link(skb, p->l3, link, &p->dst);
	if (bad)
		return bad;
	return probes ? AB_REASON_PROBE_OUT : AB_REASON_TRANSLATED_OUT;
}

/* Turns the RST that answers the first probe, over the link of p->race_copy, into the SYN of s->held_key. */
__noinline int send_held(struct __sk_buff *skb, struct packet *p)
{
	__u32 ifindex = p ? become_held(skb, p) : 0;
	if (!ifindex)
		return -1;
	mark_sent_back(skb, AB_RACE_COPY_MARK | (ab_try_link(p->race_copy) & (AB_MAX_LINKS - 1)));
	return bpf_redirect(ifindex, BPF_F_INGRESS);
}

static long copy_answer(__u32 index, struct copying *c)
{
	const struct ab_link *link = c->links >> (index & (AB_MAX_LINKS - 1)) & 1 ? link_at(index, c->family) : NULL;
	if (link && link->flags & AB_LINK_PRESENT)
		bpf_clone_redirect(c->skb, link->ifindex, BPF_F_INGRESS);
	return 0;
}

/* Called for the winning SYN/ACK before it is rewritten: sends the copies that reset the losing tries. One from a link without
 * Ethernet cannot be sent to the other ingresses; then the losing tries are reset when they are answered. */
__noinline int send_losing_copies(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return 0;
	__u32 mark = skb->mark;
	struct copying c = { .skb = skb, .links = p->losing_copies, .family = p->family };
	mark_sent_back(skb, AB_LOSING_COPY_MARK);
	bpf_loop(AB_MAX_LINKS, copy_answer, &c, 0);
	skb->mark = mark;
	return 0;
}

/* Turns such a copy into the RST of the try over the link on which it arrives. */
__noinline int reset_losing_copy(struct __sk_buff *skb, struct packet *p)
{
	const struct ab_device *device = device_of(skb->ifindex);
	const struct ab_link *link = p && device ? link_at(device->link, p->family) : NULL;
	if (!link || !(link->flags & AB_LINK_PRESENT))
		return -1;
	skb->mark = 0;
	p->dst = link->external;
	int action = answer_rst(skb, p);
	if (action >= 0 && send_over_link(skb, p->l3, link, &p->src))
		return -1;
	return action;
}

#endif
