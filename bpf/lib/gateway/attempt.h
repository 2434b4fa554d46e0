/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The tries of a connection attempt in the tables (policy/tries.h). Each try has a link entry, all with the same external port. The
 * LAN entry is bound to one of them at a time. When the attempt is decided, `retire_tries` alone removes the other entries.
 */
#ifndef ANABRANCH_ATTEMPT_H
#define ANABRANCH_ATTEMPT_H

#include <linux/in.h>

#include "../../policy/tries.h"
#include "../packet/addr.h"
#include "../packet/parse.h"
#include "former.h"
#include "stats.h"

/* Losing tries, by their link keys. An answer to one is reset as long as it is remembered. */
AB_MAP(losing_copies, BPF_MAP_TYPE_LRU_HASH, 4096, struct ab_flow_key, struct ab_losing_copy, 0);

/* The key of the try over `link`. Returns 0 if the link has no address. */
static __always_inline int make_try_key(struct ab_flow_key *key, const struct ab_flow_key *lan_key,
					const struct ab_flow *lan, __u32 link)
{
	const struct ab_link *there = link_at(link, ab_family_of(&lan_key->local));
	if (!there || !(there->flags & AB_LINK_PRESENT))
		return 0;
	key->local = there->external;
	key->remote = lan_key->remote;
	key->local_port = lan->other_port;
	key->remote_port = lan_key->remote_port;
	key->proto = lan_key->proto;
	key->side = AB_SIDE_LINK(link);
	key->zero = 0;
	return 1;
}

/* If the link has changed its address meanwhile, another flow may have got the port. */
static __always_inline int retire_try(const struct ab_flow_key *lan_key, const struct ab_flow *lan, __u32 link)
{
	struct ab_flow_key key;
	struct ab_losing_copy losing_copy = { .isn = lan->tcp.isn, .class = lan->class };
	if (!make_try_key(&key, lan_key, lan, link))
		return 0;
	const struct ab_flow *entry = find_entry(&key);
	if (!entry || entry->state & AB_STATE_CONFIRMED || entry->other_port != lan_key->local_port ||
	    !is_same_addr(&entry->other_local, &lan_key->local))
		return 0;
	if (ab_is_race(lan->tcp.tries) && !ab_tries_are_free(lan->tcp.tries))
		losing_copy.sent = entry->tcp.tries;
	bpf_map_delete_elem(&flows, &key);
	return bpf_map_update_elem(&losing_copies, &key, &losing_copy, BPF_ANY);
}

struct retiring {
	const struct ab_flow_key *lan_key;
	struct ab_flow *lan;
	__u32 tries;
};

static long retire_nth(__u32 i, struct retiring *r)
{
	__u32 one = ab_tries_at(r->tries, i);
	if (one)
		retire_try(r->lan_key, r->lan, ab_try_link(one));
	return 0;
}

/* Removes the link entries of all tries except the flow's own. */
static __noinline int retire_tries(const struct ab_flow_key *lan_key, struct ab_flow *lan)
{
	struct retiring r = { .lan_key = lan_key, .lan = lan, .tries = lan->tcp.tries };
	bpf_loop(AB_TRIES_OTHERS, retire_nth, &r, 0);
	lan->tcp.tries = r.tries & ~AB_TRIES_MASK;
	return 0;
}

static __always_inline int has_other_tries(const struct ab_flow_key *lan_key, const struct ab_flow *lan)
{
	return lan_key->proto == IPPROTO_TCP && lan->tcp.tries & AB_TRIES_MASK;
}

static __always_inline int is_earlier_try(const struct ab_flow_key *lan_key, const struct ab_flow *lan, __u32 link)
{
	return has_other_tries(lan_key, lan) && ab_tries_hold(lan->tcp.tries, ab_try(link));
}

/* Whether a try is the flow's own or an earlier one. */
static __always_inline int holds_try(const struct ab_flow_key *lan_key, const struct ab_flow *lan,
				     const struct ab_flow_key *wan_key)
{
	__u32 link = wan_key->side - AB_SIDE_LINK(0);
	return lan->link == link || is_earlier_try(lan_key, lan, link);
}

/* Claims the word of which `tries` was read. Returns whether this CPU may change it. */
static __always_inline int claim_tries(struct ab_flow *lan, __u32 tries)
{
	return __sync_val_compare_and_swap(&lan->tcp.tries, tries, ab_tries_claim(tries)) == tries;
}

/* Binds a claimed flow to `link`, and ends the claim. */
static __always_inline void bind_to_try(struct ab_flow *lan, const union ab_addr *external, __u32 link, __u32 tries)
{
	gauge_add(lan->link, 0, 0, 1);
	gauge_add(link, 0, 1, 0);
	lan->other_local = *external;
	lan->link = link;
	__sync_lock_test_and_set(&lan->tcp.tries, tries);
}

/* The probe over the link of `wan_key` was answered first: the waiting SYN takes only that link. Returns whether it may
 * be sent. */
static __noinline int answer_probe(const struct ab_flow_key *lan_key, struct ab_flow *lan,
				   const struct ab_flow_key *wan_key)
{
	__u32 tries = lan->tcp.tries, link = wan_key->side - AB_SIDE_LINK(0);
	__u32 current = ab_try(lan->link), from = ab_try(link);
	if (ab_tries_judge(tries, current, from) != AB_ANSWER_FIRST || !claim_tries(lan, tries))
		return 0;
	__u32 others = ab_tries_claim(ab_tries_replace(tries, from, current));
	if (from == current)
		lan->tcp.tries = others;
	else
		bind_to_try(lan, &wan_key->local, link, others);
	retire_tries(lan_key, lan);
	__sync_lock_test_and_set(&lan->tcp.tries, 0);
	return 1;
}

/* `p` answers the try of `wan_key` and matches its SYN. The flow is bound to this try, unless it was bound to another one
 * before. */
static __noinline int answer_attempt(struct packet *p, struct ab_flow_key *lan_key, struct ab_flow *lan,
				     struct ab_flow_key *wan_key)
{
	__u32 tries = lan->tcp.tries, link = wan_key->side - AB_SIDE_LINK(0);
	__u32 current = ab_try(lan->link), from = ab_try(link);
	int answer = lan->other_port == wan_key->local_port ? ab_tries_judge(tries, current, from) : AB_ANSWER_FOREIGN;
	if (answer != AB_ANSWER_FIRST)
		return answer;
	if (!claim_tries(lan, tries))
		return AB_ANSWER_BUSY;
	tries = ab_tries_answered(tries, current, from);
	if (from == current)
		__sync_lock_test_and_set(&lan->tcp.tries, tries);
	else
		bind_to_try(lan, &wan_key->local, link, tries);
	p->losing_copies = ab_is_race(tries) ? tries & AB_TRIES_MASK : 0;
	if (tries & AB_TRIES_MASK)
		retire_tries(lan_key, lan);
	return answer;
}

#endif
