/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Active measurement (Akella et al. in Peng 2005, section 2.3): user space probes the most popular destinations over every
 * link. The response times are recorded like those of flows (paths.h). The programs report to which destinations
 * connections are opened, and recognise the RSTs that answer the probes by their sequence numbers, which nobody off the path knows.
 */
#ifndef ANABRANCH_SURVEY_H
#define ANABRANCH_SURVEY_H

#include "flow.h"
#include "paths.h"

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 17); /* room for two polls at 30 000 connections a second */
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} openings SEC(".maps");

/* Written by user space when it sends a probe, and removed when it is answered. The next probe to the same destination over the
 * same link replaces it. Without surveys it takes no memory. */
AB_MAP(questions, BPF_MAP_TYPE_HASH, 16384, struct ab_question_key, struct ab_question, BPF_F_NO_PREALLOC);

AB_SCRATCH(question_room, struct ab_question_key)

/* Reports a new connection of a class with a survey; `p` is its first packet. If there is no room in the ring, it is not
 * counted. */
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

/* Handles a segment of no flow. Returns the reason with which it leaves if it answers a probe sent over `link`, otherwise 0. */
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
	/* If two answers come at once, only one counts. */
	if (!bpf_map_delete_elem(&questions, key))
		learn_response(p, class, sent, link, TEACHER_OWN);
	return AB_REASON_SURVEYED;
}

#endif
