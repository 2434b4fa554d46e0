/* SPDX-License-Identifier: Apache-2.0 */
/* The decisions of bpf/policy as functions of this machine, and the reasons and map versions of bpf/include as tables. */
#include <stddef.h>

#include "../../../bpf/include/service.h"
#include "../../../bpf/policy/bins.h"
#include "../../../bpf/policy/choose.h"
#include "../../../bpf/policy/connection.h"
#include "../../../bpf/policy/drr.h"
#include "../../../bpf/policy/hash.h"
#include "../../../bpf/policy/npt.h"
#include "../../../bpf/policy/paths.h"
#include "../../../bpf/policy/race.h"
#include "../../../bpf/policy/rules.h"
#include "../../../bpf/policy/session.h"
#include "../../../bpf/policy/trace.h"
#include "../../../bpf/policy/tries.h"
#include "../../../bpf/policy/witness.h"

void ab_native_choose(const struct ab_choice *now, const struct ab_gauges *gauges, const struct ab_consistent *table,
		      struct ab_request *q, __u32 tried, __u64 full, struct ab_decision *d)
{
	ab_avoid(q, tried, full);
	ab_choose(now, gauges, table, q, d);
}

__u32 ab_native_reach(const struct ab_choice *now, __be16 remote_port)
{
	return ab_reach(now, remote_port);
}

int ab_native_takes_turns(const struct ab_choice *now)
{
	return ab_takes_turns(now);
}

__u32 ab_native_judge_syn(const struct ab_choice *now, __u32 state, int is_same, __u32 target, __u32 tries)
{
	return ab_judge_syn(now, state, is_same, target, tries);
}

__u32 ab_native_tried_with(const struct ab_choice *now, __u32 tried, __u32 target)
{
	return ab_tried_with(now, tried, target);
}

__u32 ab_native_tried(__u32 target)
{
	return ab_tried(target);
}

__u32 ab_native_class_of(const struct ab_rules *rules, const struct ab_traits *t)
{
	return ab_class_of(rules, t);
}

__u32 ab_native_flow_hash(const union ab_addr *src, const union ab_addr *dst, __be16 sport, __be16 dport)
{
	return ab_flow_hash(src, dst, sport, dport);
}

int ab_native_npt(union ab_addr *addr, const union ab_addr *prefix, __u32 prefix_len)
{
	return ab_npt(addr, prefix, prefix_len);
}

__u32 ab_native_hash_for(const struct ab_choice *now, const union ab_addr *src, const union ab_addr *dst, __be16 sport,
			 __be16 dport)
{
	return ab_hash_for(now, src, dst, sport, dport);
}

__u64 ab_native_session_word(__u64 hash, __u32 link, __u64 now_ns)
{
	return ab_session_word(ab_session_trace(hash), link, now_ns);
}

__u32 ab_native_session_link(const struct ab_choice *now, __u64 word, __u64 hash, __u64 now_ns)
{
	return ab_session_link(now, word, ab_session_trace(hash), now_ns);
}

__u32 ab_native_trace(const struct ab_flow_key *lan_key)
{
	return ab_trace(lan_key);
}

__u32 ab_native_bin(__u32 hash)
{
	return ab_bin(hash);
}

__u16 ab_native_sublink_by_hash(__u32 hash, __u64 usable)
{
	return ab_sublink_by_hash(hash, usable);
}

__u16 ab_native_sublink_by_bin(const __u16 *table, __u32 hash, __u64 usable)
{
	return ab_sublink_by_bin(table, hash, usable);
}

__u16 ab_native_sublink_by_rendezvous(const struct ab_sublinks *s, __u32 hash)
{
	return ab_sublink_by_rendezvous(s, hash);
}

__u64 ab_native_neg_log2(__u32 draw)
{
	return ab_neg_log2(draw);
}

int ab_native_flowlet_lasts(const struct ab_flowlet *f, __u64 usable, __u64 now_ns, __u64 gap_ns)
{
	return ab_flowlet_lasts(f, usable, now_ns, gap_ns);
}

void ab_native_flowlet_send(struct ab_flowlet *f, __u16 sublink, __u64 now_ns)
{
	ab_flowlet_send(f, sublink, now_ns);
}

__u16 ab_native_sublink_by_deficit(struct ab_drr *d, const __u32 *quantum, __u32 count, __u32 length, __u64 usable)
{
	return ab_sublink_by_deficit(d, quantum, count, length, usable);
}

void ab_native_prefix_of(struct ab_prefix *prefix, const union ab_addr *addr)
{
	ab_prefix_of(prefix, addr);
}

__u32 ab_native_syn_sent(__u64 now_ns)
{
	return ab_syn_sent(now_ns);
}

void ab_native_learn_answer(const struct ab_choice *now, struct ab_path *path, __u32 sent, __u64 now_ns)
{
	ab_learn_answer(now, path, sent, now_ns);
}

void ab_native_learn_silence(const struct ab_choice *now, struct ab_path *path, struct ab_silence *silence, __u32 link,
			     __u32 sent, __u64 now_ns)
{
	ab_learn_silence(now, path, silence, link, sent, now_ns);
}

__u32 ab_native_heeded(const struct ab_choice *now, const struct ab_silence *silence, __u32 fresh, __u64 now_ns)
{
	return ab_heeded(now, silence, fresh, now_ns);
}

void ab_native_know(const struct ab_choice *now, const struct ab_paths *paths, struct ab_request *q, __u64 now_ns,
		    int tells)
{
	ab_know(now, paths, q, now_ns, tells);
}

int ab_native_may_race(const struct ab_choice *now, const struct ab_request *q, __u32 payload)
{
	return ab_may_race(now, q, payload);
}

__u64 ab_native_spend_race(const struct ab_choice *now, __u64 full_ns, __u64 now_ns)
{
	return ab_spend_race(now, full_ns, now_ns);
}

__u32 ab_native_asked_links(const struct ab_request *q, const struct ab_decision *d)
{
	return ab_asked_links(q, d);
}

__u32 ab_native_rivals(const struct ab_request *q, __u32 first)
{
	return ab_rivals(q, first);
}

__u32 ab_native_next_rival(__u32 first, __u32 step)
{
	return ab_next_rival(first, step);
}

__u32 ab_native_tries_probe(__u32 rivals)
{
	return ab_tries_probe(rivals);
}

int ab_native_waits(__u32 tries)
{
	return ab_waits(tries);
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

__u32 ab_native_tries_race(__u32 rivals)
{
	return ab_tries_race(rivals);
}

int ab_native_is_race(__u32 tries)
{
	return ab_is_race(tries);
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

/* The remote address of a mapping stands where a TCP flow keeps its sequence numbers. */
_Static_assert(sizeof(struct ab_flow_tcp) == sizeof(union ab_addr), "ab_first_remote");

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

const struct reason ab_native_service_reasons[] = { AB_SERVICE_REASONS(REASON) };
const size_t ab_native_service_reasons_count = AB_SERVICE_REASON_COUNT;

__u32 ab_native_connection_learn(__u32 state, int by_server, __u8 flags)
{
	return ab_connection_learn(state, by_server, flags);
}

int ab_native_connection_gives_way(__u32 state, __u8 flags)
{
	return ab_connection_gives_way(state, flags);
}

__u64 ab_native_connection_timer_ns(__u32 state)
{
	return ab_connection_timer_ns(state);
}

int ab_native_witness(struct ab_witnesses *of_link, __u32 host, __u32 end, __u64 now_ns)
{
	return ab_witness(of_link, host, end, now_ns);
}
