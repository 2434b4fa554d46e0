/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What a link brings for no flow is the kernel's to judge, by its routing and behind the guard's rules; the host's own sockets hear it
 * as ever. Dropped is what is false whatever the kernel may know: what says that it is from the LAN, and, unless the administrator
 * has forwards of his own in the kernel, what is for the LAN, and SYNs to ports where nobody listens.
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
/* UDP remote ends that a LAN host was the first to speak to: a late answer, or what somebody sends in their name, makes no forward. */
AB_MAP(asked_first, BPF_MAP_TYPE_ARRAY, RECENT_ROWS, __u32, struct ab_recent, 0);

static __always_inline __u64 hash_of_forward(__u8 proto, const union ab_addr *remote, __be16 port)
{
	struct ab_forward_key key = { .remote = *remote, .proto = proto, .remote_port = is_icmp(proto) ? 0 : port };
	return hash_recent((const __u32 *)&key, sizeof(key) / 4);
}

static __always_inline void enter_forward(const struct packet *p, __be16 port)
{
	__u64 hash = hash_of_forward(p->proto, &p->src, port);
	enter_recent(row_in(&forwards, hash), hash);
}

__noinline int remember_forward(struct packet *p)
{
	if (!p)
		return 0;
	__u64 hash = hash_of_forward(p->proto, &p->src, p->sport);
	if (p->proto == IPPROTO_UDP && is_recent(row_in(&asked_first, hash), hash))
		return 0;
	enter_forward(p, p->sport);
	enter_forward(p, 0);
	return 0;
}

/* Whether the administrator has forwards of his own in the kernel. */
static __always_inline int is_forwarding(void)
{
	const struct ab_settings *set = current_settings();
	return set && set->forwards_kernel;
}

/* Whether a LAN packet of no flow may answer a forward of the kernel's; otherwise it asks. */
__noinline int answers_forward(struct packet *p)
{
	if (!p || !is_forwarding())
		return 0;
	__u64 hash = hash_of_forward(p->proto, &p->dst, p->dport);
	int answers = is_recent(row_in(&forwards, hash), hash);
	if (!answers && p->proto == IPPROTO_UDP)
		enter_recent(row_in(&asked_first, hash), hash);
	return answers;
}

static __always_inline int has_socket(struct __sk_buff *skb, const struct packet *p)
{
	struct endpoints ends = { .src = p->src, .dst = p->dst, .sport = p->sport, .dport = p->dport };
	return p->proto == IPPROTO_TCP ? has_tcp_socket(skb, &ends) : has_udp_socket(skb, &ends);
}

/* What links bring for the host's address in a LAN is for that LAN. */
static __always_inline int is_local_to_links(const struct ab_route *route)
{
	return route && route->verdict == AB_VERDICT_LOCAL && !route->ifindex;
}

/*
 * Whether it is from a DHCP server (RFC 2131 section 4.1, RFC 8415 section 7.2) to a client of this host. The address that is offered
 * is the host's only after it was accepted, and the client hears of it by a packet socket, behind this program; and a modem's server
 * has an address that says nothing, perhaps of the LAN's range or the one that the host has itself. What other devices lead to is no
 * client of the host's.
 */
__noinline int is_dhcp_answer(struct packet *p)
{
	if (!p || p->proto != IPPROTO_UDP || !p->has_ports_header)
		return 0;
	__u32 client = p->family == AB_IPV6 ? 546 : 68;
	if (p->dport != bpf_htons(client) || p->sport != bpf_htons(p->family == AB_IPV6 ? client + 1 : client - 1))
		return 0;
	const struct ab_route *to = find_route(&p->dst);
	return !to || is_never_forwarded(&p->dst) || to->verdict == AB_VERDICT_LINK ||
	       to->verdict == AB_VERDICT_LOCAL || (to->verdict == AB_VERDICT_LAN && to->ifindex == p->ifindex);
}

/* To an address of the host: NO_FLOW_IN or OTHER_PROTOCOL if its stack is to have it, or why not. */
static __always_inline int stray_to_host(struct __sk_buff *skb, const struct packet *p)
{
	if (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP)
		return is_icmp_of_family(p) ? AB_REASON_NO_FLOW_IN : AB_REASON_OTHER_PROTOCOL;
	if (!p->has_ports_header || has_socket(skb, p))
		return AB_REASON_NO_FLOW_IN;
	if (p->proto == IPPROTO_TCP && (p->tcp_flags & (TCP_SYN | TCP_ACK)) == TCP_SYN)
		return AB_REASON_STRAY_SYN;
	return AB_REASON_STRAY;
}

/* Whether a link without NAT brought it for a host of the LAN. */
static __always_inline int is_routed_in(const struct __sk_buff *skb, const struct packet *p,
					const struct ab_settings *set)
{
	const struct ab_device *device = set->routed ? device_of(skb->ifindex) : NULL;
	return device && is_routed(set, device->link, p->family) && is_lan_address(&p->dst);
}

/* To an address that is not of the host. */
static __always_inline int stray_to_others(const struct ab_route *to)
{
	return to && to->verdict != AB_VERDICT_KERNEL && to->verdict != AB_VERDICT_LINK ? AB_REASON_NOT_FORWARDED
											: AB_REASON_TRANSIT_IN;
}

static __always_inline int may_be_forwarded(int reason)
{
	return reason == AB_REASON_NOT_FORWARDED || reason == AB_REASON_TRANSIT_IN || reason == AB_REASON_STRAY_SYN ||
	       reason == AB_REASON_STRAY;
}

/* The reason such a packet leaves for. */
__noinline int stray_inbound(struct __sk_buff *skb, struct packet *p)
{
	if (!p)
		return AB_REASON_MALFORMED;
	const struct ab_settings *set = current_settings();
	if (!set)
		return AB_REASON_NOT_CONFIGURED;
	if (is_dhcp_answer(p))
		return AB_REASON_DHCP;
	if (is_of_site(&p->src))
		return AB_REASON_SPOOFED_WAN;
	if (is_never_forwarded(&p->dst))
		return AB_REASON_NO_FLOW_IN;
	if (is_routed_in(skb, p, set))
		return AB_REASON_ROUTED_IN;
	int let = let_in(skb, p);
	if (let)
		return let;
	const struct ab_route *to = find_route(&p->dst);
	int reason = is_local_to_links(to) ? stray_to_host(skb, p) : stray_to_others(to);
	if (!set->forwards_kernel || !may_be_forwarded(reason))
		return reason;
	remember_forward(p);
	return AB_REASON_FORWARD_IN;
}

#endif
