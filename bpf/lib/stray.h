/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What a link brings for no flow. The host's own sockets hear it as ever; nobody else does, unless the administrator
 * has forwards of his own in the kernel.
 */
#ifndef ANABRANCH_STRAY_H
#define ANABRANCH_STRAY_H

#include "open.h"
#include "prefix.h"
#include "recent.h"
#include "socket.h"

/* A remote end the kernel may have forwarded to a LAN host: that host's answers are the kernel's. Fragments after the
 * first have port 0. */
struct ab_forward_key {
	union ab_addr remote;
	__be16 remote_port;
	__u8 proto;
	__u8 zero;
};
AB_MAP(forwards, BPF_MAP_TYPE_ARRAY, RECENT_ROWS, __u32, struct ab_recent, 0);

static __always_inline __u64 hash_of_forward(__u8 proto, const union ab_addr *remote, __be16 port)
{
	struct ab_forward_key key = { .remote = *remote, .proto = proto, .remote_port = is_icmp(proto) ? 0 : port };
	return hash_recent((const __u32 *)&key, sizeof(key) / 4);
}

static __always_inline void remember_forward(const struct packet *p, __be16 port)
{
	__u64 hash = hash_of_forward(p->proto, &p->src, port);
	enter_recent(row_in(&forwards, hash), hash);
}

/* Whether the administrator has forwards of his own in the kernel. */
static __always_inline int is_forwarding(void)
{
	const struct ab_settings *set = current_settings();
	return set && set->forwards_kernel;
}

/* Whether a LAN packet may answer a forward of the kernel's. */
__noinline int answers_forward(struct packet *p)
{
	if (!p || !is_forwarding())
		return 0;
	__u64 hash = hash_of_forward(p->proto, &p->dst, p->dport);
	return is_recent(row_in(&forwards, hash), hash);
}

static __always_inline int has_socket(struct __sk_buff *skb, const struct packet *p)
{
	struct endpoints ends = { .src = p->src, .dst = p->dst, .sport = p->sport, .dport = p->dport };
	return p->proto == IPPROTO_TCP ? has_tcp_socket(skb, &ends) : has_udp_socket(skb, &ends);
}

/* What links bring for the host's address in a LAN is for that LAN. */
static __always_inline int is_local_to_links(const union ab_addr *addr)
{
	const struct ab_route *route = find_route(addr);
	return route && route->verdict == AB_VERDICT_LOCAL && !route->ifindex;
}

/* To an address of the host: NO_FLOW_IN or OTHER_PROTOCOL if its stack is to have it, or why not. */
static __always_inline int stray_to_host(struct __sk_buff *skb, const struct packet *p, const struct ab_settings *set)
{
	if (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP)
		return is_icmp_of_family(p) ? AB_REASON_NO_FLOW_IN : AB_REASON_OTHER_PROTOCOL;
	if (!p->has_ports_header || has_socket(skb, p))
		return AB_REASON_NO_FLOW_IN;
	if (p->proto == IPPROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		return AB_REASON_STRAY_SYN;
	return set->fallback_mark ? AB_REASON_FALLBACK_STRAY : AB_REASON_STRAY;
}

/* Whether a link without NAT brought it for a host of the LAN. */
static __always_inline int is_routed_in(const struct __sk_buff *skb, const struct packet *p,
					const struct ab_settings *set)
{
	const struct ab_device *device = set->routed ? device_of(skb->ifindex) : NULL;
	return device && is_routed(set, device->link, p->family) && is_lan_address(&p->dst);
}

static __always_inline int is_dropped_stray(int reason)
{
	return reason == AB_REASON_NOT_FORWARDED || reason == AB_REASON_STRAY_SYN || reason == AB_REASON_STRAY ||
	       reason == AB_REASON_FALLBACK_STRAY;
}

/* The reason such a packet leaves for. */
__noinline int stray_inbound(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return AB_REASON_MALFORMED;
	const struct ab_settings *set = current_settings();
	int reason = AB_REASON_NOT_FORWARDED;
	if (!set)
		return AB_REASON_NOT_CONFIGURED;
	if (is_of_site(&p->src))
		return AB_REASON_SPOOFED_WAN;
	if (is_never_forwarded(&p->dst))
		return AB_REASON_NO_FLOW_IN;
	if (is_routed_in(skb, p, set))
		return AB_REASON_ROUTED_IN;
	int let = let_in(skb, p);
	if (let)
		return let;
	if (is_local_to_links(&p->dst))
		reason = stray_to_host(skb, p, set);
	if (!set->forwards_kernel || !is_dropped_stray(reason))
		return reason;
	remember_forward(p, p->sport);
	remember_forward(p, 0);
	return AB_REASON_FORWARD_IN;
}

#endif
