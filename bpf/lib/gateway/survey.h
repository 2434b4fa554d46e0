/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Active measurement (Akella et al. in Peng 2005, section 2.3): user space probes the destinations that are used most over every
 * link, and what is answered goes where flows tell of the way to their destinations (paths.h). Here it hears which destinations
 * connections open to, and the RSTs that answer its probes are known by their numbers, which nobody off the path knows.
 */
#ifndef ANABRANCH_SURVEY_H
#define ANABRANCH_SURVEY_H

#include "flow.h"
#include "paths.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 17); /* of two polls at 30 000 connections a second */
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} openings SEC(".maps");

/* Written by user space when it asks, and taken out when it is answered. The next to the same over the same link takes its place. Where
 * nobody surveys it takes no memory. */
AB_MAP(questions, BPF_MAP_TYPE_HASH, 16384, struct ab_question_key, struct ab_question, BPF_F_NO_PREALLOC);

AB_SCRATCH(question_room, struct ab_question_key)

/* A connection of a class that surveys, `p` its first packet, has been opened. What finds no room in the ring is not counted. */
__noinline int report_opening(struct packet *p)
{
	struct flow_room *s = flow_room();
	if (!s || !p)
		return 0;
	struct ab_opened *opened = bpf_ringbuf_reserve(&openings, sizeof(*opened), 0);
	if (!opened)
		return 0;
	__builtin_memset(opened, 0, sizeof(*opened));
	__builtin_memcpy(&opened->remote, &p->dst, sizeof(opened->remote));
	opened->remote_port = p->dport;
	opened->class = s->opening.class;
	bpf_ringbuf_submit(opened, BPF_RB_NO_WAKEUP);
	return 0;
}

/* A segment that belongs to no flow: the reason it leaves for if it answers a question that was asked over `link`, else 0. */
__noinline int hear_survey(struct packet *p, __u32 link)
{
	struct ab_question_key *key = question_room();
	if (!key || !p || p->proto != IPPROTO_TCP || (p->tcp_flags & (AB_TCP_RST | AB_TCP_ACK)) != AB_TCP_RST)
		return 0;
	__builtin_memset(key, 0, sizeof(*key));
	__builtin_memcpy(&key->remote, &p->src, sizeof(key->remote));
	key->remote_port = p->sport;
	key->local_port = p->dport;
	key->link = link;
	const struct ab_question *asked = bpf_map_lookup_elem(&questions, key);
	if (!asked || asked->number != p->seq)
		return 0;
	__u32 sent = asked->sent, class = asked->class;
	/* Of two answers at once one counts. */
	if (!bpf_map_delete_elem(&questions, key))
		learn_response(p, class, sent, link, TEACHER_OWN);
	return AB_REASON_SURVEYED;
}

#endif
