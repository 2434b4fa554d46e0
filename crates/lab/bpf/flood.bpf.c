// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The two ends of a flood. `generate` runs under BPF_PROG_TEST_RUN, once per frame: it writes the template over the
 * packet, puts random values into the fields named, sums it up and sends a clone out of the attacker's device. Live
 * XDP frames would be cheaper each, but a call that makes them takes a fraction of a second to end, which is too coarse
 * to keep a pace. `sink` stands at the ingress of the ISPs' devices, where what the attack sends ends: it counts packets for
 * the attack's destinations, and those of them that still show a LAN source, and drops them, or answers in place of an
 * internet that helps the attacker. `collude` does the attacker's part of that.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* 64 bytes on the wire, less the frame check sequence. */
#define FRAME_LENGTH 60
#define L4_OFFSET (ETH_HLEN + sizeof(struct iphdr))
/* A TCP header with one option of four bytes, or another header and data. */
#define L4_LENGTH 24
#define PACKET_LENGTH (L4_OFFSET + L4_LENGTH)
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

struct range {
	/* Network byte order. */
	__be32 first;
	__be32 mask;
};

struct plan {
	__u32 frame[FRAME_LENGTH / 4];
	__u32 random;
	struct range sources;
	struct range destinations;
	/* Where the checksum of the transport stands in it; 0 if it has none. */
	__u32 checksum_at;
	/* The internet answers: a SYN by a SYN/ACK, a datagram by itself. */
	__u32 answered;
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

static __always_inline __be32 any_of(const volatile struct range *range)
{
	return range->first | (bpf_get_prandom_u32() & range->mask);
}

static __always_inline bool within(const volatile struct range *range, __be32 address)
{
	return (address & ~range->mask) == range->first;
}

/* Never one of the well-known ports, whose owners the gateway may protect. */
static __always_inline __be16 any_port(void)
{
	return bpf_htons((__u16)bpf_get_prandom_u32() | 1024);
}

static __always_inline void randomise(struct ethhdr *eth, struct iphdr *ip, __u8 *l4)
{
	__u32 random = plan.random;
	if (random & RANDOM_MAC)
		*(__u32 *)&eth->h_source[2] = bpf_get_prandom_u32();
	if (random & RANDOM_SOURCE)
		ip->saddr = any_of(&plan.sources);
	if (random & RANDOM_DESTINATION)
		ip->daddr = any_of(&plan.destinations);
	if (random & RANDOM_IP_ID)
		ip->id = bpf_get_prandom_u32();
	if (random & RANDOM_SOURCE_PORT)
		*(__be16 *)l4 = any_port();
	if (random & RANDOM_DESTINATION_PORT)
		*(__be16 *)(l4 + 2) = any_port();
	if (random & RANDOM_FIRST_WORD)
		*(__u32 *)(l4 + 4) = bpf_get_prandom_u32();
}

static __always_inline void sum_up(struct iphdr *ip, __u8 *l4, void *end)
{
	ip->check = 0;
	ip->check = folded(bpf_csum_diff(NULL, 0, (__be32 *)ip, sizeof(*ip), 0));
	__u32 at = plan.checksum_at;
	__be16 *check = (void *)(l4 + at);
	if (!at || at > L4_LENGTH - 2 || (void *)(check + 1) > end)
		return;
	*check = 0;
	__u64 sum = (__u32)bpf_csum_diff(NULL, 0, (__be32 *)l4, L4_LENGTH, 0);
	if (ip->protocol != IPPROTO_ICMP)
		sum += (__u64)ip->saddr + ip->daddr + bpf_htons(ip->protocol) + bpf_htons(L4_LENGTH);
	*check = folded(sum);
}

SEC("classifier")
int generate(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u8 *l4 = data + L4_OFFSET;
	if (data + FRAME_LENGTH > end)
		return TC_ACT_SHOT;
	for (int i = 0; i < FRAME_LENGTH / 4; i++)
		((__u32 *)data)[i] = plan.frame[i];
	randomise(data, ip, l4);
	sum_up(ip, l4, end);
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
	if (!plan.answered || bpf_skb_pull_data(skb, PACKET_LENGTH))
		return TC_ACT_SHOT;
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;
	__u8 *l4 = data + L4_OFFSET;
	if (data + PACKET_LENGTH > end)
		return TC_ACT_SHOT;
	if (ip->protocol == IPPROTO_TCP && !shake_hands(l4))
		return TC_ACT_SHOT;
	for (int i = 0; i < ETH_ALEN; i++)
		SWAP(eth->h_dest[i], eth->h_source[i]);
	SWAP(ip->saddr, ip->daddr);
	SWAP(*(__be16 *)l4, *(__be16 *)(l4 + 2));
	ip->ttl = 64;
	sum_up(ip, l4, end);
	return bpf_redirect(skb->ifindex, 0);
}

static __always_inline bool load_ip(struct __sk_buff *skb, struct iphdr *ip)
{
	return skb->protocol == bpf_htons(ETH_P_IP) && !bpf_skb_load_bytes(skb, ETH_HLEN, ip, sizeof(*ip));
}

SEC("classifier")
int sink(struct __sk_buff *skb)
{
	struct iphdr ip;
	if (!load_ip(skb, &ip) || !within(&plan.destinations, ip.daddr))
		return TC_ACT_UNSPEC;
	count(ARRIVED);
	if (within(&lan, ip.saddr))
		count(LEAKED);
	return answer(skb);
}

/* At the attacker's device: what comes back. */
SEC("classifier")
int collude(struct __sk_buff *skb)
{
	struct iphdr ip;
	if (!load_ip(skb, &ip) || !within(&plan.destinations, ip.saddr))
		return TC_ACT_UNSPEC;
	return ip.protocol == IPPROTO_TCP ? answer(skb) : TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
