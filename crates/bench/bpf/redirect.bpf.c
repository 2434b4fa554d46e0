// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The limit of the gateway's path: a packet loses a hop and is sent to one neighbour, whoever it is for. Nothing is looked up,
 * translated or counted. ICMPv6 is left to the kernel, which finds neighbours by it.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define AF_IPV4 2
#define AF_IPV6 10

const volatile __u32 device;
const volatile __be32 next_hop_ipv4;
const volatile struct {
	__be32 word[4];
} next_hop_ipv6;

/* RFC 1141, as the kernel does it. */
static void decrease_ttl(struct iphdr *ip)
{
	__u32 sum = ip->check + bpf_htons(0x0100);

	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
}

static int redirect_ipv4(void *header, void *end)
{
	struct bpf_redir_neigh hop = { .nh_family = AF_IPV4, .ipv4_nh = next_hop_ipv4 };
	struct iphdr *ip = header;

	if ((void *)(ip + 1) > end)
		return TC_ACT_UNSPEC;
	decrease_ttl(ip);
	return bpf_redirect_neigh(device, &hop, sizeof(hop), 0);
}

static int redirect_ipv6(void *header, void *end)
{
	struct bpf_redir_neigh hop = { .nh_family = AF_IPV6 };
	struct ipv6hdr *ip = header;

	if ((void *)(ip + 1) > end || ip->nexthdr == IPPROTO_ICMPV6)
		return TC_ACT_UNSPEC;
	for (int i = 0; i < 4; i++)
		hop.ipv6_nh[i] = next_hop_ipv6.word[i];
	ip->hop_limit--;
	return bpf_redirect_neigh(device, &hop, sizeof(hop), 0);
}

SEC("classifier")
int redirect(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct ethhdr *eth = data;

	if ((void *)(eth + 1) > end)
		return TC_ACT_UNSPEC;
	if (eth->h_proto == bpf_htons(ETH_P_IP))
		return redirect_ipv4(eth + 1, end);
	return eth->h_proto == bpf_htons(ETH_P_IPV6) ? redirect_ipv6(eth + 1, end) : TC_ACT_UNSPEC;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
