// SPDX-License-Identifier: MIT OR GPL-2.0-only
/*
 * The two ends of the packet race. `generate` runs under BPF_PROG_TEST_RUN with live frames: it writes the next
 * flow's frame over whatever the page held and sends it out of the client's device. `sink` stands at the ingress of
 * the ISPs' devices, counts the frames that arrive, as they are or inside others by IP in IP, and drops them.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

/* 64 bytes on the wire, less the frame check sequence. */
#define FRAME_LENGTH 60

struct frame {
	__u8 bytes[FRAME_LENGTH];
};

/* One per flow: its size is set by user space before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct frame);
} frames SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} arrived SEC(".maps");

const volatile __u32 flows;
const volatile __u32 device;
const volatile __u16 port;
static __u32 turn;

SEC("xdp")
int generate(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 flow = turn;
	turn = flow + 1 < flows ? flow + 1 : 0;
	const struct frame *frame = bpf_map_lookup_elem(&frames, &flow);
	if (!frame || data + FRAME_LENGTH > end)
		return XDP_ABORTED;
	__builtin_memcpy(data, frame, FRAME_LENGTH);
	return bpf_redirect(device, 0);
}

SEC("classifier")
int sink(struct __sk_buff *skb)
{
	void *data = (void *)(long)skb->data, *end = (void *)(long)skb->data_end;
	struct iphdr *ip = data + ETH_HLEN;
	__u32 zero = 0;
	if ((void *)(ip + 1) <= end && ip->protocol == IPPROTO_IPIP)
		ip++;
	struct udphdr *udp = (void *)(ip + 1);
	if ((void *)(udp + 1) > end || ip->protocol != IPPROTO_UDP || udp->dest != bpf_htons(port))
		return TC_ACT_UNSPEC;
	__u64 *count = bpf_map_lookup_elem(&arrived, &zero);
	if (count)
		(*count)++;
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
