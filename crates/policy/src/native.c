/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions of bpf/policy as functions of this machine, and the contract of bpf/include as tables. */
#include <stddef.h>

#include "../../../bpf/policy/bins.h"
#include "../../../bpf/policy/drr.h"
#include "../../../bpf/policy/hash.h"
#include "../../../bpf/policy/pick.h"
#include "../../../bpf/policy/trace.h"
#include "../../../bpf/policy/tries.h"

void ab_native_pick(const struct ab_candidates *c, const struct ab_request *q, struct ab_decision *d)
{
	*d = ab_pick(c, q);
}

__u32 ab_native_flow_hash(const union ab_addr *src, const union ab_addr *dst, __be16 sport, __be16 dport)
{
	return ab_flow_hash(src, dst, sport, dport);
}

__u32 ab_native_trace(const struct ab_flow_key *lan_key)
{
	return ab_trace(lan_key);
}

__u32 ab_native_bin(__u32 hash)
{
	return ab_bin(hash);
}

__u8 ab_native_sublink_by_hash(__u32 hash, __u32 usable)
{
	return ab_sublink_by_hash(hash, usable);
}

__u8 ab_native_sublink_by_bin(const __u8 *table, __u32 hash, __u32 usable)
{
	return ab_sublink_by_bin(table, hash, usable);
}

__u8 ab_native_sublink_by_rendezvous(const struct ab_candidates *c, __u32 hash)
{
	return ab_sublink_by_rendezvous(c, hash);
}

__u64 ab_native_neg_log2(__u32 draw)
{
	return ab_neg_log2(draw);
}

int ab_native_flowlet_lasts(const struct ab_flowlet *f, __u32 usable, __u64 now_ns, __u64 gap_ns)
{
	return ab_flowlet_lasts(f, usable, now_ns, gap_ns);
}

void ab_native_flowlet_send(struct ab_flowlet *f, __u8 sublink, __u64 now_ns)
{
	ab_flowlet_send(f, sublink, now_ns);
}

__u8 ab_native_sublink_by_deficit(struct ab_drr *d, const __u32 *quantum, __u32 count, __u32 length, __u32 usable)
{
	return ab_sublink_by_deficit(d, quantum, count, length, usable);
}

__u32 ab_native_try(__u32 link)
{
	return ab_try(link);
}

__u32 ab_native_try_link(__u32 one)
{
	return ab_try_link(one);
}

__u32 ab_native_tries_at(__u32 tries, __u32 i)
{
	return ab_tries_at(tries, i);
}

int ab_native_tries_are_free(__u32 tries)
{
	return ab_tries_are_free(tries);
}

__u32 ab_native_tries_claim(__u32 tries)
{
	return ab_tries_claim(tries);
}

__u32 ab_native_tries_given_up(__u32 tries, __u32 next)
{
	return ab_tries_given_up(tries, next);
}

__u32 ab_native_tries_next(__u32 tries, __u32 current, __u32 next)
{
	return ab_tries_next(tries, current, next);
}

__u32 ab_native_tries_judge(__u32 tries, __u32 current, __u32 from)
{
	return ab_tries_judge(tries, current, from);
}

__u32 ab_native_tries_answered(__u32 tries, __u32 current, __u32 winner)
{
	return ab_tries_answered(tries, current, winner);
}

/* ---- structures ---- */

struct row {
	const char *structure;
	const char *field; /* "" for the structure itself */
	__u32 offset;
	__u32 size;
};

#define SELF(s) { #s, "", 0, sizeof(struct s) }
#define FIELD(s, f) { #s, #f, offsetof(struct s, f), sizeof(((struct s *)0)->f) }

const struct row ab_native_layout[] = {
	SELF(ab_candidates),
	FIELD(ab_candidates, count),
	FIELD(ab_candidates, usable),
	FIELD(ab_candidates, weight),
	FIELD(ab_candidates, load),
	SELF(ab_request),
	FIELD(ab_request, dispatch),
	FIELD(ab_request, avoid),
	FIELD(ab_request, hash),
	FIELD(ab_request, random),
	SELF(ab_decision),
	FIELD(ab_decision, target),
	FIELD(ab_decision, why),
	SELF(ab_flow_key),
	FIELD(ab_flow_key, local),
	FIELD(ab_flow_key, remote),
	FIELD(ab_flow_key, local_port),
	FIELD(ab_flow_key, remote_port),
	FIELD(ab_flow_key, proto),
	FIELD(ab_flow_key, side),
	FIELD(ab_flow_key, zero),
	SELF(ab_flow_tcp),
	FIELD(ab_flow_tcp, isn),
	FIELD(ab_flow_tcp, ack),
	FIELD(ab_flow_tcp, end),
	FIELD(ab_flow_tcp, tries),
	SELF(ab_flow),
	FIELD(ab_flow, opened_ns),
	FIELD(ab_flow, seen_ns),
	FIELD(ab_flow, packets),
	FIELD(ab_flow, bytes),
	FIELD(ab_flow, other_local),
	FIELD(ab_flow, tcp),
	FIELD(ab_flow, state),
	FIELD(ab_flow, lan_ifindex),
	FIELD(ab_flow, other_port),
	FIELD(ab_flow, first_remote_port),
	FIELD(ab_flow, tried),
	FIELD(ab_flow, link),
	FIELD(ab_flow, why),
	FIELD(ab_flow, mac),
	FIELD(ab_flow, turned),
	FIELD(ab_flow, zero),
	FIELD(ab_flow, host),
	FIELD(ab_flow, embryo),
	SELF(ab_host_key),
	FIELD(ab_host_key, address),
	FIELD(ab_host_key, ifindex),
	FIELD(ab_host_key, mac),
	FIELD(ab_host_key, zero),
	SELF(ab_embryo_key),
	FIELD(ab_embryo_key, host),
	FIELD(ab_embryo_key, number),
	SELF(ab_link),
	FIELD(ab_link, external),
	FIELD(ab_link, gateway),
	FIELD(ab_link, ifindex),
	FIELD(ab_link, mtu),
	FIELD(ab_link, flags),
	FIELD(ab_link, zero),
	SELF(ab_device),
	FIELD(ab_device, ifindex),
	FIELD(ab_device, role),
	FIELD(ab_device, link),
	FIELD(ab_device, layer3),
	FIELD(ab_device, zero),
	FIELD(ab_device, mtu),
	FIELD(ab_device, address),
	SELF(ab_route_key),
	FIELD(ab_route_key, prefix_len),
	FIELD(ab_route_key, addr),
	SELF(ab_route),
	FIELD(ab_route, verdict),
	FIELD(ab_route, link),
	FIELD(ab_route, zero),
	FIELD(ab_route, ifindex),
	FIELD(ab_route, via),
	SELF(ab_target),
	FIELD(ab_target, weight),
	FIELD(ab_target, dispatched_base),
	SELF(ab_choice),
	FIELD(ab_choice, dispatch),
	FIELD(ab_choice, load),
	FIELD(ab_choice, count),
	FIELD(ab_choice, usable),
	FIELD(ab_choice, syn_retry),
	FIELD(ab_choice, granularity),
	FIELD(ab_choice, stick),
	FIELD(ab_choice, except),
	FIELD(ab_choice, target),
	SELF(ab_settings),
	FIELD(ab_settings, tcp_established_ns),
	FIELD(ab_settings, tcp_transitory_ns),
	FIELD(ab_settings, udp_ns),
	FIELD(ab_settings, icmp_ns),
	FIELD(ab_settings, embryo_ns),
	FIELD(ab_settings, forwards_kernel),
	FIELD(ab_settings, quota_per_host),
	FIELD(ab_settings, flows_max),
	FIELD(ab_settings, port_min),
	FIELD(ab_settings, port_max),
	FIELD(ab_settings, ephemeral_min),
	FIELD(ab_settings, ephemeral_max),
	FIELD(ab_settings, udp_filter_open),
	FIELD(ab_settings, fallback_mark),
	FIELD(ab_settings, embryos_per_host),
	FIELD(ab_settings, flows_per_device),
	FIELD(ab_settings, embryos_per_device),
	FIELD(ab_settings, lan_sources_loose),
	FIELD(ab_settings, zero),
	FIELD(ab_settings, reserved),
	SELF(ab_traffic),
	FIELD(ab_traffic, tx_packets),
	FIELD(ab_traffic, tx_bytes),
	FIELD(ab_traffic, rx_packets),
	FIELD(ab_traffic, rx_bytes),
	FIELD(ab_traffic, rx_progress),
	FIELD(ab_traffic, syn_retries),
	SELF(ab_gauge),
	FIELD(ab_gauge, dispatched),
	FIELD(ab_gauge, opened),
	FIELD(ab_gauge, closed),
	SELF(ab_host),
	FIELD(ab_host, opened),
	FIELD(ab_host, closed),
	FIELD(ab_host, opened_ns),
	FIELD(ab_host, fallback_ns),
	FIELD(ab_host, unknown_ns),
	FIELD(ab_host, id),
	FIELD(ab_host, embryo_head),
	FIELD(ab_host, embryo_tail),
	FIELD(ab_host, embryos),
	FIELD(ab_host, mappings),
	FIELD(ab_host, permissions),
	SELF(ab_table),
	FIELD(ab_table, confirmed),
	FIELD(ab_table, forgotten),
	FIELD(ab_table, evicted),
	FIELD(ab_table, hosts),
	FIELD(ab_table, fallback_ns),
	FIELD(ab_table, secret),
	SELF(ab_sweep),
	FIELD(ab_sweep, expired),
	FIELD(ab_sweep, count),
	FIELD(ab_sweep, pressure),
	FIELD(ab_sweep, is_last),
	FIELD(ab_sweep, zero),
	SELF(ab_ending),
	FIELD(ab_ending, ended),
	FIELD(ab_ending, opened_before_ns),
	FIELD(ab_ending, seen_before_ns),
	FIELD(ab_ending, link),
	FIELD(ab_ending, count),
	FIELD(ab_ending, unfinished),
	FIELD(ab_ending, zero),
	SELF(ab_ended),
	FIELD(ab_ended, local),
	FIELD(ab_ended, remote),
	FIELD(ab_ended, local_port),
	FIELD(ab_ended, remote_port),
	FIELD(ab_ended, seq),
	FIELD(ab_ended, ack),
	FIELD(ab_ended, lan_ifindex),
	SELF(ab_explanation),
	FIELD(ab_explanation, reason),
	FIELD(ab_explanation, link),
	FIELD(ab_explanation, why),
	FIELD(ab_explanation, bound),
	FIELD(ab_explanation, hash),
	FIELD(ab_explanation, usable),
	FIELD(ab_explanation, seen),
	SELF(ab_flowlet),
	FIELD(ab_flowlet, seen_ns),
	FIELD(ab_flowlet, sublink),
	FIELD(ab_flowlet, begun),
	SELF(ab_drr),
	FIELD(ab_drr, deficit),
	FIELD(ab_drr, visited),
	FIELD(ab_drr, begun),
	SELF(ab_spreading),
	FIELD(ab_spreading, sublinks),
	FIELD(ab_spreading, spread),
	FIELD(ab_spreading, zero),
	FIELD(ab_spreading, flowlet_gap_ns),
	FIELD(ab_spreading, quantum),
	SELF(ab_sublink),
	FIELD(ab_sublink, ifindex),
	FIELD(ab_sublink, flags),
	FIELD(ab_sublink, next_hop),
	FIELD(ab_sublink, zero),
	SELF(ab_carried),
	FIELD(ab_carried, packets),
	FIELD(ab_carried, bytes),
	FIELD(ab_carried, opened),
};
const size_t ab_native_layout_count = sizeof(ab_native_layout) / sizeof(ab_native_layout[0]);

/* The remote address of a UDP mapping stands where a TCP flow keeps its sequence numbers. */
_Static_assert(offsetof(struct ab_flow, tcp) == offsetof(struct ab_flow, first_remote), "ab_flow union");
_Static_assert(sizeof(struct ab_flow_tcp) == sizeof(union ab_addr), "ab_flow union");

/* ---- enumerations ---- */

struct constant {
	const char *name;
	__u64 value;
};

#define CONSTANT(name) { #name, name }

/* Every enumerator of the headers (a test reads them and looks), and the limits. */
const struct constant ab_native_constants[] = {
	CONSTANT(AB_DISPATCH_WEIGHTED),
	CONSTANT(AB_DISPATCH_BEST),
	CONSTANT(AB_DISPATCH_RANDOM),
	CONSTANT(AB_DISPATCH_HASH),
	CONSTANT(AB_LOAD_DISPATCHED),
	CONSTANT(AB_LOAD_ACTIVE),
	CONSTANT(AB_WHY_NONE_USABLE),
	CONSTANT(AB_WHY_ONLY_ONE),
	CONSTANT(AB_WHY_WEIGHTED),
	CONSTANT(AB_WHY_BEST),
	CONSTANT(AB_WHY_RANDOM),
	CONSTANT(AB_WHY_HASH),
	CONSTANT(AB_WHY_RETRIED),
	CONSTANT(AB_WHY_ROUTE),
	CONSTANT(AB_WHY_SESSION),
	CONSTANT(AB_WHY_HOST),
	CONSTANT(AB_WHY_ENDPOINT),
	CONSTANT(AB_PER_CONNECTION),
	CONSTANT(AB_PER_SESSION),
	CONSTANT(AB_PER_HOST),
	CONSTANT(AB_STATE_REPLIED),
	CONSTANT(AB_STATE_CONFIRMED),
	CONSTANT(AB_STATE_FIN_LOCAL),
	CONSTANT(AB_STATE_FIN_REMOTE),
	CONSTANT(AB_STATE_CLOSED),
	CONSTANT(AB_STATE_PERMISSION),
	CONSTANT(AB_STATE_VIA_ROUTER),
	CONSTANT(AB_STATE_HAIRPIN),
	CONSTANT(AB_STATE_SHARED),
	CONSTANT(AB_STATE_LEAVING),
	CONSTANT(AB_ANSWER_FOREIGN),
	CONSTANT(AB_ANSWER_FIRST),
	CONSTANT(AB_ANSWER_AGAIN),
	CONSTANT(AB_ANSWER_LATE),
	CONSTANT(AB_ANSWER_BUSY),
	CONSTANT(AB_LINK_PRESENT),
	CONSTANT(AB_LINK_POINT_TO_POINT),
	CONSTANT(AB_ROLE_NONE),
	CONSTANT(AB_ROLE_LAN),
	CONSTANT(AB_ROLE_LINK),
	CONSTANT(AB_VERDICT_KERNEL),
	CONSTANT(AB_VERDICT_LAN),
	CONSTANT(AB_VERDICT_LINK),
	CONSTANT(AB_VERDICT_LOCAL),
	CONSTANT(AB_SENT),
	CONSTANT(AB_PASSED),
	CONSTANT(AB_DROPPED),
	CONSTANT(AB_REFUSED),
	CONSTANT(AB_ABI_VERSION),
	CONSTANT(AB_MAX_LINKS),
	CONSTANT(AB_WEIGHT_MIN),
	CONSTANT(AB_WEIGHT_MAX),
	CONSTANT(AB_NO_TARGET),
	CONSTANT(AB_EXCEPT_MAX),
	CONSTANT(AB_VISIT_MAX),
	CONSTANT(AB_STRAY_MARK),
	CONSTANT(AB_PRESSED_CLOSED_NS),
	CONSTANT(AB_FULL_NS),
	CONSTANT(AB_RESERVED_MAX),
	CONSTANT(AB_HOST_IDLE_NS),
	CONSTANT(AB_DEVICE_PLACES),
	CONSTANT(AB_DEVICE_STEPS),
	CONSTANT(AB_SIDE_LAN),
	CONSTANT(AB_BINS),
	CONSTANT(AB_SPREAD_HASH),
	CONSTANT(AB_SPREAD_BINS),
	CONSTANT(AB_SPREAD_RENDEZVOUS),
	CONSTANT(AB_SPREAD_FLOWLET),
	CONSTANT(AB_SPREAD_PACKET),
	CONSTANT(AB_SUBLINK_PRESENT),
	CONSTANT(AB_SUBLINK_POINT_TO_POINT),
	CONSTANT(AB_TRUNK_ABI_VERSION),
};
const size_t ab_native_constants_count = sizeof(ab_native_constants) / sizeof(ab_native_constants[0]);

/* ---- reasons ---- */

struct reason {
	const char *name;
	const char *words;
	__u32 fate;
};

#define REASON(name, fate, words) { #name, words, AB_##fate & AB_FATE_MASK },

const struct reason ab_native_reasons[] = { AB_REASONS(REASON) };
const size_t ab_native_reasons_count = AB_REASON_COUNT;

const struct reason ab_native_trunk_reasons[] = { AB_TRUNK_REASONS(REASON) };
const size_t ab_native_trunk_reasons_count = AB_TRUNK_REASON_COUNT;
