/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Opens a flow: chooses the link and the external port, and inserts both entries. */
#ifndef ANABRANCH_OPEN_H
#define ANABRANCH_OPEN_H

#include "../../policy/choose.h"
#include "../../policy/hash.h"
#include "../../policy/npt.h"
#include "../../policy/rules.h"
#include "../../policy/session.h"
#include "admit.h"
#include "unconfirmed.h"
#include "paths.h"
#include "race.h"
#include "survey.h"
#include "tcp.h"
#include "way.h"

/* Maximum number of links tried for one flow: if the first has no free port, two more. */
#define LINK_ATTEMPTS 3
/* No reason: the packet may open a flow. */
#define TO_OPEN (-1)
/* No reason: another CPU has opened the flow meanwhile. */
#define OPENED_ELSEWHERE (-2)

static __always_inline int is_lan_address(const union ab_addr *addr)
{
	const struct ab_route *route = find_route(addr);
	return route && route->verdict == AB_VERDICT_LAN;
}

/* Whether it is an address of the LAN, of this host, or of the LAN as seen beyond a link. Nobody else has these. */
static __always_inline int is_of_site(const union ab_addr *addr)
{
	const struct ab_route *route = find_route(addr);
	return route && (route->verdict == AB_VERDICT_LAN || route->verdict == AB_VERDICT_LOCAL ||
			 route->verdict == AB_VERDICT_PREFIX);
}

static __noinline int is_layer3(__u32 ifindex)
{
	const struct ab_device *device = device_of(ifindex);
	return device && device->layer3;
}

/*
 * Strict reverse path filtering (RFC 3704 section 2.2): the source must be of a LAN prefix, and of the device from which the packet
 * came. Stores what the route says about the host. Returns 0, or the reason to drop.
 */
static __always_inline int check_source(const struct packet *p)
{
	const struct ab_route *from = find_route(&p->src);
	const struct ab_settings *set = current_settings();
	struct flow_room *s = flow_room();
	if (!s || !set)
		return AB_REASON_NOT_CONFIGURED;
	if (!from || from->verdict != AB_VERDICT_LAN)
		return AB_REASON_SPOOFED_LAN;
	s->opening.lan_ifindex = from->ifindex;
	s->opening.layer3 = p->ifindex == from->ifindex ? p->l3 == 0 : is_layer3(from->ifindex);
	s->opening.via_router = from->via || s->opening.layer3;
	return p->ifindex == from->ifindex || set->lan_sources_loose ? 0 : AB_REASON_SPOOFED_DEVICE;
}

AB_SCRATCH(traits_room, struct ab_traits)

/* The class of a flow that begins with `p`. */
__noinline int find_class(struct packet *p)
{
	__u32 zero = 0;
	struct ab_traits *traits = traits_room();
	const struct ab_rules *all = bpf_map_lookup_elem(&rules, &zero);
	if (!p || !traits || !all || !all->active)
		return 0;
	traits->src = p->src;
	traits->dst = p->dst;
	traits->sport = p->sport;
	traits->dport = p->dport;
	traits->proto = p->proto;
	traits->dscp = p->dscp;
	traits->ifindex = p->ifindex;
	return ab_class_of(all, traits);
}

/* Whether the remote end began. */
static __always_inline int is_asked(const struct flow_room *s)
{
	return s->opening.asked_link != AB_NO_TARGET;
}

/* Stores the class of what `p` opens. Returns for which flows a choice in it holds: enum ab_granularity. */
__noinline int classify(struct packet *p)
{
	struct flow_room *s = flow_room();
	if (!s || !p)
		return AB_PER_CONNECTION;
	/* Traffic that stays in the LAN belongs to no class of internet traffic. */
	s->opening.class = s->opening.is_hairpin ? 0 : find_class(p);
	const struct ab_choice *now = choice_of(s->opening.class, s->opening.family);
	return now && !s->opening.is_hairpin && !is_asked(s) ? now->granularity : AB_PER_CONNECTION;
}

/* The reason for a flow of this class for which there is no link. */
static __noinline int reason_without_link(__u32 class, __u32 family)
{
	const struct ab_choice *now = choice_of(class, family);
	switch (now ? now->without : AB_WITHOUT_REFUSE) {
	case AB_WITHOUT_DROP:
		return AB_REASON_CLASS_DROPPED;
	case AB_WITHOUT_KERNEL:
		return AB_REASON_NO_CLASS_LINK;
	default:
		return AB_REASON_NO_LINK;
	}
}

/* The same for a packet that opens no flow. */
static __noinline int refuse_class(__u32 class, __u32 family)
{
	struct ab_class *counts = class_counts(class);
	if (counts)
		__sync_fetch_and_add(&counts->dropped, 1);
	return reason_without_link(class, family);
}

/* For which flows the choice for this flow holds: enum ab_granularity. Packets without flows keep their order by being bound per
 * session. */
static __always_inline __u32 reach_of(const struct ab_choice *now, const struct packet *p)
{
	if (p->kind != PACKET_FLOW && now->granularity != AB_PER_PACKET)
		return AB_PER_SESSION;
	return ab_reach(now, is_icmp(p->proto) ? 0 : p->dport);
}

struct session_room {
	struct ab_session_key key;
	struct ab_sessions fresh;
	__u64 trace; /* trace under which the link is remembered, ... */
	__u32 place; /* ... and its place in the row */
};
AB_SCRATCH(session_room, struct session_room)

/* Builds the key under which the link of a flow of `p` is remembered, for the host of s->host_key and its class. Two sessions
 * of a host have the same trace with a chance of 2^-39, and then share a link, which does no harm. */
static __always_inline void make_session(struct session_room *room, const struct flow_room *s, const struct packet *p,
					 __u32 reach)
{
	__u64 remote = reach == AB_PER_HOST ? 0 : fold_addr(&p->dst);
	__u64 hash = fold_addr(&p->src) * 0xff51afd7ed558ccdull + remote * 0x9e3779b97f4a7c15ull +
		     s->opening.class * 0xbf58476d1ce4e5b9ull;
	room->key.host = s->host_key;
	room->key.row = (hash >> 58) % AB_SESSION_ROWS;
	room->place = (hash >> 54) % AB_SESSION_PLACES;
	room->trace = ab_session_trace(hash);
}

static __noinline __u32 session_link(struct flow_room *s, const struct packet *p, const struct ab_choice *now,
				     __u32 reach)
{
	struct session_room *room = session_room();
	if (!room)
		return AB_NO_TARGET;
	make_session(room, s, p, reach);
	const struct ab_sessions *row = bpf_map_lookup_elem(&sessions, &room->key);
	__u64 found = row ? row->place[room->place % AB_SESSION_PLACES] : 0;
	return ab_session_link(now, found, room->trace, tick_ns());
}

/* Binds later flows of the host of s->host_key to this link, as far as the choice holds. */
static __noinline int remember_session(struct flow_room *s, const struct packet *p, __u32 link)
{
	const struct ab_choice *now = choice_of(s->opening.class, s->opening.family);
	__u32 reach = now ? reach_of(now, p) : AB_PER_CONNECTION;
	struct session_room *room = session_room();
	if (!room || !ab_remembers(reach))
		return 0;
	make_session(room, s, p, reach);
	struct ab_sessions *row = bpf_map_lookup_elem(&sessions, &room->key);
	if (!row) {
		__builtin_memset(&room->fresh, 0, sizeof(room->fresh));
		bpf_map_update_elem(&sessions, &room->key, &room->fresh, BPF_NOEXIST);
		row = bpf_map_lookup_elem(&sessions, &room->key);
	}
	if (row)
		row->place[room->place % AB_SESSION_PLACES] = ab_session_word(room->trace, link, tick_ns());
	return 0;
}

static __always_inline __u32 packet_hash(const struct ab_choice *now, const struct packet *p)
{
	return ab_hash_for(now, &p->src, &p->dst, p->sport, p->dport);
}

/*
 * Prepares the choice for a flow: what binds it beside the route of its destination, which is known (earlier flows of the host of
 * s->host_key), and the measurements for comparing links. Separate from `choose_link`, which is called deeper in the stack, once
 * per attempt.
 */
__noinline int begin_choice(struct packet *p)
{
	struct flow_room *s = flow_room();
	const struct ab_choice *now = s ? choice_of(s->opening.class, s->opening.family) : NULL;
	if (!s || !now || !p)
		return AB_REASON_NOT_CONFIGURED;
	__u32 reach = reach_of(now, p);
	s->request.session = ab_remembers(reach) ? session_link(s, p, now, reach) : AB_NO_TARGET;
	find_kept();
	s->request.endpoint = ab_remembers(reach) ? s->opening.kept_link : AB_NO_TARGET;
	s->request.hash = ab_goes_by_hash(now) ? packet_hash(now, p) : 0;
	s->request.race = 0;
	know_paths(s, now, p);
	return 0;
}

static __always_inline __u32 draw_for(const struct ab_choice *now, __u32 class, __u32 races)
{
	if (!ab_takes_turns(now) && !races)
		return draw();
	__u32 *next = bpf_map_lookup_elem(&turn, &class);
	return next ? __sync_fetch_and_add(next, 1) : 0;
}

/* Chooses the link of the flow that `begin_choice` has prepared, without the links that it has tried (`tried`, as ab_tried()) and
 * those without a free port (`full`). The result is s->decision. */
__noinline int choose_link(__u32 tried, __u64 full)
{
	__u32 zero = 0;
	struct flow_room *s = flow_room();
	if (!s)
		return 0;
	const struct ab_choice *now = choice_of(s->opening.class, s->opening.family);
	const struct ab_gauges *all = all_gauges();
	const struct ab_consistent *shares = bpf_map_lookup_elem(&consistent, &zero);
	s->decision.target = AB_NO_TARGET;
	if (!now || !all || !shares)
		return 0;
	ab_avoid(&s->request, tried, full);
	s->request.draw = draw_for(now, s->opening.class, s->request.race);
	ab_choose(now, all, shares, &s->request, &s->decision);
	return 0;
}

/* Translates a LAN address to its external address on `link`: itself, or with another prefix, or the link's own. Returns the state
 * bit for the first two. */
static __always_inline __u32 become_external(union ab_addr *addr, const struct ab_link *link, __u8 side)
{
	if (side == AB_SIDE_ROUTED)
		return AB_STATE_ROUTED;
	if (link->prefix_len && ab_npt(addr, &link->prefix, link->prefix_len))
		return AB_STATE_PREFIX;
	*addr = link->external;
	return 0;
}

/* How far before the packet's sequence number those numbers begin that the remote end may acknowledge. An answer to a remote end's
 * SYN follows a SYN of the host that may itself be an answer; a flow that joins a connection has sent earlier segments that were
 * not seen here. */
static __always_inline __u32 number_before(const struct flow_room *s, const struct packet *p)
{
	if (s->opening.joins && !(p->tcp_flags & AB_TCP_SYN))
		return TCP_PLAUSIBLE_WINDOW;
	return is_asked(s) && !(p->tcp_flags & AB_TCP_SYN);
}

/* Fills both entries of a flow on `link` by s->decision, except for the port. */
static __always_inline void fill_entries(struct flow_room *s, const struct packet *p, const struct ab_link *link,
					 __u32 tried)
{
	__u8 side = side_of_link(s->decision.target, s->opening.family);
	struct ab_flow *lan = &s->lan, *wan = &s->wan;
	__builtin_memset(wan, 0, sizeof(*wan));
	wan->opened_ns = wan->seen_ns = s->opening.now;
	wan->link = s->decision.target;
	wan->class = s->opening.class;
	wan->why = s->decision.why;
	wan->tried = tried;
	wan->lan_ifindex = s->opening.lan_ifindex;
	wan->state = (s->opening.via_router ? AB_STATE_VIA_ROUTER : 0) | (s->opening.layer3 ? AB_STATE_LAYER3 : 0) |
		     (s->opening.is_hairpin ? AB_STATE_HAIRPIN : 0) | (s->opening.is_answer ? AB_STATE_REPLIED : 0) |
		     (s->opening.is_apart ? AB_STATE_APART : 0) | (is_asked(s) ? AB_STATE_OUTSIDE : 0);
	wan->hairpin_link = s->opening.hairpin_link;
	__builtin_memcpy(wan->mac, s->opening.mac, sizeof(wan->mac));
	*lan = *wan;
	wan->other_local = s->lan_key.local;
	wan->other_port = s->lan_key.local_port;
	s->wan_key = s->lan_key;
	s->wan_key.side = side;
	__u32 kept = become_external(&s->wan_key.local, link, side);
	s->opening.keeps_port = kept != 0;
	wan->state |= kept;
	lan->state |= kept;
	lan->other_local = s->wan_key.local;
	if (is_mapping(p->proto)) {
		/* Also for a mapping for one remote end. */
		__builtin_memset(&s->wan_key.remote, 0, sizeof(s->wan_key.remote));
		s->wan_key.remote_port = 0;
		*ab_first_remote(lan) = p->dst;
		*ab_first_remote(wan) = p->dst;
		lan->first_remote_port = wan->first_remote_port = p->proto == IPPROTO_UDP ? p->dport : 0;
	} else {
		/* Also if the SYN is dropped later: then it is never acknowledged. */
		lan->tcp.isn = p->seq - number_before(s, p);
		lan->tcp.end = p->end;
		/* The SYN of a race of probes waits, so the time at which it takes its link is not known yet. */
		wan->tcp.tries = s->decision.why == AB_WHY_PROBED ? 0 : s->opening.sent;
	}
}

/* Whether there is room among the unconfirmed flows of the opener's device, if necessary after evicting one of its own. */
static __always_inline int has_device_room(const struct ab_settings *set, const struct opener *o)
{
	return !o->device || (__s32)o->device->unconfirmed < (__s32)set->unconfirmed_per_device ||
	       evict_oldest(o->host, ROOM_STEPS);
}

/* Whether the unconfirmed flow of s->lan_key has room among its host's. If all hosts together have too many, one of its own is
 * evicted. If devices have shares, that may be any of its flows, so all are in the order. */
static __always_inline int has_place(struct flow_room *s, const struct ab_settings *set, const struct opener *o)
{
	__u32 share = set->unconfirmed_per_host, unordered = o->device ? 0 : share / AB_UNORDERED_HOSTS;
	return enqueue_unconfirmed(s, o->host, share, unordered) ||
	       (evict_oldest(o->host, ROOM_STEPS) && enqueue_unconfirmed(s, o->host, share, unordered));
}

/* Inserts the LAN entry after the link entry. Returns 0, OPENED_ELSEWHERE, or the reason of failure. */
static __noinline int enter_unconfirmed(struct flow_room *s, const struct ab_settings *set, const struct opener *o)
{
	int error = -ENOSPC;
	s->lan.other_port = s->wan_key.local_port;
	s->lan.state |= ab_trace(&s->lan_key) | (o->device ? AB_STATE_SHARED : 0) |
			(s->opening.is_classed ? AB_STATE_CLASSED : 0);
	if (has_place(s, set, o)) {
		error = bpf_map_update_elem(&flows, &s->lan_key, &s->lan, BPF_NOEXIST);
		if (!error)
			return 0;
		dequeue_unconfirmed(s);
	}
	bpf_map_delete_elem(&flows, &s->wan_key);
	if (has_other_tries(&s->lan_key, &s->lan))
		retire_tries(&s->lan_key, &s->lan);
	return error == -EEXIST ? OPENED_ELSEWHERE : AB_REASON_REFUSED_UNCONFIRMED;
}

/* Counts a flow after its entries were inserted. */
static __always_inline void count_opening(const struct flow_room *s, const struct opener *o)
{
	gauge_add(s->lan.link, 1, 1, 0);
	class_add(s->lan.class, 1, 0);
	if (is_mapping(s->lan_key.proto))
		__sync_fetch_and_add(&o->host->mappings, 1);
	if (o->device)
		__sync_fetch_and_add(&o->device->unconfirmed, 1);
}

/* Where it is remembered which links have no free port for flows like this one. TCP ports are used again for each remote
 * end, so these are distinguished. */
static __always_inline struct ab_fullness *fullness_of(const struct packet *p)
{
	__u32 remote = (fold_addr(&p->dst) ^ (__u32)p->dport << 8) * 2654435761u >> 16;
	__u32 index = p->family + (p->proto == IPPROTO_UDP ? 0
				   : is_icmp(p->proto)	   ? 2
							   : 4 + remote % (AB_FULLNESS_SLOTS - 5));
	return bpf_map_lookup_elem(&fullness, &index);
}

/* No branch per link: see set.h. */
static __always_inline __u64 full_links(const struct ab_fullness *f, __u64 now)
{
	__u64 full = 0;
	if (!f || now - f->found_ns > AB_FULL_NS)
		return 0;
	for (__u32 i = 0; i < AB_MAX_LINKS; i++)
		full |= ab_is_less(now - f->link_ns[i], AB_FULL_NS) << i;
	return full;
}

/* Remembers that a link has no free port. It counts as if it had been given the flow, so that a policy by dispatched flows goes on
 * to the next link. */
static __always_inline void learn_full(struct flow_room *s, const struct packet *p, __u32 link)
{
	struct ab_fullness *f = fullness_of(p);
	gauge_add(link, 1, 0, 0);
	s->opening.full |= 1ull << link;
	if (f)
		f->link_ns[link] = f->found_ns = s->opening.now;
}

/* Whether the flow is TCP between LAN hosts. */
static __always_inline int is_call(const struct flow_room *s)
{
	return s->opening.is_hairpin && !is_mapping(s->lan_key.proto);
}

/* Whether there is nothing to choose: the flow leaves over no link, or answers what came over one. */
static __always_inline int is_settled(const struct flow_room *s)
{
	return is_call(s) || is_asked(s);
}

/* Keeps the flow at its endpoint's link, or gives it that of the host it calls, or that over which the remote end began. */
static __always_inline void stay_at_endpoint(struct flow_room *s)
{
	__u16 kept = s->opening.kept_link;
	s->decision.target = is_asked(s) ? s->opening.asked_link : kept < AB_MAX_LINKS ? kept : s->opening.hairpin_link;
	s->decision.why = s->request.route == s->decision.target ? AB_WHY_ROUTE : AB_WHY_ENDPOINT;
}

/* Tries the next link. Returns whether the search is over; the result is s->opening.reason. */
static long try_link(__u32 attempt, struct opener *o)
{
	struct flow_room *s = flow_room();
	(void)attempt;
	if (!s)
		return 1;
	const struct ab_settings *set = current_settings();
	if (!set)
		return 1;
	s->opening.reason = AB_REASON_NO_LINK;
	if (is_settled(s))
		stay_at_endpoint(s);
	else
		choose_link(s->opening.tried, s->opening.full);
	__u32 target = s->decision.target, tried = s->opening.tried;
	const struct ab_link *link = target < AB_MAX_LINKS ? link_at(target, s->opening.family) : NULL;
	if (!link || !(link->flags & AB_LINK_PRESENT))
		return 1;
	if (s->opening.joins && !is_routed(set, target, s->opening.family)) {
		s->opening.reason = AB_REASON_NO_FLOW_OUT;
		return 1;
	}
	if (s->opening.full >> (target & (AB_MAX_LINKS - 1)) & 1) {
		/* No other link is left, except perhaps one that failed this flow before and has free ports. */
		s->opening.reason = AB_REASON_REFUSED_PORTS;
		s->opening.tried = 0;
		return !tried;
	}
	fill_entries(s, o->packet, link, tried);
	switch (bind_port(o->skb, s)) {
	case AB_REASON_REFUSED_PORTS:
		/* If a fixed port is taken, that says nothing about the link. */
		if (is_call(s) || keeps_endpoint(s))
			return 1;
		learn_full(s, o->packet, target & (AB_MAX_LINKS - 1));
		return ++s->opening.failed == LINK_ATTEMPTS;
	case AB_REASON_REFUSED_UNCONFIRMED:
		/* If the table is full, one of the host's own flows is evicted. */
		return !evict_oldest(o->host, ROOM_STEPS);
	default:
		return 1;
	}
}

/* Inserts both entries of the flow of s->lan_key, which its opener may open. Returns 0, or the reason why not. */
static __always_inline int place_flow(struct flow_room *s, const struct ab_settings *set, struct opener *o)
{
	if (!has_device_room(set, o))
		return AB_REASON_REFUSED_UNCONFIRMED;
	s->opening.now = tick_ns();
	s->opening.full = full_links(fullness_of(o->packet), s->opening.now) |
			  (s->opening.joins ? ~(__u64)routed_links(set, s->opening.family) : 0);
	s->opening.failed = 0;
	s->opening.remote = o->packet->dst;
	s->opening.remote_port = o->packet->dport;
	if (!is_settled(s)) {
		begin_choice(o->packet);
		s->request.race = begin_race(o->skb, o->packet);
	}
	bpf_loop(2 * LINK_ATTEMPTS, try_link, o, 0);
	if (s->opening.reason == AB_REASON_NO_LINK)
		return refuse_class(s->opening.class, s->opening.family);
	if (!s->opening.reason)
		o->packet->races = enter_race_copies();
	int refused = s->opening.reason ?: enter_unconfirmed(s, set, o);
	if (refused)
		return refused;
	count_opening(s, o);
	if (!is_settled(s) && s->opening.surveys)
		report_opening(o->packet);
	return note_asked(s, o->packet);
}

/* Opens the flow of `p` with key s->lan_key and class s->opening.class, on a link outside s->opening.tried. Returns 0, or the
 * reason why not. */
__noinline int open_flow(struct __sk_buff *skb, struct packet *p)
{
	struct flow_room *s = flow_room();
	const struct ab_settings *set = current_settings();
	struct opener o = { .skb = skb, .packet = p };
	if (!s || !set || !p)
		return AB_REASON_NOT_CONFIGURED;
	/* A RST opens no flow. */
	if (s->opening.joins && p->tcp_flags & AB_TCP_RST)
		return fall_back(AB_REASON_NO_FLOW_OUT);
	int refused = admit(s, set, &o);
	if (refused)
		return fall_back(refused);
	refused = place_flow(s, set, &o);
	if (refused) {
		give_back(s, &o);
		return refused == OPENED_ELSEWHERE ? 0 : fall_back(refused);
	}
	if (!s->opening.is_hairpin && !is_asked(s)) {
		remember_session(s, p, s->lan.link);
		if (is_control(p))
			bind_pair(p, s->lan.link);
	}
	return 0;
}

#endif
