// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * Services: servers behind virtual addresses. `service` is attached at the ingress of the devices over which clients and servers
 * are reached, `service_layer3` at that of devices without Ethernet, before the gateway if there is one. Packets of no service go
 * on to the next program. The other programs are not attached; user space runs them: `explain_service` answers which server a
 * client would get, `sweep_connections` keeps the table clean.
 */
#include <linux/if_packet.h>

#include "lib/packet/answer.h"
#include "lib/packet/fate.h"
#include "lib/service/explain.h"

static const __u8 fate_of[AB_SERVICE_REASON_COUNT] = {
#define AB_SERVICE_REASON_FATE(name, fate, words) [AB_SERVICE_REASON_##name] = AB_##fate,
	AB_SERVICE_REASONS(AB_SERVICE_REASON_FATE)
#undef AB_SERVICE_REASON_FATE
};

static __always_inline enum ab_fate fate_of_reason(__u32 reason)
{
	return fate_of[reason < AB_SERVICE_REASON_COUNT ? reason : AB_SERVICE_REASON_UNSENT];
}

static __always_inline int leave(__u32 reason)
{
	__u64 *packets = bpf_map_lookup_elem(&service_reasons, &reason);
	if (packets)
		(*packets)++;
	return action_of(fate_of_reason(reason));
}

/* Makes a packet its own answer, as if its destination sent it. Returns 0, or a negative error. */
static __noinline int become_answer(struct __sk_buff *skb, struct packet *p, __u32 reason)
{
	if (reason == AB_SERVICE_REASON_TOO_BIG)
		return become_error(skb, p, &p->dst, 0, ICMP_DEST_UNREACH << 8 | ICMP_FRAG_NEEDED);
	if (p->proto == IPPROTO_TCP)
		return become_reset(skb, p);
	return become_error(skb, p, &p->dst, 0, ICMP_DEST_UNREACH << 8 | ICMP_PORT_UNREACH);
}

/* Answers a packet that goes no further. Returns the action. */
static __noinline int answer(struct __sk_buff *skb, struct packet *p, __u32 reason)
{
	if (become_answer(skb, p, reason) || exchange_ends(skb, p))
		return TC_ACT_SHOT;
	return bpf_redirect(skb->ifindex, 0);
}

/* Handles a packet that arrived, with its IP header at `l3`. */
static __always_inline int arrive(struct __sk_buff *skb, __u32 l3)
{
	struct service_room *room = service_room();
	if (!room || (l3 && skb->pkt_type != PACKET_HOST))
		return leave(AB_SERVICE_REASON_NOT_OURS);
	__u32 reason = serve(skb, room, l3);
	int action = leave(reason);
	return fate_of_reason(reason) == AB_REFUSED ? answer(skb, &room->packet, reason) : action;
}

SEC("classifier")
int service(struct __sk_buff *skb)
{
	return arrive(skb, ETH_HLEN);
}

SEC("classifier")
int service_layer3(struct __sk_buff *skb)
{
	return arrive(skb, 0);
}

/* The answer is written over the packet, after the headers that the question was about. */
SEC("classifier")
int explain_service(struct __sk_buff *skb)
{
	struct service_room *room = service_room();
	struct ab_explanation *answer = service_explanation();
	if (!room || !answer)
		return TC_ACT_SHOT;
	__builtin_memset(answer, 0, sizeof(*answer));
	answer->link = answer->class = AB_NO_TARGET;
	answer->reason = explain_connection(skb, room, answer);
	__u32 header = ip_header_of(room->packet.family);
	return bpf_skb_store_bytes(skb, ETH_HLEN + header + sizeof(struct tcphdr), answer, sizeof(*answer), 0);
}

SEC("raw_tp/sweep_connections")
int sweep_connections(void *ctx)
{
	(void)ctx;
	sweep_visited_connections();
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
