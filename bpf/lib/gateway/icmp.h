/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * ICMP errors (RFC 5508 section 4). Errors about a flow's packets are translated, the outer and the embedded header, in both
 * directions. They neither refresh nor end the flow.
 */
#ifndef ANABRANCH_ICMP_H
#define ANABRANCH_ICMP_H

#include "../packet/quote.h"
#include "nat.h"
#include "stray.h"
#include "tcp.h"

/*
 * Whether an embedded segment is in flight or a keepalive (RFC 5927 section 4.1): anybody can send errors, but only hosts on the
 * path know the flow's sequence numbers. `receiver` is the entry that was found, of the direction opposite to the embedded packet.
 */
static __noinline int is_in_flight(struct quote *q, struct ab_flow_key *key, struct ab_flow *receiver)
{
	struct flow_room *s = flow_room();
	if (q->proto != IPPROTO_TCP)
		return 1;
	struct ab_flow *sender = s ? find_other(key, receiver, &s->lan_key) : NULL;
	/* If the SYN waits, only probes are under way. */
	if (!sender || (key->side != AB_SIDE_LAN && ab_waits(sender->tcp.tries)))
		return 0;
	__u32 end = sender->tcp.end, acked = receiver->tcp.ack;
	__u32 first = acked && !is_after(acked, end) ? acked - 1 : end - TCP_PLAUSIBLE_WINDOW;
	/* Before an answer only the SYN is under way. */
	if (key->side != AB_SIDE_LAN && !(sender->state & AB_STATE_REPLIED))
		first = sender->tcp.isn;
	return q->seq - first <= end - first;
}

/*
 * Replaces the source of an error by the link's address if it is link-local, which no router may forward (RFC 4291 section 2.5.6,
 * RFC 3927 section 2.7), or an address of the site, because some providers number routers out of private ranges (RFC 6752). The
 * embedded packet proves that the error is about the flow, and without "too big" errors its path would be a black hole. So no
 * packet from a link seems to come from a LAN host. Returns 0, or the reason to drop.
 */
__noinline int name_router(struct __sk_buff *skb, struct packet *p, __u32 link_index)
{
	const struct ab_link *link = p ? link_at(link_index, p->family) : NULL;
	if (!p || !link || (is_never_forwarded(&p->src) && !is_of_line(&p->src)) || !is_addr(&link->external))
		return AB_REASON_BAD_SOURCE;
	const union ab_addr *from = &p->src, *to = &link->external;
	__u32 l3 = bounded_l3(p), sum_at = bounded_l4(p) + 2;
	if (p->family == AB_IPV4)
		return bpf_l3_csum_replace(skb, l3 + 10, from->word[3], to->word[3], 4) ||
				       bpf_skb_store_bytes(skb, l3 + 12, &to->word[3], 4, 0)
			       ? AB_REASON_REWRITE_FAILED
			       : 0;
	__u32 change = fold_to_32(replace_addr_in_sum(0, from, to));
	return bpf_l4_csum_replace(skb, sum_at, 0, change, BPF_F_PSEUDO_HDR) ||
			       bpf_skb_store_bytes(skb, l3 + 8, to, sizeof(*to), BPF_F_RECOMPUTE_CSUM)
		       ? AB_REASON_REWRITE_FAILED
		       : 0;
}

/* Handles an error about a packet that left by a link's prefix without a flow: restores the LAN host's address in the embedded
 * packet. Returns 0, or the reason to drop. */
__noinline int restore_quote(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	const struct quote *q = quote_room();
	const struct ab_device *device = device_of(skb->ifindex);
	const struct ab_link *link = device ? open_link(device->link & (AB_MAX_LINKS - 1)) : NULL;
	if (!s || !p || !q || !link || p->family != AB_IPV6 || !is_same_addr(&p->dst, &q->src) ||
	    !find_inside(s, &q->src, link))
		return 0;
	return rewrite_quote(skb, p, INBOUND, &s->asked.local, q->sport);
}

/* Translates an error from the internet about a packet of a LAN host. Returns 0 if it is about no flow. */
__noinline int translate_error_in(struct __sk_buff *skb, struct packet *p, __u32 side)
{
	struct quote *q = quote_room();
	if (!p || !q)
		return AB_REASON_MALFORMED;
	struct ab_flow_key key;
	__u32 is_false = !(p->flags & PACKET_HAIRPINNED) && is_of_site(&p->src);
	if (!icmp_sum_holds(skb, p))
		return AB_REASON_BAD_CHECKSUM;
	int bad = read_quote(skb, p, q);
	if (bad)
		return bad;
	make_key(&key, q->proto, side, &q->src, q->sport, &q->dst, q->dport);
	struct ab_flow *flow = find_flow(&key);
	if (!flow)
		return is_false ? AB_REASON_SPOOFED_WAN : restore_quote(skb, p);
	if (!is_in_flight(q, &key, flow))
		return is_false ? AB_REASON_SPOOFED_WAN : AB_REASON_BAD_QUOTE;
	if (p->ttl <= 1)
		return AB_REASON_TTL_IN;
	if (is_false || is_never_forwarded(&p->src))
		bad = name_router(skb, p, flow->link);
	bad = bad ?: rewrite_quote(skb, p, INBOUND, &flow->other_local, flow->other_port) ?: rewrite_address(skb, p, INBOUND, &flow->other_local);
	if (bad)
		return bad;
	return send_to_lan(skb, p, flow, &flow->other_local) == AB_REASON_TRANSLATED_IN ? AB_REASON_ERROR_IN
											: AB_REASON_REWRITE_FAILED;
}

/* Finds the flow of a packet from the internet, and its LAN key. A mapping for that remote end alone comes first. */
static __noinline struct ab_flow *find_quoted(struct ab_flow_key *key, const struct quote *q)
{
	make_apart_key(key, q->proto, &q->dst, q->dport, &q->src, q->sport);
	struct ab_flow *flow = find_flow(key);
	if (flow || !is_mapping(q->proto))
		return flow;
	make_key(key, q->proto, AB_SIDE_LAN, &q->dst, q->dport, &q->src, q->sport);
	return find_flow(key);
}

/* Translates an error from the LAN about a packet from the internet: its source becomes the flow's external address. Returns 0 if
 * it is about no flow, and there are links without NAT. */
__noinline int translate_error_out(struct __sk_buff *skb, struct packet *p)
{
	struct quote *q = quote_room();
	if (!p || !q)
		return AB_REASON_MALFORMED;
	struct ab_flow_key key;
	if (!is_lan_address(&p->src))
		return AB_REASON_SPOOFED_LAN;
	const struct ab_route *route = find_route(&p->dst);
	if (route && route->verdict != AB_VERDICT_LINK)
		return AB_REASON_SPECIFIC_ROUTE;
	if (p->ttl <= 1)
		return AB_REASON_TTL_OUT;
	if (!icmp_sum_holds(skb, p))
		return AB_REASON_BAD_CHECKSUM;
	int bad = read_quote(skb, p, q);
	if (bad)
		return bad;
	struct ab_flow *flow = find_quoted(&key, q);
	const struct ab_settings *set = current_settings();
	if (!flow && set && routed_links(set, p->family))
		return 0;
	if (!flow)
		return is_forwarding() ? AB_REASON_FORWARD_OUT : AB_REASON_FOREIGN_ERROR;
	/* An error about the host's flow must come from the host's device. */
	if (p->ifindex != flow->lan_ifindex && !(set && set->lan_sources_loose))
		return AB_REASON_SPOOFED_DEVICE;
	if (!is_in_flight(q, &key, flow))
		return AB_REASON_BAD_QUOTE;
	const struct ab_link *link = link_at(flow->link, p->family);
	if (!link)
		return AB_REASON_NO_LINK;
	bad = rewrite_quote(skb, p, OUTBOUND, &flow->other_local, flow->other_port)
		      ?: rewrite_address(skb, p, OUTBOUND, &flow->other_local);
	if (bad)
		return bad;
	return send_bound(skb, p, p->l3, link, flow->link, flow->why) ?: AB_REASON_ERROR_OUT;
}

#endif
