// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The two ends of a flood. `generate` runs under BPF_PROG_TEST_RUN, once per frame: it writes the template over the
 * packet, puts random values into the fields named, sums it up and sends a clone out of the attacker's device. Live
 * XDP frames would be cheaper each, but a call that makes them takes a fraction of a second to end, which is too coarse
 * to keep a pace. `sink` stands at the ingress of the ISPs' devices, where what the attack sends ends: it counts packets for
 * the attack's destinations, and those of them that still show a LAN source, and drops them, or answers in place of an
 * internet that helps the attacker. `collude` does the attacker's part of that.
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
static __always_inline void write_any(struct __sk_buff *skb, const volatile struct range *range, __u32 second)
{
	struct addr any;
	for (int i = 0; i < 4; i++)
		any.word[i] = range->first.word[i] | (bpf_get_prandom_u32() & range->mask.word[i]);
	if (plan.is_ipv6)
		bpf_skb_store_bytes(skb, ETH_HLEN + 8 + 16 * second, &any, sizeof(any), 0);
	else
		bpf_skb_store_bytes(skb, ETH_HLEN + 12 + 4 * second, &any.word[3], 4, 0);
}

static __always_inline void write_word(struct __sk_buff *skb, __u32 at, __u32 word, __u32 length)
{
	bpf_skb_store_bytes(skb, at, &word, length, 0);
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
	if (random & RANDOM_SOURCE)
		write_any(skb, &plan.sources, 0);
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
		bpf_skb_load_bytes(skb, ETH_HLEN + 8, addresses, 32);
	else
		bpf_skb_load_bytes(skb, ETH_HLEN + 12, addresses, 8);
	__u64 sum = (__u32)bpf_csum_diff(NULL, 0, addresses, sizeof(addresses), 0);
	return sum + bpf_htons(plan.protocol) + bpf_htons(plan.l4_length);
}

static __always_inline void sum_up(struct __sk_buff *skb)
{
	__u8 bytes[FRAME_MAX];
	__u32 at = plan.l4 + plan.checksum_at, header = plan.l4 - ETH_HLEN;
	if (!plan.is_ipv6) {
		write_word(skb, ETH_HLEN + offsetof(struct iphdr, check), 0, 2);
		bpf_skb_load_bytes(skb, ETH_HLEN, bytes, header);
		write_sum(skb, ETH_HLEN + offsetof(struct iphdr, check),
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
	if (!load_addresses(skb, &source, &destination) || !within(&plan.destinations, &destination))
		return TC_ACT_UNSPEC;
	count(ARRIVED);
	if (within(&lan, &source))
		count(LEAKED);
	return answer(skb);
}

/* At the attacker's device: what comes back. */
SEC("classifier")
int collude(struct __sk_buff *skb)
{
	struct addr source, destination;
	if (!load_addresses(skb, &source, &destination) || !within(&plan.destinations, &source))
		return TC_ACT_UNSPEC;
	return plan.protocol == IPPROTO_TCP ? answer(skb) : TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
