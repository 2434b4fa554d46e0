/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Every mark that Anabranch sets on packets (skb->mark) and connections (ct mark). The first byte is the kind. No other program on
 * the host may use marks of these eight kinds. The bits below it depend on the kind.
 */
#ifndef ANABRANCH_MARKS_H
#define ANABRANCH_MARKS_H

/* The bits of the kind. */
#define AB_MARK_KIND 0xff000000u
/* All our kinds have these bits, under AB_OUR_MARKS_MASK. */
#define AB_OUR_MARKS 0xa8000000u
#define AB_OUR_MARKS_MASK 0xf8000000u

/* A connection that the kernel forwards, and its packets while they are routed: instance, direction, link. */
#define AB_CONNECTION_MARK 0xa8000000u
/* The tail of a packet that was fragmented, on its way back to the ingress: the length to remove before it (packet/fragment.h). */
#define AB_TAIL_MARK 0xa9000000u
/* Probes that bypass connection tracking. The lower bits are those of a packet without a mark, because rules of others may match
 * these under a mask. */
#define AB_UNTRACKED_MARK 0xaa000000u
/* Packets for the kernel's own NAT: link, instance. ab_settings.fallback_mark has the instance. */
#define AB_FALLBACK_MARK 0xab000000u
/* Above the instance, the link that the kernel's NAT must use, plus one; 0: any. */
#define AB_FALLBACK_LINK_SHIFT 8
/* Packets of one LAN host to another's external address, on their way back to a link's ingress (gateway/turn.h). */
#define AB_HAIRPIN_MARK 0xac000000u
/* Packets from a link for no socket of the host. They are the kernel's only if its NAT knows the connection. */
#define AB_STRAY_MARK 0xad000000u
/* A race copy of a SYN, with the link that it takes in the lowest bits, ... */
#define AB_RACE_COPY_MARK 0xae000000u
/* ... and a SYN/ACK that came over a losing link (gateway/race_copy.h). */
#define AB_LOSING_COPY_MARK 0xae000100u
/* Packets from a link to the LAN by its prefix, which the kernel forwards. */
#define AB_INBOUND_MARK 0xaf000000u

/*
 * The two words of skb->cb of a packet that a program sends back to an ingress. The mark alone does not prove that, because
 * nftables rules, sockets, and tunnels that keep the mark of the outer packet may set marks, too.
 */
#define AB_SENT_BACK_0 0x616e6162u
#define AB_SENT_BACK_1 0x72616e63u

#endif
