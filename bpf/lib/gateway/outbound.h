/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Packets from the LAN: finds or opens the flow, then rewrites and sends. */
#ifndef ANABRANCH_OUTBOUND_H
#define ANABRANCH_OUTBOUND_H

#include <stddef.h>

#include "../../policy/witness.h"
#include "frag.h"
#include "hairpin.h"
#include "icmp.h"
#include "nat.h"
#include "open.h"
#include "permission.h"
#include "race_copy.h"
#include "route.h"
#include "stray.h"
#include "tcp.h"
#include "turn.h"

static __always_inline int is_kernels(const struct packet *p)
{
	return is_never_forwarded(&p->dst) || is_specific(find_route(&p->dst));
}

static __always_inline int has_fallback(void)
{
	const struct ab_settings *set = current_settings();
	return set && set->fallback_mark;
}

/* Whether the gateway balances this packet. Returns 0, or the reason to leave or drop it. A packet with a spoofed source must not
 * reach the kernel, because its answer would leave over a link. Stores the link to which the host's routing binds the packet. */
static __always_inline int gate(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	if (!s)
		return AB_REASON_NOT_CONFIGURED;
	s->request.route = AB_NO_TARGET;
	if (is_never_forwarded(&p->dst))
		return AB_REASON_SPECIFIC_ROUTE;
	int bad = check_source(p);
	if (bad)
		return bad;
	const struct ab_route *to = find_route(&p->dst);
	if (is_specific(to))
		return AB_REASON_SPECIFIC_ROUTE;
	__u32 way = find_way(skb, p, to);
	if (way == WAY_KERNELS)
		return AB_REASON_ROUTING_RULES;
	if (way == WAY_OPEN && is_beyond_room(to))
		return has_fallback() ? AB_REASON_FALLBACK_ROUTES : AB_REASON_ROUTING_RULES;
	s->request.route = way;
	return 0;
}

/* The same for neighbour discovery, which may also come from link-local addresses. If it is to an address that is not of this site,
 * it is treated like other ICMP. If its source is not of the LAN it is dropped, because the kernel would answer by its routes, over
 * a link, to an address of the internet. */
static __always_inline int gate_neighbour(const struct packet *p)
{
	if (!is_kernels(p))
		return AB_REASON_ICMP_OTHER;
	if (is_never_forwarded(&p->dst) || is_never_forwarded(&p->src))
		return AB_REASON_SPECIFIC_ROUTE;
	return check_source(p) ?: AB_REASON_SPECIFIC_ROUTE;
}

/* The same for a TCP segment of no flow. Returns TO_OPEN, or the reason why it opens no flow. */
__noinline int may_begin(struct __sk_buff *skb, struct packet *p)
{
	int why = p ? gate(skb, p) : AB_REASON_MALFORMED;
	return why == AB_REASON_SPECIFIC_ROUTE ? meet_call(p) : why ?: TO_OPEN;
}

static __always_inline __u64 hash_of_addr(const union ab_addr *addr)
{
	return hash_recent((const __u32 *)addr, sizeof(*addr) / 4);
}

/* Counts the distinct hosts that retransmit SYNs over a link, and the remote ends of these. */
static __noinline int count_witnesses(struct packet *p, struct ab_flow *flow, struct ab_traffic *t)
{
	__u32 place = AB_LINK_PLACE(flow->link, p->family);
	struct ab_witnesses *of_link = bpf_map_lookup_elem(&witnesses, &place);
	int news = ab_witness(of_link, hash_of_addr(&p->src), hash_of_addr(&p->dst), tick_ns());
	t->retrying_hosts += (news & AB_WITNESS_HOST) != 0;
	t->retried_ends += (news & AB_WITNESS_END) != 0;
	return 0;
}

/* Counts a retransmitted SYN that has had no answer. */
static __always_inline void count_syn_retry(struct packet *p, struct ab_flow *flow)
{
	struct ab_traffic *t = traffic_of(flow, p->family);
	if (t) {
		t->syn_retries++;
		count_witnesses(p, flow, t);
	}
	learn_silence(p, flow);
}

/* Continues the attempt over `to`, with the try that it has there or a new one. Returns whether that was possible. */
static __noinline int go_on_over(struct flow_room *s, struct ab_flow *flow, __u32 to, __u32 tries)
{
	__u32 next = ab_try(to), given_up = ab_tries_given_up(tries, next);
	__u32 is_new = !ab_tries_hold(tries, next);
	struct ab_flow *wan = find_other(&s->lan_key, flow, &s->wan_key);
	if (!wan)
		return 0;
	__builtin_memcpy(&s->wan, wan, sizeof(s->wan));
	s->wan.link = to;
	clear_load(&s->wan);
	s->wan.tcp.tries = s->opening.sent;
	if (!make_try_key(&s->wan_key, &s->lan_key, flow, to))
		return 0;
	if (is_new && (stood_formerly(&s->wan_key) || bpf_map_update_elem(&flows, &s->wan_key, &s->wan, BPF_NOEXIST)))
		return 0;
	if (!claim_tries(flow, tries)) {
		if (is_new)
			bpf_map_delete_elem(&flows, &s->wan_key);
		return 1;
	}
	if (given_up)
		retire_try(&s->lan_key, flow, ab_try_link(given_up));
	gauge_add(to, 1, 0, 0);
	bind_to_try(flow, &s->wan_key.local, to, ab_tries_next(tries, ab_try(flow->link), next));
	return 1;
}

/* No reason: the attempt has to begin anew, because its port is taken on the next link, or that translates otherwise. */
#define BEGIN_ANEW -1

/* Moves the attempt between links without NAT: for the remote end it is the same connection. Returns whether that was possible. */
static __noinline int move_to(struct flow_room *s, struct ab_flow *flow, __u32 to, __u32 tries)
{
	struct ab_flow *wan = find_other(&s->lan_key, flow, &s->wan_key);
	if (!wan)
		return 0;
	if (claim_tries(flow, tries)) {
		wan->link = to;
		gauge_add(to, 1, 0, 0);
		bind_to_try(flow, &s->lan_key.local, to, tries);
	}
	return 1;
}

/* Like go_on_over or move_to, between links that translate alike. If only the prefix is translated, an attempt begins anew. */
static __always_inline int change_link(struct flow_room *s, struct ab_flow *flow, __u32 to, __u32 tries)
{
	const struct ab_link *link = link_at(to, s->opening.family);
	__u32 is_routed = side_of_link(to, s->opening.family) == AB_SIDE_ROUTED;
	__u32 kept = flow->state & (AB_STATE_ROUTED | AB_STATE_PREFIX);
	if (!link || kept != (is_routed ? AB_STATE_ROUTED : 0) || (!is_routed && link->prefix_len))
		return 0;
	return is_routed ? move_to(s, flow, to, tries) : go_on_over(s, flow, to, tries);
}

/* Continues the attempt over a link that it has not tried. The tried ones may still answer (policy/tries.h). Returns 0, or the
 * reason why it cannot continue. */
static __noinline int go_on(struct packet *p, struct flow_room *s, struct ab_flow *flow, __u32 tried)
{
	__u32 tries = flow->tcp.tries;
	if (!ab_tries_are_free(tries))
		return 0;
	make_holder_key(&s->host_key, flow, &s->lan_key.local);
	s->opening.class = flow->class;
	begin_choice(p);
	choose_link(tried, 0);
	__u32 target = s->decision.target;
	if (target >= AB_MAX_LINKS)
		return reason_without_link(flow->class, p->family);
	flow->tried = tried;
	flow->why = s->decision.why;
	if (target != flow->link && !change_link(s, flow, target, tries))
		return BEGIN_ANEW;
	return note_asked(s, p);
}

/* The link entry of the flow of s->lan_key, which was taken over together with that. */
static __always_inline struct ab_flow *find_own_try(struct flow_room *s, const struct ab_flow *flow)
{
	make_other_key(&s->wan_key, &s->lan_key, flow);
	return find_entry(&s->wan_key);
}

/* Whether the host has answered the SYN proxy (tcp.h) of the flow of s->lan_key since this SYN was first sent. */
static __always_inline int has_answered_guard(const struct ab_flow *flow)
{
	struct flow_room *s = flow_room();
	struct ab_flow *own = s ? find_own_try(s, flow) : NULL;
	if (!own || own->tcp.isn != GUARD_ANSWERED)
		return 0;
	own->tcp.isn = 0;
	return 1;
}

/* How to treat a SYN whose flow exists. If the rules have changed, an unanswered attempt begins anew by the new ones. A SYN for
 * which a SYN proxy waits is sent over the same link, once. */
static __always_inline enum ab_syn judge_syn(const struct ab_choice *now, struct packet *p, struct ab_flow *flow)
{
	enum ab_syn means = ab_judge_syn(now, flow->state, flow->tcp.isn == p->seq, flow->link, flow->tcp.tries);
	if (means == AB_SYN_GOES_ON && has_answered_guard(flow))
		return AB_SYN_FOLLOWS;
	if (means == AB_SYN_AGAIN || means == AB_SYN_GOES_ON)
		return find_class(p) == flow->class ? means : AB_SYN_ANEW;
	return means;
}

/* Handles a SYN whose flow exists. Returns TO_OPEN, 0, or the reason why it goes no further. */
static __always_inline int settle_syn(struct __sk_buff *skb, struct packet *p, struct flow_room *s,
				      struct ab_flow *flow)
{
	const struct ab_choice *now = choice_of(flow->class, p->family);
	__u32 tried = 0;
	if (!now)
		return AB_REASON_NOT_CONFIGURED;
	switch (judge_syn(now, p, flow)) {
	case AB_SYN_FOLLOWS:
		return 0;
	case AB_SYN_AGAIN:
		count_syn_retry(p, flow);
		p->races = ab_is_race(flow->tcp.tries) && p->ttl > 1 && take_race(flow->class, p->family);
		return 0;
	case AB_SYN_GOES_ON:
		count_syn_retry(p, flow);
		tried = ab_tried_with(now, flow->tried, flow->link);
		int why = gate(skb, p) ?: go_on(p, s, flow, tried);
		if (why != BEGIN_ANEW)
			return why;
		break;
	case AB_SYN_ANEW:
		break;
	}
	s->opening.waited = ab_waits(flow->tcp.tries) && flow->tcp.isn == p->seq;
	forget_own();
	s->opening.tried = tried;
	return may_begin(skb, p);
}

/* Handles a segment of an unknown flow: the host is notified, unless the kernel may know the flow. Returns TO_OPEN if there are
 * links without NAT, over which the connection may continue. */
static __always_inline int refuse_unknown(struct flow_room *s, struct packet *p)
{
	const struct ab_settings *set = current_settings();
	if (!set)
		return AB_REASON_NOT_CONFIGURED;
	s->opening.asked_link = link_of_asked(p);
	if (is_asked(s))
		return p->tcp_flags & AB_TCP_RST ? BY_PREFIX : TO_OPEN;
	if (answers_forward(p))
		return AB_REASON_FORWARD_OUT;
	if (routed_links(set, p->family)) {
		s->opening.joins = 1;
		return TO_OPEN;
	}
	if (set->forwards_kernel && !set->fallback_mark)
		return AB_REASON_FORWARD_OUT;
	name_sender(s, p);
	return fall_back(AB_REASON_NO_FLOW_OUT);
}

/* Gives a segment of a PPTP control connection to the kernel's NAT, over the link that was chosen for its SYN. */
__noinline int give_to_helper(struct packet *p)
{
	struct flow_room *s = flow_room();
	if (!s || !p)
		return AB_REASON_NOT_CONFIGURED;
	name_sender(s, p);
	classify(p);
	p->kernel_link = link_of_pair(p);
	const struct ab_choice *now = choice_of(s->opening.class, p->family);
	/* Linux 6.1 derives nothing from a comparison with zero for the value less one. */
	__u32 is_bound = now && p->kernel_link && ab_is_usable(now, (p->kernel_link - 1) & (AB_MAX_LINKS - 1));
	if (is_first_syn(p) && !is_bound) {
		begin_choice(p);
		choose_link(0, 0);
		if (s->decision.target >= AB_MAX_LINKS)
			return refuse_class(s->opening.class, p->family);
		gauge_add(s->decision.target, 1, 0, 0);
		bind_pair(p, s->decision.target);
		p->kernel_link = s->decision.target + 1;
	}
	return fall_back(AB_REASON_FALLBACK_HELPER);
}

static __always_inline int is_helped(const struct packet *p)
{
	return is_pptp(p) && has_fallback();
}

static __always_inline int settle_tcp(struct __sk_buff *skb, struct packet *p, struct flow_room *s,
				      struct ab_flow *flow)
{
	if (!flow) {
		int why = may_begin(skb, p);
		if (why == TO_OPEN && is_helped(p) && !s->opening.is_hairpin)
			return give_to_helper(p);
		return why != TO_OPEN || is_first_syn(p) || s->opening.is_hairpin ? why : refuse_unknown(s, p);
	}
	if (is_first_syn(p))
		return settle_syn(skb, p, s, flow);
	if (!ab_completes_handshake(flow->state, p->tcp_flags))
		return 0;
	if (flow->tried || ab_is_race(flow->tcp.tries) || flow->why == AB_WHY_PROBED) {
		make_holder_key(&s->host_key, flow, &s->lan_key.local);
		s->opening.class = flow->class;
		remember_session(s, p, flow->link);
	}
	confirm_flow(flow);
	return 0;
}

static __always_inline int open_mapping(struct __sk_buff *skb, struct packet *p, struct flow_room *s)
{
	/* A client of DHCP has no known source address before it has a lease. */
	int why = is_dhcp_answer(p) ? AB_REASON_DHCP : gate(skb, p);
	if (!why)
		s->opening.asked_link = link_of_asked(p);
	if (!why && !is_asked(s) && answers_forward(p))
		return AB_REASON_FORWARD_OUT;
	if (why == AB_REASON_SPECIFIC_ROUTE && hairpin_link(p) != AB_NO_TARGET) {
		s->opening.is_hairpin = 1;
		why = 0;
	}
	return why ?: TO_OPEN;
}

/* A mapping is confirmed when it was answered, or when it keeps sending. */
static __always_inline int settle_mapping(struct __sk_buff *skb, struct packet *p, struct flow_room *s,
					  struct ab_flow *flow)
{
	if (!flow)
		return open_mapping(skb, p, s);
	if (flow->state & AB_STATE_REPLIED || tick_ns() - flow->opened_ns > UDP_STREAM_NS)
		confirm_flow(flow);
	return 0;
}

/* The hardware address from which the packet came; zeroes without Ethernet. Returns whether it is known. */
static __always_inline int read_sender(struct __sk_buff *skb, const struct packet *p, __u8 *mac)
{
	if (p->l3 != 0)
		return !bpf_skb_load_bytes(skb, offsetof(struct ethhdr, h_source), mac, ETH_ALEN);
	__builtin_memset(mac, 0, ETH_ALEN);
	return 1;
}

/* Stores the sender and the flow's key, for a packet that may open a flow. */
static __always_inline struct flow_room *begin_opening(struct __sk_buff *skb, const struct packet *p)
{
	struct flow_room *s = flow_room();
	if (!s || !read_sender(skb, p, s->opening.mac))
		return NULL;
	s->opening.is_hairpin = s->opening.is_answer = s->opening.hairpin_link = s->opening.joins = 0;
	s->opening.kept_link = s->opening.asked_link = AB_NO_TARGET;
	s->opening.tried = s->opening.sent = s->opening.waited = 0;
	s->opening.family = p->family;
	s->opening.is_apart = (p->flags & PACKET_APART) != 0;
	make_lan_key(&s->lan_key, p);
	return s;
}

/* The flow of s->lan_key if it has both entries; otherwise removes the one that is left. `found` is what the table had. */
static __always_inline struct ab_flow *find_whole(struct flow_room *s, struct ab_flow *found)
{
	struct ab_flow *flow = found ?: find_missing(&s->lan_key);
	if (!flow || find_other(&s->lan_key, flow, &s->wan_key))
		return flow;
	if (is_entry_of(flow, &s->lan_key))
		forget_own();
	return NULL;
}

/* Handles all packets except those of confirmed flows. `found` is what the table has for s->lan_key. Returns 0 if the flow exists,
 * TO_OPEN, or the reason of neither. */
__noinline int settle_outbound(struct __sk_buff *skb, struct packet *p, struct ab_flow *found)
{
	if (!p)
		return AB_REASON_MALFORMED;
	struct flow_room *s = begin_opening(skb, p);
	if (!s)
		return AB_REASON_NOT_CONFIGURED;
	struct ab_flow *flow = find_whole(s, found);
	return p->proto == IPPROTO_TCP ? settle_tcp(skb, p, s, flow) : settle_mapping(skb, p, s, flow);
}

/* Whether the remote end has sent by the prefix of a link other than the flow's. */
static __always_inline int is_asked_elsewhere(struct packet *p, const struct ab_flow *flow)
{
	__u32 link = link_of_asked(p);
	return link != AB_NO_TARGET && link != flow->link;
}

/*
 * Permits one more remote address to a mapping, or keeps it permitted. Returns the way of the packet: TRANSLATED_OUT, HAIRPIN if
 * the address is one of ours, or the reason why the mapping does not apply.
 */
__noinline int permit_remote(struct packet *p, struct ab_flow *flow)
{
	if (!p || !flow)
		return AB_REASON_MALFORMED;
	struct flow_room *s = flow_room();
	if (!s)
		return AB_REASON_NOT_CONFIGURED;
	make_lan_key(&s->lan_key, p);
	make_other_key(&s->wan_key, &s->lan_key, flow);
	make_permission_key(&s->lan_key, &s->wan_key, &p->dst);
	struct ab_flow *permission = find_permission(&s->lan_key);
	if (permission && is_granted_to(permission, flow)) {
		if (permission->first_remote_port != p->dport && is_asked_elsewhere(p, flow))
			return BY_PREFIX;
		permission->seen_ns = tick_ns();
		/* The rules no longer give this remote end a mapping of its own. */
		if (permission->state & AB_STATE_APART)
			__sync_fetch_and_and(&permission->state, ~AB_STATE_APART);
		return permission->state & AB_STATE_HAIRPIN ? AB_REASON_HAIRPIN : AB_REASON_TRANSLATED_OUT;
	}
	__u32 hairpin = hairpin_link(p) != AB_NO_TARGET;
	if (!hairpin && is_kernels(p))
		return AB_REASON_SPECIFIC_ROUTE;
	__u32 asked = hairpin ? AB_NO_TARGET : link_of_asked(p);
	if (asked != AB_NO_TARGET && asked != flow->link)
		return BY_PREFIX;
	if (asked == AB_NO_TARGET && answers_forward(p))
		return AB_REASON_FORWARD_OUT;
	if (permission)
		end_permission(&s->lan_key, permission);
	grant_permission(s, p, flow, hairpin ? AB_STATE_HAIRPIN : 0, 0);
	if (is_control(p))
		bind_pair(p, flow->link);
	return hairpin ? AB_REASON_HAIRPIN : AB_REASON_TRANSLATED_OUT;
}

/* Like permit_remote; the first remote address was permitted when the mapping began. */
static __always_inline int follow_mapping(struct packet *p, struct ab_flow *flow)
{
	if (p->flags & PACKET_PERMITTED)
		return AB_REASON_TRANSLATED_OUT;
	if (!is_same_addr(ab_first_remote(flow), &p->dst))
		return permit_remote(p, flow);
	if (flow->first_remote_port != p->dport && p->proto == IPPROTO_UDP && is_asked_elsewhere(p, flow))
		return BY_PREFIX;
	return flow->state & AB_STATE_HAIRPIN ? AB_REASON_HAIRPIN : AB_REASON_TRANSLATED_OUT;
}

static __always_inline void follow_tcp_out(struct packet *p, struct ab_flow *flow)
{
	if (!p->has_ports_header || answers_challenge(p, flow))
		return;
	follow_tcp(flow, p);
	if (p->tcp_flags & (AB_TCP_FIN | AB_TCP_RST))
		follow_end_out(p, flow);
}

/* The search for the try that a segment of the host answers, before it is known which try is the flow's (tcp.h). */
struct asking {
	struct ab_flow *flow;
	__u32 number;
	__u32 is_reset; /* a RST to the SYN/ACK of a SYN proxy; otherwise a SYN/ACK to a SYN without an ACK */
	__u32 link;	/* or AB_NO_TARGET */
};

static __always_inline int is_asking(const struct ab_flow *wan, const struct asking *a)
{
	return a->is_reset ? wan->tcp.isn == a->number : wan->host == a->number && wan->unconfirmed;
}

/* Whether it answers the i-th of the other tries of s->lan_key. */
static long ask_try(__u32 i, struct asking *a)
{
	struct flow_room *s = flow_room();
	__u32 one = ab_tries_at(a->flow->tcp.tries, i);
	if (!s || !one || !make_try_key(&s->race_copy_key, &s->lan_key, a->flow, ab_try_link(one)))
		return 0;
	const struct ab_flow *entry = find_entry(&s->race_copy_key);
	if (!entry || !is_asking(entry, a))
		return 0;
	a->link = ab_try_link(one);
	return 1;
}

/* Whether a segment of the host may answer a particular try, and by which number. */
static __always_inline int answers_one_try(const struct packet *p, const struct ab_flow *flow, struct asking *a)
{
	a->is_reset = (p->tcp_flags & AB_TCP_RST) != 0;
	a->number = a->is_reset ? p->seq : p->ack - 1;
	if (a->is_reset)
		return p->seq > GUARD_ANSWERED && answers_challenge(p, flow);
	return !(flow->state & (AB_STATE_REPLIED | AB_STATE_ROUTED));
}

/* No reason: the packet is handled like any other of its flow. */
#define OF_OWN_TRY (-1)

/* Sends the host's RST or SYN/ACK to what came for a try other than the flow's own, over the link of that try. */
__noinline int answer_try(struct __sk_buff *skb, struct packet *p, struct ab_flow *flow)
{
	struct flow_room *s = flow_room();
	struct asking a = { .flow = flow, .link = AB_NO_TARGET };
	if (!s || !p || !flow || p->ttl <= 1 || !answers_one_try(p, flow, &a))
		return OF_OWN_TRY;
	make_usual_key(&s->lan_key, p);
	struct ab_flow *own = find_own_try(s, flow);
	if (own && is_asking(own, &a)) {
		if (a.is_reset)
			own->tcp.isn = GUARD_ANSWERED;
		return OF_OWN_TRY;
	}
	bpf_loop(AB_TRIES_OTHERS, ask_try, &a, 0);
	const struct ab_link *link = a.link < AB_MAX_LINKS ? link_at(a.link, p->family) : NULL;
	if (!link || !(link->flags & AB_LINK_PRESENT))
		return OF_OWN_TRY;
	struct ab_traffic *t = traffic_at(flow->class, a.link, p->family);
	if (t) {
		t->tx_packets++;
		t->tx_bytes += p->length;
	}
	return (a.is_reset ? 0 : clamp_mss(skb, p, link->mtu))
		       ?: rewrite_packet(skb, p, OUTBOUND, &link->external, flow->other_port)
		       ?: send_over_link(skb, p->l3, link, &p->dst)
		       ?: AB_REASON_TRANSLATED_OUT;
}

/* Counts sent packets. Packets to another LAN host do not count for a link. */
static __always_inline void count_tx(struct __sk_buff *skb, struct packet *p, struct ab_flow *flow, int way)
{
	struct load load = packet_load(skb, p);
	touch_flow(flow, tick_ns(), load.packets, load.bytes);
	struct ab_traffic *t = way == AB_REASON_HAIRPIN ? NULL : traffic_of(flow, p->family);
	if (!t)
		return;
	t->tx_packets += load.packets;
	t->tx_bytes += load.bytes;
}

static __always_inline int way_out(struct packet *p, struct ab_flow *flow)
{
	if (is_mapping(p->proto))
		return follow_mapping(p, flow);
	return flow->state & AB_STATE_HAIRPIN ? follow_hairpin(p, flow) : AB_REASON_TRANSLATED_OUT;
}

__noinline int send_hairpin(struct __sk_buff *skb, struct packet *p, __u32 link_of_flow)
{
	if (!p)
		return AB_REASON_FILTERED_IN;
	__u32 index = is_mapping(p->proto) ? hairpin_link(p) : link_of_flow;
	return turn_to(skb, p, index) < 0 ? AB_REASON_FILTERED_IN : AB_REASON_HAIRPIN;
}

static __always_inline int is_first_remote(const struct packet *p, struct ab_flow *flow)
{
	return is_same_addr(ab_first_remote(flow), &p->dst) &&
	       (p->proto != IPPROTO_UDP || flow->first_remote_port == p->dport);
}

/* Sends a packet of the usual case over `link`. The IP header is at `l3`. */
static __always_inline int send_out(struct __sk_buff *skb, struct packet *p, __u32 l3, struct ab_flow *flow,
				    const struct ab_link *link)
{
	if (!is_mapping(p->proto))
		follow_tcp(flow, p);
	count_tx(skb, p, flow, AB_REASON_TRANSLATED_OUT);
	int bad = rewrite_packet(skb, p, OUTBOUND, &flow->other_local, flow->other_port);
	bad = bad ?: send_bound(skb, p, l3, link, flow->link, flow->why);
	return bad ?: AB_REASON_TRANSLATED_OUT;
}

/* Whether the packet is the usual case: complete, of a confirmed flow, from its host's device, and without anything to check. */
static __always_inline int is_usual_out(struct __sk_buff *skb, const struct packet *p, struct ab_flow *flow,
					const struct ab_link *link)
{
	if (p->ifindex != flow->lan_ifindex || !is_under_way(flow) || p->ttl <= 1 || exceeds_mtu(skb, p, link->mtu))
		return 0;
	return is_mapping(p->proto) ? is_first_remote(p, flow)
				    : !(p->tcp_flags & (AB_TCP_SYN | AB_TCP_FIN | AB_TCP_RST));
}

/* Sends a packet of a flow. Returns the reason with which it leaves; TRANSLATED_OUT if it was sent. */
__noinline int forward_out(struct __sk_buff *skb, struct packet *p, struct ab_flow *flow)
{
	if (!p || !flow)
		return AB_REASON_MALFORMED;
	const struct ab_link *link = link_at(flow->link, p->family);
	if (!link)
		return AB_REASON_NO_LINK;
	int way = way_out(p, flow);
	if (way != AB_REASON_TRANSLATED_OUT && way != AB_REASON_HAIRPIN)
		return way;
	if (p->ttl <= 1)
		return AB_REASON_TTL_OUT;
	int bad = 0;
	if (is_fragment(p) || exceeds_mtu(skb, p, link->mtu)) {
		bad = begin_datagram(skb, p, AB_SIDE_LAN) ?: fit_to_mtu(skb, p, link->mtu, AB_SIDE_LAN);
		if (bad)
			return bad;
		/* While other packets were sent, the memory of the flow may have been reused. */
		flow = find_again(p);
		link = flow ? link_at(flow->link, p->family) : NULL;
		if (!link)
			return AB_REASON_FRAGMENT_ORPHAN;
	}
	if (!is_mapping(p->proto))
		follow_tcp_out(p, flow);
	count_tx(skb, p, flow, way);
	if (p->proto == IPPROTO_TCP && p->tcp_flags & AB_TCP_SYN)
		bad = clamp_mss(skb, p, link->mtu);
	bad = bad ?: rewrite_packet(skb, p, OUTBOUND, &flow->other_local, flow->other_port);
	if (bad)
		return bad;
	if (way == AB_REASON_HAIRPIN)
		return send_hairpin(skb, p, flow->hairpin_link);
	return send_bound(skb, p, p->l3, link, flow->link, flow->why) ?: AB_REASON_TRANSLATED_OUT;
}

/* Handles packets that no flow can carry. Without NAT each is sent by itself; with NAT only the kernel can translate them. */
__noinline int outbound_other(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return AB_REASON_MALFORMED;
	struct flow_room *s = begin_opening(skb, p);
	int why = p->flags & PACKET_NEIGHBOUR ? gate_neighbour(p) : gate(skb, p);
	if (why || !s)
		return why ?: AB_REASON_NOT_CONFIGURED;
	if (link_of_asked(p) != AB_NO_TARGET)
		return BY_PREFIX;
	if (answers_forward(p))
		return AB_REASON_FORWARD_OUT;
	classify(p);
	if (choose_routed(p))
		return route_packet(skb, p);
	if (is_icmp_of_family(p))
		return p->kind == PACKET_ICMP_ERROR ? AB_REASON_FOREIGN_ERROR : AB_REASON_ICMP_OTHER;
	name_sender(s, p);
	p->kernel_link = link_of_pair(p);
	return fall_back(AB_REASON_REFUSED_PROTOCOL);
}

/* Handles a fragment after the first that `bad` would drop: it waits if the first fragment may still come. */
static __always_inline int refuse_fragment(struct __sk_buff *skb, struct packet *p, int bad)
{
	if (bad != AB_REASON_FRAGMENT_ORPHAN)
		return bad;
	if (answers_forward(p))
		return AB_REASON_FORWARD_OUT;
	return hold_early(skb, p, AB_SIDE_LAN) ? AB_REASON_FRAGMENT_HELD : bad;
}

static __always_inline int are_there_rules(void)
{
	__u32 zero = 0;
	const struct ab_rules *all = bpf_map_lookup_elem(&rules, &zero);
	return all && all->active;
}

/* Whether the host's routing sends the packet over another link than the mapping of `flow`, or to another next hop there. */
static __always_inline int is_led_away(const struct packet *p, const struct ab_flow *flow, __u32 way)
{
	const struct ab_link *link = way == flow->link ? link_at(way, p->family) : NULL;
	if (way >= AB_MAX_LINKS || (link && flow->why == AB_WHY_ROUTE))
		return 0;
	if (!link)
		return 1;
	const struct way_room *found = way_room();
	return !(link->flags & AB_LINK_POINT_TO_POINT) && found &&
	       !is_same_addr(&found->next_hop, is_addr(&link->gateway) ? &link->gateway : &p->dst);
}

/* A remote end has a mapping of its own because of its class; AB_WHY_ROUTE: because of a route. */
#define APART_BY_CLASS 255

/*
 * Whether a further remote end of the mapping of `flow`, without a permission in s->lan_key, has a mapping of its own: AB_WHY_ROUTE
 * because of the host's routing; APART_BY_CLASS because the rules have it in another class; 0: it has none. A negative result is
 * the negated reason for which the packet is left to the kernel.
 */
static __always_inline int judge_remote(struct __sk_buff *skb, struct packet *p, const struct ab_flow *flow)
{
	const struct ab_route *to = find_route(&p->dst);
	/* For the host, the LAN or a hairpin, permit_remote decides. */
	if (is_never_forwarded(&p->dst) || is_specific(to) || link_of_asked(p) != AB_NO_TARGET)
		return 0;
	__u32 way = find_way(skb, p, to);
	if (way == WAY_KERNELS)
		return -AB_REASON_ROUTING_RULES;
	if (is_led_away(p, flow, way))
		return AB_WHY_ROUTE;
	return are_there_rules() && find_class(p) != flow->class ? APART_BY_CLASS : 0;
}

/* Builds in s->lan_key the key of the permission that the mapping of `flow` has for `p`'s remote end. */
static __always_inline struct ab_flow *permission_of(struct flow_room *s, const struct packet *p,
						     const struct ab_flow *flow)
{
	make_usual_key(&s->lan_key, p);
	make_other_key(&s->wan_key, &s->lan_key, flow);
	make_permission_key(&s->lan_key, &s->wan_key, &p->dst);
	return find_permission(&s->lan_key);
}

/* The same for a remote end with a permission, to the last port: it stays valid while routing has not changed. */
static __always_inline int follow_remote(struct packet *p, struct ab_flow *flow, struct ab_flow *permission)
{
	__u32 apart = permission->state & AB_STATE_APART, is_same_port = permission->first_remote_port == p->dport;
	if (permission->state & AB_STATE_HAIRPIN)
		return 0;
	if (apart && permission->why == AB_WHY_ROUTE) {
		permission->seen_ns = tick_ns();
		return AB_WHY_ROUTE;
	}
	if (is_same_port && !apart) {
		permission->seen_ns = tick_ns();
		p->flags |= PACKET_PERMITTED;
		return 0;
	}
	if (!are_there_rules())
		return 0;
	if (is_same_port) {
		permission->seen_ns = tick_ns();
		return APART_BY_CLASS;
	}
	if (find_class(p) != flow->class)
		return APART_BY_CLASS;
	__sync_fetch_and_and(&permission->state, ~AB_STATE_APART);
	permission->first_remote_port = p->dport;
	return 0;
}

/* Whether the packet, which is not to the first remote end of the mapping of `found`, belongs to a mapping for its remote end
 * alone. A negative result is the negated reason for which it is left to the kernel. */
__noinline int leads_apart(struct __sk_buff *skb, struct packet *p, struct ab_flow *found)
{
	struct flow_room *s = flow_room();
	if (!p || !s)
		return 0;
	make_usual_key(&s->lan_key, p);
	struct ab_flow *flow = found ?: find_missing(&s->lan_key);
	if (!flow || is_first_remote(p, flow))
		return 0;
	struct ab_flow *permission = permission_of(s, p, flow);
	if (permission && is_granted_to(permission, flow))
		return follow_remote(p, flow, permission);
	int why = judge_remote(skb, p, flow);
	if (why <= 0)
		return why;
	if (permission)
		end_permission(&s->lan_key, permission);
	grant_permission(s, p, flow, AB_STATE_APART, why == AB_WHY_ROUTE ? why : 0);
	return why;
}

static __noinline struct ab_flow *find_apart(struct packet *p, struct ab_flow_key *key)
{
	p->flags |= PACKET_APART;
	make_lan_key(key, p);
	return find_entry(key);
}

/* Whether the remote end may have a mapping of its own: not the first one of the mapping. */
static __always_inline int may_lead_apart(const struct packet *p, struct ab_flow *flow)
{
	return is_mapping(p->proto) && !(flow && is_first_remote(p, flow));
}

/* Finds the flow of `p` by its usual key, or opens it; `*flow` is what the table has under that key. Returns 0, or the reason why
 * there is none. */
static __always_inline int find_or_open(struct __sk_buff *skb, struct packet *p, struct ab_flow_key *key,
					struct ab_flow **flow)
{
	int apart = may_lead_apart(p, *flow) ? leads_apart(skb, p, *flow) : 0;
	if (apart < 0)
		return -apart;
	if (apart)
		*flow = find_apart(p, key);
	if (*flow && (*flow)->state & AB_STATE_CONFIRMED && !(p->proto == IPPROTO_TCP && is_first_syn(p)))
		return 0;
	int why = settle_outbound(skb, p, *flow);
	__u32 opens = why == TO_OPEN;
	if (opens)
		why = classify(p) == AB_PER_PACKET ? route_by_itself(skb, p) : open_flow(skb, p);
	if (why)
		return why;
	*flow = find_flow(key);
	return *flow ? 0 : AB_REASON_REFUSED_FULL;
}

/* Handles all but the usual case. `flow` is what the table has, if it was looked up. */
static __always_inline int outbound_unusual(struct __sk_buff *skb, struct packet *p, struct ab_flow_key *key,
					    struct ab_flow *flow)
{
	if (p->race_copy)
		return forward_race_copy(skb, p);
	if (p->kind == PACKET_ICMP_ERROR)
		return translate_error_out(skb, p) ?: outbound_other(skb, p);
	if (p->kind == PACKET_OTHER || (is_icmp(p->proto) && p->has_ports_header && p->icmp_type != ICMP_ECHO))
		return outbound_other(skb, p);
	if (is_later_fragment(p)) {
		int bad = learn_fragment(p, AB_SIDE_LAN);
		if (bad)
			return gate(skb, p) ?: refuse_fragment(skb, p, bad);
	}
	if (is_fragment(p)) {
		make_usual_key(key, p);
		flow = find_entry(key);
	}
	int bad = find_or_open(skb, p, key, &flow);
	/* A packet of the host's flow must come from the host's device. */
	if (!bad && p->ifindex != flow->lan_ifindex)
		bad = check_source(p);
	if (!bad && p->tcp_flags & (AB_TCP_RST | AB_TCP_SYN) && !is_first_syn(p)) {
		int way = answer_try(skb, p, flow);
		if (way != OF_OWN_TRY)
			return way;
	}
	if (!bad && p->races) {
		__u32 own = ab_waits(flow->tcp.tries) ? ab_try(flow->link) : 0;
		send_race_copies(skb, flow);
		p->race_copy = own;
		if (own)
			return forward_race_copy(skb, p);
	}
	return bad ?: forward_out(skb, p, flow);
}

/* A source outside the networks of LAN devices. If the device has no address of the family, it has no network yet, and the packet
 * may be of a DHCP client. */
static __noinline int judge_unknown_source(const struct packet *p)
{
	const struct ab_device *device = device_of(p->ifindex);
	return device && device->role == AB_ROLE_LAN && !is_addr(&device->address[p->family & 1])
		       ? AB_REASON_NO_LAN_ADDRESS
		       : AB_REASON_SPOOFED_LAN;
}

/* Checks whether a packet answers what came by a link's prefix, or is to a LAN host's address beyond a link. Returns the reason in
 * the end. */
__noinline int settle_prefix(struct __sk_buff *skb, struct packet *p, int reason)
{
	if (reason == BY_PREFIX)
		return answer_by_prefix(skb, p);
	return reason == AB_REASON_SPECIFIC_ROUTE ? turn_by_prefix(skb, p) : reason;
}

/* Leaves a packet to the kernel's NAT if the kernel may have a route for it for which the table has no room. */
__noinline int leave_to_routes(struct packet *p)
{
	struct flow_room *s = flow_room();
	if (!s || !p)
		return AB_REASON_NOT_CONFIGURED;
	name_sender(s, p);
	return fall_back(AB_REASON_FALLBACK_ROUTES);
}

static __always_inline int outbound(struct __sk_buff *skb, struct packet *p, struct ab_flow_key *key, __u32 l3)
{
	/* Hosts that share an address must not use the same ids, if ids matter (RFC 6864 section 5.3). */
	if (!(p->fragment & IP_DONT_FRAGMENT))
		p->new_id = draw();
	struct ab_flow *flow = NULL;
	if (p->kind == PACKET_FLOW && !is_fragment(p) && !(is_icmp(p->proto) && p->icmp_type != ICMP_ECHO)) {
		make_usual_key(key, p);
		flow = find_entry(key);
		const struct ab_link *link = flow ? link_at(flow->link, p->family) : NULL;
		if (link && is_usual_out(skb, p, flow, link))
			return send_out(skb, p, l3, flow, link);
	}
	int reason = outbound_unusual(skb, p, key, flow);
	reason = p->family == AB_IPV6 ? settle_prefix(skb, p, reason) : reason;
	if (reason == AB_REASON_FALLBACK_ROUTES)
		return leave_to_routes(p);
	return reason == AB_REASON_SPOOFED_LAN ? judge_unknown_source(p) : reason;
}

#endif
