//! 64-byte UDP packets per second that the gateway forwards on one processor.
//!
//! Processor 0 makes the frames of the flows, in turn, inside the kernel (`BPF_PROG_TEST_RUN` of an XDP program with live
//! frames: no socket, no buffer allocation) and puts them into the ring of the gateway's LAN device, faster than
//! anybody takes them out. The gateway polls that device in a kernel thread (threaded NAPI) kept on processor 1, which
//! carries each packet through the gateway to the ISP's device, where a TC program counts and drops it. So the figure
//! is what one processor forwards; what does not fit is lost before the gateway sees it.

use std::net::SocketAddrV4;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use anabranch_dataplane::despite_signals;
use anabranch_frames::{sent_by, sent_to, udp};
use anabranch_testbed::netns::Namespace;
use anyhow::{Context, Result, ensure};
use aya::maps::{Array, PerCpuArray};
use aya::programs::tc::TcAttachOptions;
use aya::programs::{
    LinkOrder, SchedClassifier, TcAttachType, TestRun, TestRunAttrs, TestRunOptions, Xdp,
};
use aya::{Ebpf, EbpfLoader, Pod, include_bytes_aligned};

use super::Span;
use crate::cpu::{THIS_THREAD, pin};
use crate::testbed::{CLIENT, CLIENT_DEVICE, LAN_DEVICE, LINKS, Network, SERVER, isp_device};

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/packets.bpf.o"));

const FRAME_BYTES: usize = 60;
const FEW_FLOWS: u16 = 64;
const FIRST_PORT: u16 = 20_000;
const SINK_PORT: u16 = 9;
/// Frames per system call: about a quarter of a second.
const FRAMES_PER_CALL: u32 = 1 << 20;
const FRAMES_PER_BATCH: u32 = 64;

#[repr(transparent)]
#[derive(Clone, Copy)]
struct Frame([u8; FRAME_BYTES]);

// SAFETY: an array of bytes.
unsafe impl Pod for Frame {}

/// Packets per second of 64 flows of the client.
pub fn measure(network: &Network, span: Span) -> Result<f64> {
    let flows: Vec<_> = (0..FEW_FLOWS)
        .map(|flow| SocketAddrV4::new(CLIENT, FIRST_PORT + flow))
        .collect();
    measure_flows(network, &flows, span)
}

/// Packets per second of flows from these endpoints, in this order.
pub fn measure_flows(network: &Network, flows: &[SocketAddrV4], span: Span) -> Result<f64> {
    let mut programs = load(network, flows)?;
    attach_sinks(network, &mut programs)?;
    let arrived =
        PerCpuArray::<_, u64>::try_from(programs.take_map("arrived").context("map arrived")?)?;
    let generator: &Xdp = programs
        .program("generate")
        .context("program generate")?
        .try_into()?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let generating = scope.spawn(|| generate(generator, &network.client, &stop));
        thread::sleep(span.warm_up);
        let (start, before) = (Instant::now(), total(&arrived));
        thread::sleep(span.window);
        let (after, took) = (total(&arrived), start.elapsed());
        stop.store(true, Ordering::Relaxed);
        generating.join().expect("the generator does not panic")?;
        let packets = after? - before?;
        ensure!(packets > 0, "no packet reached the sink");
        Ok(packets as f64 / took.as_secs_f64())
    })
}

fn load(network: &Network, flows: &[SocketAddrV4]) -> Result<Ebpf> {
    let count = u32::try_from(flows.len())?;
    let device = network
        .client
        .run(|| nix::net::if_::if_nametoindex(CLIENT_DEVICE))??;
    let mut programs = EbpfLoader::new()
        .map_max_entries("frames", count)
        .override_global("flows", &count, true)
        .override_global("device", &device, true)
        .override_global("port", &SINK_PORT, true)
        .load(OBJECT)?;
    let mut frames =
        Array::<_, Frame>::try_from(programs.map_mut("frames").context("map frames")?)?;
    let (from, to) = (
        network.client.mac(CLIENT_DEVICE)?,
        network.gateway.mac(LAN_DEVICE)?,
    );
    for (index, &flow) in (0..).zip(flows) {
        frames.set(index, frame(from, to, flow), 0)?;
    }
    let generator: &mut Xdp = programs
        .program_mut("generate")
        .context("program generate")?
        .try_into()?;
    generator.load()?;
    Ok(programs)
}

/// The attachments end with `programs`.
fn attach_sinks(network: &Network, programs: &mut Ebpf) -> Result<()> {
    let sink: &mut SchedClassifier = programs
        .program_mut("sink")
        .context("program sink")?
        .try_into()?;
    sink.load()?;
    network.internet.run(|| -> Result<()> {
        for i in 0..LINKS {
            let options = TcAttachOptions::TcxOrder(LinkOrder::default());
            sink.attach_with_options(&isp_device(i), TcAttachType::Ingress, options)?;
        }
        Ok(())
    })?
}

fn total(arrived: &PerCpuArray<aya::maps::MapData, u64>) -> Result<u64> {
    Ok(arrived.get(&0, 0)?.iter().sum())
}

fn generate(generator: &Xdp, client: &Namespace, stop: &AtomicBool) -> Result<()> {
    let _inside = client.enter()?;
    pin(THIS_THREAD, 0)?;
    let room = [0; FRAME_BYTES];
    while !stop.load(Ordering::Relaxed) {
        let ran = despite_signals(|| {
            generator.test_run(TestRunOptions {
                data_in: Some(&room),
                repeat: FRAMES_PER_CALL,
                attrs: TestRunAttrs::new().xdp_live_frames(FRAMES_PER_BATCH),
                ..TestRunOptions::new()
            })
        });
        ran.context("generating packets")?;
    }
    Ok(())
}

fn frame(from_mac: [u8; 6], to_mac: [u8; 6], from: SocketAddrV4) -> Frame {
    let packet = udp(from, (SERVER, SINK_PORT), &[0; FRAME_BYTES - 42]);
    let frame = sent_by(from_mac, sent_to(to_mac, packet.frame()));
    Frame(frame.try_into().expect("the frame's length"))
}
