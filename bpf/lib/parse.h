/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The packet as the gateway sees it: one bounded pass over Ethernet, IPv4 and the first bytes of the transport header. */
#ifndef ANABRANCH_PARSE_H
#define ANABRANCH_PARSE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "../include/anabranch.h"
#include "../policy/inline.h"
#include "map.h"

/* RFC 792. Defined here because <linux/icmp.h> drags in the host's C library. */
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
	} un;
};

#define ICMP_ECHOREPLY 0
#define ICMP_DEST_UNREACH 3
#define ICMP_ECHO 8
#define ICMP_TIME_EXCEEDED 11
#define ICMP_PARAMETERPROB 12

#define ICMP_NET_UNREACH 0
#define ICMP_FRAG_NEEDED 4
#define ICMP_PKT_FILTERED 13
#define ICMP_EXC_TTL 0

#define VLAN_ID_MASK 0x0fff

#define IP_OPTION_END 0
#define IP_OPTION_NOP 1
#define IP_OPTION_LSRR 131
#define IP_OPTION_SSRR 137

#define IP_MORE_FRAGMENTS 0x2000
#define IP_DONT_FRAGMENT 0x4000
#define IP_OFFSET_MASK 0x1fff

#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

enum packet_kind {
	PACKET_FLOW,	   /* TCP, UDP or ICMP echo, with its ports */
	PACKET_ICMP_ERROR, /* about a packet of a flow */
	PACKET_OTHER,
};

/* What is known of a packet beside its headers. */
enum packet_flags {
	PACKET_ACCOUNTED = 1,  /* tail of a fragment whose span is known already */
	PACKET_TURNED = 2,     /* one LAN host's to another's external address, at the ingress of that one's link */
	PACKET_CALL = 4,       /* a turned SYN that opens nothing */
	PACKET_CHALLENGE = 8,  /* none of its flow's: of an earlier connection, to the SYN */
	PACKET_APART = 16,     /* of the mapping that is its remote end's alone */
	PACKET_PERMITTED = 32, /* to a remote end that its mapping hears */
};

struct packet {
	__u8 l3, l4; /* offsets of the headers */
	__u8 dscp;
	__be32 src, dst;
	__be16 sport, dport; /* ICMP echo: the id, in both */
	__u16 length;	     /* of the IP packet, as its header says */
	__u16 fragment;	     /* flags and offset, host order */
	__be16 id;
	__be16 new_id; /* under which it is sent on */
	__u8 proto;
	__u8 ttl;
	__u8 kind;	       /* enum packet_kind */
	__u8 icmp_type;	       /* ICMP only */
	__u8 tcp_flags;	       /* TCP with a header only */
	__u8 has_ports_header; /* false in fragments after the first */
	__u8 l4_header;	       /* bytes of the TCP or UDP header, 8 of ICMP */
	__u8 flags;	       /* enum packet_flags */
	__u32 mtu;	     /* of the device it does not fit, for the answer; from a link: the LAN devices' smallest */
	__u32 ifindex;	     /* LAN: where it came in */
	__u32 seq, ack, end; /* TCP, host order; end = seq + what this segment occupies */
};

AB_SCRATCH(packet_room, struct packet)

/* Where a program keeps what it learns of its packet: the stack has no room. */
static __always_inline struct packet *fresh_packet(void)
{
	struct packet *p = packet_room();
	if (p)
		__builtin_memset(p, 0, sizeof(*p));
	return p;
}

static __always_inline int is_fragment(const struct packet *p)
{
	return p->fragment & (IP_MORE_FRAGMENTS | IP_OFFSET_MASK);
}

static __always_inline int is_later_fragment(const struct packet *p)
{
	return p->fragment & IP_OFFSET_MASK;
}

/* Keeps the compiler from dropping the bounds check that follows: the verifier wants to see it. */
#define keep_bound(value) __asm__ volatile("" : "+r"(value))

/* `length`, which is 1 to `max`: Linux 6.1 learns no lower bound from a comparison with zero. */
static __always_inline __u32 bounded_length(__u32 length, __u32 max)
{
	__u32 last = length - 1;
	keep_bound(last);
	if (last >= max)
		last = max - 1;
	return last + 1;
}

/*
 * Functions that are not static are verified once, for any argument, instead of at every call and for every state it is
 * called in. The verifier knows the size of what their pointers lead to, not that it is there. Linux 6.1 does not take
 * such a pointer as key or value of a map: what a function gives to maps it finds in the scratch, or on its stack.
 */

/* Where a packet went through another function the verifier has forgotten how small its offsets are. */
static __always_inline __u32 bounded_l3(const struct packet *p)
{
	return p->l3 & 15;
}

static __always_inline __u32 bounded_l4(const struct packet *p)
{
	return p->l4 & 127;
}

static __always_inline void map_ipv4(union ab_addr *addr, __be32 v4)
{
	addr->word[0] = 0;
	addr->word[1] = 0;
	addr->word[2] = bpf_htonl(0xffff);
	addr->word[3] = v4;
}

static __always_inline int is_same_addr(const union ab_addr *a, const union ab_addr *b)
{
	return a->word[3] == b->word[3] && a->word[2] == b->word[2] && a->word[1] == b->word[1] &&
	       a->word[0] == b->word[0];
}

static __always_inline __u32 fold_addr(const union ab_addr *addr)
{
	return addr->word[0] ^ addr->word[1] ^ addr->word[2] ^ addr->word[3];
}

static __always_inline int is_icmp_error(__u8 type)
{
	return type == ICMP_DEST_UNREACH || type == ICMP_TIME_EXCEEDED || type == ICMP_PARAMETERPROB;
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

/* Judges `length` bytes of IP options behind a header that sums to `sum`. A function of its own, so that the verifier
 * walks what follows once and not once for every length. 0, or the reason to drop. */
__noinline int judge_options(struct __sk_buff *skb, __u32 at, __u32 length, __u64 sum)
{
	struct ip_options options = {};
	if (length == 0 || length > IP_OPTIONS_MAX ||
	    bpf_skb_load_bytes(skb, at, options.word, bounded_length(length, IP_OPTIONS_ROOM)))
		return AB_REASON_MALFORMED;
	for (__u32 i = 0; i < IP_OPTIONS_MAX / 4; i++)
		sum += options.word[i];
	if (fold_sum(sum) != 0xffff)
		return AB_REASON_BAD_CHECKSUM;
	options.length = length;
	bpf_loop(IP_OPTIONS_MAX, step_ip_option, &options, 0);
	return options.is_source_routed ? AB_REASON_SOURCE_ROUTED : 0;
}

/* The IPv4 header, options included, must sum to all ones (RFC 1071). 0, or the reason to drop. */
static __always_inline int judge_header(struct __sk_buff *skb, const struct iphdr *ip, __u32 l3)
{
	const __u32 *word = (const __u32 *)ip;
	__u64 sum = (__u64)word[0] + word[1] + word[2] + word[3] + word[4];
	if (ip->ihl > 5)
		return judge_options(skb, l3 + sizeof(*ip), ip->ihl * 4 - sizeof(*ip), sum);
	return fold_sum(sum) == 0xffff ? 0 : AB_REASON_BAD_CHECKSUM;
}

/* A tag names another device of the kernel's, unless it is a mere priority (IEEE 802.1Q: VLAN 0), which goes. 0, or the
 * reason to leave or drop the packet. */
static __always_inline int take_tag(struct __sk_buff *skb)
{
	if (!skb->vlan_present)
		return 0;
	if (skb->vlan_tci & VLAN_ID_MASK)
		return AB_REASON_TAGGED;
	return bpf_skb_vlan_pop(skb) ? AB_REASON_MALFORMED : 0;
}

/*
 * Bytes of headers that must be readable directly: Ethernet, IPv4, TCP without options; and the same with every IPv4
 * option. No more is asked for than is needed: a sender's segment has its headers alone before its pages, and reading
 * further would copy.
 */
#define PLAIN_ROOM (ETH_HLEN + sizeof(struct iphdr) + sizeof(struct tcphdr))
#define OPTIONS_ROOM (ETH_HLEN + 60 + sizeof(struct tcphdr))

/* Makes `room` bytes readable, or the whole packet if it is shorter. Packet pointers are void afterwards. */
static __always_inline int make_readable(struct __sk_buff *skb, __u32 room)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	__u32 wanted = skb->len < room ? skb->len : room;
	if (data + room <= end || data + wanted <= end)
		return 0;
	return bpf_skb_pull_data(skb, wanted);
}

/* Every segment acknowledges, but the first SYN and some RSTs; one is never two of SYN, RST and FIN (RFC 9293). */
static __always_inline int has_sane_flags(__u8 flags)
{
	__u8 begins_or_breaks = flags & (TCP_SYN | TCP_RST);
	if (!begins_or_breaks)
		return flags & TCP_ACK;
	return begins_or_breaks != (TCP_SYN | TCP_RST) && !(flags & TCP_FIN);
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
	p->end = p->seq + (l4_length - header) + !!(p->tcp_flags & TCP_SYN) + !!(p->tcp_flags & TCP_FIN);
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
	p->icmp_type = icmp->type;
	p->l4_header = sizeof(*icmp);
	if (icmp->type == ICMP_ECHO || icmp->type == ICMP_ECHOREPLY) {
		p->sport = p->dport = icmp->un.echo.id;
		p->kind = PACKET_FLOW;
	} else if (is_icmp_error(icmp->type)) {
		p->kind = PACKET_ICMP_ERROR;
	}
	return 0;
}

static __always_inline int parse_transport(struct packet *p, void *header, void *end, __u32 l4_length)
{
	p->kind = PACKET_OTHER;
	if (is_later_fragment(p)) {
		if (p->proto == IPPROTO_TCP || p->proto == IPPROTO_UDP || p->proto == IPPROTO_ICMP)
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
		return parse_icmp(p, header, end, l4_length);
	default:
		return 0;
	}
}

/* Fills `p`. 0, or the reason why the packet is not ours or not well formed. */
__noinline int parse_packet(struct __sk_buff *skb, struct packet *p, __u32 l3)
{
	if (!p)
		return AB_REASON_MALFORMED;
	l3 &= 15;
	int bad = take_tag(skb);
	if (bad)
		return bad;
	if (skb->protocol != bpf_htons(ETH_P_IP))
		return AB_REASON_NOT_IP;
	if (make_readable(skb, PLAIN_ROOM))
		return AB_REASON_MALFORMED;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + l3;
	if ((void *)(ip + 1) > end || ip->version != 4 || ip->ihl < 5)
		return AB_REASON_MALFORMED;
	if (ip->ihl > 5) {
		if (make_readable(skb, OPTIONS_ROOM))
			return AB_REASON_MALFORMED;
		data = (void *)(long)skb->data;
		end = (void *)(long)skb->data_end;
		ip = data + l3;
		if ((void *)(ip + 1) > end)
			return AB_REASON_MALFORMED;
	}
	__u32 header = ip->ihl * 4;
	p->length = bpf_ntohs(ip->tot_len);
	if (p->length < header || l3 + p->length > skb->len)
		return AB_REASON_MALFORMED;
	bad = judge_header(skb, ip, l3);
	if (bad)
		return bad;
	p->l3 = l3;
	p->l4 = l3 + header;
	p->src = ip->saddr;
	p->dst = ip->daddr;
	p->proto = ip->protocol;
	p->ttl = ip->ttl;
	p->dscp = ip->tos >> 2;
	p->id = p->new_id = ip->id;
	p->fragment = bpf_ntohs(ip->frag_off);
	return parse_transport(p, data + p->l4, end, p->length - header);
}

#endif
