/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Where the host's own routing sends a packet from the LAN.
 *
 * User space writes the routes of the main table, and which addresses are the host's or the LAN's (`routes`). If others have rules
 * or tables of their own (ab_settings.routes_kernel), the kernel is queried as well, with everything that its rules match
 * (ip-rule(8)): device, source, destination, TOS, protocol and ports. That costs a look-up for each new flow and each new remote
 * end of a mapping. Existing flows keep their link, as connections keep their translation under connection tracking when rules
 * change.
 *
 * The kernel returns a device, a next hop and a metric, but not the table. Two comparisons show whether a rule or table of others
 * applies to the packet. Without such rules the answer comes from our own table for traffic that the host forwards, whose default
 * route has a metric of ours, or from the main table, which can be queried alone. Any other answer comes from a rule or table of
 * others:
 *  - If it names the device of a link, it binds the flow to that link, as a specific route does, with NAT as usual. If that link is
 *    dead, the flow takes another one.
 *  - Everything else (another device, a blackhole, an encapsulation) is left to the kernel.
 *
 * In IPv6 the look-up stops at a rule that uses the main table without its default routes (suppress_prefixlength), because the
 * kernel only suppresses results for packets of its own (fib6_rule_suppress in linux/net/ipv6/fib6_rules.c). If a rule that matches
 * all packets comes after such a rule, as with VPNs for all traffic, the main table's default route is not a valid answer
 * (AB_ROUTES_HIDDEN), and the packet is left to the kernel.
 *
 * There may be more routes than `routes` has room for (AB_ROUTES_BEYOND). Then packets to destinations without an entry are left to
 * the kernel as well.
 */
#ifndef ANABRANCH_WAY_H
#define ANABRANCH_WAY_H

#include "../packet/fib.h"
#include "../packet/parse.h"
#include "../packet/redirect.h"
#include "maps.h"

/* Results beside the numbers of links: links are compared, or the packet is left to the kernel. */
#define WAY_OPEN AB_NO_TARGET
#define WAY_KERNELS (AB_NO_TARGET - 1)

/* What the kernel's routing says by all rules, and by the main table alone; and the next hop that was found, on a link. */
struct way_room {
	struct bpf_fib_lookup way, main_way;
	union ab_addr next_hop;
};
AB_SCRATCH(way_room, struct way_room)

/* Not inlined, because its key would be on the stack of every caller, the deepest of which opens flows. */
static __noinline const struct ab_route *find_route(const union ab_addr *addr)
{
	struct ab_route_key key = { .prefix_len = 128, .addr = *addr };
	return bpf_map_lookup_elem(&routes, &key);
}

/* The router in front of a destination; NULL if it is directly connected. Not inlined, because a call takes stack of every
 * caller. */
static __noinline const union ab_addr *router_before(const struct ab_route *to)
{
	return to && to->via ? bpf_map_lookup_elem(&next_hops, &to->via) : NULL;
}

static __always_inline const union ab_addr *next_hop_to(const struct ab_route *to, const union ab_addr *dst)
{
	return router_before(to) ?: dst;
}

/* Destinations that the kernel routes: its own addresses, the LAN, VPNs, learned routes. */
static __always_inline int is_specific(const struct ab_route *to)
{
	return to && to->verdict != AB_VERDICT_LINK;
}

/* Whether the kernel may have a route to it for which the table has no room. */
static __always_inline int is_beyond_room(const struct ab_route *to)
{
	const struct ab_settings *set = current_settings();
	return !to && set && set->routes_kernel & AB_ROUTES_BEYOND;
}

static __always_inline int is_same_way(const struct bpf_fib_lookup *a, const struct bpf_fib_lookup *b)
{
	return a->ifindex == b->ifindex && a->rt_metric == b->rt_metric && a->family == b->family &&
	       is_same_addr((const union ab_addr *)a->ipv6_dst, (const union ab_addr *)b->ipv6_dst);
}

/* Whether the answer seems to be the main table's default route although a later rule takes the packet. */
static __always_inline int is_hidden_way(const struct way_room *room, const struct packet *p, int answer,
					 __u32 routes_kernel)
{
	return p->family == AB_IPV6 && routes_kernel & AB_ROUTES_HIDDEN && names_device(answer) &&
	       room->way.rt_metric != AB_OWN_METRIC && !find_route(&p->dst);
}

/* Whether the answer about `p`, in room->way, is the one without rules of others. */
static __always_inline int is_usual_answer(struct __sk_buff *skb, struct way_room *room, const struct packet *p,
					   int answer)
{
	if (answer < 0 || answer == BPF_FIB_LKUP_RET_FWD_DISABLED)
		return 1;
	if (names_device(answer) && room->way.rt_metric == AB_OWN_METRIC)
		return 1;
	int main_answer = ask_kernel(skb, p, &p->src, &room->main_way, BPF_FIB_LOOKUP_DIRECT);
	return names_device(answer) ? names_device(main_answer) && is_same_way(&room->way, &room->main_way)
				    : answer == main_answer;
}

/* Where the rules of others send the packet; over a link, with the next hop in way_room(). A global function. */
__noinline int ask_rules(struct __sk_buff *skb, struct packet *p)
{
	struct way_room *room = way_room();
	const struct ab_settings *set = current_settings();
	if (!room || !set || !p || !(set->routes_kernel & AB_ROUTES_FOREIGN))
		return WAY_OPEN;
	int answer = ask_kernel(skb, p, &p->src, &room->way, 0);
	if (is_usual_answer(skb, room, p, answer))
		return is_hidden_way(room, p, answer, set->routes_kernel) ? WAY_KERNELS : WAY_OPEN;
	const struct ab_device *device = names_device(answer) ? device_of(room->way.ifindex) : NULL;
	if (!device || device->role != AB_ROLE_LINK)
		return WAY_KERNELS;
	if (room->way.family == ANABRANCH_AF_INET)
		map_ipv4(&room->next_hop, room->way.ipv4_dst);
	else
		__builtin_memcpy(&room->next_hop, room->way.ipv6_dst, sizeof(room->next_hop));
	return device->link;
}

/* Where a packet is sent whose route `to` in the table is not specific: WAY_OPEN, WAY_KERNELS, or the link that it is bound to,
 * with the next hop in way_room(). */
static __always_inline __u32 find_way(struct __sk_buff *skb, struct packet *p, const struct ab_route *to)
{
	const struct ab_settings *set = current_settings();
	__u32 way = set && set->routes_kernel & AB_ROUTES_FOREIGN ? ask_rules(skb, p) : WAY_OPEN;
	if (way != WAY_OPEN || !to || to->verdict != AB_VERDICT_LINK)
		return way;
	struct way_room *room = way_room();
	if (!room)
		return WAY_KERNELS;
	room->next_hop = *next_hop_to(to, &p->dst);
	return to->link;
}

/* Like find_way, for any destination. */
__noinline int way_of(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return WAY_OPEN;
	const struct ab_route *to = find_route(&p->dst);
	return is_specific(to) ? WAY_KERNELS : find_way(skb, p, to);
}

#endif
