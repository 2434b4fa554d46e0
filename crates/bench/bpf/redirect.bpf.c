// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The limit of the gateway's path: an IPv4 packet loses a hop and is sent to one neighbour, whoever it is for. Nothing is
 * looked up, translated or counted.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define IPV4 2 /* AF_INET */

const volatile __u32 device;
const volatile __be32 next_hop;

/* RFC 1141, as the kernel does it. */
static void decrease_ttl(struct iphdr *ip)
{
	__u32 sum = ip->check + bpf_htons(0x0100);

	ip->check = sum + (sum >= 0xffff);
	ip->ttl--;
}

SEC("classifier")
int redirect(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct bpf_redir_neigh hop = { .nh_family = IPV4, .ipv4_nh = next_hop };
	struct ethhdr *eth = data;
	struct iphdr *ip = data + ETH_HLEN;

	if ((void *)(ip + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP))
		return TC_ACT_UNSPEC;
	decrease_ttl(ip);
	return bpf_redirect_neigh(device, &hop, sizeof(hop), 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
