// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The two ends of a flood. `generate` runs under BPF_PROG_TEST_RUN, once per frame: it writes the template over the
 * packet, puts random values into the fields named, sums it up and sends a clone out of the attacker's device. Live
 * XDP frames would be cheaper each, but a call that makes them takes a fraction of a second to end, which is too coarse
 * to keep a pace. `sink` stands at the ingress of the ISPs' devices, where what the attack sends ends: it counts packets for
 * the attack's destinations, and those of them that still show a LAN source or bear a VLAN tag, and drops them, or answers in
 * place of an internet that helps the attacker; `serve` is a server behind the gateway. `collude` does the attacker's part of that, and answers for invented neighbours.
 */
#include <stddef.h>

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* An IPv6 header, extension headers of 48 bytes, and a transport header. */
#define FRAME_MAX 128
#define TCP_SYN 0x02
#define TCP_SYN_ACK 0x12
#define TCP_ACK 0x10

/* Which fields are random: as in attack/frame.rs. */
#define RANDOM_MAC 1
#define RANDOM_SOURCE 2
#define RANDOM_DESTINATION 4
#define RANDOM_SOURCE_PORT 8
#define RANDOM_DESTINATION_PORT 16
#define RANDOM_FIRST_WORD 32
#define RANDOM_IP_ID 64
#define RANDOM_HOST 128
#define RANDOM_TAG 256
#define SOURCES_IN_TURN 512

struct addr {
	/* Network byte order; of IPv4 the last. */
	__be32 word[4];
};

struct range {
	struct addr first;
	struct addr mask;
};

struct plan {
	__u8 frame[FRAME_MAX];
	__u32 random;
	struct range sources;
	struct range destinations;
	__u32 is_ipv6;
	__u32 length;
	/* Where the IP header is: behind the Ethernet header and the tags. */
	__u32 ip;
	/* Where the transport is, how long, and which it is. */
	__u32 l4;
	__u32 l4_length;
	__u32 protocol;
	/* The ports, of a quote where there is one, and the id; 0 if it has none. */
	__u32 ports;
	__u32 id;
	/* Where the checksum of the transport stands in it; 0 if it has none. */
	__u32 checksum_at;
	/* The internet answers: a SYN by a SYN/ACK, a datagram by itself. */
	__u32 answered;
	/* The attacker answers for the addresses of `sources`, as if all of them were its own. */
	__u32 claims_sources;
	/* The gateway changes destinations: the flood is known by its sources. */
	__u32 known_by_sources;
	/* As many sources take turns, of 2^15 ports each. */
	__u32 turns;
};

const volatile struct plan plan;
const volatile __u32 device;
const volatile struct range lan;

enum { MADE, ARRIVED, LEAKED, COUNTERS };

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

static __always_inline void count(__u32 counter)
{
	__u64 *value = bpf_map_lookup_elem(&counters, &counter);
	if (value)
		(*value)++;
}

static __always_inline __u16 folded(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + ((sum >> 16) & 0xffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return ~sum;
}

static __always_inline bool within(const volatile struct range *range, const struct addr *address)
{
	__u32 other = 0;
	for (int i = 0; i < 4; i++)
		other |= (address->word[i] & ~range->mask.word[i]) ^ range->first.word[i];
	return !other;
}

/* Writes the first or the second address of the header. */
static __always_inline void write_address(struct __sk_buff *skb, const struct addr *address, __u32 second)
{
	if (plan.is_ipv6)
		bpf_skb_store_bytes(skb, plan.ip + 8 + 16 * second, address, sizeof(*address), 0);
	else
		bpf_skb_store_bytes(skb, plan.ip + 12 + 4 * second, &address->word[3], 4, 0);
}

static __always_inline void write_any(struct __sk_buff *skb, const volatile struct range *range, __u32 second)
{
	struct addr any;
	for (int i = 0; i < 4; i++)
		any.word[i] = range->first.word[i] | (bpf_get_prandom_u32() & range->mask.word[i]);
	write_address(skb, &any, second);
}

static __always_inline void write_word(struct __sk_buff *skb, __u32 at, __u32 word, __u32 length)
{
	bpf_skb_store_bytes(skb, at, &word, length, 0);
}

/* One of eight hosts: its MAC and its address. */
static __always_inline void write_any_host(struct __sk_buff *skb)
{
	__u32 host = bpf_get_prandom_u32() & 7;
	struct addr address;
	for (int i = 0; i < 4; i++)
		address.word[i] = plan.sources.first.word[i];
	address.word[3] |= bpf_htonl(host);
	write_address(skb, &address, 0);
	write_word(skb, offsetof(struct ethhdr, h_source) + 5, host, 1);
}

/* Each of the sources comes again after the same time: half of all ports with one address, then with the next. */
static __always_inline void write_next_source(struct __sk_buff *skb)
{
	__u32 counter = MADE;
	__u64 *made = bpf_map_lookup_elem(&counters, &counter);
	__u32 turn = made && plan.turns ? *made % plan.turns : 0;
	struct addr next;
	for (int i = 0; i < 4; i++)
		next.word[i] = plan.sources.first.word[i];
	next.word[3] |= bpf_htonl(turn >> 15) & plan.sources.mask.word[3];
	write_address(skb, &next, 0);
	write_word(skb, plan.ports, bpf_htons(turn | 0x8000), 2);
}

/* Never one of the well-known ports, whose owners the gateway may protect. */
static __always_inline __be16 any_port(void)
{
	return bpf_htons((__u16)bpf_get_prandom_u32() | 1024);
}

static __always_inline void randomise(struct __sk_buff *skb)
{
	__u32 random = plan.random;
	if (random & RANDOM_MAC)
		write_word(skb, offsetof(struct ethhdr, h_source) + 2, bpf_get_prandom_u32(), 4);
	if (random & RANDOM_HOST)
		write_any_host(skb);
	/* Any priority, of VLAN 0, which is none, or of VLAN 1. */
	if (random & RANDOM_TAG)
		write_word(skb, ETH_HLEN, bpf_htons(bpf_get_prandom_u32() & 0xe001), 2);
	if (random & RANDOM_SOURCE)
		write_any(skb, &plan.sources, 0);
	if (random & SOURCES_IN_TURN)
		write_next_source(skb);
	if (random & RANDOM_DESTINATION)
		write_any(skb, &plan.destinations, 1);
	if (random & RANDOM_IP_ID && plan.id)
		write_word(skb, plan.id, bpf_get_prandom_u32(), plan.is_ipv6 ? 4 : 2);
	if (random & RANDOM_SOURCE_PORT)
		write_word(skb, plan.ports, any_port(), 2);
	if (random & RANDOM_DESTINATION_PORT)
		write_word(skb, plan.ports + 2, any_port(), 2);
	if (random & RANDOM_FIRST_WORD)
		write_word(skb, plan.l4 + 4, bpf_get_prandom_u32(), 4);
}

static __always_inline void write_sum(struct __sk_buff *skb, __u32 at, __u64 sum)
{
	write_word(skb, at, folded(sum), 2);
}

static __always_inline __u64 pseudo_sum(struct __sk_buff *skb)
{
	__be32 addresses[8] = {};
	if (!plan.is_ipv6 && plan.protocol == IPPROTO_ICMP)
		return 0;
	if (plan.is_ipv6)
		bpf_skb_load_bytes(skb, plan.ip + 8, addresses, 32);
	else
		bpf_skb_load_bytes(skb, plan.ip + 12, addresses, 8);
	__u64 sum = (__u32)bpf_csum_diff(NULL, 0, addresses, sizeof(addresses), 0);
	return sum + bpf_htons(plan.protocol) + bpf_htons(plan.l4_length);
}

static __always_inline void sum_up(struct __sk_buff *skb)
{
	__u8 bytes[FRAME_MAX];
	__u32 at = plan.l4 + plan.checksum_at, header = plan.l4 - plan.ip;
	if (!plan.is_ipv6) {
		write_word(skb, plan.ip + offsetof(struct iphdr, check), 0, 2);
		bpf_skb_load_bytes(skb, plan.ip, bytes, header);
		write_sum(skb, plan.ip + offsetof(struct iphdr, check),
			  (__u32)bpf_csum_diff(NULL, 0, (__be32 *)bytes, header, 0));
	}
	if (!plan.checksum_at)
		return;
	write_word(skb, at, 0, 2);
	bpf_skb_load_bytes(skb, plan.l4, bytes, plan.l4_length);
	write_sum(skb, at, pseudo_sum(skb) + (__u32)bpf_csum_diff(NULL, 0, (__be32 *)bytes, plan.l4_length, 0));
}

SEC("classifier")
int generate(struct __sk_buff *skb)
{
	bpf_skb_store_bytes(skb, 0, (const void *)plan.frame, plan.length, 0);
	randomise(skb);
	sum_up(skb);
	count(MADE);
	bpf_clone_redirect(skb, device, 0);
	return TC_ACT_OK;
}

#define SWAP(a, b)                                                                                                     \
	do {                                                                                                           \
		typeof(a) was = a;                                                                                     \
		a = b;                                                                                                 \
		b = was;                                                                                               \
	} while (0)

/* The next step of a handshake, for whoever receives a SYN or a SYN/ACK. */
static __always_inline bool shake_hands(__u8 *tcp)
{
	__be32 *sequence = (void *)(tcp + 4), *acknowledgement = (void *)(tcp + 8);
	__be32 next = bpf_htonl(bpf_ntohl(*sequence) + 1);
	bool syn = tcp[13] == TCP_SYN;
	if (!syn && tcp[13] != TCP_SYN_ACK)
		return false;
	*sequence = syn ? bpf_get_prandom_u32() : *acknowledgement;
	*acknowledgement = next;
	tcp[13] = syn ? TCP_SYN_ACK : TCP_ACK;
	return true;
}

/* Turns a packet of the flood into what the other side would answer, and sends it back. */
static __always_inline int answer(struct __sk_buff *skb)
{
	__u32 whole = plan.l4 + plan.l4_length;
	if (!plan.answered || bpf_skb_pull_data(skb, whole))
		return TC_ACT_SHOT;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	__u8 *ip = data + ETH_HLEN, *l4 = data + plan.l4;
	if (data + whole > end || l4 + 14 > (__u8 *)end || ip + sizeof(struct ipv6hdr) > (__u8 *)end)
		return TC_ACT_SHOT;
	if (plan.protocol == IPPROTO_TCP && !shake_hands(l4))
		return TC_ACT_SHOT;
	for (int i = 0; i < ETH_ALEN; i++)
		SWAP(eth->h_dest[i], eth->h_source[i]);
	if (plan.is_ipv6) {
		for (int i = 8; i < 24; i++)
			SWAP(ip[i], ip[i + 16]);
		ip[7] = 64;
	} else {
		for (int i = 12; i < 16; i++)
			SWAP(ip[i], ip[i + 4]);
		ip[8] = 64;
	}
	SWAP(*(__be16 *)l4, *(__be16 *)(l4 + 2));
	sum_up(skb);
	return bpf_redirect(skb->ifindex, 0);
}

/* Source and destination of a packet of the flood's family. */
static __always_inline bool load_addresses(struct __sk_buff *skb, struct addr *source, struct addr *destination)
{
	__builtin_memset(source, 0, sizeof(*source));
	__builtin_memset(destination, 0, sizeof(*destination));
	if (plan.is_ipv6)
		return skb->protocol == bpf_htons(ETH_P_IPV6) && !bpf_skb_load_bytes(skb, ETH_HLEN + 8, source, 16) &&
		       !bpf_skb_load_bytes(skb, ETH_HLEN + 24, destination, 16);
	return skb->protocol == bpf_htons(ETH_P_IP) && !bpf_skb_load_bytes(skb, ETH_HLEN + 12, &source->word[3], 4) &&
	       !bpf_skb_load_bytes(skb, ETH_HLEN + 16, &destination->word[3], 4);
}

SEC("classifier")
int sink(struct __sk_buff *skb)
{
	struct addr source, destination;
	/* Nobody here has VLANs: it is the attack's. The kernel has taken the first tag out of the frame. */
	if (skb->vlan_present) {
		count(LEAKED);
		return TC_ACT_SHOT;
	}
	if (!load_addresses(skb, &source, &destination) ||
	    !(plan.known_by_sources ? within(&plan.sources, &source) : within(&plan.destinations, &destination)))
		return TC_ACT_UNSPEC;
	count(ARRIVED);
	if (!plan.known_by_sources && within(&lan, &source))
		count(LEAKED);
	return answer(skb);
}

/* At a server's device behind the gateway: answers at once. */
SEC("classifier")
int serve(struct __sk_buff *skb)
{
	struct addr source, destination;
	if (!load_addresses(skb, &source, &destination) || !within(&plan.destinations, &destination))
		return TC_ACT_UNSPEC;
	return answer(skb);
}

/* An ARP packet behind its types and lengths. */
struct arp {
	__be16 operation;
	__u8 sender[ETH_ALEN];
	__be32 sender_ip;
	__u8 target[ETH_ALEN];
	__be32 target_ip;
} __attribute__((packed));

#define ARP_AT (ETH_HLEN + 6)
#define ARP_REQUEST 1
#define ARP_REPLY 2

/* A neighbour solicitation, or the advertisement that answers it, with the address of a network card as its option. */
struct neighbour {
	struct ipv6hdr ip;
	__u8 type;
	__u8 code;
	__be16 check;
	__be32 flags;
	struct addr target;
	__u8 option;
	__u8 words;
	__u8 mac[ETH_ALEN];
};

#define SOLICITATION 135
#define ADVERTISEMENT 136
#define SOLICITED_AND_OVERRIDES 0x60000000
#define TARGET_OPTION 2

static __always_inline void copy_mac(__u8 *to, const volatile __u8 *from)
{
	for (int i = 0; i < ETH_ALEN; i++)
		to[i] = from[i];
}

/* From the attacker's card to that of who asked. */
static __always_inline int send_back(struct __sk_buff *skb, const __u8 *own)
{
	__u8 asker[ETH_ALEN];
	bpf_skb_load_bytes(skb, ETH_ALEN, asker, ETH_ALEN);
	bpf_skb_store_bytes(skb, 0, asker, ETH_ALEN, 0);
	bpf_skb_store_bytes(skb, ETH_ALEN, own, ETH_ALEN, 0);
	return bpf_redirect(skb->ifindex, 0);
}

static __always_inline int answer_arp(struct __sk_buff *skb, const __u8 *own)
{
	struct arp arp;
	struct addr wanted = {};
	if (bpf_skb_load_bytes(skb, ARP_AT, &arp, sizeof(arp)) || arp.operation != bpf_htons(ARP_REQUEST))
		return TC_ACT_UNSPEC;
	wanted.word[3] = arp.target_ip;
	if (!within(&plan.sources, &wanted))
		return TC_ACT_UNSPEC;
	arp.operation = bpf_htons(ARP_REPLY);
	copy_mac(arp.target, arp.sender);
	copy_mac(arp.sender, own);
	arp.target_ip = arp.sender_ip;
	arp.sender_ip = wanted.word[3];
	bpf_skb_store_bytes(skb, ARP_AT, &arp, sizeof(arp), 0);
	return send_back(skb, own);
}

static __always_inline int answer_solicitation(struct __sk_buff *skb, const __u8 *own)
{
	struct neighbour nd;
	if (bpf_skb_load_bytes(skb, ETH_HLEN, &nd, sizeof(nd)) || nd.ip.nexthdr != IPPROTO_ICMPV6 ||
	    nd.type != SOLICITATION || !within(&plan.sources, &nd.target))
		return TC_ACT_UNSPEC;
	nd.ip.daddr = nd.ip.saddr;
	__builtin_memcpy(&nd.ip.saddr, &nd.target, sizeof(nd.target));
	nd.type = ADVERTISEMENT;
	nd.flags = bpf_htonl(SOLICITED_AND_OVERRIDES);
	nd.option = TARGET_OPTION;
	copy_mac(nd.mac, own);
	nd.check = 0;
	__u32 summed = sizeof(nd) - offsetof(struct neighbour, ip.saddr);
	__u64 sum = (__u32)bpf_csum_diff(NULL, 0, (__be32 *)&nd.ip.saddr, summed, 0);
	nd.check = folded(sum + bpf_htons(IPPROTO_ICMPV6) + bpf_htons(sizeof(nd) - sizeof(nd.ip)));
	bpf_skb_store_bytes(skb, ETH_HLEN, &nd, sizeof(nd), 0);
	return send_back(skb, own);
}

/* Says that the address asked for is the attacker's, if it is one of those that its frames come from. */
static __always_inline int claim(struct __sk_buff *skb)
{
	__u8 own[ETH_ALEN];
	copy_mac(own, plan.frame + ETH_ALEN);
	return plan.is_ipv6 ? answer_solicitation(skb, own) : answer_arp(skb, own);
}

static __always_inline bool asks_for_neighbour(struct __sk_buff *skb)
{
	return plan.claims_sources && skb->protocol == (plan.is_ipv6 ? bpf_htons(ETH_P_IPV6) : bpf_htons(ETH_P_ARP));
}

/* At the attacker's device: what comes back. */
SEC("classifier")
int collude(struct __sk_buff *skb)
{
	struct addr source, destination;
	if (asks_for_neighbour(skb))
		return claim(skb);
	if (!load_addresses(skb, &source, &destination) || !within(&plan.destinations, &source))
		return TC_ACT_UNSPEC;
	return plan.protocol == IPPROTO_TCP ? answer(skb) : TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
