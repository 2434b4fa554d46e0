/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The end of flows. These programs are run by user space and not attached: `sweep_flows` removes flows that have expired,
 * `end_link` ends the flows of one link, also during a sweep. They run in process context and may be interrupted by the forwarding
 * programs on the same CPU, so they use no per-CPU memory.
 *
 * To walk a large table inside the kernel would occupy a CPU for some hundred milliseconds, and in a kernel without
 * preemption nothing else would run there. So user space reads the tables, and passes the keys of flows that had no packet
 * for the shortest of all timers, or that are on the link.
 */
#ifndef ANABRANCH_SWEEP_H
#define ANABRANCH_SWEEP_H

#include "permission.h"
#include "tcp.h"

struct sweep_walk {
	const struct ab_settings *settings;
	const struct ab_visit *visit;
	struct ab_sweep *result;
	__u64 now;
};

static __always_inline __u64 timer_of(const struct sweep_walk *walk, const struct ab_flow_key *key,
				      const struct ab_flow *flow)
{
	const struct ab_settings *set = walk->settings;
	if (key->proto == IPPROTO_UDP)
		return set->udp_ns;
	if (is_icmp(key->proto))
		return set->icmp_ns;
	return ab_tcp_timer_ns(set, flow->state, walk->result->pressure);
}

static __always_inline int has_run_out(const struct sweep_walk *walk, const struct ab_flow_key *key,
				       const struct ab_flow *flow, __u64 seen_ns)
{
	return seen_ns + timer_of(walk, key, flow) < walk->now;
}

/* A link entry expires with its LAN entry; that of an earlier try when it cannot be answered any more. */
static __always_inline void expire_wan(struct ab_flow_key *key, struct ab_flow *flow)
{
	struct ab_flow_key lan_key;
	struct ab_flow *lan = find_attempt(key, flow, &lan_key);
	if (!lan || !(is_other_of(lan, key, flow) || is_earlier_try(&lan_key, lan, flow->link)))
		bpf_map_delete_elem(&flows, key);
}

/* A flow has expired if its other direction had no packet either. */
static __always_inline void expire_lan(struct sweep_walk *walk, struct ab_flow_key *key, struct ab_flow *flow)
{
	struct ab_flow_key wan_key;
	struct ab_flow *wan = find_other(key, flow, &wan_key);
	if (wan && !has_run_out(walk, key, flow, wan->seen_ns))
		return;
	forget_flow(key, &wan_key);
	walk->result->expired++;
}

/* Checks one entry by the key that user space has read; it may have changed since. */
static long visit_entry(__u32 index, struct sweep_walk *walk)
{
	if (index >= AB_VISIT_MAX)
		return 1;
	struct ab_flow_key key = walk->visit->key[index];
	struct ab_flow *flow = find_entry(&key) ?: bpf_map_lookup_elem(&permissions, &key);
	if (!flow)
		return 0;
	if (!has_run_out(walk, &key, flow, flow->seen_ns))
		return 0;
	if (flow->state & AB_STATE_PERMISSION)
		end_permission(&key, flow);
	else if (key.side == AB_SIDE_LAN)
		expire_lan(walk, &key, flow);
	else
		expire_wan(&key, flow);
	return 0;
}

/* A host, or device, is kept until its closed unconfirmed flows have expired, because these count against its share. */
static __always_inline __u64 host_timer(const struct ab_host *host, const struct ab_settings *set)
{
	return host->unconfirmed_head ? set->unconfirmed_ns + AB_HOST_IDLE_NS : AB_HOST_IDLE_NS;
}

static long sweep_host(void *map, struct ab_host_key *of, struct ab_host *host, struct sweep_walk *walk)
{
	struct ab_host_key key = *of;
	__u64 opened = host->opened;
	if ((__s64)(opened - host->closed) > 0 || host->permissions || (__s32)host->unconfirmed > 0 ||
	    host->opened_ns + host_timer(host, walk->settings) > walk->now)
		return 0;
	/* From here on no flow can be opened for it. */
	if (__sync_val_compare_and_swap(&host->opened, opened, opened + HOST_FORGOTTEN) == opened)
		bpf_map_delete_elem(map, &key);
	return 0;
}

static __always_inline void sweep_visited(void)
{
	__u32 zero = 0;
	struct sweep_walk walk = {
		.settings = current_settings(),
		.visit = bpf_map_lookup_elem(&visits, &zero),
		.result = bpf_map_lookup_elem(&sweeping, &zero),
		.now = time_ns(),
	};
	if (!walk.settings || !walk.visit || !walk.result)
		return;
	bpf_loop(walk.result->count, visit_entry, &walk, 0);
	if (walk.result->is_last)
		bpf_for_each_map_elem(&hosts, sweep_host, &walk, 0);
}

/* Reports a TCP flow that ends with its link to user space. Returns false if the ring is full. */
static __always_inline int report_ended(const struct ab_flow_key *key, const struct ab_flow *flow)
{
	struct ab_ended *report = bpf_ringbuf_reserve(&ended, sizeof(*report), 0);
	if (!report)
		return 0;
	report->local = key->local;
	report->remote = key->remote;
	report->local_port = key->local_port;
	report->remote_port = key->remote_port;
	report->seq = flow->tcp.ack;
	report->ack = flow->tcp.end;
	report->lan_ifindex = flow->lan_ifindex;
	bpf_ringbuf_submit(report, 0);
	return 1;
}

struct end_walk {
	const struct ab_visit *visit;
	struct ab_ending *ending;
};

/* Whether the flow had a packet of either direction since then. */
static __always_inline int is_busy(const struct ab_flow_key *key, const struct ab_flow *flow, __u64 since_ns)
{
	struct ab_flow_key wan_key;
	if (flow->seen_ns >= since_ns)
		return 1;
	struct ab_flow *wan = find_other(key, flow, &wan_key);
	return wan && wan->seen_ns >= since_ns;
}

/*
 * For confirmed TCP flows user space sends a RST. UDP and ICMP flows are removed, and their next packet binds them to another link,
 * as does that of TCP without NAT. Other unconfirmed flows are kept, because the SYN's retransmission chooses again. Flows that
 * were opened since the end was ordered are kept, too, because then the link is back.
 */
static long end_entry(__u32 index, struct end_walk *walk)
{
	struct ab_ending *ending = walk->ending;
	if (index >= AB_VISIT_MAX)
		return 1;
	struct ab_flow_key key = walk->visit->key[index], wan_key;
	struct ab_flow *flow = find_entry(&key);
	if (!flow || flow->link != ending->link || flow->opened_ns >= ending->opened_before_ns)
		return 0;
	if (!(ending->classes >> flow->class % AB_MAX_CLASSES & 1))
		return 0;
	if (!(ending->families >> ab_family_of(&key.local) & 1))
		return 0;
	if (is_busy(&key, flow, ending->seen_before_ns))
		return 0;
	if (key.proto == IPPROTO_TCP) {
		if (!ab_ends_with_link(flow->state))
			return 0;
		if (ab_is_told_of_end(flow->state) && !report_ended(&key, flow)) {
			ending->unfinished = 1;
			return 1;
		}
	}
	/* A connection that is over needs no RST. */
	if (!(flow->state & AB_STATE_CLOSED))
		ending->ended++;
	forget_flow(&key, &wan_key);
	return 0;
}

static __always_inline void end_flows_of_link(void)
{
	__u32 zero = 0;
	struct end_walk walk = {
		.visit = bpf_map_lookup_elem(&doomed, &zero),
		.ending = bpf_map_lookup_elem(&ending, &zero),
	};
	if (walk.visit && walk.ending)
		bpf_loop(walk.ending->count, end_entry, &walk, 0);
}

#endif
