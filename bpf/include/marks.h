/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Every mark that Anabranch gives packets (skb->mark) and connections (ct mark). The first byte says what it means, and nothing else
 * on the host may give marks of these eight; the bits below it are the kind's own.
 */
#ifndef ANABRANCH_MARKS_H
#define ANABRANCH_MARKS_H

/* Marks of a kind. */
#define AB_MARK_KIND 0xff000000u
/* Marks of any of the kinds: those with the bits of AB_OUR_MARKS. */
#define AB_OUR_MARKS 0xa8000000u
#define AB_OUR_MARKS_MASK 0xf8000000u

/* Of a connection that the kernel forwards, and of its packets while they are routed: instance, direction, link. */
#define AB_CONNECTION_MARK 0xa8000000u
/* Of the tail of a packet that was cut, on its way back to the ingress: what to cut off before it (gateway/frag.h). */
#define AB_TAIL_MARK 0xa9000000u
/* Of probes that connection tracking is to leave out. Its lower bits are those of a packet without a mark: rules of others look
 * at those through a mask. */
#define AB_UNTRACKED_MARK 0xaa000000u
/* Of what the kernel's own NAT is to carry: link, instance. ab_settings.fallback_mark is the instance's. */
#define AB_FALLBACK_MARK 0xab000000u
/* Above the instance the link that the kernel's NAT must use, plus one; 0: any. */
#define AB_FALLBACK_LINK_SHIFT 8
/* Of what one LAN host sends to another's external address, on its way back to a link's ingress (gateway/turn.h). */
#define AB_HAIRPIN_MARK 0xac000000u
/* Of what a link brought for no socket of the host: the kernel's only if its NAT knows the connection. */
#define AB_STRAY_MARK 0xad000000u
/* Of a SYN that takes the link in the lowest bits, ... */
#define AB_RIVAL_MARK 0xae000000u
/* ... and of a SYN/ACK that another link brought (gateway/rival.h). */
#define AB_LOSER_MARK 0xae000100u
/* Of what a link brought for the LAN by its prefix, and the kernel is to forward. */
#define AB_INBOUND_MARK 0xaf000000u

/*
 * The two words of skb->cb of a packet that a program sends back to an ingress. A mark alone proves nothing of that: rules of
 * nftables, sockets, and tunnels whose packets keep the mark of what carried them, bring marks as well.
 */
#define AB_SENT_BACK_0 0x616e6162u
#define AB_SENT_BACK_1 0x72616e63u

#endif
