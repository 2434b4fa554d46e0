/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Rewrites a flow's packet and sends it: over its link, or to its LAN host. */
#ifndef ANABRANCH_NAT_H
#define ANABRANCH_NAT_H

#include "../packet/rewrite.h"
#include "flow.h"
#include "open.h"

/* The same, but only the address. */
static __noinline int rewrite_address(struct __sk_buff *skb, const struct packet *p, enum direction way,
				      const union ab_addr *to)
{
	return rewrite_packet(skb, p, way, to, way == OUTBOUND ? p->sport : p->dport);
}

/* A device without Ethernet gets the bare IP packet. On Ethernet the gateway is resolved, or the destination if there is no
 * gateway. */
static __always_inline int send_over_link(struct __sk_buff *skb, __u32 l3, const struct ab_link *link,
					  const union ab_addr *dst)
{
	if (!(link->flags & AB_LINK_POINT_TO_POINT))
		return send_to_neighbour(skb, l3, link->ifindex, is_addr(&link->gateway) ? &link->gateway : dst);
	bpf_redirect(link->ifindex, 0);
	return 0;
}

/* The same for a packet that routing binds to the link: by the next hop of the route now, as long as it is over this link. */
__noinline int send_by_route(struct __sk_buff *skb, struct packet *p, __u32 index)
{
	const struct way_room *found = way_room();
	const struct ab_link *link = p ? link_at(index, p->family) : NULL;
	if (!found || !p || !link)
		return AB_REASON_NO_LINK;
	if (!(link->flags & AB_LINK_POINT_TO_POINT) && (__u32)way_of(skb, p) == index)
		return send_to_neighbour(skb, p->l3, link->ifindex, &found->next_hop);
	return send_over_link(skb, p->l3, link, &p->dst);
}

/* Sends a packet with its IP header at `l3` over the link with number `index`; `why` says how it was bound. Returns 0, or the
 * reason of failure. */
static __always_inline int send_bound(struct __sk_buff *skb, struct packet *p, __u32 l3, const struct ab_link *link,
				      __u32 index, __u8 why)
{
	return why == AB_WHY_ROUTE ? send_by_route(skb, p, index) : send_over_link(skb, l3, link, &p->dst);
}

/* Sends to the LAN host, or to the router in front of it. A device without Ethernet gets the bare IP packet. */
static __always_inline int send_to_lan(struct __sk_buff *skb, const struct packet *p, const struct ab_flow *flow,
				       const union ab_addr *host)
{
	const union ab_addr *next_hop = host;
	if (flow->state & AB_STATE_VIA_ROUTER) {
		if (flow->state & AB_STATE_LAYER3) {
			bpf_redirect(flow->lan_ifindex, 0);
			return AB_REASON_TRANSLATED_IN;
		}
		next_hop = next_hop_to(find_route(host), host);
	}
	return send_to_neighbour(skb, p->l3, flow->lan_ifindex, next_hop) ?: AB_REASON_TRANSLATED_IN;
}

#endif
