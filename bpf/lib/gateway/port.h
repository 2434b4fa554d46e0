/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* External ports: which may be used, and the search for a free one. */
#ifndef ANABRANCH_PORT_H
#define ANABRANCH_PORT_H

#include <linux/errno.h>

#include "../../policy/set.h"
#include "../packet/ambient.h"
#include "flow.h"
#include "socket.h"

#define PORT_ATTEMPTS 64
/* Successive candidates are far apart, so that a block of taken ports is left at once. */
#define PORT_STRIDE 7919

/* The number of ports at and above 1024 that NAT may use: the configured range, without the host's ephemeral range. */
static __always_inline __u32 ports_below(const struct ab_settings *set)
{
	__u32 end = set->ephemeral_min <= set->port_max ? set->ephemeral_min : set->port_max + 1u;
	return end > set->port_min ? end - set->port_min : 0;
}

static __always_inline __u32 first_above(const struct ab_settings *set)
{
	return set->ephemeral_max >= set->port_min ? set->ephemeral_max + 1u : set->port_min;
}

static __always_inline __u32 ports_above(const struct ab_settings *set)
{
	__u32 first = first_above(set);
	return set->port_max >= first ? set->port_max + 1u - first : 0;
}

/* Maximum number of UDP and ICMP mappings of one host: a quarter of a link's ports, so that one host cannot use them all. */
static __always_inline __u32 mappings_per_host(const struct ab_settings *set)
{
	__u32 all = ports_below(set) + ports_above(set);
	return all > 4 ? all / 4 : 1;
}

static __always_inline int is_nat_port(const struct ab_settings *set, __u32 port)
{
	if (port < set->port_min || port > set->port_max)
		return 0;
	return port < set->ephemeral_min || port > set->ephemeral_max;
}

/* The port of an attempt. Attempt 0 preserves the port; the others walk the range from `start`. Ports below 1024 are replaced by
 * such ports (RFC 4787 REQ-3), unless none was free in half of the attempts. */
static __always_inline __u32 candidate_port(const struct ab_settings *set, __u32 original, __u32 start, __u32 attempt)
{
	if (original < 1024 && attempt < PORT_ATTEMPTS / 2)
		return attempt || !original ? 512 + (start + attempt * 97) % 512 : original;
	if (attempt == 0 && is_nat_port(set, original))
		return original;
	__u32 below = ports_below(set), all = below + ports_above(set);
	if (!all)
		return 0;
	__u32 nth = (start + attempt * PORT_STRIDE) % all;
	return nth < below ? set->port_min + nth : first_above(set) + (nth - below);
}

/* The same for ICMP ids, which have no ranges; 0xab00-0xabff are the daemon's own. */
static __always_inline __u32 candidate_id(__u32 original, __u32 start, __u32 attempt)
{
	__u32 id = attempt ? (start + attempt * PORT_STRIDE) & 0xffff : original;
	return id >> 8 == 0xab ? id ^ 0x8000 : id;
}

/* No branch per port: see set.h. */
static __always_inline int is_reserved(const struct ab_settings *set, __u32 port)
{
	__u32 found = 0;
	for (__u32 i = 0; i < AB_RESERVED_MAX; i++)
		found |= ab_is_less(set->reserved[i] ^ port, 1);
	return found & (port != 0);
}

/* Whether a packet to s->wan_key would be delivered to a socket of the host. A socket that is bound to another device is not
 * found. */
static __always_inline int is_of_host(struct __sk_buff *skb, struct flow_room *s)
{
	struct endpoints *ends = &s->ends;
	ends->src = s->opening.remote;
	ends->dst = s->wan_key.local;
	ends->sport = s->opening.remote_port;
	ends->dport = s->wan_key.local_port;
	return s->lan_key.proto == IPPROTO_TCP ? has_tcp_socket(skb, ends) : has_udp_socket(skb, ends);
}

/* If nothing or only the prefix is translated, no other host has the endpoint, so the port is kept. */
static __always_inline int keeps_endpoint(const struct flow_room *s)
{
	return s->opening.keeps_port;
}

/* The next port to try. The first is that of the LAN endpoint on this link, if it has one. */
static __always_inline __u32 next_port(const struct ab_settings *set, const struct flow_room *s, __u32 attempt)
{
	__u32 original = bpf_ntohs(s->lan_key.local_port);
	if (keeps_endpoint(s))
		return original;
	if (is_icmp(s->lan_key.proto))
		return candidate_id(original, s->opening.first_port, attempt);
	if (!attempt && s->opening.kept_link == s->decision.target)
		return bpf_ntohs(s->opening.kept_port);
	return candidate_port(set, original, s->opening.first_port, attempt);
}

/* Whether both ends of the flow would be the same: a LAN host calls another at the port that it would get itself. */
static __always_inline int is_remote_end(const struct flow_room *s)
{
	return is_same_addr(&s->wan_key.local, &s->opening.remote) && s->wan_key.local_port == s->opening.remote_port;
}

/* A SYN/ACK must come from the endpoint that was called, so only its port is tried. */
static __always_inline __u32 port_attempts(const struct flow_room *s)
{
	return s->opening.is_answer || keeps_endpoint(s) ? 1 : PORT_ATTEMPTS;
}

/* Whether the port of s->wan_key is reserved for another use. */
static __always_inline int is_withheld(struct __sk_buff *skb, const struct ab_settings *set, struct flow_room *s)
{
	return is_reserved(set, bpf_ntohs(s->wan_key.local_port)) || is_remote_end(s) || is_of_host(skb, s);
}

struct port_search {
	struct __sk_buff *skb;
};

/* Tries a candidate for the flow of s->lan_key. Returns whether the search is over; the result is s->opening.reason. */
static long try_port(__u32 attempt, struct port_search *search)
{
	struct flow_room *s = flow_room();
	const struct ab_settings *set = current_settings();
	if (!s || !set)
		return 1;
	__u32 any = is_icmp(s->lan_key.proto) || keeps_endpoint(s), port = next_port(set, s, attempt);
	if (!port && !any)
		return 1;
	s->wan_key.local_port = bpf_htons(port);
	if (stood_formerly(&s->wan_key))
		return 0;
	if (!any && is_withheld(search->skb, set, s))
		return 0;
	int error = bpf_map_update_elem(&flows, &s->wan_key, &s->wan, BPF_NOEXIST);
	if (error == -EEXIST)
		return 0;
	s->opening.reason = error ? AB_REASON_REFUSED_UNCONFIRMED : 0;
	return 1;
}

/* Removes the flow with a candidate port if it has ended. Stops after the first one. */
static long yield_port(__u32 attempt, __u32 *yielded)
{
	struct flow_room *s = flow_room();
	const struct ab_settings *set = current_settings();
	if (!s || !set)
		return 1;
	s->wan_key.local_port = bpf_htons(next_port(set, s, attempt));
	const struct ab_flow *wan = find_entry(&s->wan_key);
	if (!wan)
		return 0;
	make_other_key(&s->evicted_lan_key, &s->wan_key, wan);
	const struct ab_flow *lan = find_entry(&s->evicted_lan_key);
	if (!lan || !(lan->state & AB_STATE_CLOSED) || !is_other_of(lan, &s->wan_key, wan))
		return 0;
	forget_evicted();
	*yielded = 1;
	return 1;
}

/* Frees one of the candidate ports that belongs to an ended flow. Such a flow only keeps it for late segments, and it counts
 * against nobody. */
__noinline __u32 yield_ports(__u32 attempts)
{
	__u32 yielded = 0;
	bpf_loop(attempts, yield_port, &yielded, 0);
	return yielded;
}

/* Inserts the link entry s->wan with the first free port. Returns 0, or the reason why not. */
static __always_inline int bind_port(struct __sk_buff *skb, struct flow_room *s)
{
	struct port_search search = { .skb = skb };
	__u32 attempts = port_attempts(s);
	s->opening.first_port = draw() & 0xffffff;
	s->opening.reason = AB_REASON_REFUSED_PORTS;
	bpf_loop(attempts, try_port, &search, 0);
	if (s->opening.reason == AB_REASON_REFUSED_PORTS && yield_ports(attempts))
		bpf_loop(attempts, try_port, &search, 0);
	return s->opening.reason;
}

#endif
