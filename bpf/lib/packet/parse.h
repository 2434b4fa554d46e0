/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The packet as the gateway sees it, from one bounded pass over Ethernet, IP and the first bytes of the transport header. After it,
 * the address families are distinguished only where their headers differ.
 */
#ifndef ANABRANCH_PARSE_H
#define ANABRANCH_PARSE_H

#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../../include/anabranch.h"
#include "../../policy/inline.h"
#include "../../policy/segment.h"
#include "addr.h"
#include "map.h"
#include "skb.h"

/* RFC 792, and RFC 4443 for ICMPv6. Defined here because <linux/icmp.h> includes headers of the host's C library. */
struct icmphdr {
	__u8 type;
	__u8 code;
	__be16 checksum;
	union {
		struct {
			__be16 id;
			__be16 sequence;
		} echo;
		struct {
			__be16 zero;
			__be16 mtu;
		} frag;
		__be32 mtu6;
	} un;
};

#define ICMP_ECHOREPLY 0
#define ICMP_DEST_UNREACH 3
#define ICMP_ECHO 8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12

#define ICMP_NET_UNREACH 0
#define ICMP_PORT_UNREACH 3
#define ICMP_FRAG_NEEDED 4
#define ICMP_PKT_FILTERED 13
#define ICMP_EXC_TTL 0

#define ICMP6_DEST_UNREACH 1
#define ICMP6_TOO_BIG 2
#define ICMP6_TIME_EXCEEDED 3
#define ICMP6_PARAMETERPROB 4
#define ICMP6_ECHO 128
#define ICMP6_ECHOREPLY 129
/* Neighbour discovery (RFC 4861), redirects included. */
#define ICMP6_ND_FIRST 133
#define ICMP6_ND_LAST 137
/* A packet with this hop limit was not forwarded, so it comes from the link itself. */
#define ND_HOP_LIMIT 255

#define ICMP6_NO_ROUTE 0
#define ICMP6_PROHIBITED 1
#define ICMP6_NO_PORT 4

#define IP_OPTION_END 0
#define IP_OPTION_NOP 1
#define IP_OPTION_LSRR 131
#define IP_OPTION_SSRR 137

#define IP_MORE_FRAGMENTS 0x2000
#define IP_DONT_FRAGMENT 0x4000
#define IP_OFFSET_MASK 0x1fff

enum packet_kind {
	PACKET_FLOW,	   /* TCP, UDP or ICMP echo, with its ports */
	PACKET_ICMP_ERROR, /* about a packet of a flow */
	PACKET_OTHER,
};

/* Properties of a packet beside its headers. */
enum packet_flags {
	PACKET_ACCOUNTED = 1,	  /* tail of a split packet whose span is recorded already */
	PACKET_HAIRPINNED = 2,	  /* from a LAN host to another's external address, at the ingress of its link */
	PACKET_CALL = 4,	  /* a hairpinned SYN that opens no flow */
	PACKET_CHALLENGE = 8,	  /* not of its flow: acknowledges a number other than the SYN's; with UNPROVEN */
	PACKET_APART = 16,	  /* of a mapping for its remote end alone */
	PACKET_PERMITTED = 32,	  /* to a remote end that its mapping permits */
	PACKET_NEIGHBOUR = 64,	  /* IPv6 neighbour discovery, which stays on its link */
	PACKET_LOSING_COPY = 128, /* a copy of the winning SYN/ACK of a race, on a losing link */
	PACKET_UNPROVEN = 256,	  /* for a flow, but perhaps forged: nothing is learned from it or counted */
};

struct packet {
	union ab_addr src, dst;
	__u8 l3, l4; /* offsets of the headers */
	__u8 family; /* enum ab_family */
	__u8 dscp;
	__be16 sport, dport; /* ICMP echo: the id, in both */
	__u16 length;	     /* of the IP packet, as its header says */
	__u16 fragment;	     /* flags and offset as of IPv4, host order; IPv6 may not be fragmented on its way */
	__u32 id;	     /* of the datagram, network order; IPv4: 16 bits */
	__u32 new_id;	     /* under which it is sent on */
	__u8 id_at;	     /* IPv6: from l3; 0: it is no fragment */
	__u8 proto;
	__u8 ttl;
	__u8 kind;	       /* enum packet_kind */
	__u8 icmp_type;	       /* ICMP only; of ICMPv6, echo and its reply as in ICMP */
	__u8 tcp_flags;	       /* TCP with a header only */
	__u8 has_ports_header; /* false in fragments after the first */
	__u8 l4_header;	       /* bytes of the TCP or UDP header, 8 of ICMP */
	__u16 flags;	       /* enum packet_flags */
	__u8 kernel_link;      /* link for the kernel's NAT, plus one; 0: any */
	__u8 races;	       /* it is the SYN of a race, which takes all links of that */
	__u16 race_copy;       /* the one try of a race that it is the SYN of, as ab_try(); 0: it is none */
	__u32 losing_copies;   /* links, as bits: it is the SYN/ACK that has won a race over them */
	__u32 mtu;	     /* of the device it does not fit, for the answer; from a link: the LAN devices' smallest */
	__u32 ifindex;	     /* LAN: where it came in */
	__u32 seq, ack, end; /* TCP, host order; end = seq + what this segment occupies */
};

static __always_inline int is_first_syn(const struct packet *p)
{
	return ab_is_first_syn(p->tcp_flags);
}

/* The parsed packet and the key of its flow, in memory outside of the stack. */
struct packet_room {
	struct packet packet;
	struct ab_flow_key key;
};
AB_SCRATCH(packet_room, struct packet_room)

static __always_inline struct packet_room *fresh_room(void)
{
	struct packet_room *room = packet_room();
	if (room)
		__builtin_memset(&room->packet, 0, sizeof(room->packet));
	return room;
}

/* Length of the header without options or extension headers. */
static __always_inline __u32 ip_header_of(__u32 family)
{
	return family == AB_IPV6 ? sizeof(struct ipv6hdr) : sizeof(struct iphdr);
}

/* The protocol in the key of a datagram's fragments. None for IPv6, because its extension headers may be in a later fragment (RFC
 * 8200 section 4.5). */
static __always_inline __u8 fragment_proto(const struct packet *p)
{
	return p->family == AB_IPV6 ? 0 : p->proto;
}

static __always_inline int is_fragment(const struct packet *p)
{
	return p->fragment & (IP_MORE_FRAGMENTS | IP_OFFSET_MASK);
}

static __always_inline int is_later_fragment(const struct packet *p)
{
	return p->fragment & IP_OFFSET_MASK;
}

/* Keeps the compiler from removing the bounds check that follows: the verifier needs it. */
#define keep_bound(value) __asm__ volatile("" : "+r"(value))

/* `length`, bounded to 1 to `max`. Linux 6.1 derives no lower bound from a comparison with zero. */
static __always_inline __u32 bounded_length(__u32 length, __u32 max)
{
	__u32 last = length - 1;
	keep_bound(last);
	if (last >= max)
		last = max - 1;
	return last + 1;
}

/*
 * Functions that are not static are verified once, for any arguments, instead of at every call for each state in which they are
 * called. The verifier knows the size of the memory behind a pointer argument, but not that it is not null. Linux 6.1 does not
 * accept such a pointer as key or value of a map, so these are in memory of the CPU or on the function's own stack.
 */

/* After a call of another function, the verifier has forgotten the bounds of the packet's offsets. */
static __always_inline __u32 bounded_l3(const struct packet *p)
{
	return p->l3 & 15;
}

static __always_inline __u32 bounded_l4(const struct packet *p)
{
	return p->l4 & 255;
}

static __always_inline int is_icmp(__u8 proto)
{
	return proto == IPPROTO_ICMP || proto == IPPROTO_ICMPV6;
}

/* Whether it is the ICMP of its own family. ICMP of the other family is a protocol like any other. */
static __always_inline int is_icmp_of_family(const struct packet *p)
{
	return p->proto == (p->family == AB_IPV6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
}

static __always_inline int is_icmp_error(__u8 type)
{
	return type == ICMP_DEST_UNREACH || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETERPROB;
}

static __always_inline int is_icmp6_error(__u8 type)
{
	return type >= ICMP6_DEST_UNREACH && type <= ICMP6_PARAMETERPROB;
}

static __always_inline int is_neighbour_discovery(const struct packet *p, __u8 type)
{
	return p->proto == IPPROTO_ICMPV6 && type >= ICMP6_ND_FIRST && type <= ICMP6_ND_LAST && p->ttl == ND_HOP_LIMIT;
}

/* The type of a query, with ICMPv6 types converted to those of ICMP. */
static __always_inline __u8 usual_icmp_type(__u8 proto, __u8 type)
{
	if (proto == IPPROTO_ICMP)
		return type;
	return type == ICMP6_ECHO ? ICMP_ECHO : type == ICMP6_ECHOREPLY ? ICMP_ECHOREPLY : 0xff;
}

static __always_inline __u16 fold_sum(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

#define IP_OPTIONS_MAX 40
#define IP_OPTIONS_ROOM 64

struct ip_options {
	union {
		__u32 word[IP_OPTIONS_ROOM / 4];
		__u8 byte[IP_OPTIONS_ROOM];
	};
	__u32 length;
	__u32 at;
	__u32 is_source_routed;
};

static long step_ip_option(__u32 step, struct ip_options *options)
{
	(void)step;
	if (options->at >= options->length)
		return 1;
	__u8 kind = options->byte[options->at & 63], size = options->byte[(options->at + 1) & 63];
	options->is_source_routed = kind == IP_OPTION_LSRR || kind == IP_OPTION_SSRR;
	if (kind == IP_OPTION_END || options->is_source_routed)
		return 1;
	options->at += kind == IP_OPTION_NOP ? 1 : size < 2 ? 2 : size;
	return 0;
}

/* Checks `length` bytes of IP options after a header with checksum `sum`. A separate function, so that the verifier
 * follows the rest once and not for every length. Returns 0, or the reason to drop. */
__noinline int judge_options(context *ctx, __u32 at, __u32 length, __u64 sum)
{
	struct ip_options options = {};
	if (length == 0 || length > IP_OPTIONS_MAX ||
	    load_bytes(ctx, at, options.word, bounded_length(length, IP_OPTIONS_ROOM)))
		return AB_REASON_MALFORMED;
	for (__u32 i = 0; i < IP_OPTIONS_MAX / 4; i++)
		sum += options.word[i];
	if (fold_sum(sum) != 0xffff)
		return AB_REASON_BAD_CHECKSUM;
	options.length = length;
	bpf_loop(IP_OPTIONS_MAX, step_ip_option, &options, 0);
	return options.is_source_routed ? AB_REASON_SOURCE_ROUTED : 0;
}

/* Checks the IPv4 header: with options it must sum to all ones (RFC 1071). Returns 0, or the reason to drop. */
static __always_inline int judge_header(context *ctx, const struct iphdr *ip, __u32 l3)
{
	const __u32 *word = (const __u32 *)ip;
	__u64 sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];
	if (ip->ihl > 5)
		return judge_options(ctx, l3 + sizeof(*ip), ip->ihl * 4 - sizeof(*ip), sum);
	return fold_sum(sum) == 0xffff ? 0 : AB_REASON_BAD_CHECKSUM;
}

/*
 * Bytes of headers that must be directly readable: Ethernet, IP, TCP without options; and the same with the longest IPv4
 * options. No more is requested than is needed: in a segment of a local sender only the headers are linear, and reading
 * further would copy data.
 */
#define PLAIN_ROOM (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr))
#define OPTIONS_ROOM (ETH_HLEN + 60 + sizeof(struct tcphdr))
#define PLAIN_ROOM6 (ETH_HLEN + sizeof(struct ipv6hdr) + sizeof(struct tcphdr))

/* Every segment except the first SYN and some RSTs has an ACK, and at most one of SYN, RST and FIN (RFC 9293). */
static __always_inline int has_sane_flags(__u8 flags)
{
	__u8 begins_or_breaks = flags & (AB_TCP_SYN | AB_TCP_RST);
	if (!begins_or_breaks)
		return flags & AB_TCP_ACK;
	return begins_or_breaks != (AB_TCP_SYN | AB_TCP_RST) && !(flags & AB_TCP_FIN);
}

static __always_inline int parse_tcp(struct packet *p, const struct tcphdr *tcp, void *end, __u32 l4_length)
{
	if ((void *)(tcp + 1) > end)
		return AB_REASON_MALFORMED;
	__u32 header = tcp->doff * 4;
	if (header < sizeof(*tcp) || header > l4_length)
		return AB_REASON_MALFORMED;
	p->sport = tcp->source;
	p->dport = tcp->dest;
	p->tcp_flags = ((const __u8 *)tcp)[13];
	if (!has_sane_flags(p->tcp_flags))
		return AB_REASON_TCP_FLAGS;
	p->seq = bpf_ntohl(tcp->seq);
	p->ack = bpf_ntohl(tcp->ack_seq);
	p->end = p->seq + (l4_length - header) + !!(p->tcp_flags & AB_TCP_SYN) + !!(p->tcp_flags & AB_TCP_FIN);
	p->l4_header = header;
	p->kind = PACKET_FLOW;
	return 0;
}

static __always_inline int parse_udp(struct packet *p, const struct udphdr *udp, void *end, __u32 l4_length)
{
	if ((void *)(udp + 1) > end)
		return AB_REASON_MALFORMED;
	__u32 length = bpf_ntohs(udp->len);
	if (l4_length < sizeof(*udp) || length < sizeof(*udp) || (length > l4_length && !is_fragment(p)))
		return AB_REASON_MALFORMED;
	p->sport = udp->source;
	p->dport = udp->dest;
	p->l4_header = sizeof(*udp);
	p->kind = PACKET_FLOW;
	return 0;
}

static __always_inline int parse_icmp(struct packet *p, const struct icmphdr *icmp, void *end, __u32 l4_length)
{
	if ((void *)(icmp + 1) > end || l4_length < sizeof(*icmp))
		return AB_REASON_MALFORMED;
	p->icmp_type = usual_icmp_type(p->proto, icmp->type);
	p->l4_header = sizeof(*icmp);
	if (p->icmp_type == ICMP_ECHO || p->icmp_type == ICMP_ECHOREPLY) {
		p->sport = p->dport = icmp->un.echo.id;
		p->kind = PACKET_FLOW;
	} else if (p->proto == IPPROTO_ICMP ? is_icmp_error(icmp->type) : is_icmp6_error(icmp->type)) {
		p->kind = PACKET_ICMP_ERROR;
	} else if (is_neighbour_discovery(p, icmp->type)) {
		p->flags |= PACKET_NEIGHBOUR;
	}
	return 0;
}

/* Extension headers of IPv6 (RFC 8200 section 4). */
#define IPPROTO_EXT_HOPS 0
#define IPPROTO_EXT_ROUTING 43
#define IPPROTO_EXT_FRAGMENT 44
#define IPPROTO_EXT_DESTINATION 60

static __always_inline int is_extension(__u8 proto)
{
	return proto == IPPROTO_EXT_HOPS || proto == IPPROTO_EXT_ROUTING || proto == IPPROTO_EXT_FRAGMENT ||
	       proto == IPPROTO_EXT_DESTINATION;
}

static __always_inline int parse_transport(struct packet *p, void *header, void *end, __u32 l4_length)
{
	p->kind = PACKET_OTHER;
	if (is_later_fragment(p)) {
		/* In a fragment, only the first one shows what follows the extension header. */
		__u32 is_untold = p->family == AB_IPV6 && is_extension(p->proto);
		if (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP || is_icmp_of_family(p) || is_untold)
			p->kind = PACKET_FLOW;
		return 0;
	}
	p->has_ports_header = 1;
	switch (p->proto) {
	case IPPROTO_TCP:
		return parse_tcp(p, header, end, l4_length);
	case IPPROTO_UDP:
		return parse_udp(p, header, end, l4_length);
	case IPPROTO_ICMP:
	case IPPROTO_ICMPV6:
		return is_icmp_of_family(p) ? parse_icmp(p, header, end, l4_length) : 0;
	default:
		return 0;
	}
}

static __always_inline int parse_ipv4(context *ctx, struct packet *p, __u32 l3)
{
	struct cursor cursor;
	if (make_readable(ctx, PLAIN_ROOM, &cursor))
		return AB_REASON_MALFORMED;
	struct iphdr *ip = cursor.data + l3;
	if ((void *)(ip + 1) > cursor.end || ip->version != 4 || ip->ihl < 5)
		return AB_REASON_MALFORMED;
	if (ip->ihl > 5) {
		if (make_readable(ctx, OPTIONS_ROOM, &cursor))
			return AB_REASON_MALFORMED;
		ip = cursor.data + l3;
		if ((void *)(ip + 1) > cursor.end)
			return AB_REASON_MALFORMED;
	}
	__u32 header = ip->ihl * 4;
	p->length = bpf_ntohs(ip->tot_len);
	if (p->length < header || l3 + p->length > length_of(ctx))
		return AB_REASON_MALFORMED;
	int bad = judge_header(ctx, ip, l3);
	if (bad)
		return bad;
	p->l4 = l3 + header;
	map_ipv4(&p->src, ip->saddr);
	map_ipv4(&p->dst, ip->daddr);
	p->proto = ip->protocol;
	p->ttl = ip->ttl;
	p->dscp = ip->tos >> 2;
	p->id = p->new_id = ip->id;
	p->fragment = bpf_ntohs(ip->frag_off);
	return parse_transport(p, cursor.data + p->l4, cursor.end, p->length - header);
}

/* Maximum number of extension headers that are stepped over, and the offset at which they must have ended. Senders use no more. */
#define EXTENSIONS_MAX 6
#define EXTENSIONS_END (ETH_HLEN + sizeof(struct ipv6hdr) + 160)

/* Source routing, which is obsolete (RFC 5095). */
#define ROUTING_SOURCE 0

/* The first bytes of an extension header (RFC 8200 section 4). The fragment header has no more. */
struct extension {
	__u8 next;
	__u8 length; /* in units of 8 bytes, without the first 8 */
	union {
		__be16 offset; /* of a fragment, in units of 1 byte; the last bit: more follow */
		__u8 routing[2];
	};
	__be32 id;
};

struct extension_walk {
	const context *ctx;
	struct packet *p;
	__u32 bad; /* reason to drop */
};

/* Steps over the extension header at p->l4. Stops after the last one, and at a fragment that is not the first, because
 * data follows it. */
static long step_extension(__u32 step, struct extension_walk *walk)
{
	struct packet *p = walk->p;
	struct extension header;
	__u32 size = sizeof(header);
	(void)step;
	if (!is_extension(p->proto) || is_later_fragment(p))
		return 1;
	walk->bad = AB_REASON_MALFORMED;
	if (load_bytes(walk->ctx, p->l4, &header, sizeof(header)))
		return 1;
	if (p->proto == IPPROTO_EXT_ROUTING && header.routing[0] == ROUTING_SOURCE) {
		walk->bad = AB_REASON_SOURCE_ROUTED;
		return 1;
	}
	/* A second fragment header ends the walk: its id would take the place of the first one's. */
	if (p->proto == IPPROTO_EXT_FRAGMENT && p->id_at)
		return 1;
	if (p->proto == IPPROTO_EXT_FRAGMENT) {
		__u32 offset = bpf_ntohs(header.offset);
		p->fragment |= offset >> 3 | (offset & 1 ? IP_MORE_FRAGMENTS : 0);
		p->id = p->new_id = header.id;
		p->id_at = p->l4 + offsetof(struct extension, id) - p->l3;
	} else {
		size += header.length * 8;
	}
	if (p->l4 + size > EXTENSIONS_END || p->l4 + size > p->l3 + p->length)
		return 1;
	p->l4 += size;
	p->proto = header.next;
	walk->bad = 0;
	return 0;
}

/* Finds the transport header after any extension headers. Returns 0, or the reason to drop. */
__noinline int find_transport(context *ctx, struct packet *p)
{
	struct extension_walk walk = { .ctx = ctx, .p = p };
	if (!p)
		return AB_REASON_MALFORMED;
	bpf_loop(EXTENSIONS_MAX, step_extension, &walk, 0);
	if (walk.bad)
		return walk.bad;
	return is_extension(p->proto) && !is_later_fragment(p) ? AB_REASON_MALFORMED : 0;
}

static __always_inline int parse_ipv6(context *ctx, struct packet *p, __u32 l3)
{
	struct cursor cursor;
	if (make_readable(ctx, PLAIN_ROOM6, &cursor))
		return AB_REASON_MALFORMED;
	struct ipv6hdr *ip = cursor.data + l3;
	if ((void *)(ip + 1) > cursor.end || ip->version != 6)
		return AB_REASON_MALFORMED;
	p->family = AB_IPV6;
	__u32 length = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (length > 0xffff || l3 + length > length_of(ctx))
		return AB_REASON_MALFORMED;
	p->length = length;
	p->l4 = l3 + sizeof(*ip);
	__builtin_memcpy(&p->src, &ip->saddr, sizeof(p->src));
	__builtin_memcpy(&p->dst, &ip->daddr, sizeof(p->dst));
	/* An IPv6 packet must not pass for IPv4. */
	if (ab_is_v4_mapped(&p->src) || ab_is_v4_mapped(&p->dst))
		return AB_REASON_MALFORMED;
	p->proto = ip->nexthdr;
	p->ttl = ip->hop_limit;
	p->dscp = ip->priority << 2 | ip->flow_lbl[0] >> 6;
	p->fragment = IP_DONT_FRAGMENT;
	if (is_extension(p->proto)) {
		int bad = find_transport(ctx, p);
		if (bad || make_readable(ctx, EXTENSIONS_END + sizeof(struct tcphdr), &cursor))
			return bad ?: AB_REASON_MALFORMED;
	}
	return parse_transport(p, cursor.data + bounded_l4(p), cursor.end, p->length - (p->l4 - l3));
}

/* Fills `p`. Returns 0, or the reason why the packet is not for the gateway or is malformed. */
static __always_inline int parse_packet(context *ctx, struct packet *p, __u32 l3)
{
	int bad = take_tags(ctx);
	if (bad)
		return bad;
	p->l3 = l3;
	if (protocol_of(ctx) == bpf_htons(ETH_P_IP))
		return parse_ipv4(ctx, p, l3);
	return protocol_of(ctx) == bpf_htons(ETH_P_IPV6) ? parse_ipv6(ctx, p, l3) : AB_REASON_NOT_IP;
}

#endif
