/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Packets from a link that belong to no flow are left to the kernel: its routing, our nftables table, and the host's own sockets.
 * Only what is wrong in any case is dropped: packets with a LAN source, and, unless the administrator has the kernel forward
 * connections, packets to the LAN, and SYNs to ports without a listener.
 */
#ifndef ANABRANCH_STRAY_H
#define ANABRANCH_STRAY_H

#include "open.h"
#include "prefix.h"
#include "recent.h"
#include "socket.h"

/*
 * Packets that the kernel has forwarded from a link to a LAN host, by both ends as seen by that host, and when a packet of either
 * direction last passed. The host's answers belong to the kernel. `wan` tags what it leaves to the kernel, and `forwarded`, at the
 * egress of the LAN devices, finds the tag, after the kernel's own NAT. skb->tc_index is not used by others on that path, and
 * checking it costs packets of flows one comparison.
 */
#define FORWARD_ROWS (2 * RECENT_ROWS)
AB_MAP(forwards, BPF_MAP_TYPE_ARRAY, FORWARD_ROWS, __u32, struct ab_recent, 0);
#define FORWARD_TAG 0xabf0

static __always_inline __u64 hash_of_forward(const struct ab_asked_key *key)
{
	return hash_recent((const __u32 *)key, sizeof(*key) / 4);
}

static __always_inline void enter_forward(const struct ab_asked_key *key)
{
	__u64 hash = hash_of_forward(key);
	enter_recent(row_among(&forwards, FORWARD_ROWS, hash), hash);
}

/* Whether the kernel's own NAT carries it for a LAN host that opened it. Then it is no forward. */
static __always_inline int is_fallback(const struct packet *p)
{
	struct ab_flow_key key;
	make_key(&key, p->proto, AB_SIDE_LAN, &p->dst, p->dport, &p->src, p->sport);
	__u64 hash = hash_recent((const __u32 *)&key, sizeof(key) / 4);
	return is_recent(row_in(&fallbacks, hash), hash);
}

/* Records that `p` leaves for the LAN. Answers may be fragments, of which only the first has ports. */
__noinline int remember_forward(struct packet *p)
{
	if (!p || is_fallback(p))
		return 0;
	struct ab_asked_key key = { .local = p->dst, .remote = p->src, .proto = p->proto };
	if (p->proto == IPPROTO_UDP || p->proto == IPPROTO_TCP) {
		key.local_port = p->dport;
		key.remote_port = p->sport;
		enter_forward(&key);
		key.local_port = key.remote_port = 0;
	}
	if (p->proto != IPPROTO_TCP)
		enter_forward(&key);
	return 0;
}

/* Whether the administrator has the kernel forward connections. */
static __always_inline int is_forwarding(void)
{
	const struct ab_settings *set = current_settings();
	return set && set->forwards_kernel;
}

/* Whether a LAN packet of no flow answers a forward of the kernel. A forward is forgotten when no packet passed for a flow's
 * timeout. */
__noinline int answers_forward(struct packet *p)
{
	const struct ab_settings *set = current_settings();
	if (!p || !set || !set->forwards_kernel)
		return 0;
	struct ab_asked_key key = { .local = p->src, .remote = p->dst, .proto = p->proto };
	if (!is_icmp(p->proto)) {
		key.local_port = p->sport;
		key.remote_port = p->dport;
	}
	__u64 limit = p->proto == IPPROTO_TCP ? set->tcp_established_ns : set->udp_ns;
	__u64 hash = hash_of_forward(&key);
	return find_used_within(row_among(&forwards, FORWARD_ROWS, hash), hash, limit) != 0;
}

static __always_inline int has_socket(struct __sk_buff *skb, const struct packet *p)
{
	struct endpoints ends = { .src = p->src, .dst = p->dst, .sport = p->sport, .dport = p->dport };
	return p->proto == IPPROTO_TCP ? has_tcp_socket(skb, &ends) : has_udp_socket(skb, &ends);
}

/* Packets from links to the host's address in a LAN count as packets to that LAN. */
static __always_inline int is_local_to_links(const struct ab_route *route)
{
	return route && route->verdict == AB_VERDICT_LOCAL && !route->ifindex;
}

/*
 * Whether it is from a DHCP server (RFC 2131 section 4.1, RFC 8415 section 7.2) to a client on this host. The offered address is
 * not the host's before it was accepted, and the client receives by a packet socket, after this program. The source may be any
 * address, because a modem's server may have one of the LAN's range or even the one that the host itself has. A destination that is
 * routed to other devices is no client on the host.
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

/* Handles a packet to an address of the host. Returns NO_FLOW_IN or OTHER_PROTOCOL if the stack gets it, or the reason why not. */
static __always_inline int stray_to_host(struct __sk_buff *skb, const struct packet *p)
{
	if (p->proto != IPPROTO_TCP && p->proto != IPPROTO_UDP)
		return is_icmp_of_family(p) ? AB_REASON_NO_FLOW_IN : AB_REASON_OTHER_PROTOCOL;
	if (!p->has_ports_header || has_socket(skb, p))
		return AB_REASON_NO_FLOW_IN;
	if (p->proto == IPPROTO_TCP && (p->tcp_flags & (AB_TCP_SYN | AB_TCP_ACK)) == AB_TCP_SYN)
		return AB_REASON_STRAY_SYN;
	return AB_REASON_STRAY;
}

/* Whether it came from a link without NAT, for a LAN host. */
static __always_inline int is_routed_in(const struct __sk_buff *skb, const struct packet *p,
					const struct ab_settings *set)
{
	const struct ab_device *device = set->routed ? device_of(skb->ifindex) : NULL;
	return device && is_routed(set, device->link, p->family) && is_lan_address(&p->dst);
}

/* Handles a packet to an address that is not the host's. */
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

/* The reason with which such a packet leaves. */
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
	if (!set->forwards_kernel)
		return reason;
	skb->tc_index = FORWARD_TAG;
	return may_be_forwarded(reason) ? AB_REASON_FORWARD_IN : reason;
}

#endif
